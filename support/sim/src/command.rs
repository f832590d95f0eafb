//! The command-line options and the output of simulators.

use std::io::{self, Write};
use std::process::ExitCode;

pub use comfy_table::presets;
use comfy_table::{CellAlignment, Row, Table};
use record::Record;
use serde::Serialize;

/// The format of a result.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Format {
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

impl Format {
    /// Writes a result as a line of JSON if requested, otherwise with `show`.
    ///
    /// # Errors
    /// Fails if writing to `out` fails.
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

/// The format of a table.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct TableFormat {
    #[command(flatten)]
    format: Format,
    /// Print the table as a file of docs/figures, with date, commit and command
    #[arg(long, conflicts_with = "json")]
    record: bool,
}

impl TableFormat {
    /// Writes results in the requested format: as JSON, as a record of their table, or as their
    /// table in Markdown.
    ///
    /// # Errors
    /// Fails if writing to `out` fails, or if a record's date cannot be determined.
    pub fn write<W: Write>(
        self,
        out: &mut W,
        results: &(impl Serialize + ?Sized),
        header: impl Into<Row>,
        rows: impl IntoIterator<Item = impl Into<Row>>,
    ) -> io::Result<()> {
        let table = table(presets::ASCII_MARKDOWN, header, rows);
        self.write_or(out, results, &table, |out| writeln!(out, "{table}"))
    }

    /// Writes results in the requested format: as JSON, as a record of `table`, or in the form that
    /// `show` writes.
    ///
    /// # Errors
    /// Same as [`write`](Self::write).
    pub fn write_or<W: Write>(
        self,
        out: &mut W,
        results: &(impl Serialize + ?Sized),
        table: &Table,
        show: impl FnOnce(&mut W) -> io::Result<()>,
    ) -> io::Result<()> {
        match self.record {
            true => write!(out, "{}", Record::simulated(table)?.json()),
            false => self.format.write(out, results, show),
        }
    }
}

/// Formats a whole number with commas between thousands.
pub fn whole(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Parses a fraction from 0 to 1.
///
/// # Errors
/// Fails if the text is not such a number.
pub fn part(text: &str) -> Result<f64, String> {
    let part: f64 = text.parse().map_err(|error| format!("{error}"))?;
    if !(0.0..=1.0).contains(&part) {
        return Err("expected a number from 0 to 1".into());
    }
    Ok(part)
}

/// Returns the exit code of a simulator that searches for faults, which is 1 if it has found one.
pub fn exit_code(has_passed: bool) -> ExitCode {
    match has_passed {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// Creates a table of numbers, in one of the [`presets`].
pub fn table(
    preset: &str,
    header: impl Into<Row>,
    rows: impl IntoIterator<Item = impl Into<Row>>,
) -> Table {
    let mut table = Table::new();
    table.load_preset(preset).set_header(header).add_rows(rows);
    for column in table.column_iter_mut() {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::whole;

    #[test]
    fn thousands_are_set_apart() {
        let texts = [0.0, 999.6, 12_345.0, 1_567_500.0].map(whole);
        assert_eq!(texts, ["0", "1,000", "12,345", "1,567,500"]);
    }
}
