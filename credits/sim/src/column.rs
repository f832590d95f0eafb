//! The columns of the table that is recorded for the documentation.

use clap::ValueEnum;
use credits::Growth;
use sim::command::whole;

use crate::show::{bytes, optional, steps};
use crate::{Report, Scheme};

/// A column of the table that `--record` prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Column {
    /// Pattern of the traffic
    Pattern,
    /// Ranks in the job
    Ranks,
    /// Bytes of a chunk
    Chunk,
    /// Credits lent to each rank at the start
    Lent,
    /// Credits banked at the start
    Banked,
    /// Memory of a rank for buffers and events
    Memory,
    /// Most credits lent to one peer
    Most,
    /// How much a stalled request asks for
    Growth,
    /// Peers asked in an epoch
    Pace,
    /// Whether what was used in the epoch before is kept
    Hold,
    /// Speed when calm, the mean of the rotations
    Speed,
    /// Speed when calm of the worst rotation
    Worst,
    /// Speed of the first step of the worst rotation
    First,
    /// Steps until calm
    Calm,
    /// Steps until at rest
    Rest,
    /// Requests of 1,000 that waited for credits when calm, in the worst rotation
    Stalls,
    /// SYS messages for 1,000 requests until calm
    System,
    /// SYS messages for 1,000 requests in the worst step
    SystemWorst,
    /// SYS messages for 1,000 requests when calm
    SystemCalm,
    /// The largest loan
    Loan,
}

impl Column {
    /// Returns the column's title and its text for a run.
    pub(crate) fn of(self, report: &Report) -> (&'static str, String) {
        let (config, summary) = (&report.config, &report.summary);
        let none = || "-".to_owned();
        let count = |count: Option<u64>| count.map_or_else(none, |count| whole(count as f64));
        let (banked, tuning) = match &config.scheme {
            Scheme::Dynamic { banked, tuning, .. } => (Some(u64::from(*banked)), Some(tuning)),
            _ => (None, None),
        };
        match self {
            Self::Pattern => ("pattern", config.pattern.name()),
            Self::Ranks => ("ranks", count(Some(config.ranks.into()))),
            Self::Chunk => ("chunk", bytes(config.scale.chunk().into())),
            Self::Lent => ("lent", count(config.scheme.credits().map(u64::from))),
            Self::Banked => ("banked", count(banked)),
            Self::Memory => (
                "memory",
                report.space.map_or_else(none, |space| bytes(space.bytes)),
            ),
            Self::Most => (
                "most per peer",
                count(tuning.map(|tuning| tuning.max_per_peer.into())),
            ),
            Self::Growth => (
                "growth",
                tuning.map_or_else(none, |tuning| match tuning.growth {
                    Growth::Missing => "missing".to_owned(),
                    Growth::Doubling => "doubling".to_owned(),
                }),
            ),
            Self::Pace => (
                "pace",
                match tuning.map(|tuning| tuning.revokes_per_epoch) {
                    None | Some(u32::MAX) => none(),
                    Some(pace) => pace.to_string(),
                },
            ),
            Self::Hold => (
                "hold",
                match tuning.is_some_and(|tuning| tuning.hold) {
                    true => "yes",
                    false => "no",
                }
                .to_owned(),
            ),
            Self::Speed => ("speed", optional(summary.speed, 3)),
            Self::Worst => ("worst rotation", optional(summary.speed_worst, 3)),
            Self::First => ("worst first step", optional(summary.speed_first, 3)),
            Self::Calm => ("steps to calm", steps(summary.steps_until_calm)),
            Self::Rest => ("to rest", steps(summary.steps_until_rest)),
            Self::Stalls => {
                let rotations = report.rotations.iter().map(|one| one.stalls);
                let worst = rotations.fold(0.0, f64::max);
                ("stalls for 1,000 requests then", format!("{worst:.1}"))
            }
            Self::System => (
                "SYS for 1,000 requests until calm",
                format!("{:.1}", summary.system_adapting),
            ),
            Self::SystemWorst => ("worst step", format!("{:.1}", summary.system_worst)),
            Self::SystemCalm => ("when calm", optional(summary.system_calm, 1)),
            Self::Loan => ("largest loan", count(summary.largest_loan)),
        }
    }
}
