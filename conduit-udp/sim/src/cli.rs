//! The command line.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Mutex;
use std::time::Instant;

use anyhow::Context;
use clap::{Args, Parser, Subcommand, ValueEnum};
use comfy_table::{CellAlignment, Table, presets};
use indicatif::{ProgressBar, ProgressStyle};
use rayon::prelude::*;
use serde::Serialize;

use crate::measure::{Bench, Measurement};
use crate::scenario::{MS, Pattern, Phase, Sizes, US};
use crate::seal::SealKind;
use crate::{Report, Scenario, Until, fuzz, run};

/// Failing seeds that are shown.
const SHOWN: usize = 20;

/// Simulates the reliability protocol over UDP on a faulty network, and checks what comes of it.
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
    /// Print what a stream still carries on a network that loses packets
    Loss(LossOptions),
    /// Print what arrives when many ranks send to one
    Incast(IncastOptions),
    /// Send so many segments that sequence numbers wrap several times, and check all of them
    Wrap(WrapOptions),
    /// Give endpoints packets that are no packets, and check that they survive
    Fuzz(FuzzOptions),
}

/// Seeds from the first up to the one before the last.
#[derive(Debug, Clone, Copy)]
struct Seeds(u64, u64);

impl FromStr for Seeds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text
            .split_once("..")
            .ok_or("two numbers with .. between them are wanted")?;
        let number = |text: &str| {
            text.replace('_', "")
                .parse::<u64>()
                .map_err(|error| format!("{text:?}: {error}"))
        };
        let seeds = Self(number(parts.0)?, number(parts.1)?);
        if seeds.0 < seeds.1 {
            Ok(seeds)
        } else {
            Err("there is no seed in it".into())
        }
    }
}

#[derive(Debug, Args)]
struct RunOptions {
    /// The scenario
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Scenarios from the first up to the one before the last; only failing ones are shown
    #[arg(long, value_name = "A..B", conflicts_with = "seed")]
    seeds: Option<Seeds>,
    /// Show the scenario
    #[arg(long)]
    verbose: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    change: Change,
}

/// What is other than the seed says.
#[derive(Debug, Args)]
#[command(next_help_heading = "Instead of what the seed says")]
struct Change {
    /// Ranks, without the scenario's faults at certain times
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=4096))]
    ranks: Option<u32>,
    /// Without faults at certain times
    #[arg(long)]
    no_faults: bool,
    /// Part of the packets that are lost, from 0 to 1
    #[arg(long, value_name = "PART", value_parser = part)]
    loss: Option<f64>,
    /// Part of the packets without a segment that are lost besides
    #[arg(long, value_name = "PART", value_parser = part)]
    ack_loss: Option<f64>,
    /// Part of the packets that come twice
    #[arg(long, value_name = "PART", value_parser = part)]
    duplicate: Option<f64>,
    /// Part of the packets in which bits are changed
    #[arg(long, value_name = "PART", value_parser = part)]
    corrupt: Option<f64>,
    /// From interface to interface, in µs
    #[arg(long, value_name = "US")]
    latency: Option<u64>,
    /// Up to so much longer, in µs
    #[arg(long, value_name = "US")]
    jitter: Option<u64>,
    /// Of every interface, in Gbit/s; 0 is without bound
    #[arg(long, value_name = "GBIT/S")]
    bandwidth: Option<f64>,
    /// UDP payload of a packet
    #[arg(long, value_name = "BYTES")]
    packet: Option<usize>,
    /// One phase of traffic: who sends to whom
    #[arg(long, value_enum)]
    pattern: Option<Pattern>,
    /// One phase of traffic: how large fragments are
    #[arg(long, value_enum)]
    sizes: Option<Sizes>,
    /// One phase of traffic: fragments of each rank to each that it sends to
    #[arg(long, value_name = "N")]
    fragments: Option<u32>,
    /// The packets' seal
    #[arg(long, value_enum)]
    seal: Option<SealKind>,
}

fn part(text: &str) -> Result<f64, String> {
    let part: f64 = text.parse().map_err(|error| format!("{error}"))?;
    if (0.0..1.0).contains(&part) || part == 1.0 {
        Ok(part)
    } else {
        Err("a part of 1 is wanted".into())
    }
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

    /// The same changes, as arguments.
    fn arguments(&self) -> String {
        let part = |name: &str, value: Option<f64>| value.map(|value| format!(" --{name} {value}"));
        let number =
            |name: &str, value: Option<u64>| value.map(|value| format!(" --{name} {value}"));
        fn name<T: ValueEnum>(name: &str, value: Option<T>) -> Option<String> {
            Some(format!(
                " --{name} {}",
                value?.to_possible_value()?.get_name()
            ))
        }
        [
            number("ranks", self.ranks.map(u64::from)),
            self.no_faults.then(|| " --no-faults".into()),
            part("loss", self.loss),
            part("ack-loss", self.ack_loss),
            part("duplicate", self.duplicate),
            part("corrupt", self.corrupt),
            number("latency", self.latency),
            number("jitter", self.jitter),
            part("bandwidth", self.bandwidth),
            number("packet", self.packet.map(|packet| packet as u64)),
            name("pattern", self.pattern),
            name("sizes", self.sizes),
            number("fragments", self.fragments.map(u64::from)),
            name("seal", self.seal),
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
    /// Parts of the packets that are lost
    #[arg(long, value_delimiter = ',', default_value = "0,0.001,0.01,0.02,0.05,0.1,0.2,0.3", value_parser = part)]
    losses: Vec<f64>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    bench: Bench,
}

#[derive(Debug, Args)]
struct IncastOptions {
    /// Ranks that send
    #[arg(long, value_delimiter = ',', default_value = "1,2,8,32")]
    senders: Vec<u32>,
    /// Part of the packets that are lost besides
    #[arg(long, default_value_t = 0.0, value_parser = part)]
    loss: f64,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    bench: Bench,
}

#[derive(Debug, Args)]
struct WrapOptions {
    /// Times that the 24 bits of sequence numbers wrap
    #[arg(long, default_value_t = 3)]
    times: u32,
    /// Part of the packets that are lost
    #[arg(long, default_value_t = 0.01, value_parser = part)]
    loss: f64,
    /// Of all that is random
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Debug, Args)]
struct FuzzOptions {
    /// Packets given to endpoints, all in all
    #[arg(long, default_value_t = 1_000_000)]
    inputs: u64,
    /// Of all that is random
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only this session, which a failure names
    #[arg(long)]
    session: Option<u64>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

fn bar(length: u64, unit: &str) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(length);
    let template =
        format!("{{bar:40}} {{human_pos}}/{{human_len}} {unit} {{elapsed}} ({{eta}} left) {{msg}}");
    if let Ok(style) = ProgressStyle::with_template(&template) {
        bar.set_style(style);
    }
    bar
}

/// Does what the command line says. The code is 1 if something is wrong with the protocol.
///
/// # Errors
/// When standard output can't be written.
pub fn main(cli: &Cli) -> anyhow::Result<ExitCode> {
    let mut out = io::stdout().lock();
    match &cli.command {
        None => match cli.options.seeds {
            Some(seeds) => range(&mut out, &cli.options, seeds),
            None => one(&mut out, &cli.options),
        },
        Some(Command::Loss(options)) => {
            let measured: Vec<_> = options
                .losses
                .par_iter()
                .map(|&loss| options.bench.measure(1, loss))
                .collect();
            measurements(&mut out, &measured, options.json)
        }
        Some(Command::Incast(options)) => {
            let measured: Vec<_> = options
                .senders
                .par_iter()
                .map(|&senders| options.bench.measure(senders, options.loss))
                .collect();
            measurements(&mut out, &measured, options.json)
        }
        Some(Command::Wrap(options)) => wrap(&mut out, options),
        Some(Command::Fuzz(options)) => fuzzing(&mut out, options),
    }
    .context("can't write standard output")
}

fn code(has_passed: bool) -> ExitCode {
    if has_passed {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
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
    if options.json {
        serde_json::to_writer(
            &mut *out,
            &Run {
                scenario: &scenario,
                report: &report,
            },
        )?;
        writeln!(out)?;
        return Ok(code(report.has_passed()));
    }
    if options.verbose {
        writeln!(out, "{scenario:#?}")?;
    }
    show(out, &report)?;
    writeln!(
        out,
        "{:.1} ms of real time",
        begin.elapsed().as_secs_f64() * 1e3
    )?;
    Ok(code(report.has_passed()))
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
        writeln!(out, "nothing is wrong")?;
    }
    Ok(())
}

#[derive(Serialize)]
struct Range {
    seeds: u64,
    seconds: f64,
    events: u64,
    fragments: u64,
    packets: u64,
    failures: u64,
    memory: i64,
    failing: Vec<(u64, String)>,
}

fn range(
    out: &mut impl Write,
    options: &RunOptions,
    Seeds(first, end): Seeds,
) -> io::Result<ExitCode> {
    let bar = bar(end - first, "seeds");
    let begin = Instant::now();
    let sum = Mutex::new(Range {
        seeds: end - first,
        seconds: 0.0,
        events: 0,
        fragments: 0,
        packets: 0,
        failures: 0,
        memory: 0,
        failing: vec![],
    });
    (first..end).into_par_iter().for_each(|seed| {
        let scenario = options.change.scenario(seed);
        // A panic is a failure of the seed like others.
        let result = std::panic::catch_unwind(|| run(&scenario, Until::Done));
        let mut sum = sum.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        match result {
            Ok(report) => {
                sum.events += report.events;
                sum.fragments += report.fragments;
                sum.packets += report.network.packets;
                sum.failures += report.failures.len() as u64;
                sum.memory = sum.memory.max(report.memory);
                if let Some(violation) = report.violations.first() {
                    sum.failing.push((seed, violation.to_string()));
                }
            }
            Err(_) => sum.failing.push((seed, "it panicked".into())),
        }
        bar.set_message(format!("{} failing", sum.failing.len()));
        bar.inc(1);
    });
    bar.finish_and_clear();
    let mut sum = sum
        .into_inner()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    sum.seconds = begin.elapsed().as_secs_f64();
    sum.failing.sort();
    if options.json {
        serde_json::to_writer(&mut *out, &sum)?;
        writeln!(out)?;
        return Ok(code(sum.failing.is_empty()));
    }
    for (seed, violation) in sum.failing.iter().take(SHOWN) {
        writeln!(out, "seed {seed}: {violation}")?;
        writeln!(
            out,
            "  udp-sim --seed {seed} --verbose{}",
            options.change.arguments()
        )?;
    }
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
    )?;
    Ok(code(sum.failing.is_empty()))
}

fn measurements(
    out: &mut impl Write,
    measured: &[Measurement],
    json: bool,
) -> io::Result<ExitCode> {
    let is_right = measured.iter().all(|one| one.violations == 0);
    if json {
        serde_json::to_writer(&mut *out, measured)?;
        writeln!(out)?;
        return Ok(code(is_right));
    }
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN);
    table.set_header([
        "senders",
        "loss",
        "goodput, MB/s",
        "of the bandwidth",
        "sent again",
        "dropped by queues",
        "memory, KiB",
    ]);
    for one in measured {
        table.add_row([
            one.senders.to_string(),
            format!("{} %", one.loss * 100.0),
            format!("{:.1}", one.goodput / 1e6),
            format!("{:.3}", one.part),
            format!("{:.2} %", one.resent * 100.0),
            one.dropped.to_string(),
            (one.memory / 1024).to_string(),
        ]);
    }
    table
        .column_iter_mut()
        .for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    writeln!(out, "{table}")?;
    Ok(code(is_right))
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
    // A little more than one segment for each fragment, so that every number is one delivery that is checked.
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
    Ok(code(
        report.has_passed() && wraps >= u64::from(options.times),
    ))
}

fn fuzzing(out: &mut impl Write, options: &FuzzOptions) -> io::Result<ExitCode> {
    let bar = bar(options.inputs, "inputs");
    let begin = Instant::now();
    let outcome = match options.session {
        Some(session) => fuzz::replay(options.seed, session),
        None => fuzz::run(options.inputs, options.seed, |inputs| bar.inc(inputs)),
    };
    bar.finish_and_clear();
    if options.json {
        serde_json::to_writer(&mut *out, &outcome)?;
        writeln!(out)?;
        return Ok(code(outcome.failing.is_empty()));
    }
    for (session, what) in outcome.failing.iter().take(SHOWN) {
        writeln!(out, "session {session}: {what}")?;
        writeln!(
            out,
            "  udp-sim fuzz --seed {} --session {session}",
            options.seed
        )?;
    }
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
    )?;
    Ok(code(outcome.failing.is_empty()))
}
