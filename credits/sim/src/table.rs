//! The results as a table for the documentation.

use std::io::{self, Write};

use sim::Progress;

use crate::show::{bytes, optional, steps};
use crate::{Config, EqualStatic, Load, Report, Scheme, SimError, Space, equal_static, run};

/// The maximum number of ranks in the jobs in which static credits are searched for. Small jobs
/// suffice, because the needs of one pair of ranks do not depend on the others.
const SEARCH: u32 = 1_000;

/// The results for one configuration.
#[derive(Clone, Debug)]
pub struct Row {
    /// The run with dynamic credits.
    pub report: Report,
    /// Static credits that are equally fast.
    pub equal: Option<EqualStatic>,
    /// Whether the speed with static credits was simulated in a job of full size rather than in one
    /// of the size used for the search.
    pub verified: bool,
}

/// Runs a configuration, and searches for static credits that are equally fast. If the job has at
/// most `verify` ranks, these are simulated at full size as well.
///
/// # Errors
/// Same as [`run`].
pub fn row(config: &Config, verify: u32, progress: &Progress) -> Result<Row, SimError> {
    let report = run(config, progress)?;
    // Speeds above 0.98 differ only by chance, so static credits need not exceed that.
    let speed = report.summary.speed.unwrap_or(1.0).min(0.98);
    let ranks = config.ranks.min(SEARCH);
    let small = Config {
        ranks,
        load: Load {
            // Each hot rank has about as many senders as in the full job.
            hot: scaled(config.load.hot, ranks, config.ranks).max(1),
            ..config.load.clone()
        },
        scheme: Scheme::Static {
            credits: config.scheme.credits().unwrap_or(u16::MAX),
        },
        ..config.clone()
    };
    let mut equal = equal_static(&small, speed, progress)?;
    let verified = config.ranks <= verify;
    if let Some(equal) = &mut equal {
        equal.space = Space::new(config.ranks, config.scale, equal.credits, 0);
        if verified && config.ranks > small.ranks {
            let fixed = Config {
                scheme: Scheme::Static {
                    credits: equal.credits,
                },
                rotations: 1,
                steps: config.steps.min(3),
                ..config.clone()
            };
            equal.speed = run(&fixed, progress)?.summary.speed.unwrap_or(0.0);
        }
    }
    Ok(Row {
        report,
        equal,
        verified,
    })
}

/// Scales a count that belongs to a job of `all` ranks to a job of `some` ranks.
fn scaled(count: u32, some: u32, all: u32) -> u32 {
    (u64::from(count) * u64::from(some) / u64::from(all.max(1))) as u32
}

/// Writes rows as a Markdown table.
///
/// # Errors
/// Fails if `out` cannot be written.
pub fn markdown(out: &mut impl Write, rows: &[Row]) -> io::Result<()> {
    writeln!(
        out,
        "| ranks | pattern | static: per peer | memory | speed | moving: lent + banked | memory | speed | first step \
         | steps to calm | epochs to calm | steps to rest | epochs to rest | SYS/1000 | worst step | when calm \
         | largest loan |"
    )?;
    writeln!(
        out,
        "|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
    )?;
    for row in rows {
        let summary = &row.report.summary;
        let config = &row.report.config;
        let (per_peer, memory, speed) = match &row.equal {
            None => ("-".to_owned(), "-".to_owned(), "-".to_owned()),
            Some(equal) => (
                equal.credits.to_string(),
                bytes(equal.space.bytes),
                format!("{:.3}{}", equal.speed, if row.verified { "" } else { "*" }),
            ),
        };
        let own = row.report.space;
        let lent = config.scheme.credits().unwrap_or(0);
        let banked = own.map_or(0, |space| {
            space.credits - u64::from(lent) * u64::from(config.ranks)
        });
        writeln!(
            out,
            "| {} | {} | {per_peer} | {memory} | {speed} | {lent} + {banked} | {} | {} | {} | {} | {} | {} | {} | {:.2} | {:.2} \
             | {} | {} |",
            config.ranks,
            config.pattern.name(),
            own.map_or_else(|| "-".to_owned(), |space| bytes(space.bytes)),
            optional(summary.speed, 3),
            optional(summary.speed_first, 3),
            steps(summary.steps_until_calm),
            optional(summary.epochs_until_calm, 1),
            steps(summary.steps_until_rest),
            optional(summary.epochs_until_rest, 1),
            summary.system_adapting,
            summary.system_worst,
            optional(summary.system_calm, 2),
            summary
                .largest_loan
                .map_or_else(|| "-".to_owned(), |loan| loan.to_string()),
        )?;
    }
    if rows.iter().any(|row| !row.verified) {
        writeln!(
            out,
            "\n\\* in a job of {SEARCH} ranks, because a job of full size would take too long to simulate."
        )?;
    }
    Ok(())
}
