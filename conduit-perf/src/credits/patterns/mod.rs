//! Do credits go where they are needed? Jobs whose ranks send in patterns that change, with few credits on purpose: with
//! credits that move, with the same credits shared out once, and without flow control, in turn.

mod pattern;
mod rank;

use clap::Args;
use comfy_table::{Cell, CellAlignment, Table};
use indicatif::ProgressBar;
use serde::Serialize;

pub use pattern::Pattern;
use rank::Found;
pub(super) use rank::{Work, run as run_rank};

use super::{Order, Policy, job, median};

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
    #[arg(long, default_value_t = 41, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Sets of partners
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rotations: u32,
    /// Steps of a rotation in which credits may move
    #[arg(long, default_value_t = 150)]
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
                found.push(pattern_job(options, pattern, ranks, policy)?);
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
        for ((policy, mut found), ratios) in Policy::ALL.into_iter().zip(found).zip(ratios) {
            found.sort_by(|a, b| a.rate.total_cmp(&b.rate));
            figures.push(Figure {
                pattern,
                ranks,
                policy,
                ratio: median(&ratios),
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
            credits(found.active),
            credits(found.idle),
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
    });
    let settings = [
        ("CONDUIT_CHUNK", "1K".to_owned()),
        // Small, so that little is added when the credits are rounded up to whole buffers.
        ("CONDUIT_REQUEST_BUFFER", "8K".to_owned()),
        ("GASNET_PORTAL_MAX_CRED_PER_NODE", "640".to_owned()),
        ("GASNET_PORTAL_CRED_PER_NODE", options.credits.to_string()),
        ("GASNET_PORTAL_BANKED_CREDITS", options.bank.to_string()),
    ];
    job(ranks, policy, &order, &settings)
}
