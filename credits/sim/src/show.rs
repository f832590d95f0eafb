//! A report for people.

use std::io::{self, Write};

use comfy_table::presets::UTF8_BORDERS_ONLY;
use comfy_table::{CellAlignment, Table};

use crate::{Report, Space};

/// Writes a report as tables.
pub(crate) fn report(out: &mut impl Write, report: &Report) -> io::Result<()> {
    let mut table = Table::new();
    table.load_preset(UTF8_BORDERS_ONLY).set_header([
        "rotation",
        "µs per step",
        "speed",
        "first",
        "all",
        "steps to rest",
        "epochs",
        "SYS/1000",
        "at rest",
        "moved",
        "stalls/1000",
    ]);
    for rotation in &report.rotations {
        table.add_row([
            rotation.rotation.to_string(),
            format!("{:.1}", rotation.time_ns / 1000.0),
            optional(rotation.speed, 3),
            optional(rotation.speed_first, 3),
            optional(rotation.speed_all, 3),
            rotation
                .steps_until_rest
                .map_or_else(|| "never".to_owned(), |steps| steps.to_string()),
            optional(rotation.epochs_until_rest, 1),
            format!("{:.2}", rotation.system_adapting),
            optional(rotation.system_at_rest, 2),
            rotation.moved.to_string(),
            format!("{:.1}", rotation.stalls),
        ]);
    }
    for column in table.column_iter_mut() {
        column.set_cell_alignment(CellAlignment::Right);
    }
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

/// A number of bytes, in binary units.
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

fn optional(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
}
