//! Settings: environment variables with a meaning for the engine and its networks.
//!
//! One table holds name, kind, range, default and meaning of each. [`Settings`] has a field for each of its
//! entries, [`Settings::from_env`] reads it, [`describe`] and [`Table`] print it. The `GASNET_PORTAL_*` names,
//! defaults and ranges are those of GASNet's Portals conduit ("Recognized environment variables"), and of what its
//! source kept as constants of the credit scheme; `CONDUIT_*` are Conduit's own.
//!
//! A name that begins with one of the two prefixes and is not in the table is an error, so that a misspelt setting
//! does not go unnoticed.

mod error;
mod in_job;
mod kind;
mod percent;
mod print;
mod table;
#[cfg(test)]
mod tests;

pub use error::{InJobError, SettingsError, Warning};
pub use in_job::InJob;
pub use kind::Value;
pub use percent::Percent;
pub use print::{Description, Table, describe};
pub use table::Settings;

use std::time::Duration;
use table::ROWS;

/// What the names of settings begin with.
const PREFIXES: [&str; 2] = ["GASNET_PORTAL_", "CONDUIT_"];
/// Names with such a prefix that carry the launcher's word to its ranks and are no settings.
const INTERNAL: [&str; 2] = ["CONDUIT_LAUNCHER", "CONDUIT_JOB_ID"];
/// Beginnings of names that belong to the tests and benchmarks.
const INTERNAL_PREFIXES: [&str; 2] = ["CONDUIT_TEST_", "CONDUIT_PERF_"];
/// Most edits between an unknown name and the one that is suggested for it.
const MOST_EDITS: usize = 4;

/// Which settings came from the environment rather than from their defaults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origins(u128);

const _: () = assert!(ROWS.len() <= u128::BITS as usize);

impl Origins {
    fn insert(&mut self, row: usize) {
        self.0 |= 1 << row;
    }

    fn contains(self, row: usize) -> bool {
        self.0 >> row & 1 == 1
    }
}

impl Settings {
    /// The settings of this process' environment, with what the user should be warned of.
    ///
    /// # Errors
    /// As [`from_lookup`](Self::from_lookup). Text that is not UTF-8 is no value of any setting.
    pub fn from_env() -> Result<(Self, Vec<Warning>), SettingsError> {
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
    pub fn from_lookup(
        vars: impl IntoIterator<Item = (String, String)>,
    ) -> Result<(Self, Vec<Warning>), SettingsError> {
        let mut settings = Self::default();
        let mut warnings = Vec::new();
        for (name, value) in vars {
            if !is_setting(&name) {
                continue;
            }
            let Some(index) = ROWS.iter().position(|row| row.name == name) else {
                let nearest = nearest(&name);
                return Err(SettingsError::Unknown {
                    name,
                    value,
                    nearest,
                });
            };
            if settings.origins.contains(index) {
                continue;
            }
            let row = &ROWS[index];
            let parsed = row.kind.parse(&value);
            if !parsed.is_some_and(|parsed| (row.put)(&mut settings, parsed)) {
                return Err(SettingsError::invalid(row.name, value, row.kind));
            }
            settings.origins.insert(index);
            if !row.warning.is_empty() {
                warnings.push(Warning {
                    name: row.name,
                    text: row.warning,
                });
            }
        }
        settings.check()?;
        Ok((settings, warnings))
    }

    /// True when the environment has set the variable of this name; false when its default counts.
    #[must_use]
    pub fn is_set(&self, name: &str) -> bool {
        let row = ROWS.iter().position(|row| row.name == name);
        row.is_some_and(|row| self.origins.contains(row))
    }

    /// Whether `CONDUIT_NETWORK` lets the network of this name be used.
    #[must_use]
    pub fn allows_network(&self, name: &str) -> bool {
        let asked = self.networks.as_ref();
        asked.is_none_or(|asked| asked.iter().any(|asked| asked == name))
    }

    /// How long an exiting rank of a job of `ranks` waits for the others: [`exit_timeout`](Self::exit_timeout), or
    /// the original's 3 s and 1/8 s for each rank, at most 360 s.
    #[must_use]
    pub fn exit_wait(&self, ranks: u32) -> Duration {
        match self.exit_timeout {
            Some(seconds) => Duration::from_secs(seconds.into()),
            None => Duration::from_millis((3_000 + 125 * u64::from(ranks)).min(360_000)),
        }
    }

    /// Rules that concern more than one setting.
    fn check(&self) -> Result<(), SettingsError> {
        match (self.cred_per_node, self.max_cred_per_node) {
            (Some(value), Some(limit)) if value > limit => Err(SettingsError::Above {
                name: "GASNET_PORTAL_CRED_PER_NODE",
                value,
                limited_by: "GASNET_PORTAL_MAX_CRED_PER_NODE",
                limit,
            }),
            _ => Ok(()),
        }
    }
}

/// True for names that have to be in the table.
fn is_setting(name: &str) -> bool {
    let begins = |prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix));
    begins(&PREFIXES) && !INTERNAL.contains(&name) && !begins(&INTERNAL_PREFIXES)
}

/// The setting whose name is nearest to an unknown one, if it is near.
fn nearest(name: &str) -> Option<&'static str> {
    // The distance takes time proportional to both lengths; no misspelling is this long.
    if name.len() > 64 {
        return None;
    }
    ROWS.iter()
        .map(|row| (strsim::osa_distance(name, row.name), row.name))
        .min()
        .filter(|(edits, _)| *edits <= MOST_EDITS)
        .map(|(_, name)| name)
}
