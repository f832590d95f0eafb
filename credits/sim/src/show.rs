//! Human-readable reports.

use std::io::{self, Write};

use sim::command::{presets::UTF8_BORDERS_ONLY, table};

use crate::{Report, Rotation, Space};

/// Writes a report as tables.
pub(crate) fn report(out: &mut impl Write, report: &Report) -> io::Result<()> {
    let header = [
        "rotation",
        "µs per step",
        "speed",
        "first",
        "steps to calm",
        "epochs to calm",
        "to rest",
        "epochs to rest",
        "SYS/1000",
        "worst",
        "calm",
        "granted",
        "returned",
        "stalls/1000",
    ];
    let row = |one: &Rotation| {
        [
            one.rotation.to_string(),
            format!("{:.1}", one.time_ns / 1000.0),
            optional(one.speed, 3),
            optional(one.speed_first, 3),
            steps(one.steps_until_calm),
            optional(one.epochs_until_calm, 1),
            steps(one.steps_until_rest),
            optional(one.epochs_until_rest, 1),
            format!("{:.2}", one.system_adapting),
            format!("{:.2}", one.system_worst),
            optional(one.system_calm, 2),
            one.granted.to_string(),
            one.returned.to_string(),
            format!("{:.1}", one.stalls),
        ]
    };
    let table = table(UTF8_BORDERS_ONLY, header, report.rotations.iter().map(row));
    writeln!(out, "{table}")?;
    let summary = &report.summary;
    writeln!(
        out,
        "{} requests, {} stalls, {} system messages, {} credits granted, {} returned",
        summary.requests, summary.stalls, summary.system, summary.granted, summary.returned
    )?;
    if let Some(loan) = summary.largest_loan {
        write!(out, "largest loan {loan} credits, ")?;
    }
    writeln!(
        out,
        "at most {} credits' worth of requests waited at a rank",
        summary.waiting
    )?;
    if let Some(space) = report.space {
        writeln!(out, "memory per rank: {}", memory(space))?;
    }
    if let Some(equal) = &report.equal_static {
        write!(
            out,
            "static credits as fast: {} per peer (speed {:.3})",
            equal.credits, equal.speed
        )?;
        writeln!(out, ": {}", memory(equal.space))?;
    }
    let effort = &report.effort;
    write!(
        out,
        "{:.1} s for {:.1} M events, {:.1} M per second with {} threads",
        effort.seconds,
        effort.events as f64 / 1e6,
        effort.events_per_second / 1e6,
        effort.threads
    )?;
    match effort.peers_kept {
        Some(peers) => writeln!(out, "; state of {peers:.1} peers per rank"),
        None => writeln!(out),
    }
}

fn memory(space: Space) -> String {
    let all = space.allocated.map_or_else(
        || "more than can be planned".to_owned(),
        |allocated| format!("{} in whole buffers", bytes(allocated)),
    );
    format!(
        "{} credits, {} with events, {all}",
        space.credits,
        bytes(space.bytes)
    )
}

/// Formats a number of bytes in binary units.
pub(crate) fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut unit = 0;
    let mut value = bytes as f64;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let digits = if unit == 0 || value >= 100.0 { 0 } else { 1 };
    format!("{value:.digits$} {}", UNITS[unit])
}

/// Formats the number of steps until a state that may never be reached.
pub(crate) fn steps(steps: Option<u32>) -> String {
    steps.map_or_else(|| "never".to_owned(), |steps| steps.to_string())
}

pub(crate) fn optional(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
}
