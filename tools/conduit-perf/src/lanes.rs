//! The benefit of wide windows for one pair of a large job. Rank 0 sends mediums and puts to rank 1
//! while all other ranks sleep. Three kinds of jobs alternate: with the windows of a job of two
//! ranks, with the minimum windows of a job of more than about 480 ranks, and with minimum windows
//! and lanes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::{Args, ValueEnum};
use conduit::Handlers;
use indicatif::ProgressBar;
use serde::{Deserialize, Serialize};

use crate::credits::{Ratios, median};
use crate::job::{Order, run_ranks, tell};
use crate::placement::{Cores, Placement};
use crate::report;

/// The number of ranks in a job. With this many, a rank's share of [`LEAST`] is the minimum window.
const RANKS: usize = 9;
/// The memory for arrivals in jobs that stand for a job of two ranks.
const MOST: &str = "64M";
/// The memory for arrivals in jobs that stand for a large job.
const LEAST: &str = "1M";
/// The smallest acceptable rate with lanes, as a fraction of the rate with windows for two ranks.
const TARGET: f64 = 0.8;

/// The parameters of the measurement.
#[derive(Clone, Debug, Args)]
pub struct Options {
    #[command(flatten)]
    format: report::Format,
    /// Exit with 1 unless lanes reach 0.8 of the rates with windows for two ranks
    #[arg(long)]
    check: bool,
    /// Jobs of each kind
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// The network
    #[arg(long, value_enum, default_value = "udp")]
    network: Network,
    /// Delay of UDP packets in microseconds, each way
    #[arg(long, default_value_t = 20)]
    delay: u32,
    /// Bytes of a lane's window
    #[arg(long, default_value = "2M")]
    window: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Network {
    Udp,
    Ofi,
}

/// The kinds of windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Windows {
    Pair,
    Least,
    Lanes,
}

impl Windows {
    const ALL: [Self; 3] = [Self::Pair, Self::Least, Self::Lanes];

    fn settings(self, lane: &str) -> [(&'static str, &str); 3] {
        let (arrivals, window) = match self {
            Self::Pair => (MOST, "0"),
            Self::Least => (LEAST, "0"),
            Self::Lanes => (LEAST, lane),
        };
        [
            ("CONDUIT_UDP_ARRIVALS", arrivals),
            ("CONDUIT_OFI_ARRIVALS", arrivals),
            ("CONDUIT_LANE_WINDOW", window),
        ]
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Medium,
    Put,
}

const STREAMS: [(Kind, usize); 4] = [
    (Kind::Medium, 1 << 10),
    (Kind::Medium, 4 << 10),
    (Kind::Medium, 16 << 10),
    (Kind::Put, 16 << 10),
];

/// The task of a job, which is a number of streams with a number of messages each.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Work {
    messages: u64,
    streams: u32,
}

/// A figure.
#[derive(Clone, Copy, Debug, Serialize)]
struct Figure {
    kind: Kind,
    size: usize,
    windows: Windows,
    /// The number of bytes per second, as the median of the jobs.
    rate: f64,
    #[serde(flatten)]
    ratios: Ratios,
}

/// Measures and prints the results. Returns `false` if a check failed.
///
/// # Errors
/// Fails if a job fails.
pub fn run(options: &Options) -> anyhow::Result<bool> {
    let bar = ProgressBar::new(u64::from(options.rounds) * Windows::ALL.len() as u64);
    let order = Order::Lanes(Work {
        messages: 2_000,
        streams: 8,
    });
    let delay = options.delay.to_string();
    let network = match options.network {
        Network::Udp => "udp",
        Network::Ofi => "ofi",
    };
    let mut jobs = [const { Vec::new() }; Windows::ALL.len()];
    for round in 0..options.rounds {
        let mut kinds: Vec<_> = Windows::ALL.into_iter().zip(&mut jobs).collect();
        // The order alternates, so that no kind is always first.
        if round % 2 == 1 {
            kinds.reverse();
        }
        for (windows, jobs) in kinds {
            let mut environment = vec![
                ("CONDUIT_NETWORK", network),
                ("CONDUIT_UDP_INTERFACE", "lo"),
                ("CONDUIT_UDP_DELAY", &*delay),
            ];
            environment.extend(windows.settings(&options.window));
            let mut rates = None;
            run_ranks(RANKS, usize::MAX, &order, &environment, |told: Vec<f64>| {
                rates = Some(told);
            })?;
            jobs.push(rates.context("rank 0 reported nothing")?);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    let mut figures = Vec::new();
    for (at, (kind, size)) in STREAMS.into_iter().enumerate() {
        for (windows, found) in Windows::ALL.into_iter().zip(&jobs) {
            let rates: Vec<f64> = found
                .iter()
                .filter_map(|job| job.get(at).copied())
                .collect();
            let beside = jobs[0].iter().filter_map(|job| job.get(at));
            let ratios = rates.iter().zip(beside).map(|(rate, pair)| rate / pair);
            figures.push(Figure {
                kind,
                size,
                windows,
                rate: median(&rates),
                ratios: Ratios::of(ratios.collect()),
            });
        }
    }
    let head = ["message", "windows", "GB/s", "of two ranks'", "quarters"];
    let rows = figures.iter().map(|figure| {
        let Ratios {
            ratio,
            quarter,
            three_quarters,
        } = figure.ratios;
        [
            format!("{:?} {}", figure.kind, report::bytes(figure.size)).to_lowercase(),
            format!("{:?}", figure.windows).to_lowercase(),
            format!("{:.3}", figure.rate / 1e9),
            format!("{ratio:.2}"),
            format!("{quarter:.2} to {three_quarters:.2}"),
        ]
    });
    options
        .format
        .print(&figures, &report::table(head, rows), "")?;
    let mut lanes = figures
        .iter()
        .filter(|figure| figure.windows == Windows::Lanes);
    Ok(!options.check || lanes.all(|figure| figure.ratios.ratio >= TARGET))
}

/// Runs a rank of the streams. Rank 0 sends, rank 1 confirms the arrival of all messages, and the
/// other ranks sleep. Rank 0 reports the rates.
pub(crate) fn run_rank(work: &Work) -> anyhow::Result<()> {
    let job = conduit::start()?;
    let mut handlers = Handlers::new();
    let received = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&received);
    let take = handlers.medium(move |_, (), _: &[u8]| {
        seen.fetch_add(1, Relaxed);
    });
    let finished = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&finished);
    let finish = handlers.short(move |_, ()| {
        seen.fetch_add(1, Relaxed);
    });
    let conduit = job.attach(handlers, 1 << 20)?;
    let rank = conduit.rank();
    let mut rates = Vec::new();
    if rank > 1 {
        // This rank sleeps, so that the participating ranks have the cores.
        while finished.load(Relaxed) == 0 {
            thread::sleep(Duration::from_millis(10));
            conduit.poll()?;
        }
        return Ok(conduit.finish()?);
    }
    let cores = Cores::allowed()?;
    // If there are too few cores, the ranks are not pinned, and the system places them.
    if let Ok(core) = cores.core(Placement::Apart, rank as usize, 2) {
        cores.pin(core)?;
    }
    let mut mediums = 0;
    let mut streams = 0;
    for (kind, size) in STREAMS {
        let payload = vec![7u8; size];
        let mut fastest = f64::INFINITY;
        for _ in 0..work.streams {
            let start = Instant::now();
            match (kind, rank) {
                (Kind::Medium, 0) => {
                    for _ in 0..work.messages {
                        conduit.request_medium(1, take, (), &payload[..])?;
                    }
                    streams += 1;
                    conduit.wait_until(|| finished.load(Relaxed) == streams)?;
                }
                (Kind::Medium, _) => {
                    mediums += work.messages;
                    conduit.wait_until(|| received.load(Relaxed) == mediums)?;
                    conduit.request(0, finish, ())?;
                }
                (Kind::Put, 0) => {
                    for _ in 0..work.messages {
                        conduit.put_nbi(1, 0, &payload[..])?;
                    }
                    conduit.wait_puts()?;
                }
                (Kind::Put, _) => {}
            }
            fastest = fastest.min(start.elapsed().as_secs_f64());
        }
        rates.push(work.messages as f64 * size as f64 / fastest);
    }
    if rank == 0 {
        for other in 1..conduit.size() {
            conduit.request(other, finish, ())?;
        }
    } else {
        conduit.wait_until(|| finished.load(Relaxed) == 1)?;
    }
    conduit.finish()?;
    match rank {
        0 => tell(&rates),
        _ => Ok(()),
    }
}
