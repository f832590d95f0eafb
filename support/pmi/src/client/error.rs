//! Errors of a rank's connection to its launcher.

use std::io;
use std::time::Duration;

use super::CodecError;

/// An error of [`super::Connection`]. It names the rank and the operation.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A `PMI_` variable of the environment is unusable.
    #[error("{name}={value:?} is not usable: expected {accepted}")]
    Variable {
        /// The variable's name.
        name: &'static str,
        /// The variable's value; empty if the variable is not set.
        value: String,
        /// The values that would be usable.
        accepted: &'static str,
    },
    /// Another connection in this process has already taken the environment's descriptor.
    #[error("this process is already connected to its launcher")]
    AlreadyConnected,
    /// The launcher named by `PMI_PORT` cannot be reached.
    #[error("cannot connect to the launcher at {address}: {source}")]
    Connect {
        /// The address from `PMI_PORT`.
        address: String,
        /// The cause.
        source: io::Error,
    },
    /// The launcher has closed its end, most likely because it has ended.
    #[error(
        "rank {rank}: the launcher has closed its PMI connection (during {operation}); has it been killed?"
    )]
    LauncherGone {
        /// This rank.
        rank: usize,
        /// The operation in progress.
        operation: &'static str,
    },
    /// The call took longer than the time limit of the connection.
    #[error("rank {rank}: PMI {operation} has not completed within {limit:?}")]
    TimedOut {
        /// This rank.
        rank: usize,
        /// The operation in progress.
        operation: &'static str,
        /// The limit.
        limit: Duration,
    },
    /// The system refuses to send or receive.
    #[error("rank {rank}: PMI {operation}: {source}")]
    Io {
        /// This rank.
        rank: usize,
        /// The operation in progress.
        operation: &'static str,
        /// The cause.
        source: io::Error,
    },
    /// The request is impossible, or the launcher's reply is invalid or refuses the request.
    #[error("rank {rank}: PMI {operation}: {source}")]
    Request {
        /// This rank.
        rank: usize,
        /// The operation in progress.
        operation: &'static str,
        /// The cause.
        source: CodecError,
    },
}
