//! The program `lanes-sim`; see `lanes-sim --help`.

use std::io;
use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use lanes::Settings;
use lanes_sim::{Figures, Job, Pattern, Rule, run, svg, watch};
use rayon::prelude::*;
use serde::Serialize;
use sim::command::{TableFormat, whole};

/// The rank shown in a picture.
const PICTURED: u32 = 7;

/// Simulates which peers get lanes in large jobs, under several rules.
#[derive(Parser)]
#[command(name = "lanes-sim", version)]
struct Options {
    /// Numbers of ranks of the jobs
    #[arg(long, value_delimiter = ',', default_value = "10000,100000")]
    ranks: Vec<u32>,
    /// Traffic patterns (default: all)
    #[arg(long, value_delimiter = ',')]
    pattern: Vec<Pattern>,
    /// Rules (default: all)
    #[arg(long, value_delimiter = ',')]
    rule: Vec<Rule>,
    /// Simulated time, in rounds of a rank of medium speed
    #[arg(long, default_value_t = 500)]
    rounds: u64,
    /// Seed of the random numbers
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Decay: each weight loses 1 part in 2^DECAY per round
    #[arg(long, default_value_t = Settings::default().decay)]
    decay: u32,
    /// Lowest weight that earns a lane, in samples
    #[arg(long, default_value_t = Settings::default().threshold)]
    threshold: u32,
    /// Minimum number of rounds that a lane is kept
    #[arg(long, default_value_t = Settings::default().hold)]
    hold: u32,
    /// Instead of the table, write a picture (SVG) of one rank of the first job: its traffic and
    /// the peers with lanes
    #[arg(long, value_name = "FILE")]
    picture: Option<PathBuf>,
    #[command(flatten)]
    format: TableFormat,
}

#[derive(Serialize)]
struct Row {
    ranks: u32,
    pattern: &'static str,
    rule: &'static str,
    possible: f64,
    #[serde(flatten)]
    figures: Figures,
}

fn all_if_none<T: ValueEnum>(named: &[T]) -> &[T] {
    match named {
        [] => T::value_variants(),
        named => named,
    }
}

fn main() -> io::Result<()> {
    let options = Options::parse();
    let settings = Settings {
        decay: options.decay,
        threshold: options.threshold,
        hold: options.hold,
        ..Settings::default()
    };
    let mut jobs = Vec::new();
    for &ranks in &options.ranks {
        for &pattern in all_if_none(&options.pattern) {
            for &rule in all_if_none(&options.rule) {
                jobs.push(Job {
                    ranks,
                    rounds: options.rounds,
                    seed: options.seed,
                    settings: settings.clone(),
                    ..Job::new(pattern, rule)
                });
            }
        }
    }
    if let (Some(file), Some(job)) = (&options.picture, jobs.first()) {
        let title = format!(
            "Rank {PICTURED} of {}, {}, {}: traffic with its peers (grey), and the peers with lanes",
            job.ranks,
            job.pattern.name(),
            job.rule.name()
        );
        let moments = watch(job, PICTURED).map_err(io::Error::other)?;
        let svg = svg(&title, &moments).map_err(|error| io::Error::other(error.to_string()))?;
        return std::fs::write(file, svg);
    }
    let row = |job: &Job| -> io::Result<Row> {
        Ok(Row {
            ranks: job.ranks,
            pattern: job.pattern.name(),
            rule: job.rule.name(),
            possible: job.pattern.possible(),
            figures: run(job).map_err(io::Error::other)?,
        })
    };
    let rows: Vec<Row> = jobs.par_iter().map(row).collect::<io::Result<_>>()?;
    let header = [
        "ranks",
        "pattern",
        "rule",
        "possible",
        "share",
        "settled",
        "moves",
        "asks",
        "at rank 0",
        "rounds",
    ];
    let none = || "-".to_owned();
    let cells = |row: &Row| {
        let Figures {
            share,
            settled,
            moves,
            asks,
            asks_at_hub,
            rounds,
        } = row.figures;
        [
            whole(row.ranks.into()),
            row.pattern.to_owned(),
            row.rule.to_owned(),
            format!("{:.2}", row.possible),
            format!("{share:.3}"),
            format!("{settled:.3}"),
            format!("{moves:.4}"),
            format!("{asks:.4}"),
            asks_at_hub.map_or_else(none, |asks| format!("{asks:.4}")),
            rounds.map_or_else(none, |rounds| rounds.to_string()),
        ]
    };
    options.format.write(
        &mut io::stdout().lock(),
        &rows,
        header,
        rows.iter().map(cells),
    )
}
