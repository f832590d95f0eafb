//! The output of settings in human-readable form.

use super::Value;
use std::fmt::{self, Display, Formatter};

/// One setting with its current value, to be printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// The environment variable.
    pub name: &'static str,
    /// The value of the setting, or `None` if it is unset and has no default.
    pub value: Option<Value>,
    /// The default, or `None` if the setting has none.
    pub default: Option<Value>,
    /// The value in a job of a given size, if it depends on that size. A caller that knows the size
    /// fills this field in.
    pub in_job: Option<Value>,
    /// The behaviour while the setting is unset. Empty if the setting has a default value.
    pub unset: &'static str,
    /// The accepted values.
    pub accepted: String,
    /// Whether the environment has set the variable.
    pub is_set: bool,
    /// The meaning of the setting, on one line.
    pub meaning: &'static str,
    /// The networks to whose peers the setting applies, and other places where it has an effect.
    pub acts: &'static str,
}

/// Prints all settings as a table. After a header, each setting has an aligned line with its name,
/// value, default, value in a job (if the job's size is known) and the origin of the value. The
/// indented lines below it contain the setting's meaning and its behaviour while it is unset.
#[derive(Clone, Copy)]
pub struct Table<'a> {
    /// The settings, as [described](super::Groups::describe).
    pub rows: &'a [Description],
    /// The header of the column for the values in a job. Empty if there is no such column.
    pub in_job: &'a str,
    /// A function that returns the origin of a value that is set, given the setting's name.
    pub origin: &'a dyn Fn(&str) -> &'static str,
    /// The width of the terminal, at which meanings are wrapped, or `None` if they are not wrapped.
    pub width: Option<usize>,
}

/// The indentation of meanings.
const INDENT: &str = "    ";
/// The minimum width at which meanings are wrapped.
const LEAST_WIDTH: usize = 40;

impl Display for Table<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let text = |value: &Option<Value>| value.as_ref().map_or("-".to_owned(), Value::to_string);
        let head = |words: [&str; 5]| words.map(str::to_owned);
        let mut lines = vec![head(["SETTING", "VALUE", "DEFAULT", self.in_job, "FROM"])];
        let mut below = vec![String::new()];
        for row in self.rows {
            let origin = match row.is_set {
                true => (self.origin)(row.name),
                false => "default",
            };
            lines.push([
                row.name.to_owned(),
                text(&row.value),
                text(&row.default),
                row.in_job
                    .as_ref()
                    .map_or_else(String::new, Value::to_string),
                origin.to_owned(),
            ]);
            below.push(match row.unset {
                "" => row.meaning.to_owned(),
                unset => format!("{}; default: {unset}", row.meaning),
            });
        }
        let widths: [usize; 5] = std::array::from_fn(|column| {
            let cells = lines.iter().map(|line| line[column].chars().count());
            cells.max().unwrap_or(0)
        });
        let most = self
            .width
            .map(|width| width.saturating_sub(INDENT.len()).max(LEAST_WIDTH));
        for (line, meaning) in lines.iter().zip(below) {
            let mut text = String::new();
            for (cell, width) in line.iter().zip(widths).filter(|(_, width)| *width > 0) {
                text.push_str(&format!("{cell:width$}  "));
            }
            writeln!(f, "{}", text.trim_end())?;
            for part in wrapped(&meaning, most.unwrap_or(usize::MAX)) {
                writeln!(f, "{INDENT}{part}")?;
            }
        }
        Ok(())
    }
}

/// Wraps the text at blanks into lines of at most `most` characters. A word that is longer than
/// `most` gets a line of its own.
fn wrapped(text: &str, most: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= most => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}
