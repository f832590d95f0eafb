//! Settings: environment variables with a meaning, of which nothing is known here.
//!
//! Each crate has a table of its own, which holds name, kind, range, default and meaning of each setting ([`group!`]); a program
//! puts them together ([`compose!`]). What comes of it has a field for each entry, is [read](Groups::from_env) at once,
//! [described](Groups::describe), and printed as a [`Table`].
//!
//! A name that begins as settings do and is in no table is an error, so that a misspelt setting does not go unnoticed.

mod error;
mod group;
mod kind;
mod percent;
mod print;

pub use error::{SettingsError, Warning};
pub use group::{Attribute, Group, Origins, Row};
pub use kind::{Field, MOST_BYTES, MOST_TIME, Value, ValueKind};
pub use percent::Percent;
pub use print::{Description, Table};

/// What the names of settings begin with.
const PREFIXES: [&str; 2] = ["GASNET_PORTAL_", "CONDUIT_"];
/// Names with such a prefix that carry the launcher's word to its ranks, or are those of clients of the node agent, and are
/// no settings.
const INTERNAL: [&str; 4] = [
    "CONDUIT_LAUNCHER",
    "CONDUIT_JOB_ID",
    "CONDUIT_AGENT",
    "CONDUIT_CHANNELS_LIBRARY",
];
/// Beginnings of names that belong to the tests and benchmarks, and to the node agent, which a launcher may start.
const INTERNAL_PREFIXES: [&str; 3] = ["CONDUIT_TEST_", "CONDUIT_PERF_", "CONDUIT_HSTA_"];
/// Most edits between an unknown name and the one that is suggested for it.
const MOST_EDITS: usize = 4;

/// One group of settings, or several that are read together.
pub trait Groups: Default {
    /// All of them, in the order in which they are printed.
    fn groups(&self) -> Vec<&dyn Group>;
    /// The same, to be changed.
    fn groups_mut(&mut self) -> Vec<&mut dyn Group>;

    /// The settings of this process' environment, with what the user should be warned of.
    ///
    /// # Errors
    /// As [`from_lookup`](Self::from_lookup). Text that is not UTF-8 is no value of any setting.
    fn from_env() -> Result<(Self, Vec<Warning>), SettingsError> {
        // Other variables may be anything; what is lost in a setting's own text stays visible as U+FFFD.
        Self::from_lookup(std::env::vars_os().map(|(name, value)| {
            (
                name.to_string_lossy().into_owned(),
                value.to_string_lossy().into_owned(),
            )
        }))
    }

    /// The settings in a list of variables, most of which may have nothing to do with Conduit. Of a name that comes
    /// twice the first counts, as in `getenv`.
    ///
    /// # Errors
    /// The first variable whose name is unknown, or whose value does not parse or is out of range; then settings that
    /// contradict each other.
    fn from_lookup(
        vars: impl IntoIterator<Item = (String, String)>,
    ) -> Result<(Self, Vec<Warning>), SettingsError> {
        let mut settings = Self::default();
        let mut groups = settings.groups_mut();
        let mut warnings = Vec::new();
        for (name, value) in vars {
            let found = groups.iter_mut().find_map(|group| {
                let index = group.rows().iter().position(|row| row.name == name)?;
                Some((group, index))
            });
            let Some((group, index)) = found else {
                if !is_setting(&name) {
                    continue;
                }
                let names = groups.iter().flat_map(|group| group.rows());
                let nearest = nearest(&name, names.map(|row| row.name));
                return Err(SettingsError::Unknown {
                    name,
                    value,
                    nearest,
                });
            };
            if group.origins().contains(index) {
                continue;
            }
            let row = &group.rows()[index];
            let parsed = row.kind.parse(&value);
            if !parsed.is_some_and(|parsed| group.put(index, parsed)) {
                return Err(SettingsError::invalid(row.name, value, row.kind));
            }
            if !row.warning.is_empty() {
                warnings.push(Warning {
                    name: row.name,
                    text: row.warning,
                });
            }
        }
        for group in groups {
            group.check()?;
        }
        Ok((settings, warnings))
    }

    /// True when the environment has set the variable of this name; false when its default counts.
    fn is_set(&self, name: &str) -> bool {
        self.groups().iter().any(|group| {
            let row = group.rows().iter().position(|row| row.name == name);
            row.is_some_and(|row| group.origins().contains(row))
        })
    }

    /// All settings with their values here, in the order in which they are printed.
    fn describe(&self) -> Vec<Description> {
        let defaults = Self::default();
        let groups = self.groups().into_iter().zip(defaults.groups());
        let rows = groups.flat_map(|(here, default)| {
            let rows = here.rows().iter().enumerate();
            rows.map(move |(index, row)| Description {
                name: row.name,
                value: here.get(index),
                default: default.get(index),
                in_job: None,
                unset: row.unset,
                accepted: row.kind.to_string(),
                is_set: here.origins().contains(index),
                meaning: row.meaning,
                acts: row.acts,
            })
        });
        rows.collect()
    }
}

impl<G: Group + Default> Groups for G {
    fn groups(&self) -> Vec<&dyn Group> {
        vec![self]
    }

    fn groups_mut(&mut self) -> Vec<&mut dyn Group> {
        vec![self]
    }
}

/// True for names that have to be in a table.
fn is_setting(name: &str) -> bool {
    let begins = |prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix));
    begins(&PREFIXES) && !INTERNAL.contains(&name) && !begins(&INTERNAL_PREFIXES)
}

/// The setting whose name is nearest to an unknown one, if it is near.
fn nearest(name: &str, names: impl Iterator<Item = &'static str>) -> Option<&'static str> {
    // The distance takes time proportional to both lengths; no misspelling is this long.
    if name.len() > 64 {
        return None;
    }
    names
        .map(|known| (strsim::osa_distance(name, known), known))
        .min()
        .filter(|(edits, _)| *edits <= MOST_EDITS)
        .map(|(_, name)| name)
}
