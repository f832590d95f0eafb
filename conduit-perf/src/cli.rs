//! The command line.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::{Args, Parser, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};

use crate::alternate::Plan;
use crate::companions::{Companions, handed_over};
use crate::credits;
use crate::limits::{Limit, catalogue};
use crate::mapping::Mapping;
use crate::placement::Cores;
use crate::side::{PATIENCE, Side};
use crate::survey::{Reading, survey};
use crate::{
    Event, Options, area, count, figures, gasnet, job, ofi, peers, report, run_all, select, udp,
};

/// Latencies, rates and bandwidths of Conduit beside this machine's limits, measured in turn.
///
/// Starts jobs of its own: two ranks on two cores, two on one, eight on two. As a rank of a job that a launcher has
/// started it measures in that job.
#[derive(Debug, Parser)]
#[command(name = "conduit-perf", version, args_conflicts_with_subcommands = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    options: FigureOptions,
}

#[derive(Debug, Args)]
struct FigureOptions {
    /// Print one JSON object per figure and line
    #[arg(long)]
    json: bool,
    /// Only name the figures
    #[arg(long)]
    list: bool,
    /// Exit with 1 unless every figure with a target meets it
    #[arg(long)]
    check: bool,
    /// As a rank of a job that a launcher has started: measure its ranks 0 and 1 as a pair, while the others stand by
    #[arg(long)]
    pair: bool,
    #[command(flatten)]
    choice: Choice,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Print the machine's bare limits alone
    Limits(LimitOptions),
    /// Count the instructions of operations of one rank on itself (needs valgrind)
    ///
    /// Unlike times, these numbers do not depend on the machine's load: for comparing versions of Conduit. The
    /// operations are also there for other profilers: `conduit-perf repeat OPERATION COUNT`.
    Count {
        /// Operations; all if none is named
        operations: Vec<String>,
    },
    /// Show whether credits go where they are needed: patterns that change, with few credits
    ///
    /// Each job with credits that move, with the same credits shared out once, and without flow control, in turn.
    Credits(credits::patterns::Options),
    /// Show what flow control costs: a flood of shorts with it and without, in turn
    FlowControl(credits::cost::Options),
    /// Measure GASNet's interface in C: an installation of Conduit beside others, in turn
    ///
    /// One program is built with each installation's make fragment, by make and its C compiler.
    Gasnet(gasnet::Options),
    /// Measure Conduit over libfabric beside bare loops of libfabric, on this host
    Ofi(ofi::Options),
    /// Measure Conduit over UDP beside what distributions package, over TCP, on the loopback interface
    ///
    /// Beside it run those of these that are installed (Debian's packages): UCX (ucx-utils), libfabric (libfabric-bin), Open MPI
    /// (openmpi-bin and libopenmpi-dev, for which a program is compiled).
    Peers(peers::Options),
    /// Measure what goes over UDP, on the loopback interface, beside bare UDP
    Udp(udp::Options),
    /// Repeat an operation in a job of one rank
    #[command(hide = true)]
    Repeat {
        /// The operation
        operation: String,
        /// How often
        count: u64,
    },
    /// Be another side of a measurement; the shared memory is standard input
    #[command(hide = true)]
    Side {
        /// This side
        #[arg(long)]
        rank: usize,
        /// The number of sides
        #[arg(long)]
        sides: usize,
        #[command(flatten)]
        choice: Choice,
    },
}

#[derive(Debug, Args)]
struct LimitOptions {
    /// Print one JSON object per limit and line
    #[arg(long)]
    json: bool,
    /// Only name the limits
    #[arg(long)]
    list: bool,
    /// Numbers of processes: all limits with 2, the barrier also with more
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "2,8",
          value_parser = clap::value_parser!(u16).range(2..=1024))]
    ranks: Vec<u16>,
    #[command(flatten)]
    choice: Choice,
}

/// What is measured and for how long: the same on all sides.
#[derive(Clone, Debug, Args)]
struct Choice {
    /// Measure less often and more briefly
    #[arg(long)]
    quick: bool,
    /// Only these, by name or the first words of it ("copy" is copy-in and copy-out)
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    figures: Vec<String>,
}

impl Choice {
    fn plan(&self) -> Plan {
        if self.quick { Plan::QUICK } else { Plan::FULL }
    }

    fn limits(&self, sides: usize) -> Vec<Limit> {
        let mut limits = catalogue(sides);
        limits.retain(|limit| select::wanted(&self.figures, limit.name));
        limits
    }

    /// As arguments for another side.
    fn arguments(&self) -> Vec<String> {
        let mut arguments = Vec::new();
        if self.quick {
            arguments.push("--quick".to_owned());
        }
        if !self.figures.is_empty() {
            arguments.extend(["--figures".to_owned(), self.figures.join(",")]);
        }
        arguments
    }
}

/// Does what the command line says.
///
/// # Errors
/// The measurement failed or the results can't be written.
pub fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    match cli.command {
        None => return figures(&cli.options),
        Some(Command::Limits(options)) => limits(&options)?,
        Some(Command::Count { operations }) => count_instructions(&operations)?,
        Some(Command::Credits(options)) => {
            let good = credits::patterns::run(&options)?;
            return Ok(ExitCode::from(u8::from(!good)));
        }
        Some(Command::FlowControl(options)) => {
            let good = credits::cost::run(&options)?;
            return Ok(ExitCode::from(u8::from(!good)));
        }
        Some(Command::Gasnet(options)) => gasnet::run(&options)?,
        Some(Command::Ofi(options)) => {
            let good = ofi::run(&options)?;
            return Ok(ExitCode::from(u8::from(!good)));
        }
        Some(Command::Udp(options)) => {
            let good = udp::run(&options)?;
            return Ok(ExitCode::from(u8::from(!good)));
        }
        Some(Command::Peers(options)) => {
            let good = peers::run(&options)?;
            return Ok(ExitCode::from(u8::from(!good)));
        }
        Some(Command::Repeat { operation, count }) => count::repeat(&operation, count)?,
        Some(Command::Side {
            rank,
            sides,
            choice,
        }) => companion(rank, sides, &choice)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Measures Conduit.
fn figures(options: &FigureOptions) -> anyhow::Result<ExitCode> {
    if options.list {
        print_names(figures::names())?;
        return Ok(ExitCode::SUCCESS);
    }
    let asked = Options {
        quick: options.choice.quick,
        figures: options.choice.figures.clone(),
        pair: options.pair,
    };
    let bar = bar(0);
    let mut left_out = 0;
    let progress = |event: &Event| match event {
        Event::Started { job, done, of } => {
            bar.set_length(*of as u64);
            bar.set_position(*done as u64);
            bar.set_message(format!("{} ranks", job.ranks()));
        }
        Event::Figure(figure) => {
            bar.inc(1);
            bar.set_message(figure.name.clone());
        }
        Event::LeftOut { name, size, reason } => {
            bar.inc(1);
            left_out += 1;
            let size = report::bytes(*size);
            bar.suspend(|| eprintln!("{name} {size} left out: {reason}"));
        }
    };
    let figures = if job::launched() {
        match job::measure_here(&asked, progress)? {
            Some(figures) => figures,
            // Rank 0 prints them.
            None => return Ok(ExitCode::SUCCESS),
        }
    } else if options.pair {
        bail!(
            "--pair is for a rank of a job that a launcher has started: conduit-run -n 3 conduit-perf --pair"
        );
    } else {
        run_all(&asked, progress)?
    };
    bar.finish_and_clear();
    let summary = report::Summary::of(&figures);
    let mut out = io::stdout().lock();
    if options.json {
        report::json_lines(&mut out, &figures)?;
    } else {
        writeln!(out, "{}\n{summary}", report::figures(&figures))?;
    }
    let failed = options.check && (!summary.all_within() || left_out > 0);
    Ok(ExitCode::from(u8::from(failed)))
}

fn count_instructions(operations: &[String]) -> anyhow::Result<()> {
    select::check(operations, count::names())?;
    for name in count::names().filter(|name| select::wanted(operations, name)) {
        let instructions = count::instructions(name)?;
        writeln!(io::stdout(), "{name:<22}{instructions:>10.1} instructions")?;
    }
    Ok(())
}

fn print_names<'n>(names: impl Iterator<Item = &'n str>) -> io::Result<()> {
    let mut names: Vec<_> = names.collect();
    names.dedup();
    writeln!(io::stdout(), "{}", names.join("\n"))
}

fn limits(options: &LimitOptions) -> anyhow::Result<()> {
    let choice = &options.choice;
    select::check(&choice.figures, catalogue(2).iter().map(|limit| limit.name))?;
    if options.list {
        return Ok(print_names(catalogue(2).iter().map(|limit| limit.name))?);
    }
    let mut out = io::stdout().lock();
    let mut readings = Vec::new();
    for &sides in &options.ranks {
        let sides = usize::from(sides);
        readings.extend(
            limits_of(sides, choice).with_context(|| format!("limits of {sides} processes"))?,
        );
    }
    if options.json {
        report::json_lines(&mut out, &readings)?;
    } else {
        writeln!(out, "{}", report::readings(&readings))?;
    }
    Ok(())
}

/// Measures the limits as side 0, with processes of its own as the others.
fn limits_of(sides: usize, choice: &Choice) -> anyhow::Result<Vec<Reading>> {
    let mut limits = choice.limits(sides);
    if limits.is_empty() {
        return Ok(Vec::new());
    }
    let mapping = Mapping::anonymous(area::AREA_BYTES)?;
    let cores = Cores::allowed()?;
    let mut companions = Companions::start(&mapping, sides, |rank| {
        let mut arguments = [
            "side",
            "--rank",
            &rank.to_string(),
            "--sides",
            &sides.to_string(),
        ]
        .map(str::to_owned)
        .to_vec();
        arguments.extend(choice.arguments());
        arguments
    })?;
    let readings = read_with_companions(&mapping, cores, sides, choice, &mut limits);
    match companions.ended() {
        Some((rank, status)) if readings.is_err() => {
            readings.with_context(|| format!("the process of side {rank} ended: {status}"))
        }
        _ => readings,
    }
}

fn read_with_companions(
    mapping: &Mapping,
    cores: Cores,
    sides: usize,
    choice: &Choice,
    limits: &mut Vec<Limit>,
) -> anyhow::Result<Vec<Reading>> {
    let asked = limits.len();
    let side = Side::join(mapping.area()?, cores, 0, sides, PATIENCE)?;
    let plan = choice.plan();
    let bar = bar(asked * plan.good).with_message(format!("{sides} processes"));
    let readings = survey(&side, limits, plan, &mut |done| {
        bar.set_position(done as u64);
    })?;
    bar.finish_and_clear();
    if readings.len() < asked {
        let left_out = asked - readings.len();
        eprintln!("{left_out} limits left out: they need a core for each of {sides} processes");
    }
    // Nobody leaves before all have done their part.
    side.meet()?;
    Ok(readings)
}

fn companion(rank: usize, sides: usize, choice: &Choice) -> anyhow::Result<()> {
    let mapping = handed_over()?;
    let side = Side::join(mapping.area()?, Cores::allowed()?, rank, sides, PATIENCE)?;
    let plan = choice.plan();
    survey(&side, &mut choice.limits(sides), plan, &mut |_| {})?;
    side.meet()?;
    Ok(())
}

/// A bar on standard error; nothing is drawn if that is no terminal.
fn bar(steps: usize) -> ProgressBar {
    let bar = ProgressBar::new(steps as u64);
    match ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len}") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
