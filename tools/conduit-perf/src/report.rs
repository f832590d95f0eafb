//! The output of results, which is a table and a summary, one JSON object per line, or a record.

use std::io::{self, Write};

use clap::Args;
use comfy_table::presets::UTF8_BORDERS_ONLY;
use comfy_table::{CellAlignment, Table};
use record::Record;
use serde::Serialize;

use crate::figure::{Figure, Verdict};
use crate::survey::Reading;

/// The output format of figures.
#[derive(Clone, Copy, Debug, Args)]
pub struct Format {
    /// Print JSON, one object per line
    #[arg(long)]
    json: bool,
    /// Print the table as a file of docs/figures, with date, processor, commit and command
    #[arg(long, conflicts_with = "json")]
    record: bool,
}

impl Format {
    /// Prints the figures as JSON, the table as a record, or the table with the text `below` it.
    ///
    /// # Errors
    /// Fails if standard output cannot be written, or if the record's origin cannot be determined.
    pub(crate) fn print<T: Serialize>(
        self,
        figures: &[T],
        table: &Table,
        below: impl std::fmt::Display,
    ) -> io::Result<()> {
        let mut out = io::stdout().lock();
        match self {
            Self { json: true, .. } => json_lines(&mut out, figures),
            Self { record: true, .. } => write!(out, "{}", Record::measured(table)?.json()),
            _ => write!(out, "{table}\n{below}"),
        }
    }
}

/// Writes one JSON object per line.
///
/// # Errors
/// Fails if writing to `out` fails.
pub fn json_lines<T: Serialize>(out: &mut impl Write, items: &[T]) -> io::Result<()> {
    for item in items {
        serde_json::to_writer(&mut *out, item)?;
        writeln!(out)?;
    }
    Ok(())
}

/// Returns the figures as a table.
#[must_use]
pub fn figures(figures: &[Figure]) -> Table {
    let head = [
        "figure", "size", "ranks", "value", "unit", "beside", "limit", "ratio", "±", "target",
        "verdict", "rounds",
    ];
    let row = |figure: &Figure| {
        [
            figure.name.clone(),
            bytes(figure.size),
            figure.ranks.to_string(),
            number(figure.value),
            figure.unit.to_string(),
            figure.limit_name.clone(),
            number(figure.limit),
            format!("{:.2}", figure.ratio),
            format!("{:.2}", figure.spread),
            figure
                .target
                .map_or_else(String::new, |target| target.to_string()),
            figure.verdict().map_or("", verdict).to_owned(),
            format!("{} of {}", figure.rounds, figure.rounds + figure.discarded),
        ]
    };
    table(head, figures.iter().map(row))
}

/// Returns readings of limits as a table.
#[must_use]
pub fn readings(readings: &[Reading]) -> Table {
    let head = [
        "limit", "size", "ranks", "median", "unit", "best", "worst", "rounds",
    ];
    let row = |reading: &Reading| {
        [
            reading.name.clone(),
            bytes(reading.size),
            reading.ranks.to_string(),
            number(reading.value),
            reading.unit.to_string(),
            number(reading.best),
            number(reading.worst),
            reading.rounds.to_string(),
        ]
    };
    table(head, readings.iter().map(row))
}

/// The numbers of figures by verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// The number of figures within their target.
    pub within: usize,
    /// The number of figures outside their target.
    pub outside: usize,
    /// The number of figures without a result, because their limit changed in every round.
    pub unsettled: usize,
}

impl Summary {
    /// Counts the verdicts of figures. Figures without a target have none.
    #[must_use]
    pub fn of(figures: &[Figure]) -> Self {
        let mut summary = Self::default();
        for verdict in figures.iter().filter_map(Figure::verdict) {
            *match verdict {
                Verdict::Within => &mut summary.within,
                Verdict::Outside => &mut summary.outside,
                Verdict::Unsettled => &mut summary.unsettled,
            } += 1;
        }
        summary
    }

    /// Returns whether every target is known to be met.
    #[must_use]
    pub fn all_within(self) -> bool {
        self.outside == 0 && self.unsettled == 0
    }
}

impl std::fmt::Display for Summary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            within,
            outside,
            unsettled,
        } = self;
        let targets = within + outside + unsettled;
        write!(f, "{within} of {targets} targets met, {outside} outside")?;
        if *unsettled > 0 {
            write!(
                f,
                ", {unsettled} unsettled (the limit changed in every round)"
            )?;
        }
        Ok(())
    }
}

/// Creates a table. Columns of numbers are right-aligned, even if text follows the numbers.
pub(crate) fn table<const N: usize>(
    head: [&str; N],
    rows: impl Iterator<Item = [String; N]>,
) -> Table {
    let rows: Vec<_> = rows.collect();
    let is_number =
        |cell: &str| cell.is_empty() || cell.starts_with(|c: char| c.is_ascii_digit() || c == '-');
    let mut table = Table::new();
    table.load_preset(UTF8_BORDERS_ONLY).set_header(head);
    for (index, column) in table.column_iter_mut().enumerate() {
        if rows.iter().all(|row| is_number(&row[index])) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.add_rows(rows);
    table
}

fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Within => "within",
        Verdict::Outside => "outside",
        Verdict::Unsettled => "unsettled",
    }
}

/// Formats a number with at least three significant digits.
fn number(value: f64) -> String {
    match value.abs() {
        large if large >= 100.0 => format!("{value:.0}"),
        middle if middle >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// Formats a size in bytes with the largest binary prefix that divides it. 0 becomes an empty
/// string.
pub(crate) fn bytes(size: usize) -> String {
    match size {
        0 => String::new(),
        mebi if mebi.is_multiple_of(1 << 20) => format!("{} MiB", mebi >> 20),
        kibi if kibi.is_multiple_of(1 << 10) => format!("{} KiB", kibi >> 10),
        size => format!("{size} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::Target;
    use crate::figure::tests::figure;

    #[test]
    fn only_figures_with_a_target_count() {
        let figures = [
            figure(1.0, None, 9),
            figure(1.0, Some(Target::AtMost(1.3)), 9),
            figure(2.0, Some(Target::AtMost(1.3)), 9),
            figure(1.0, Some(Target::AtMost(1.3)), 0),
        ];
        let summary = Summary::of(&figures);
        assert_eq!(
            summary,
            Summary {
                within: 1,
                outside: 1,
                unsettled: 1
            }
        );
        assert!(!summary.all_within());
        assert!(Summary::of(&figures[..2]).all_within());
        assert!(!Summary::of(&figures[3..]).all_within());
        assert!(
            summary
                .to_string()
                .starts_with("1 of 3 targets met, 1 outside, 1 unsettled")
        );
    }

    #[test]
    fn json_is_an_object_per_line() {
        let mut out = Vec::new();
        json_lines(&mut out, &[figure(1.0, None, 9), figure(1.2, None, 9)]).expect("write");
        let text = String::from_utf8(out).expect("text");
        let ratios: Vec<_> = text
            .lines()
            .map(|line| serde_json::from_str::<Figure>(line).expect("object").ratio)
            .collect();
        assert_eq!(ratios, [1.0, 1.2]);
    }

    #[test]
    fn sizes_and_numbers_read_well() {
        assert_eq!(
            [0, 8, 1024, 1500, 4 << 20].map(bytes),
            ["", "8 B", "1 KiB", "1500 B", "4 MiB"]
        );
        assert_eq!([1.234, 56.78, 1234.5].map(number), ["1.23", "56.8", "1234"]);
        let table = figures(&[figure(1.25, Some(Target::AtMost(1.3)), 9)]).to_string();
        for part in ["put", "8 B", "≤ 1.3", "within", "9 of 12"] {
            assert!(table.contains(part), "{part} not in\n{table}");
        }
    }
}
