//! Do credits go where they are needed? Jobs whose ranks send in patterns that change, with few credits on purpose: with
//! credits that move, with the same credits shared out once, and without flow control, in turn.

mod pattern;
mod rank;

use std::sync::mpsc;

use anyhow::{Context, ensure};
use clap::Args;
use comfy_table::{Cell, CellAlignment, Table};
use conduit_run::{Launch, Stream};
use indicatif::ProgressBar;
use serde::{Deserialize, Serialize};

pub use pattern::Pattern;
use rank::{Found, Work};

/// The environment variable that makes a process a rank of such a job.
const ORDER: &str = "CREDITS_OF_CONDUIT_PERF";

/// Flow control.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// None: what the others are compared with.
    Unlimited,
    /// Credits shared out once.
    Static,
    /// Credits that move.
    Dynamic,
}

impl Policy {
    const ALL: [Policy; 3] = [Policy::Unlimited, Policy::Static, Policy::Dynamic];

    fn settings(self) -> [(&'static str, &'static str); 2] {
        let (flow_control, dynamic) = match self {
            Policy::Unlimited => ("0", "0"),
            Policy::Static => ("1", "0"),
            Policy::Dynamic => ("1", "1"),
        };
        [
            ("GASNET_PORTAL_FLOW_CONTROL", flow_control),
            ("GASNET_PORTAL_DYNAMIC_CREDITS", dynamic),
        ]
    }
}

/// What is measured.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Print one JSON object per pattern, number of ranks and flow control
    #[arg(long)]
    json: bool,
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
    /// Credits that each rank banks; without dynamic credits they are shared out as well
    #[arg(long, default_value_t = 640)]
    bank: u32,
    /// Jobs of each kind; the median counts
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Sets of partners
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rotations: u32,
    /// Steps of a rotation in which credits may move
    #[arg(long, default_value_t = 300)]
    warm: u32,
    /// Steps of a rotation that are measured
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    steps: u32,
    /// Full mediums of 1 KiB to each partner in a step
    #[arg(long, default_value_t = 80, value_parser = clap::value_parser!(u32).range(1..))]
    messages: u32,
}

/// A figure.
#[derive(Clone, Copy, Debug, Serialize)]
struct Figure {
    pattern: Pattern,
    ranks: u32,
    policy: Policy,
    /// Part of the speed without flow control.
    ratio: f64,
    #[serde(flatten)]
    found: Found,
}

/// What a rank of such a job does instead of `main`; `None` if this process is not one.
#[must_use]
pub fn rank_main() -> Option<anyhow::Result<()>> {
    let order = std::env::var_os(ORDER)?;
    Some(be_rank(&order.to_string_lossy()))
}

fn be_rank(order: &str) -> anyhow::Result<()> {
    let work: Work = serde_json::from_str(order).context(ORDER)?;
    if let Some(found) = rank::run(&work)? {
        println!("{}", serde_json::to_string(&found)?);
    }
    Ok(())
}

/// Measures and prints. False if a check failed.
///
/// # Errors
/// A job failed.
pub fn run(options: &Options) -> anyhow::Result<bool> {
    let kinds: Vec<(Pattern, u32)> = options
        .patterns
        .iter()
        .flat_map(|&pattern| options.ranks.iter().map(move |&ranks| (pattern, ranks)))
        .collect();
    let bar = ProgressBar::new(kinds.len() as u64 * u64::from(options.rounds) * 3);
    let mut figures = Vec::new();
    for (pattern, ranks) in kinds {
        let mut found = [const { Vec::new() }; 3];
        for _ in 0..options.rounds {
            for (policy, found) in Policy::ALL.into_iter().zip(&mut found) {
                found.push(job(options, pattern, ranks, policy)?);
                bar.inc(1);
            }
        }
        // Each beside the job without flow control of the same round.
        let ratios: Vec<Vec<f64>> = found
            .iter()
            .map(|found_| {
                (0..found_.len())
                    .map(|at| found_[at].rate / found[0][at].rate)
                    .collect()
            })
            .collect();
        for ((policy, mut found), mut ratios) in Policy::ALL.into_iter().zip(found).zip(ratios) {
            found.sort_by(|a, b| a.rate.total_cmp(&b.rate));
            ratios.sort_by(f64::total_cmp);
            figures.push(Figure {
                pattern,
                ranks,
                policy,
                ratio: ratios[ratios.len() / 2],
                found: found[found.len() / 2],
            });
        }
    }
    bar.finish_and_clear();
    if options.json {
        for figure in &figures {
            println!("{}", serde_json::to_string(figure)?);
        }
    } else {
        println!("{}", table(&figures));
        println!(
            "{} credits a peer and {} banked by each rank; {} full mediums of 1 KiB at a time cost {}; medians of {} jobs.",
            options.credits,
            options.bank,
            options.messages,
            4 * options.messages,
            options.rounds
        );
    }
    let good = |figure: &Figure| figure.policy != Policy::Dynamic || figure.ratio >= 0.9;
    Ok(!options.check || figures.iter().all(good))
}

fn table(figures: &[Figure]) -> Table {
    let mut table = Table::new();
    table.load_preset(comfy_table::presets::UTF8_HORIZONTAL_ONLY);
    table.set_header([
        "pattern",
        "ranks",
        "flow control",
        "M/s",
        "of unlimited",
        "first step M/s",
        "lent: active",
        "idle",
        "stalls/1000: adapting, then",
        "revoked/1000",
    ]);
    for figure in figures {
        let found = &figure.found;
        let numbers = [
            format!("{:.2}", found.rate / 1e6),
            format!("{:.2}", figure.ratio),
            format!("{:.2}", found.first_rate / 1e6),
            credits(figure, found.active),
            credits(figure, found.idle),
            pair(found.stalls),
            pair(found.revoked),
        ];
        let mut row = vec![
            Cell::new(format!("{:?}", figure.pattern).to_lowercase()),
            Cell::new(figure.ranks).set_alignment(CellAlignment::Right),
            Cell::new(format!("{:?}", figure.policy).to_lowercase()),
        ];
        row.extend(
            numbers
                .into_iter()
                .map(|number| Cell::new(number).set_alignment(CellAlignment::Right)),
        );
        table.add_row(row);
    }
    table
}

/// While credits may move, and then.
fn pair([first, then]: [f64; 2]) -> String {
    format!("{first:.1} {then:6.1}")
}

fn credits(figure: &Figure, credits: f64) -> String {
    match figure.policy {
        Policy::Unlimited => "-".to_owned(),
        _ => format!("{credits:.1}"),
    }
}

/// Runs one job.
fn job(options: &Options, pattern: Pattern, ranks: u32, policy: Policy) -> anyhow::Result<Found> {
    let work = Work {
        pattern,
        policy,
        rotations: options.rotations,
        warm: options.warm,
        measured: options.steps,
        messages: options.messages,
    };
    let (sender, receiver) = mpsc::channel();
    let mut launch = Launch::new(ranks as usize, std::env::current_exe()?)
        .env(ORDER, serde_json::to_string(&work)?)
        .env("CONDUIT_CHUNK", "1K")
        // Small, so that little is added when the credits are rounded up to whole buffers.
        .env("CONDUIT_REQUEST_BUFFER", "8K")
        .env("GASNET_PORTAL_MAX_CRED_PER_NODE", "640")
        .env("GASNET_PORTAL_CRED_PER_NODE", options.credits.to_string())
        .env("GASNET_PORTAL_BANKED_CREDITS", options.bank.to_string())
        .timeout(Some(std::time::Duration::from_secs(120)))
        .quiet(true)
        .output(
            move |rank, stream, line| match (stream, serde_json::from_slice::<Found>(line)) {
                // The receiver is there as long as the job.
                (Stream::Stdout, Ok(found)) => drop(sender.send(found)),
                _ => eprintln!("[{rank}] {}", String::from_utf8_lossy(line)),
            },
        );
    for (name, value) in policy.settings() {
        launch = launch.env(name, value);
    }
    let outcome = launch.run()?;
    ensure!(
        outcome.exit_code == 0,
        "the job of {ranks} ranks ({pattern:?}, {policy:?}) failed: {}",
        outcome.how
    );
    receiver.try_recv().context("rank 0 said nothing")
}
