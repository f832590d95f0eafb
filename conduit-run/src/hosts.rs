//! The hosts of a job: lists of hosts in the notations of other launchers, and how many ranks each
//! host gets. All of this is free of I/O, except that a caller reads files and the environment.

mod environment;
mod list;
mod place;
#[cfg(test)]
mod tests;

use std::fmt;

pub(crate) use environment::{Source, from_environment};
pub(crate) use list::{parse_file, parse_list};
pub use place::PlaceError;
pub(crate) use place::{Want, mapping, needs_processors, oversubscribed, place};

/// A host of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Host {
    /// The name, as the remote shell takes it.
    pub(crate) name: String,
    /// The number of ranks that the host is meant for, if the list has one.
    pub(crate) slots: Option<usize>,
    /// The maximum number of ranks, if the list has one.
    pub(crate) max_slots: Option<usize>,
}

impl Host {
    fn new(name: impl Into<String>, slots: Option<usize>) -> Self {
        Host {
            name: name.into(),
            slots,
            max_slots: None,
        }
    }
}

/// The maximum number of hosts of a list.
pub(crate) const MAX_HOSTS: usize = 65_536;
/// The maximum number of slots of a host.
pub(crate) const MAX_SLOTS: usize = 65_536;

/// An error in a list of hosts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {what}; {accepted}")]
pub struct HostsError {
    /// The option, the variable, or the file with its line.
    pub(crate) place: Place,
    /// The problem, with the word that was found.
    pub(crate) what: String,
    /// The accepted notation.
    pub(crate) accepted: &'static str,
}

/// Where a list of hosts comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    /// An option, a variable or a file.
    pub(crate) source: String,
    pub(crate) line: Option<usize>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.source)?;
        self.line
            .iter()
            .try_for_each(|line| write!(f, ", line {line}"))
    }
}

/// Returns a word of a list for a message, quoted and truncated.
fn quoted(word: &str) -> String {
    const SHOWN: usize = 60;
    let cut: String = word.chars().take(SHOWN).collect();
    let more = if cut.len() < word.len() { "…" } else { "" };
    format!("{cut:?}{more}")
}

/// Returns whether a name is that of this host.
pub(crate) fn is_here(name: &str) -> bool {
    if ["localhost", "127.0.0.1"].contains(&name) {
        return true;
    }
    let own = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    let short = own.split('.').next();
    name == own || Some(name) == short
}

/// Joins entries for the same host. A host that is listed several times without slots has one slot
/// for each time.
fn join(listed: Vec<Host>) -> Vec<Host> {
    let mut index = std::collections::HashMap::<String, usize>::new();
    let mut hosts: Vec<Host> = Vec::new();
    for host in listed {
        match index.get(&host.name) {
            None => {
                index.insert(host.name.clone(), hosts.len());
                hosts.push(host);
            }
            Some(&at) => {
                let known = &mut hosts[at];
                let sum = known
                    .slots
                    .unwrap_or(1)
                    .saturating_add(host.slots.unwrap_or(1));
                known.slots = Some(sum);
                known.max_slots = match (known.max_slots, host.max_slots) {
                    (Some(one), Some(other)) => Some(one.saturating_add(other)),
                    (one, other) => one.or(other).map(|most| most.max(sum)),
                };
            }
        }
    }
    hosts
}
