//! What a call can refuse.

use std::fmt;

/// The result of a call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call was refused or a job could not go on. The text names the rank, the operation and the setting concerned.
///
/// `Debug` prints the same text, so that a `main` that returns it tells its user what is wrong.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The engine refused an operation.
    #[error(transparent)]
    Engine(#[from] conduit_core::engine::Error),
    /// A setting is unknown or has no acceptable value.
    #[error("{0}")]
    Settings(String),
    /// The job could not be joined, or the launcher failed.
    #[error("job start: {0}")]
    Start(String),
    /// The network could not be started.
    #[error(transparent)]
    Network(#[from] lanes::Error),
    /// The segment does not fit.
    #[error(
        "attach on rank {rank}: a segment of {bytes} bytes, the most is {limit} \
         (CONDUIT_MAX_SEGMENT, or 85 % of the memory available when the job started, shared by its ranks)"
    )]
    SegmentTooLarge {
        /// This rank.
        rank: u32,
        /// Bytes asked for.
        bytes: usize,
        /// Bytes there are.
        limit: usize,
    },
    /// Local access outside of one's own segment, or not aligned for its type.
    #[error(
        "{operation} on rank {rank}: {count} elements of {size} bytes at offset {offset} {problem}"
    )]
    Local {
        /// The call.
        operation: &'static str,
        /// This rank.
        rank: u32,
        /// Offset given, bytes.
        offset: usize,
        /// Elements asked for.
        count: usize,
        /// Bytes of an element.
        size: usize,
        /// What is wrong.
        problem: &'static str,
    },
    /// Fixed handler ids must lie in 128..=255 and be used once.
    #[error("handler id {id} is {problem}")]
    HandlerId {
        /// The id.
        id: u8,
        /// What is wrong.
        problem: &'static str,
    },
    /// The barrier's ids differed between ranks, or from the one given to wait.
    #[error("{operation} on rank {rank}: barrier ids do not match")]
    BarrierMismatch {
        /// The call.
        operation: &'static str,
        /// This rank.
        rank: u32,
    },
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // In one piece, since this is what a `main` that returns it writes to a standard error that the ranks share.
        f.write_str(&self.to_string())
    }
}

impl Error {
    /// The exit code with which a rank has ended the job, if that is what this error says.
    pub fn exit_code(&self) -> Option<i32> {
        match self {
            Self::Engine(conduit_core::engine::Error::Exited { code, .. }) => Some(*code),
            _ => None,
        }
    }
}
