//! The cost of flow control, measured as the rate of a flood of shorts from one rank to another, in
//! jobs with and without flow control.
//!
//! With few credits (`--credits 200`), the figure includes two effects: the bookkeeping, and the
//! limit on how far ahead the sender can be. With the default credits of such a small job, only the
//! bookkeeping remains.
//!
//! Two jobs cannot share their memory, and the location of a job's memory changes a rate by some
//! percent. Therefore there are many short jobs, and the result is the median of the ratios of
//! neighbouring jobs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use clap::Args;
use conduit::Handlers;
use indicatif::ProgressBar;
use serde::{Deserialize, Serialize};

use super::{Policy, Ratios, job, median};
use crate::job::{Order, tell};
use crate::placement::{Cores, Placement};
use crate::report;

/// The smallest acceptable fraction of the rate without flow control.
const LEAST: f64 = 0.97;

/// The parameters of the measurement.
#[derive(Clone, Debug, Args)]
pub struct Options {
    #[command(flatten)]
    format: report::Format,
    /// Exit with 1 if flow control costs more than 3 % of the rate
    #[arg(long)]
    check: bool,
    /// Jobs of each kind
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Floods in a job; the fastest one counts
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    floods: u32,
    /// Initial and maximum credits of each peer [default: depends on the job's size]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=65_535))]
    credits: Option<u32>,
    /// Shorts in a flood
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..))]
    messages: u32,
}

/// The parameters of a job.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Flood {
    floods: u32,
    messages: u32,
}

/// The result of a job.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Found {
    /// The number of shorts per second.
    rate: f64,
    /// The number of the sender's stalls per 1,000 requests.
    stalls: f64,
}

/// A figure.
#[derive(Clone, Copy, Debug, Serialize)]
struct Figure {
    policy: Policy,
    /// The number of shorts per second, as the median of the jobs.
    rate: f64,
    #[serde(flatten)]
    ratios: Ratios,
    /// The number of the sender's stalls per 1,000 requests, as the median of the jobs.
    stalls: f64,
}

/// Measures and prints the results. Returns `false` if a check failed.
///
/// # Errors
/// Fails if a job fails.
pub fn run(options: &Options) -> anyhow::Result<bool> {
    let bar = ProgressBar::new(u64::from(options.rounds) * Policy::ALL.len() as u64);
    let mut found = [const { Vec::new() }; Policy::ALL.len()];
    let order = Order::Flood(Flood {
        floods: options.floods,
        messages: options.messages,
    });
    let settings: Vec<_> = [
        "GASNET_PORTAL_CRED_PER_NODE",
        "GASNET_PORTAL_MAX_CRED_PER_NODE",
    ]
    .into_iter()
    .filter_map(|name| Some((name, options.credits?.to_string())))
    .collect();
    for round in 0..options.rounds {
        let mut kinds: Vec<_> = Policy::ALL.into_iter().zip(&mut found).collect();
        // The order alternates, so that no kind is always first.
        if round % 2 == 1 {
            kinds.reverse();
        }
        for (policy, found) in kinds {
            found.push(job::<Found>(2, policy, &order, &settings)?);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    let mut figures = Vec::new();
    for (policy, jobs) in Policy::ALL.into_iter().zip(&found) {
        let beside = jobs.iter().zip(&found[0]);
        let ratios = beside.map(|(job, bare)| job.rate / bare.rate).collect();
        let of = |value: fn(&Found) -> f64| median(&jobs.iter().map(value).collect::<Vec<_>>());
        figures.push(Figure {
            policy,
            rate: of(|job| job.rate),
            ratios: Ratios::of(ratios),
            stalls: of(|job| job.stalls),
        });
    }
    let head = [
        "flow control",
        "M/s",
        "of unlimited",
        "quarters",
        "stalls/1000",
    ];
    let rows = figures.iter().map(|figure| {
        let Ratios {
            ratio,
            quarter,
            three_quarters,
        } = figure.ratios;
        [
            format!("{:?}", figure.policy).to_lowercase(),
            format!("{:.2}", figure.rate / 1e6),
            format!("{ratio:.3}"),
            format!("{quarter:.3} to {three_quarters:.3}"),
            format!("{:.1}", figure.stalls),
        ]
    });
    let below = format!(
        "One way, {} shorts at a time; the fastest of {} floods, medians of {} jobs.\n",
        options.messages, options.floods, options.rounds
    );
    options
        .format
        .print(&figures, &report::table(head, rows), below)?;
    Ok(!options.check || figures.iter().all(|figure| figure.ratios.ratio >= LEAST))
}

/// Runs a rank of the flood. Rank 0 sends the requests, and rank 1 handles them. Rank 0 reports the
/// result.
pub(crate) fn run_rank(flood: &Flood) -> anyhow::Result<()> {
    let job = conduit::start()?;
    let mut handlers = Handlers::new();
    let received = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&received);
    let count = handlers.short(move |_, (_position,): (u64,)| {
        // The addition need not be locked, because only one thread runs handlers.
        seen.store(seen.load(Relaxed) + 1, Relaxed);
    });
    let conduit = job.attach(handlers, 0)?;
    let rank = conduit.rank();
    let cores = Cores::allowed()?;
    // If there are too few cores, the ranks are not pinned, and the system places them.
    if let Ok(core) = cores.core(Placement::Apart, rank as usize, conduit.size() as usize) {
        cores.pin(core)?;
    }
    let mut fastest = f64::INFINITY;
    for number in 1..=u64::from(flood.floods) {
        conduit.barrier()?;
        let start = Instant::now();
        if rank == 0 {
            for position in 0..u64::from(flood.messages) {
                conduit.request(1, count, (position,))?;
            }
        } else {
            let all = number * u64::from(flood.messages);
            conduit.wait_until(|| received.load(Relaxed) == all)?;
        }
        conduit.barrier()?;
        fastest = fastest.min(start.elapsed().as_secs_f64());
    }
    let requests = f64::from(flood.messages) * f64::from(flood.floods);
    let stalls = conduit.credit_stalls(1)? as f64 * 1000.0 / requests;
    conduit.finish()?;
    let rate = f64::from(flood.messages) / fastest;
    match rank {
        0 => tell(&Found { rate, stalls }),
        _ => Ok(()),
    }
}
