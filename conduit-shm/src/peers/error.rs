//! Failures of starting the local network.

use std::io;

use super::config::{MAX_NAME, MAX_PEERS, MAX_RING, MIN_RING};

/// Why the network could not be started.
#[derive(Debug, thiserror::Error)]
pub enum LocalError {
    /// This can't be a name.
    #[error("the name {0:?} is not 1 to {MAX_NAME} characters of [A-Za-z0-9._-]")]
    Name(String),
    /// The size of a ring is out of its range.
    #[error("a ring of {0} bytes is not a power of two from {MIN_RING} to {MAX_RING}")]
    Ring(usize),
    /// The number of peers is out of its range.
    #[error("{0} peers are not between 1 and {MAX_PEERS}")]
    Peers(u32),
    /// Another process has this name.
    #[error("the name {0:?} is taken: another process of this user can be reached by it")]
    Taken(String),
    /// The operating system refused.
    #[error("{operation}: {reason}")]
    System {
        /// What was asked.
        operation: &'static str,
        /// The system's words.
        reason: io::Error,
    },
}

impl LocalError {
    /// For `map_err`.
    pub(super) fn system<E: Into<io::Error>>(operation: &'static str) -> impl Fn(E) -> Self {
        move |reason| Self::System {
            operation,
            reason: reason.into(),
        }
    }
}
