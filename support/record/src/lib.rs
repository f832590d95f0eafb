//! Records of figures. A record consists of a table and its origin: the date, the processor, the
//! commit, and the command that produced the table.
//!
//! Programs that measure or simulate print a [`Record`] if they are called with `--record`. The
//! folder [`FOLDER`] contains one record for each table of figures in the documentation's pages.
//! The pages show the tables between [markers](fill).

#![forbid(unsafe_code)]

#[cfg(test)]
mod pages;

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use comfy_table::Table;
use serde::{Deserialize, Serialize};
use serde_json::to_string;

/// The folder of all records.
pub const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/figures");

/// The value of [`Record::processor`] for figures that do not depend on the processor.
pub const SIMULATED: &str = "simulated";

const BEGIN: &str = "<!-- figures: ";
const END: &str = "<!-- end -->\n";

/// A table of figures and its origin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// The date, as in 2026-11-27.
    pub date: String,
    /// The processor.
    pub processor: String,
    /// The commit that was measured.
    pub commit: String,
    /// The command that produced the figures.
    pub command: String,
    /// The titles of the columns.
    pub columns: Vec<String>,
    /// The cells, as the page shows them.
    pub rows: Vec<Vec<String>>,
}

impl Record {
    /// Makes the record of a table that this program has measured on this machine.
    ///
    /// # Errors
    /// Fails if the date or the processor cannot be determined.
    pub fn measured(table: &Table) -> io::Result<Self> {
        let cpus = std::fs::read_to_string("/proc/cpuinfo")?;
        let model = cpus
            .lines()
            .find_map(|line| line.strip_prefix("model name"));
        let processor = model.map_or(std::env::consts::ARCH, |model| {
            model.trim_start_matches([' ', '\t', ':'])
        });
        Self::of(table, processor)
    }

    /// Makes the record of a table that this program computes identically on every machine.
    ///
    /// # Errors
    /// Fails if the date cannot be determined.
    pub fn simulated(table: &Table) -> io::Result<Self> {
        Self::of(table, SIMULATED)
    }

    fn of(table: &Table, processor: &str) -> io::Result<Self> {
        let mut words = std::env::args();
        let program = words.next().unwrap_or_default();
        let program = Path::new(&program).file_name().unwrap_or_default();
        let mut command = program.to_string_lossy().into_owned();
        for word in words.filter(|word| word != "--record") {
            command = format!("{command} {word}");
        }
        let cells = |row: &comfy_table::Row| row.cell_iter().map(|cell| cell.content()).collect();
        let (date, commit) = now()?;
        Ok(Self {
            date,
            processor: processor.to_owned(),
            commit,
            command,
            columns: table.header().map(cells).unwrap_or_default(),
            rows: table.row_iter().map(cells).collect(),
        })
    }

    /// Reads the record with this name.
    ///
    /// # Errors
    /// Fails if the file cannot be read or is not a record.
    pub fn read(name: &str) -> io::Result<Self> {
        let text = std::fs::read_to_string(path(name))?;
        Ok(serde_json::from_str(&text)?)
    }

    /// Writes the record with this name.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn write(&self, name: &str) -> io::Result<()> {
        std::fs::write(path(name), self.json())
    }

    /// Returns the file's text, which is JSON with one row per line. Thus a diff of two versions
    /// shows the changed rows.
    #[must_use]
    pub fn json(&self) -> String {
        let head = [
            ("date", json(&self.date)),
            ("processor", json(&self.processor)),
            ("commit", json(&self.commit)),
            ("command", json(&self.command)),
            ("columns", json(&self.columns)),
        ];
        let head = head.map(|(name, value)| format!("  \"{name}\": {value},\n"));
        let rows: Vec<_> = self.rows.iter().map(json).collect();
        let rows = rows.join(",\n    ");
        format!("{{\n{}  \"rows\": [\n    {rows}\n  ]\n}}\n", head.concat())
    }

    /// Compares the figures with those in the file of this name, for tests. If they differ and
    /// `CONDUIT_TEST_WRITE` is in the environment, writes the new figures to the file, with today's
    /// date and this commit.
    ///
    /// # Panics
    /// Panics if the figures differ and `CONDUIT_TEST_WRITE` is not set, or if the file cannot be
    /// read or written.
    pub fn renew(mut self, name: &str) {
        let old = Self::read(name).expect("docs/figures can be read");
        if (&self.columns, &self.rows) == (&old.columns, &old.rows) {
            return;
        }
        (self.date, self.commit) = now().expect("a date");
        let (old, new) = (old.json(), self.json());
        assert!(
            std::env::var_os("CONDUIT_TEST_WRITE").is_some(),
            "{name} is stale; CONDUIT_TEST_WRITE=1 renews it.\n{old}Now:\n{new}"
        );
        self.write(name).expect("docs/figures can be written");
    }

    /// Returns the Markdown of the table for a page, with a line below it that links to the file.
    /// Columns of numbers are right-aligned.
    #[must_use]
    pub fn markdown(&self, name: &str) -> String {
        let line = |cells: &[String]| {
            let cell = |cell: &String| match &cell[..] {
                "" => " |".to_owned(),
                cell => format!(" {} |", cell.replace('|', "\\|")),
            };
            format!("|{}\n", cells.iter().map(cell).collect::<String>())
        };
        let rules = (0..self.columns.len()).map(|column| {
            let mut cells = self
                .rows
                .iter()
                .filter_map(|row| row.get(column))
                .peekable();
            let is_right = cells.peek().is_some() && cells.all(|cell| is_number(cell));
            if is_right { "---:" } else { "---" }.to_owned()
        });
        let rules: Vec<_> = rules.collect();
        let mut page = line(&self.columns) + &line(&rules).replace(' ', "");
        page.extend(self.rows.iter().map(|row| line(row)));
        let Self {
            date,
            processor,
            commit,
            ..
        } = self;
        page + &format!("\n*[{date}, {processor}, {commit}](figures/{name}.json)*\n")
    }
}

/// Returns the path of the record with this name.
#[must_use]
pub fn path(name: &str) -> PathBuf {
    Path::new(FOLDER).join(name).with_extension("json")
}

/// Returns the names of all records, sorted.
///
/// # Errors
/// Fails if the folder cannot be read.
pub fn names() -> io::Result<Vec<String>> {
    let name = |entry: io::Result<std::fs::DirEntry>| {
        let path = entry?.path();
        Ok(path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned())
    };
    let mut names: Vec<_> = std::fs::read_dir(FOLDER)?
        .map(name)
        .collect::<io::Result<_>>()?;
    names.sort();
    Ok(names)
}

/// Returns a page in which the text between `<!-- figures: NAME -->` and `<!-- end -->` is replaced
/// with the result of `show` for each name.
///
/// # Errors
/// Fails if `show` fails or a marker has no end.
pub fn fill(page: &str, mut show: impl FnMut(&str) -> io::Result<String>) -> io::Result<String> {
    let unended = || io::Error::other("a figures marker has no <!-- end -->");
    let (mut filled, mut rest) = (String::new(), page);
    while let Some((before, after)) = rest.split_once(BEGIN) {
        let (name, after) = after.split_once(" -->\n").ok_or_else(unended)?;
        let (_, after) = after.split_once(END).ok_or_else(unended)?;
        filled += &format!("{before}{BEGIN}{name} -->\n{}{END}", show(name)?);
        rest = after;
    }
    Ok(filled + rest)
}

/// Returns whether a cell is a number, perhaps with a unit or next to other numbers.
fn is_number(cell: &str) -> bool {
    let number = cell.trim_start_matches(['*', '~', '-', '≤', '≥', ' ']);
    number.is_empty() || number.starts_with(|first: char| first.is_ascii_digit())
}

fn json(value: &impl Serialize) -> String {
    to_string(value).expect("strings are JSON")
}

/// Returns the date and the commit. The commit is `unknown` outside a checkout.
fn now() -> io::Result<(String, String)> {
    let date = output("date", &["--utc", "+%F"])?;
    let commit = output("git", &["rev-parse", "--short", "HEAD"]);
    // Changes in `docs` do not make the commit dirty, because pages have no effect on figures.
    // Moreover, if the shell redirects the output to the record's file, that file has changed
    // before the program runs.
    let changes = ["diff", "--quiet", "HEAD", "--", ":/", ":(top,exclude)docs"];
    let commit = match (commit, output("git", &changes)) {
        (Err(_), _) => "unknown".to_owned(),
        (Ok(commit), Ok(_)) => commit,
        (Ok(commit), Err(_)) => commit + "-dirty",
    };
    Ok((date, commit))
}

/// Returns the standard output of a program, trimmed.
fn output(program: &str, arguments: &[&str]) -> io::Result<String> {
    let output = Command::new(program).args(arguments).output()?;
    if !output.status.success() {
        return Err(io::Error::other(format!(
            "{program} failed: {}",
            output.status
        )));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(rows: &[[&str; 2]]) -> Record {
        let mut table = Table::new();
        table.set_header(["loss", "goodput"]).add_rows(rows);
        Record::simulated(&table).expect("a date")
    }

    #[test]
    fn a_record_names_its_origin_and_comes_back_equal() {
        let record = record(&[["0 %", "1"], ["1 %", "0.9"]]);
        assert_eq!((record.date.len(), &record.processor[..]), (10, SIMULATED));
        assert!(record.command.starts_with("record-"), "{}", record.command);
        assert_eq!(record.columns, ["loss", "goodput"]);
        let json = record.json();
        assert!(
            json.contains("    [\"0 %\",\"1\"],\n    [\"1 %\",\"0.9\"]\n"),
            "{json}"
        );
        assert_eq!(
            serde_json::from_str::<Record>(&json).expect("a record"),
            record
        );
    }

    #[test]
    fn pages_show_tables_between_markers() {
        let mut record = record(&[["a|b", "**1.5** µs"], ["", "≤ 2"]]);
        (record.date, record.commit) = ("2026-11-27".into(), "1234567".into());
        let page = "before\n<!-- figures: some -->\nold\n<!-- end -->\nafter\n";
        let filled = fill(page, |name| Ok(record.markdown(name))).expect("it has an end");
        let table = "| loss | goodput |\n|---|---:|\n| a\\|b | **1.5** µs |\n| | ≤ 2 |\n";
        let origin = "*[2026-11-27, simulated, 1234567](figures/some.json)*";
        assert_eq!(
            filled,
            format!("before\n<!-- figures: some -->\n{table}\n{origin}\n<!-- end -->\nafter\n")
        );
        let unended = fill(&page.replace(END, ""), |_| Ok(String::new()));
        assert!(unended.is_err());
    }
}
