//! What Conduit reaches over UDP beside what the loopback interface allows: `conduit-perf udp`.
//!
//! Two processes on two cores, as for the bare limits alone. The rows, from the bottom up:
//!
//! | row | beside |
//! |---|---|
//! | `wire-round-trip`: socket, seal and protocol, without portals and engine; polling and blocking | a bare UDP round trip with the same waiting |
//! | `wire-stream`: the same, fragments of 1 MiB placed where they belong | a bare UDP stream with the same packets and offload |
//!
//! [`rows`] is the list.

mod engine;
mod wire;

pub(crate) use engine::measure_pair;
pub use engine::rank_main;

use std::io::{self, Write};

use anyhow::Context;
use clap::Args;

use crate::alternate::Plan;
use crate::companions::Companions;
use crate::compare::{Comparison, measure_all};
use crate::figure::{Figure, Target, Unit};
use crate::limits::udp::{BLOCK, Waiting};
use crate::limits::{STREAM_PACKETS, udp_round_trip, udp_stream};
use crate::mapping::Mapping;
use crate::placement::Cores;
use crate::side::{PATIENCE, Side};
use crate::{Error, area, report, select};

use wire::{RoundTrips, Stream};

/// What to measure over UDP.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Print one JSON object per figure and line
    #[arg(long)]
    json: bool,
    /// Only name the figures
    #[arg(long)]
    list: bool,
    /// Exit with 1 unless every figure with a target meets it
    #[arg(long)]
    check: bool,
    /// Measure less often and more briefly
    #[arg(long)]
    quick: bool,
    /// Only these, by name or the first words of it
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    figures: Vec<String>,
    /// Be the other side of this measurement; the shared memory is standard input
    #[arg(long, hide = true)]
    other: bool,
}

/// Everything that is measured, in this order; the same on both sides.
#[must_use]
pub fn rows() -> Vec<Comparison<'static>> {
    let mut rows = Vec::new();
    for (name, waiting) in [
        ("wire-round-trip", Waiting::Polling),
        ("wire-round-trip-blocking", Waiting::Blocking),
    ] {
        for size in [8, 64] {
            rows.push(Comparison::new(
                name,
                size,
                udp_round_trip(size, waiting),
                Some(Target::AtMost(1.3)),
                RoundTrips::new(size, waiting),
            ));
        }
    }
    for packet in STREAM_PACKETS {
        // What is asked for is a part of the best stream, and the longest packets give that.
        let target = (Some(&packet) == STREAM_PACKETS.last()).then_some(Target::AtLeast(0.7));
        rows.push(Comparison::new(
            wire::stream_name(packet),
            BLOCK,
            udp_stream(packet),
            target,
            Stream::new(packet),
        ));
    }
    rows
}

/// Measures and prints. False if a check failed.
///
/// # Errors
/// The measurement failed or the results can't be written.
pub fn run(options: &Options) -> anyhow::Result<bool> {
    let mut rows = rows();
    let names = || {
        let wires = rows.iter().map(|row| row.name);
        engine::names().chain(wires)
    };
    select::check(&options.figures, names())?;
    if options.list {
        let mut names: Vec<_> = names().collect();
        names.dedup();
        writeln!(io::stdout(), "{}", names.join("\n"))?;
        return Ok(true);
    }
    rows.retain(|row| select::wanted(&options.figures, row.name));
    let plan = plan(options.quick);
    if options.other {
        let mapping = crate::companions::handed_over()?;
        let side = Side::join(mapping.area()?, Cores::allowed()?, 1, 2, PATIENCE)?;
        measure_rows(&side, plan, &mut rows)?;
        side.meet()?;
        return Ok(true);
    }
    let wanted = rows.len()
        + engine::names()
            .filter(|name| select::wanted(&options.figures, name))
            .count();
    let mut figures = engine::measure(options)?;
    if !rows.is_empty() {
        figures.extend(wires(options, plan, &mut rows)?);
    }
    if figures.len() < wanted {
        eprintln!(
            "{} figures left out: they need two cores",
            wanted - figures.len()
        );
    }
    let summary = report::Summary::of(&figures);
    let mut out = io::stdout().lock();
    if options.json {
        report::json_lines(&mut out, &figures)?;
    } else {
        writeln!(out, "{}\n{summary}", report::figures(&figures))?;
    }
    Ok(!options.check || (summary.all_within() && figures.len() == wanted))
}

fn plan(quick: bool) -> Plan {
    if quick { Plan::QUICK } else { Plan::FULL }
}

/// The plan for a bandwidth: so long that the way of the first and the last packet no longer counts.
fn long(plan: Plan) -> Plan {
    Plan {
        time: plan.time * 5,
        ..plan
    }
}

/// Measures `rows`, one after the other, on both sides at once; side 0 gets the figures.
pub(crate) fn measure_rows(
    side: &Side<'_>,
    plan: Plan,
    rows: &mut [Comparison<'_>],
) -> Result<Vec<Figure>, Error> {
    let mut figures = Vec::new();
    for row in rows {
        let plan = match row.limit.unit {
            Unit::Gigabytes => long(plan),
            _ => plan,
        };
        let row = std::slice::from_mut(row);
        figures.extend(measure_all(side, plan, row, &mut |_, _| {})?);
    }
    Ok(figures)
}

/// Measures the wire with another process, this program again.
fn wires(
    options: &Options,
    plan: Plan,
    rows: &mut [Comparison<'_>],
) -> anyhow::Result<Vec<Figure>> {
    let mapping = Mapping::anonymous(area::AREA_BYTES)?;
    let mut companions = Companions::start(&mapping, 2, |_| {
        let mut arguments = vec!["udp".to_owned(), "--other".to_owned()];
        if options.quick {
            arguments.push("--quick".to_owned());
        }
        if !options.figures.is_empty() {
            arguments.extend(["--figures".to_owned(), options.figures.join(",")]);
        }
        arguments
    })?;
    let figures = measure(&mapping, plan, rows);
    match companions.ended() {
        Some((_, status)) if figures.is_err() => {
            figures.with_context(|| format!("the other process ended: {status}"))
        }
        _ => figures,
    }
}

fn measure(
    mapping: &Mapping,
    plan: Plan,
    rows: &mut [Comparison<'_>],
) -> anyhow::Result<Vec<Figure>> {
    let side = Side::join(mapping.area()?, Cores::allowed()?, 0, 2, PATIENCE)?;
    let figures = measure_rows(&side, plan, rows)?;
    // Nobody leaves before all have done their part.
    side.meet()?;
    Ok(figures)
}
