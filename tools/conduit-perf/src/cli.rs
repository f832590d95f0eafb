//! The command line of `conduit-perf`.

use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::{Args, Parser, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};

use crate::limits::catalogue;
use crate::select::{Choice, Judged};
use crate::{
    Event, Options, count, credits, figures, gasnet, job, lanes, ofi, peers, portals4, report,
    run_all, survey, udp,
};

/// Latencies, rates and bandwidths of Conduit compared with this machine's limits, measured
/// alternately.
///
/// Starts its own jobs: two ranks on two cores, two on one, eight on two. If a launcher has started
/// this process as a rank, measures in that job.
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
    /// In a job started by a launcher: measure ranks 0 and 1 as a pair while the others stand by
    #[arg(long)]
    pair: bool,
    #[command(flatten)]
    judged: Judged,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Print only the machine's bare limits
    Limits(LimitOptions),
    /// Count the instructions of operations, with both ends in one process (needs valgrind)
    ///
    /// Unlike times, counts do not depend on the machine's load, so they can compare versions of
    /// Conduit. Other profilers can run the same operations: `conduit-perf repeat rank 20000 --only
    /// put`.
    Count(count::Options),
    /// Show whether credits move where they are needed: changing patterns, with few credits
    ///
    /// Alternates jobs with dynamic credits, with the same credits distributed once, and without
    /// flow control.
    Credits(credits::patterns::Options),
    /// Measure the cost of flow control: a flood of shorts with and without it, alternately
    FlowControl(credits::cost::Options),
    /// Measure GASNet's C interface: an installation of Conduit compared with others, alternately
    ///
    /// The same program is built with each installation's make fragment, by make and its C
    /// compiler.
    Gasnet(gasnet::Options),
    /// Measure the benefit of wide windows for a pair of a large job, over UDP or libfabric, on
    /// this host
    Lanes(lanes::Options),
    /// Measure Conduit over libfabric compared with bare loops of libfabric, on this host
    Ofi(ofi::Options),
    /// Measure Conduit over UDP compared with packaged libraries over TCP, on the loopback
    /// interface
    ///
    /// Compares with those of these that are installed (Debian's packages): UCX (ucx-utils),
    /// libfabric (libfabric-bin), Open MPI (openmpi-bin and libopenmpi-dev, for which a program is
    /// compiled).
    Peers(peers::Options),
    /// Measure Conduit over Portals 4 compared with bare loops of the libportals in
    /// CONDUIT_PORTALS4_LIBRARY, on this host
    Portals4(portals4::Options),
    /// Measure Conduit's operations over UDP, on the loopback interface, compared with bare UDP
    Udp(udp::Options),
    /// Repeat operations, for a profiler
    #[command(hide = true)]
    Repeat(count::Repeat),
}

#[derive(Debug, Args)]
struct LimitOptions {
    /// Numbers of processes: all limits are measured with 2, the barrier also with more
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "2,8",
          value_parser = clap::value_parser!(u16).range(2..=1024))]
    ranks: Vec<u16>,
    #[command(flatten)]
    choice: Choice,
}

/// Runs the command line.
///
/// # Errors
/// Fails if a measurement fails or the results cannot be written.
pub fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    let good = match cli.command {
        None => figures(&cli.options)?,
        Some(Command::Limits(options)) => limits(&options)?,
        Some(Command::Count(options)) => count::run(&options)?,
        Some(Command::Credits(options)) => credits::patterns::run(&options)?,
        Some(Command::FlowControl(options)) => credits::cost::run(&options)?,
        Some(Command::Gasnet(options)) => gasnet::run(&options)?,
        Some(Command::Lanes(options)) => lanes::run(&options)?,
        Some(Command::Ofi(options)) => ofi::run(&options)?,
        Some(Command::Portals4(options)) => portals4::run(&options)?,
        Some(Command::Udp(options)) => udp::run(&options)?,
        Some(Command::Peers(options)) => peers::run(&options)?,
        Some(Command::Repeat(repeat)) => repeat.run()?,
    };
    Ok(ExitCode::from(u8::from(!good)))
}

/// Measures Conduit. Returns `false` if a check failed.
fn figures(options: &FigureOptions) -> anyhow::Result<bool> {
    let choice = &options.judged.choice;
    if !choice.measures(figures::names())? {
        return Ok(true);
    }
    let asked = Options {
        quick: choice.quick,
        figures: choice.figures.clone(),
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
            // Rank 0 prints the figures.
            None => return Ok(true),
        }
    } else if options.pair {
        bail!("--pair needs a job started by a launcher: conduit-run -n 3 conduit-perf --pair");
    } else {
        run_all(&asked, progress)?
    };
    bar.finish_and_clear();
    Ok(options.judged.judge(&figures, left_out)?)
}

fn limits(options: &LimitOptions) -> anyhow::Result<bool> {
    let choice = &options.choice;
    if !choice.measures(catalogue(2).iter().map(|limit| limit.name))? {
        return Ok(true);
    }
    let bar = bar(options.ranks.len());
    let mut readings = Vec::new();
    for &sides in &options.ranks {
        bar.set_message(format!("{sides} processes"));
        let measured = survey::measure(choice, usize::from(sides));
        readings.extend(measured.with_context(|| format!("limits of {sides} processes"))?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    let table = report::readings(&readings);
    choice.format.print(&readings, &table, "")?;
    Ok(true)
}

/// Creates a progress bar on standard error. It is hidden if standard error is not a terminal.
fn bar(steps: usize) -> ProgressBar {
    let bar = ProgressBar::new(steps as u64);
    match ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len}") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
