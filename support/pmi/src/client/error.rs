//! What can go wrong in a rank's conversation with its launcher.

use std::io;
use std::time::Duration;

use super::CodecError;

/// An error of [`super::Connection`]. It names the rank and what the rank was doing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A `PMI_` variable of the environment is unusable.
    #[error("{name}={value:?} is not usable: {accepted}")]
    Variable {
        /// The variable.
        name: &'static str,
        /// Its value, empty if it is not set.
        value: String,
        /// What would be usable.
        accepted: &'static str,
    },
    /// The environment's connection has been taken in this process already.
    #[error("this process is connected to its launcher already")]
    AlreadyConnected,
    /// The launcher that `PMI_PORT` names can't be reached.
    #[error("can't connect to the launcher at {address}: {source}")]
    Connect {
        /// The address from `PMI_PORT`.
        address: String,
        /// Why not.
        source: io::Error,
    },
    /// The launcher has closed its end, most likely because it has ended.
    #[error(
        "rank {rank}: the launcher has closed its PMI connection (during {operation}); has it been killed?"
    )]
    LauncherGone {
        /// This rank.
        rank: usize,
        /// What it was doing.
        operation: &'static str,
    },
    /// The call took longer than the time limit of the connection.
    #[error("rank {rank}: PMI {operation} has not completed within {limit:?}")]
    TimedOut {
        /// This rank.
        rank: usize,
        /// What it was doing.
        operation: &'static str,
        /// The limit.
        limit: Duration,
    },
    /// The system refuses to send or receive.
    #[error("rank {rank}: PMI {operation}: {source}")]
    Io {
        /// This rank.
        rank: usize,
        /// What it was doing.
        operation: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// The request can't be made, or the answer is wrong or a refusal.
    #[error("rank {rank}: PMI {operation}: {source}")]
    Request {
        /// This rank.
        rank: usize,
        /// What it was doing.
        operation: &'static str,
        /// Why not.
        source: CodecError,
    },
    /// The bytes for an allgather are more than [`super::MAX_BLOB`], or the tag is empty, longer than
    /// [`super::MAX_TAG`], or holds something else than ASCII letters, digits, `-` and `_`.
    #[error("rank {rank}: PMI allgather {tag:?}: {what}")]
    Allgather {
        /// This rank.
        rank: usize,
        /// The tag given.
        tag: String,
        /// What is wrong.
        what: &'static str,
    },
    /// Another rank's part of an allgather can't be decoded.
    #[error("rank {rank}: PMI allgather {tag:?}: what rank {peer} put is not a blob")]
    Peer {
        /// This rank.
        rank: usize,
        /// The tag given.
        tag: String,
        /// The rank whose part is wrong.
        peer: usize,
    },
}
