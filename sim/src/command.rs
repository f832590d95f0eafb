//! What a simulator's command line takes and prints.

use std::io::{self, Write};
use std::process::ExitCode;

pub use comfy_table::presets;
use comfy_table::{CellAlignment, Table};
use serde::Serialize;

/// How a result is printed.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Format {
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

impl Format {
    /// Writes a result as one line of JSON if that was asked for, else as `show` does.
    ///
    /// # Errors
    /// `out` can't be written.
    pub fn write<W: Write>(
        self,
        out: &mut W,
        result: &(impl Serialize + ?Sized),
        show: impl FnOnce(&mut W) -> io::Result<()>,
    ) -> io::Result<()> {
        if !self.json {
            return show(out);
        }
        serde_json::to_writer(&mut *out, result)?;
        writeln!(out)
    }
}

/// Reads a part of 1.
///
/// # Errors
/// It is none.
pub fn part(text: &str) -> Result<f64, String> {
    let part: f64 = text.parse().map_err(|error| format!("{error}"))?;
    if !(0.0..=1.0).contains(&part) {
        return Err("a part of 1 is wanted".into());
    }
    Ok(part)
}

/// The code with which a simulator ends that finds faults: 1 if it has found one.
pub fn exit_code(has_passed: bool) -> ExitCode {
    match has_passed {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// A table of numbers, in one of the [`presets`].
pub fn table<const COLUMNS: usize>(
    preset: &str,
    header: [&str; COLUMNS],
    rows: impl IntoIterator<Item = [String; COLUMNS]>,
) -> Table {
    let mut table = Table::new();
    table.load_preset(preset).set_header(header).add_rows(rows);
    for column in table.column_iter_mut() {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
