//! The settings as people read them.

use super::Settings;
use super::table::ROWS;
use std::fmt::{self, Display, Formatter};

/// One setting with its value here, for printing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// The environment variable.
    pub name: &'static str,
    /// Its value, written as it could be given; or what happens without one, in parentheses.
    pub value: String,
    /// The default, written likewise.
    pub default: String,
    /// What values are accepted.
    pub accepted: String,
    /// Where the value comes from: `environment` or `default`.
    pub origin: &'static str,
    /// One line of meaning.
    pub meaning: &'static str,
}

/// All settings with their values here, in the table's order.
pub fn describe(settings: &Settings) -> impl Iterator<Item = Description> {
    let defaults = Settings::default();
    ROWS.iter().enumerate().map(move |(index, row)| {
        let text = |settings: &Settings| match (row.get)(settings) {
            Some(value) => value.to_string(),
            None => format!("({})", row.unset),
        };
        Description {
            name: row.name,
            value: text(settings),
            default: text(&defaults),
            accepted: row.kind.to_string(),
            origin: if settings.origins.contains(index) {
                "environment"
            } else {
                "default"
            },
            meaning: row.meaning,
        }
    })
}

/// Prints all settings: a line with name, value, default and origin, and below it the meaning and what is accepted.
#[derive(Clone, Copy, Debug)]
pub struct Table<'a>(pub &'a Settings);

impl Display for Table<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for row in describe(self.0) {
            write!(f, "{}={}", row.name, row.value)?;
            if row.value == row.default {
                writeln!(f, "  [{}]", row.origin)?;
            } else {
                writeln!(f, "  [{}; default {}]", row.origin, row.default)?;
            }
            writeln!(f, "    {}; {}", row.meaning, row.accepted)?;
        }
        Ok(())
    }
}
