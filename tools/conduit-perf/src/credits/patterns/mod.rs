//! A measurement of whether credits move where they are needed. Ranks send in changing patterns,
//! deliberately with few credits. Jobs with dynamic credits, with the same number of static
//! credits, and without flow control alternate.
//!
//! There are more ranks than cores, so a job's speed depends on which ranks share one. Each rank is
//! therefore pinned to a core, which is the same in all jobs. If the system places the ranks, two
//! jobs of the same kind differ by a factor of up to two; with pinned ranks, they differ by about a
//! tenth. A job is compared with the one without flow control of the same round, and the result is
//! the median of many rounds.

mod pattern;
mod rank;

use clap::Args;
use comfy_table::Table;
use indicatif::ProgressBar;
use serde::Serialize;

pub use pattern::Pattern;
use rank::Found;
pub(crate) use rank::{Work, run as run_rank};

use super::{Policy, Ratios, job};
use crate::job::Order;
use crate::report;

/// The smallest acceptable fraction of the speed without flow control.
const LEAST: f64 = 0.9;

/// The parameters of the measurement.
#[derive(Clone, Debug, Args)]
pub struct Options {
    #[command(flatten)]
    format: report::Format,
    /// Exit with 1 unless dynamic credits reach 0.9 of the speed without flow control everywhere
    #[arg(long)]
    check: bool,
    /// Numbers of ranks
    #[arg(long, value_delimiter = ',', default_value = "8,16", value_parser = clap::value_parser!(u32).range(2..=256))]
    ranks: Vec<u32>,
    /// Patterns
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "chain,oddpoll,pairs"
    )]
    patterns: Vec<Pattern>,
    /// Credits lent to each peer at the start
    #[arg(long, default_value_t = 6)]
    credits: u32,
    /// Credits that each rank banks; without dynamic credits they are distributed as well
    #[arg(long, default_value_t = 640)]
    bank: u32,
    /// Jobs of each kind, a quarter as many with static credits; the median counts [default: 9 for
    /// each rank]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,
    /// Sets of partners
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rotations: u32,
    /// Steps of a rotation in which credits may move
    #[arg(long, default_value_t = 100)]
    warm: u32,
    /// Steps of a rotation that are measured
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
    steps: u32,
    /// Full mediums of 1 KiB to each partner in a step
    #[arg(long, default_value_t = 80, value_parser = clap::value_parser!(u32).range(1..))]
    messages: u32,
    /// Let the system place the ranks instead of pinning them to cores: single jobs then differ by
    /// a factor of two
    #[arg(long)]
    unpinned: bool,
}

impl Options {
    /// Returns the number of rounds. It grows with the number of ranks, because jobs differ more if
    /// more ranks share a core.
    fn rounds(&self, ranks: u32) -> u32 {
        self.rounds.unwrap_or(9 * ranks)
    }
}

/// A figure.
#[derive(Clone, Copy, Debug, Serialize)]
struct Figure {
    pattern: Pattern,
    ranks: u32,
    policy: Policy,
    #[serde(flatten)]
    ratios: Ratios,
    #[serde(flatten)]
    found: Found,
}

/// Measures and prints the results. Returns `false` if a check failed.
///
/// # Errors
/// Fails if a job fails.
pub fn run(options: &Options) -> anyhow::Result<bool> {
    let kinds: Vec<(Pattern, u32)> = options
        .patterns
        .iter()
        .flat_map(|&pattern| options.ranks.iter().map(move |&ranks| (pattern, ranks)))
        .collect();
    let rounds = kinds
        .iter()
        .flat_map(|&(_, ranks)| 0..options.rounds(ranks));
    let bar = ProgressBar::new(rounds.map(|at| round(at).len() as u64).sum());
    let mut figures = Vec::new();
    for (pattern, ranks) in kinds {
        let mut rounds = Vec::new();
        for at in 0..options.rounds(ranks) {
            let mut found = Vec::new();
            for policy in round(at) {
                found.push((policy, pattern_job(options, pattern, ranks, policy)?));
                bar.inc(1);
            }
            rounds.push(found);
        }
        for policy in Policy::ALL {
            let of = |found: &[(Policy, Found)], policy| {
                let one = found.iter().find(|(other, _)| *other == policy);
                one.map(|&(_, found)| found)
            };
            let pairs = rounds.iter().filter_map(|found| {
                let bare = of(found, Policy::Unlimited)?;
                let found = of(found, policy)?;
                Some((found.rate / bare.rate, found))
            });
            let (ratios, mut found): (Vec<f64>, Vec<Found>) = pairs.unzip();
            found.sort_by(|a, b| a.rate.total_cmp(&b.rate));
            figures.push(Figure {
                pattern,
                ranks,
                policy,
                ratios: Ratios::of(ratios),
                // The list has an element, because the first round has a job of each kind.
                found: found.get(found.len() / 2).copied().unwrap_or_default(),
            });
        }
    }
    bar.finish_and_clear();
    let below = format!(
        "{} credits a peer and {} banked by each rank; {} full mediums of 1 KiB at a time cost {}; rounds: {}.\n",
        options.credits,
        options.bank,
        options.messages,
        4 * options.messages,
        options
            .rounds
            .map_or_else(|| "9 for each rank".to_owned(), |rounds| rounds.to_string())
    );
    options.format.print(&figures, &table(&figures), below)?;
    let good = |figure: &Figure| figure.policy != Policy::Dynamic || figure.ratios.ratio >= LEAST;
    Ok(!options.check || figures.iter().all(good))
}

/// Returns the jobs of a round in their order, which alternates so that no kind is always first.
/// Static credits have a job only in every fourth round, because their results are not checked
/// against a threshold.
fn round(at: u32) -> Vec<Policy> {
    let mut jobs = vec![Policy::Unlimited, Policy::Dynamic];
    if at.is_multiple_of(4) {
        jobs.push(Policy::Static);
    }
    if at % 2 == 1 {
        jobs.reverse();
    }
    jobs
}

fn table(figures: &[Figure]) -> Table {
    let head = [
        "pattern",
        "ranks",
        "flow control",
        "M/s",
        "of unlimited",
        "quarters",
        "first step M/s",
        "lent: active",
        "idle",
        "stalls/1000: adapting, then",
        "revoked/1000",
    ];
    let rows = figures.iter().map(|figure| {
        let Ratios {
            ratio,
            quarter,
            three_quarters,
        } = figure.ratios;
        let found = &figure.found;
        [
            format!("{:?}", figure.pattern).to_lowercase(),
            figure.ranks.to_string(),
            format!("{:?}", figure.policy).to_lowercase(),
            format!("{:.2}", found.rate / 1e6),
            format!("{ratio:.3}"),
            format!("{quarter:.2} to {three_quarters:.2}"),
            format!("{:.2}", found.first_rate / 1e6),
            credits(found.active),
            credits(found.idle),
            pair(found.stalls),
            pair(found.revoked),
        ]
    });
    report::table(head, rows)
}

/// Formats two values: the one while credits may move, and the one in the measured steps.
fn pair([first, then]: [f64; 2]) -> String {
    format!("{first:.1} {then:6.1}")
}

fn credits(credits: Option<f64>) -> String {
    credits.map_or_else(|| "-".to_owned(), |credits| format!("{credits:.1}"))
}

/// Runs one job.
fn pattern_job(
    options: &Options,
    pattern: Pattern,
    ranks: u32,
    policy: Policy,
) -> anyhow::Result<Found> {
    let order = Order::Patterns(Work {
        pattern,
        policy,
        rotations: options.rotations,
        warm: options.warm,
        measured: options.steps,
        messages: options.messages,
        pinned: !options.unpinned,
    });
    let settings = [
        ("CONDUIT_CHUNK", "1K".to_owned()),
        // Buffers are small, so that rounding up to whole buffers adds few credits.
        ("CONDUIT_REQUEST_BUFFER", "8K".to_owned()),
        ("GASNET_PORTAL_MAX_CRED_PER_NODE", "640".to_owned()),
        ("GASNET_PORTAL_CRED_PER_NODE", options.credits.to_string()),
        ("GASNET_PORTAL_BANKED_CREDITS", options.bank.to_string()),
    ];
    job(ranks, policy, &order, &settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_round_compares_and_both_orders_are_as_frequent() {
        assert_eq!(round(0).len(), 3);
        let mut first = 0;
        for at in 0..40 {
            let jobs = round(at);
            let place = |policy| jobs.iter().position(|&job| job == policy);
            let (bare, dynamic) = (place(Policy::Unlimited), place(Policy::Dynamic));
            assert!(bare.is_some() && dynamic.is_some());
            first += u32::from(bare < dynamic);
            assert_eq!(place(Policy::Static).is_some(), at % 4 == 0);
        }
        assert_eq!(first, 20);
    }
}
