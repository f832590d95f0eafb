//! Errors that can occur while the local network starts.

use std::io;

use super::config::{MAX_NAME, MAX_PEERS, MAX_RING, MIN_RING};

/// The reason why the network could not be started.
#[derive(Debug, thiserror::Error)]
pub enum LocalError {
    /// The name is invalid.
    #[error("the name is {0:?}, accepted: 1 to {MAX_NAME} characters of [A-Za-z0-9._-]")]
    Name(String),
    /// The size of a ring is out of its range.
    #[error("a ring has {0} bytes, accepted: a power of two from {MIN_RING} to {MAX_RING}")]
    Ring(usize),
    /// The number of peers is out of its range.
    #[error("the limit of peers is {0}, accepted: 1 to {MAX_PEERS}")]
    Peers(u32),
    /// Another process has this name.
    #[error("the name {0:?} is taken by another process of this user")]
    Taken(String),
    /// The operating system refused an operation.
    #[error("{operation}: {reason}")]
    System {
        /// The operation that was refused.
        operation: &'static str,
        /// The system's error.
        reason: io::Error,
    },
}

impl LocalError {
    /// Returns a function for `map_err` that creates a [`LocalError::System`].
    pub(super) fn system<E: Into<io::Error>>(operation: &'static str) -> impl Fn(E) -> Self {
        move |reason| Self::System {
            operation,
            reason: reason.into(),
        }
    }
}
