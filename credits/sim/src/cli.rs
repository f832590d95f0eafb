//! The command line of `credit-sim`.

use std::io;

use anyhow::Context;
use clap::{Args, Parser, Subcommand, ValueEnum};
use credits::{Growth, Scale, Tuning, defaults};
use sim::Progress;
use sim::command::{TableFormat, presets::ASCII_MARKDOWN};

use crate::{
    CHUNK, Column, Config, Load, Pattern, REFERENCE_STEPS, Scheme, Timing, equal_static, run, show,
    table,
};

/// Simulates flow control by credits in a job of many ranks, compared with the same job without
/// flow control.
#[derive(Debug, Parser)]
#[command(name = "credit-sim", version, args_conflicts_with_subcommands = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    options: RunOptions,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Print a Markdown table that compares dynamic credits with equally fast static ones, by
    /// number of ranks and pattern
    Table(TableOptions),
}

#[derive(Debug, Args)]
struct TableOptions {
    /// Ranks in the jobs
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "1024,10000,100000"
    )]
    ranks: Vec<u32>,
    /// Patterns
    #[arg(long, value_enum, value_delimiter = ',', default_value = "ghost")]
    patterns: Vec<Pattern>,
    /// Also simulate the static credits in jobs of at most N ranks
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    verify: u32,
    #[command(flatten)]
    model: ModelOptions,
}

/// The options that apply to all ranks and patterns.
#[derive(Debug, Args)]
struct ModelOptions {
    #[command(flatten)]
    credits: CreditOptions,
    #[command(flatten)]
    run: Repetition,
    #[command(flatten)]
    load: LoadOptions,
    #[command(flatten)]
    timing: Timing,
}

#[derive(Debug, Args)]
struct RunOptions {
    /// Ranks in the job
    #[arg(long, value_name = "N", default_value_t = 1024)]
    ranks: u32,
    /// Pattern of the traffic
    #[arg(long, value_enum, default_value_t = Pattern::Ghost)]
    pattern: Pattern,
    #[command(flatten)]
    format: TableFormat,
    /// Columns of the table that --record prints, which has one row
    #[arg(
        long,
        value_enum,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "ranks,pattern,speed,worst,first,calm,rest"
    )]
    columns: Vec<Column>,
    /// Search for the fewest static credits that are as fast
    #[arg(long)]
    equal_static: bool,
    #[command(flatten)]
    model: ModelOptions,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Credits")]
struct CreditOptions {
    /// Bytes of a chunk, which determine the size of a credit; the product's default is 17408
    #[arg(long, value_name = "BYTES", default_value_t = CHUNK)]
    chunk: u32,
    /// Credits lent to each rank [default: from the table for the number of ranks]
    #[arg(long, value_name = "K")]
    credits: Option<u16>,
    /// Credits banked [default: from the table for the number of ranks]
    #[arg(long, value_name = "B")]
    bank: Option<u32>,
    /// Static credits: the number given by --credits for the whole job, or bank and loans shared
    /// out evenly
    #[arg(long = "static", conflicts_with = "bank")]
    fixed: bool,
    /// No flow control
    #[arg(long, conflicts_with_all = ["fixed", "credits", "bank"])]
    unlimited: bool,
    /// The original's rules and limits instead of the current defaults, except where an option is
    /// given
    #[arg(long)]
    original: bool,
    /// Requests received per epoch
    #[arg(long, value_name = "N")]
    epoch: Option<u32>,
    /// Most credits given back to one lender within an epoch
    #[arg(long, value_name = "CREDITS")]
    revoke_limit: Option<u16>,
    /// Most credits lent to one peer within an epoch
    #[arg(long, value_name = "CREDITS")]
    lender_limit: Option<u16>,
    /// Most credits lent to one peer
    #[arg(long, value_name = "CREDITS")]
    max_per_peer: Option<u16>,
    /// Credits that every peer keeps
    #[arg(long, value_name = "CREDITS")]
    min: Option<u16>,
    /// Peers asked for credits at a time
    #[arg(long, value_name = "N")]
    scavenge: Option<u32>,
    /// Peers asked per epoch, spread over it
    #[arg(long, value_name = "N")]
    revokes_per_epoch: Option<u32>,
    /// How much a stalled request asks for
    #[arg(long, value_enum)]
    growth: Option<GrowthName>,
    /// Give back only credits that were used neither in this epoch nor in the previous one
    #[arg(long)]
    hold: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum GrowthName {
    /// The credits it was short of, up to 7
    Missing,
    /// As many credits as the sender has, up to 64 times the minimum
    Doubling,
}

impl CreditOptions {
    fn scheme(&self, default: Scheme, ranks: u32) -> Scheme {
        if self.unlimited {
            return Scheme::Unlimited;
        }
        if self.fixed {
            let even = default.total(ranks).unwrap_or(0) / u64::from(ranks.max(1));
            let credits = self.credits.unwrap_or(even.min(u16::MAX.into()) as u16);
            return Scheme::Static { credits };
        }
        let Scheme::Dynamic {
            credits,
            banked,
            tuning,
        } = default
        else {
            return default;
        };
        let credits = self.credits.unwrap_or(credits);
        let banked = self.bank.unwrap_or(banked);
        let (rules, most) = match self.original {
            true => (Tuning::default(), defaults::MAX_PER_PEER),
            false => (Tuning::SHIPPED, defaults::max_per_peer(banked)),
        };
        Scheme::Dynamic {
            credits,
            banked,
            tuning: Tuning {
                epoch: self.epoch.unwrap_or(rules.epoch),
                revoke_limit: self.revoke_limit.unwrap_or(rules.revoke_limit),
                lender_limit: self.lender_limit.unwrap_or(rules.lender_limit),
                max_per_peer: self.max_per_peer.unwrap_or(most).max(credits),
                minimum: self.min.unwrap_or(tuning.minimum),
                scavenge: self.scavenge.unwrap_or(rules.scavenge),
                revokes_per_epoch: self.revokes_per_epoch.unwrap_or(rules.revokes_per_epoch),
                growth: match self.growth {
                    None => rules.growth,
                    Some(GrowthName::Missing) => Growth::Missing,
                    Some(GrowthName::Doubling) => Growth::Doubling,
                },
                hold: self.hold,
            },
        }
    }
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Run")]
struct Repetition {
    /// Sets of partners, one after another
    #[arg(long, value_name = "N", default_value_t = 2)]
    rotations: u32,
    /// Steps with each set of partners
    #[arg(long, value_name = "N", default_value_t = 10)]
    steps: u32,
    /// Seed of all random choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Threads [default: as many as processors, fewer for few ranks]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Steps of each rotation that are also simulated without flow control; 0 for no comparison
    #[arg(long, value_name = "N", default_value_t = REFERENCE_STEPS)]
    reference_steps: u32,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Load [default: by the pattern]")]
struct LoadOptions {
    /// Requests to each partner in a step
    #[arg(long, value_name = "N")]
    messages: Option<u32>,
    /// Size of a request, in credits of 256 bytes
    #[arg(long, value_name = "CREDITS")]
    cost: Option<u8>,
    /// Partners of a rank (alltoall, chain, oddpoll)
    #[arg(long, value_name = "N")]
    fan: Option<u32>,
    /// Distance between partners (chain, oddpoll)
    #[arg(long, value_name = "N")]
    gap: Option<u32>,
    /// Number of ranks that all others send to (hotspot)
    #[arg(long, value_name = "N")]
    hot: Option<u32>,
    /// Collectives in a step (tree)
    #[arg(long, value_name = "N")]
    repeat: Option<u32>,
    /// One request to each partner in turn, instead of all to the first, then all to the second
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    interleave: Option<bool>,
}

impl ModelOptions {
    fn config(&self, ranks: u32, pattern: Pattern) -> anyhow::Result<Config> {
        let scale = Scale::for_chunk(self.credits.chunk)?;
        let default = Config::with_scale(ranks, pattern, scale);
        let load = Load {
            messages: self.load.messages.unwrap_or(default.load.messages),
            cost: self.load.cost.unwrap_or(default.load.cost),
            fan: self.load.fan.unwrap_or(default.load.fan),
            gap: self.load.gap.unwrap_or(default.load.gap),
            hot: self.load.hot.unwrap_or(default.load.hot),
            repeat: self.load.repeat.unwrap_or(default.load.repeat),
            interleave: self.load.interleave.unwrap_or(default.load.interleave),
        };
        Ok(Config {
            scheme: self.credits.scheme(default.scheme, ranks),
            load,
            timing: self.timing.clone(),
            rotations: self.run.rotations,
            steps: self.run.steps,
            seed: self.run.seed,
            reference: self.run.reference_steps,
            threads: self.run.threads.unwrap_or_else(|| threads(ranks)),
            ..default
        })
    }
}

/// Returns a useful number of threads. It is small for few ranks, because each window of time ends
/// with a barrier of all threads.
fn threads(ranks: u32) -> usize {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    processors.min(ranks as usize / 512).max(1)
}

/// Runs the command line.
///
/// # Errors
/// Fails if the job cannot be simulated, if the flow control violates its rules, or if standard
/// output cannot be written.
pub fn main(cli: &Cli) -> anyhow::Result<()> {
    let progress = Progress::new("steps");
    let mut out = io::stdout().lock();
    if let Some(Command::Table(options)) = &cli.command {
        let mut rows = Vec::new();
        for &ranks in &options.ranks {
            for &pattern in &options.patterns {
                let config = options.model.config(ranks, pattern)?;
                rows.push(table::row(&config, options.verify, &progress)?);
            }
        }
        drop(progress);
        return table::markdown(&mut out, &rows).context("cannot write standard output");
    }
    let options = &cli.options;
    let config = options.model.config(options.ranks, options.pattern)?;
    let mut report = run(&config, &progress)?;
    if options.equal_static {
        let speed = report.summary.speed.unwrap_or(1.0);
        report.equal_static = equal_static(&config, speed.min(0.98), &progress)?;
    }
    drop(progress);
    let cells = options.columns.iter().map(|column| column.of(&report));
    let (header, row): (Vec<_>, Vec<_>) = cells.unzip();
    let table = sim::command::table(ASCII_MARKDOWN, header, [row]);
    options
        .format
        .write_or(&mut out, &report, &table, |out| show::report(out, &report))
        .context("cannot write standard output")
}
