//! Settings, which are environment variables with a defined meaning. This crate contains the code
//! that all settings share. It defines no setting itself.
//!
//! Each crate has its own table, which gives the name, kind, range, default and meaning of each of
//! the crate's settings ([`group!`]). The table defines a struct with a field for each entry. A
//! program combines several such structs ([`compose!`]), [reads](Groups::from_env) all their
//! settings at once, [describes](Groups::describe) them, and prints them as a [`Table`].
//!
//! A name that has the prefix of a setting but is in no table is an error, so that a misspelt
//! setting does not go unnoticed.

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

/// The prefixes of the names of settings.
const PREFIXES: [&str; 2] = ["GASNET_PORTAL_", "CONDUIT_"];
/// Names that have such a prefix but are not settings. The launcher sets them for its ranks or
/// reads them itself, or clients of the node agent read them.
const INTERNAL: [&str; 5] = [
    "CONDUIT_LAUNCHER",
    "CONDUIT_JOB_ID",
    "CONDUIT_AGENT",
    "CONDUIT_REMOTE_SHELL",
    "CONDUIT_CHANNELS_LIBRARY",
];
/// The prefixes of names that belong to the tests, the benchmarks and the node agent. These may be
/// started in the same environment as a job.
const INTERNAL_PREFIXES: [&str; 3] = ["CONDUIT_TEST_", "CONDUIT_PERF_", "CONDUIT_HSTA_"];
/// The maximum number of edits between an unknown name and the name suggested for it.
const MOST_EDITS: usize = 4;

/// One group of settings, or several that are read together.
pub trait Groups: Default {
    /// Returns all groups, in the order in which they are printed.
    fn groups(&self) -> Vec<&dyn Group>;
    /// Returns all groups for modification.
    fn groups_mut(&mut self) -> Vec<&mut dyn Group>;

    /// Reads the settings from this process's environment, and returns them with warnings for the
    /// user.
    ///
    /// # Errors
    /// Same as [`from_lookup`](Self::from_lookup). Text that is not UTF-8 is invalid for every
    /// setting.
    fn from_env() -> Result<(Self, Vec<Warning>), SettingsError> {
        // Variables that are not settings may contain any bytes. In the text of a setting, bytes
        // that are not UTF-8 become U+FFFD, which no kind accepts.
        Self::from_lookup(std::env::vars_os().map(|(name, value)| {
            (
                name.to_string_lossy().into_owned(),
                value.to_string_lossy().into_owned(),
            )
        }))
    }

    /// Reads the settings from a list of variables, and returns them with warnings for the user.
    /// The list may contain variables that do not concern Conduit. If a name occurs twice, the
    /// first occurrence is used, as by `getenv`.
    ///
    /// # Errors
    /// Returns an error for the first variable whose name is unknown or whose value is malformed or
    /// out of range. If there is no such variable, returns an error if settings contradict each
    /// other.
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

    /// Returns whether the environment has set this variable. If not, its default applies.
    fn is_set(&self, name: &str) -> bool {
        self.groups().iter().any(|group| {
            let row = group.rows().iter().position(|row| row.name == name);
            row.is_some_and(|row| group.origins().contains(row))
        })
    }

    /// Returns all settings with their current values, in the order in which they are printed.
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

/// Returns whether a name is invalid unless it is in a table.
fn is_setting(name: &str) -> bool {
    let begins = |prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix));
    begins(&PREFIXES) && !INTERNAL.contains(&name) && !begins(&INTERNAL_PREFIXES)
}

/// Returns the setting whose name is most similar to an unknown name, if it is similar enough.
fn nearest(name: &str, names: impl Iterator<Item = &'static str>) -> Option<&'static str> {
    // Computing the distance takes time proportional to the product of the two lengths. Longer
    // names are skipped, because no misspelt name is that long.
    if name.len() > 64 {
        return None;
    }
    names
        .map(|known| (strsim::osa_distance(name, known), known))
        .min()
        .filter(|(edits, _)| *edits <= MOST_EDITS)
        .map(|(_, name)| name)
}
