//! The command line of the simulator.

use std::fmt::Display;
use std::io::{self, Write};
use std::ops::Range;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Context;
use clap::{Args, Parser, Subcommand, ValueEnum};
use rayon::prelude::*;
use serde::Serialize;
use sim::command::{Format, TableFormat, exit_code, part};
use sim::{Failing, MS, Progress, Tally, US, show_failing, sweep};

use crate::measure::{Bench, Measurement};
use crate::scenario::{Pattern, Phase, Sizes};
use crate::seal::SealKind;
use crate::{Report, Scenario, Until, fuzz, run};

/// Simulates the reliability protocol over UDP on a faulty network, and checks the result
#[derive(Debug, Parser)]
#[command(name = "udp-sim", version, args_conflicts_with_subcommands = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    options: RunOptions,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Print the throughput of a stream on a network that loses packets
    Loss(LossOptions),
    /// Print the throughput of many ranks that send to one
    Incast(IncastOptions),
    /// Send so many segments that sequence numbers wrap several times, and check all of them
    Wrap(WrapOptions),
    /// Feed malformed packets to endpoints, and check that they survive
    Fuzz(FuzzOptions),
}

#[derive(Debug, Args)]
struct RunOptions {
    /// The scenario's seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// A range of seeds, of which only failing scenarios are shown
    #[arg(long, value_name = "A..B", conflicts_with = "seed", value_parser = sim::seeds)]
    seeds: Option<Range<u64>>,
    /// Show the scenario
    #[arg(long)]
    verbose: bool,
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    change: Change,
}

/// Changes to the seed's scenario.
#[derive(Debug, Args)]
#[command(next_help_heading = "Changes to the seed's scenario")]
struct Change {
    /// Number of ranks (also removes the scenario's timed faults)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=4096))]
    ranks: Option<u32>,
    /// Remove the scenario's timed faults
    #[arg(long)]
    no_faults: bool,
    /// Fraction of the packets that are lost, from 0 to 1
    #[arg(long, value_name = "PART", value_parser = part)]
    loss: Option<f64>,
    /// Fraction of the packets without a segment that are lost in addition
    #[arg(long, value_name = "PART", value_parser = part)]
    ack_loss: Option<f64>,
    /// Fraction of the packets that are duplicated
    #[arg(long, value_name = "PART", value_parser = part)]
    duplicate: Option<f64>,
    /// Fraction of the packets in which bits are changed
    #[arg(long, value_name = "PART", value_parser = part)]
    corrupt: Option<f64>,
    /// Latency between two interfaces, in µs
    #[arg(long, value_name = "US")]
    latency: Option<u64>,
    /// Maximum additional latency, in µs
    #[arg(long, value_name = "US")]
    jitter: Option<u64>,
    /// Bandwidth of every interface, in Gbit/s, or 0 for no limit
    #[arg(long, value_name = "GBIT/S")]
    bandwidth: Option<f64>,
    /// UDP payload of a packet
    #[arg(long, value_name = "BYTES")]
    packet: Option<usize>,
    /// Use one phase of traffic, with this pattern
    #[arg(long, value_enum)]
    pattern: Option<Pattern>,
    /// Use one phase of traffic, with these fragment sizes
    #[arg(long, value_enum)]
    sizes: Option<Sizes>,
    /// Use one phase of traffic, with this number of fragments per pair of ranks
    #[arg(long, value_name = "N")]
    fragments: Option<u32>,
    /// Seal of the packets
    #[arg(long, value_enum)]
    seal: Option<SealKind>,
}

impl Change {
    fn apply(&self, scenario: &mut Scenario) {
        if let Some(ranks) = self.ranks {
            scenario.ranks = ranks;
        }
        if self.ranks.is_some() || self.no_faults {
            scenario.faults.clear();
        }
        let set = |value: Option<f64>, place: &mut f64| *place = value.unwrap_or(*place);
        set(self.loss, &mut scenario.path.loss);
        set(self.ack_loss, &mut scenario.path.ack_loss);
        set(self.duplicate, &mut scenario.path.duplicate);
        set(self.corrupt, &mut scenario.path.corrupt);
        if let Some(latency) = self.latency {
            scenario.path.latency = latency * US;
        }
        if let Some(jitter) = self.jitter {
            scenario.path.jitter = jitter * US;
        }
        if let Some(bandwidth) = self.bandwidth {
            scenario.host.bandwidth = (bandwidth * 1e9 / 8.0) as u64;
        }
        if let Some(packet) = self.packet {
            scenario.protocol.packet = packet.clamp(1024, 65_507);
            scenario.host.transmit_buffer =
                scenario.host.transmit_buffer.max(scenario.protocol.packet);
        }
        if self.pattern.is_some() || self.sizes.is_some() || self.fragments.is_some() {
            let first = scenario.phases.first().cloned();
            scenario.phases = vec![Phase {
                begin: 0,
                pattern: self
                    .pattern
                    .or(first.as_ref().map(|phase| phase.pattern))
                    .unwrap_or(Pattern::Pairs),
                fragments: self.fragments.unwrap_or(100),
                sizes: self
                    .sizes
                    .or(first.as_ref().map(|phase| phase.sizes))
                    .unwrap_or(Sizes::Mixed),
                gap: 0,
                burst: 1,
            }];
        }
        if let Some(seal) = self.seal {
            scenario.seal = seal;
        }
    }

    /// Returns these changes as arguments.
    fn arguments(&self) -> String {
        fn option(name: &str, value: Option<impl Display>) -> Option<String> {
            value.map(|value| format!(" --{name} {value}"))
        }
        fn choice(name: &str, value: Option<impl ValueEnum>) -> Option<String> {
            option(name, Some(value?.to_possible_value()?.get_name()))
        }
        [
            option("ranks", self.ranks),
            self.no_faults.then(|| " --no-faults".into()),
            option("loss", self.loss),
            option("ack-loss", self.ack_loss),
            option("duplicate", self.duplicate),
            option("corrupt", self.corrupt),
            option("latency", self.latency),
            option("jitter", self.jitter),
            option("bandwidth", self.bandwidth),
            option("packet", self.packet),
            choice("pattern", self.pattern),
            choice("sizes", self.sizes),
            option("fragments", self.fragments),
            choice("seal", self.seal),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    fn scenario(&self, seed: u64) -> Scenario {
        let mut scenario = Scenario::from_seed(seed);
        self.apply(&mut scenario);
        scenario
    }
}

#[derive(Debug, Args)]
struct LossOptions {
    /// Fractions of the packets that are lost
    #[arg(long, value_delimiter = ',', default_value = "0,0.001,0.01,0.02,0.05,0.1,0.2,0.3", value_parser = part)]
    losses: Vec<f64>,
    #[command(flatten)]
    format: TableFormat,
    #[command(flatten)]
    bench: Bench,
}

#[derive(Debug, Args)]
struct IncastOptions {
    /// Numbers of sending ranks
    #[arg(long, value_delimiter = ',', default_value = "1,2,8,32")]
    senders: Vec<u32>,
    /// Fraction of the packets that are lost on the way
    #[arg(long, default_value_t = 0.0, value_parser = part)]
    loss: f64,
    #[command(flatten)]
    format: TableFormat,
    #[command(flatten)]
    bench: Bench,
}

#[derive(Debug, Args)]
struct WrapOptions {
    /// How often the 24 bits of sequence numbers wrap
    #[arg(long, default_value_t = 3)]
    times: u32,
    /// Fraction of the packets that are lost
    #[arg(long, default_value_t = 0.01, value_parser = part)]
    loss: f64,
    /// Seed of all random choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Debug, Args)]
struct FuzzOptions {
    /// Total number of packets fed to endpoints
    #[arg(long, default_value_t = 1_000_000)]
    inputs: u64,
    /// Seed of all random choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Run only this session, named by a failure
    #[arg(long)]
    session: Option<u64>,
    #[command(flatten)]
    format: Format,
}

/// Runs the command line. The exit code is 1 if there were violations.
///
/// # Errors
/// Returns an error if standard output cannot be written.
pub fn main(cli: &Cli) -> anyhow::Result<ExitCode> {
    let mut out = io::stdout().lock();
    match &cli.command {
        None => match &cli.options.seeds {
            Some(seeds) => range(&mut out, &cli.options, seeds.clone()),
            None => one(&mut out, &cli.options),
        },
        Some(Command::Loss(options)) => {
            let measured: Vec<_> = options
                .losses
                .par_iter()
                .map(|&loss| options.bench.measure(1, loss))
                .collect();
            measurements(&mut out, &measured, options.format)
        }
        Some(Command::Incast(options)) => {
            let measured: Vec<_> = options
                .senders
                .par_iter()
                .map(|&senders| options.bench.measure(senders, options.loss))
                .collect();
            measurements(&mut out, &measured, options.format)
        }
        Some(Command::Wrap(options)) => wrap(&mut out, options),
        Some(Command::Fuzz(options)) => fuzzing(&mut out, options),
    }
    .context("cannot write to standard output")
}

#[derive(Serialize)]
struct Run<'a> {
    scenario: &'a Scenario,
    report: &'a Report,
}

fn one(out: &mut impl Write, options: &RunOptions) -> io::Result<ExitCode> {
    let scenario = options.change.scenario(options.seed);
    let begin = Instant::now();
    let report = run(&scenario, Until::Done);
    let both = Run {
        scenario: &scenario,
        report: &report,
    };
    options.format.write(out, &both, |out| {
        if options.verbose {
            writeln!(out, "{scenario:#?}")?;
        }
        show(out, &report)?;
        let time = begin.elapsed().as_secs_f64() * 1e3;
        writeln!(out, "{time:.1} ms of real time")
    })?;
    Ok(exit_code(report.has_passed()))
}

fn show(out: &mut impl Write, report: &Report) -> io::Result<()> {
    writeln!(
        out,
        "{} fragments of {} bytes delivered in {:.3} s of simulated time, {} events, at most {} bytes of memory per endpoint",
        report.fragments,
        report.bytes,
        report.time_ns as f64 / 1e9,
        report.events,
        report.memory
    )?;
    let network = serde_json::to_value(report.network)?;
    let of_network = network.as_object().into_iter().flatten();
    let of_network = of_network.map(|(name, value)| (name.as_str(), value.as_u64().unwrap_or(0)));
    for (title, counts) in [
        ("network", of_network.collect::<Vec<_>>()),
        ("endpoints", report.counters.clone()),
    ] {
        let counts: Vec<String> = counts
            .iter()
            .filter(|(_, value)| *value > 0)
            .map(|(name, value)| format!("{name} {value}"))
            .collect();
        writeln!(out, "{title}: {}", counts.join(", "))?;
    }
    for given_up in &report.failures {
        let (by, peer, at) = (given_up.by, given_up.peer, given_up.at as f64 / 1e9);
        writeln!(
            out,
            "at {at:.6} s process {by}: process {peer} {}",
            given_up.failure
        )?;
    }
    for violation in &report.violations {
        writeln!(out, "VIOLATION {violation}")?;
    }
    if report.has_passed() {
        writeln!(out, "no violations")?;
    }
    Ok(())
}

#[derive(Default, Serialize)]
struct Sum {
    seeds: u64,
    seconds: f64,
    events: u64,
    fragments: u64,
    packets: u64,
    failures: u64,
    memory: i64,
    failing: Failing,
}

impl Tally for Sum {
    fn add(&mut self, others: Self) {
        self.events += others.events;
        self.fragments += others.fragments;
        self.packets += others.packets;
        self.failures += others.failures;
        self.memory = self.memory.max(others.memory);
        self.failing.extend(others.failing);
    }

    fn failing(&mut self) -> &mut Failing {
        &mut self.failing
    }
}

fn range(out: &mut impl Write, options: &RunOptions, seeds: Range<u64>) -> io::Result<ExitCode> {
    let progress = Progress::new("seeds");
    progress.expect(seeds.end - seeds.start);
    let begin = Instant::now();
    let mut sum = sweep(seeds.clone(), &progress, |seed| {
        let report = run(&options.change.scenario(seed), Until::Done);
        progress.done(1);
        let violation = report.violations.first();
        Sum {
            events: report.events,
            fragments: report.fragments,
            packets: report.network.packets,
            failures: report.failures.len() as u64,
            memory: report.memory,
            failing: violation
                .map(|violation| (seed, violation.to_string()))
                .into_iter()
                .collect(),
            ..Sum::default()
        }
    });
    drop(progress);
    (sum.seeds, sum.seconds) = (seeds.end - seeds.start, begin.elapsed().as_secs_f64());
    options.format.write(out, &sum, |out| {
        let changes = options.change.arguments();
        show_failing(out, "seed", &sum.failing, |seed| {
            format!("udp-sim --seed {seed} --verbose{changes}")
        })?;
        writeln!(
            out,
            "{} seeds, {} failing; {:.1} M events, {:.1} M packets, {:.1} M fragments delivered, {} peers given up, {:.1} s",
            sum.seeds,
            sum.failing.len(),
            sum.events as f64 / 1e6,
            sum.packets as f64 / 1e6,
            sum.fragments as f64 / 1e6,
            sum.failures,
            sum.seconds
        )
    })?;
    Ok(exit_code(sum.failing.is_empty()))
}

fn measurements(
    out: &mut impl Write,
    measured: &[Measurement],
    format: TableFormat,
) -> io::Result<ExitCode> {
    let header = [
        "senders",
        "loss",
        "goodput, MB/s",
        "of the bandwidth",
        "sent again",
        "dropped by queues",
        "memory, KiB",
    ];
    let row = |one: &Measurement| {
        [
            one.senders.to_string(),
            format!("{} %", one.loss * 100.0),
            format!("{:.1}", one.goodput / 1e6),
            format!("{:.3}", one.part),
            format!("{:.2} %", one.resent * 100.0),
            one.dropped.to_string(),
            (one.memory / 1024).to_string(),
        ]
    };
    format.write(out, measured, header, measured.iter().map(row))?;
    Ok(exit_code(measured.iter().all(|one| one.violations == 0)))
}

fn wrap(out: &mut impl Write, options: &WrapOptions) -> io::Result<ExitCode> {
    let bench = Bench {
        latency: 5,
        bandwidth: 0.0,
        packet: 1024,
        socket: 4 << 20,
        queue: 4 << 20,
        time: 0,
        sizes: Sizes::Packet,
        seed: options.seed,
    };
    let mut scenario = bench.scenario(1, options.loss);
    scenario.path.jitter = 20 * US;
    scenario.path.jittered = 0.05;
    scenario.path.duplicate = 0.01;
    scenario.protocol.first_sequence = (1 << 24) - 5000;
    scenario.host.receive_time = 100;
    scenario.host.send_time = 100;
    // Each fragment takes little more than one segment, so nearly every sequence number belongs to
    // a delivery that is checked.
    scenario.phases[0].fragments = (options.times << 24) + 10_000;
    scenario.phases[0].sizes = Sizes::Short;
    scenario.protocol.link_fragments = 4096;
    let begin = Instant::now();
    let report = crate::world::run_long(&scenario);
    show(out, &report)?;
    let wraps = report.fragments >> 24;
    writeln!(
        out,
        "{wraps} wraps in {:.1} s",
        begin.elapsed().as_secs_f64()
    )?;
    debug_assert!(report.time_ns > MS);
    Ok(exit_code(
        report.has_passed() && wraps >= u64::from(options.times),
    ))
}

fn fuzzing(out: &mut impl Write, options: &FuzzOptions) -> io::Result<ExitCode> {
    let progress = Progress::new("inputs");
    let begin = Instant::now();
    let outcome = match options.session {
        Some(session) => fuzz::replay(options.seed, session),
        None => fuzz::run(options.inputs, options.seed, &progress),
    };
    drop(progress);
    options.format.write(out, &outcome, |out| {
        show_failing(out, "session", &outcome.failing, |session| {
            format!("udp-sim fuzz --seed {} --session {session}", options.seed)
        })?;
        writeln!(
            out,
            "{} inputs in {} sessions, {} failing, {} ended as broken; {} with a valid tag, at most {} bytes of memory; {:.1} s",
            outcome.inputs,
            outcome.sessions,
            outcome.failing.len(),
            outcome.broken,
            outcome.valid,
            outcome.memory,
            begin.elapsed().as_secs_f64()
        )
    })?;
    Ok(exit_code(outcome.failing.is_empty()))
}
