//! Errors of single calls and of the job.

use std::fmt;

use conduit_core::barrier::Calls;
use conduit_core::kernel::Error as EngineError;
use conduit_core::ni::Rank;

/// The result of a call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The reason why a call was refused or why the job cannot continue. The text names the call as the
/// program spells it, the calling rank, and the rank or setting concerned.
///
/// `Debug` prints the same text, so a `main` that returns the error reports it in a readable form.
///
/// Errors of the engine are wrapped in [`Error::Engine`].
///
/// # Failure of the job
/// These errors are final. All later calls that use the network return the first of these errors
/// again, and the caller may reuse the buffers of operations that were under way. A program should
/// return the error from `main`, so that the launcher ends the other ranks.
///
/// - [`EngineError::PeerFailed`]: another rank has died or cannot be reached.
/// - [`EngineError::HandlerPanicked`] and [`EngineError::Panicked`]: a handler, or a closure that
///   the caller passed to a call, panicked.
/// - [`EngineError::BadMessage`], [`EngineError::Protocol`], [`EngineError::CatchBasin`] and
///   [`EngineError::Refused`]: a rank violated the protocol, or collective calls did not match.
/// - [`EngineError::WaitRefused`]: a call had to wait where waiting is not allowed.
/// - [`EngineError::Finished`]: this rank has called [`finish`](crate::Conduit::finish).
/// - [`EngineError::Forked`]: this process is a child of the rank's process.
///
/// The network itself may refuse an operation with [`EngineError::Network`]. If parts of the
/// operation are already under way, this error is final too.
///
/// Copies to and from mapped memory do not use the network, and may still succeed.
///
/// # Calls in handlers
/// In a handler, in a reduction's function, and while a thread holds a
/// [`PreparedMedium`](crate::PreparedMedium), calls that poll or wait return
/// [`EngineError::Context`]. Debug builds also refuse puts, gets, atomics and requests that would
/// neither poll nor wait (unless `CONDUIT_CHECKS=0`). A call that has to wait after it has been
/// carried out in part fails the job with [`EngineError::WaitRefused`].
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The engine refused an operation, or the job has failed.
    #[error("{call} on rank {rank}: {error}")]
    Engine {
        /// The call that failed.
        call: &'static str,
        /// The calling rank.
        rank: Rank,
        /// The engine's error.
        error: EngineError,
    },
    /// A setting is unknown, has a value that is not accepted, or differs between ranks although it
    /// must be the same on all of them.
    #[error("{call}{}: {reason}", on(*rank))]
    Settings {
        /// The call that failed.
        call: &'static str,
        /// The calling rank, if the launcher has supplied it.
        rank: Option<Rank>,
        /// The setting, the value found and the values accepted, or the settings that differ.
        reason: String,
    },
    /// The job could not be joined.
    #[error("{call}{}: {reason}", on(*rank))]
    Start {
        /// The call that failed.
        call: &'static str,
        /// The calling rank, if it is known.
        rank: Option<Rank>,
        /// The reason.
        reason: String,
    },
    /// The network could not be started.
    #[error("{call}{}: {error}", on(*rank))]
    Network {
        /// The call that failed.
        call: &'static str,
        /// The calling rank, if it is known.
        rank: Option<Rank>,
        /// The network's error.
        error: networks::Error,
    },
    /// The requested segment exceeds the limit.
    #[error(
        "attach on rank {rank}: a segment of {bytes} bytes exceeds the limit of {limit} \
         (CONDUIT_MAX_SEGMENT, or 85 % of the memory available when the job started, shared by its ranks; \
         `ulimit -v` and `ulimit -f` may lower it)"
    )]
    SegmentTooLarge {
        /// The calling rank.
        rank: Rank,
        /// The number of bytes requested.
        bytes: usize,
        /// The maximum size in bytes.
        limit: usize,
    },
    /// Elements cannot be borrowed or copied: their offset is not aligned for their type, or their
    /// size does not match the payload's.
    #[error("{call} on rank {rank}: {count} elements of {size} bytes at offset {offset} {problem}")]
    Local {
        /// The call that failed.
        call: &'static str,
        /// The calling rank.
        rank: Rank,
        /// The offset given, in bytes.
        offset: usize,
        /// The number of elements requested.
        count: usize,
        /// The size of an element in bytes.
        size: usize,
        /// The reason.
        problem: String,
    },
    /// A handler cannot be registered, or an id or a name was given without a handler. Fixed ids
    /// must be unique and lie in 128..=255. Payload types must not require an alignment of more
    /// than 16 bytes.
    #[error("attach on rank {rank}: {problem}")]
    Handlers {
        /// The calling rank.
        rank: Rank,
        /// The handler, by name and types, and the reason.
        problem: String,
    },
    /// The ranks have registered different handlers. All ranks get this error, and no rank is
    /// attached.
    #[error("attach on rank {rank}: the ranks' handlers differ: {difference}")]
    HandlersDiffer {
        /// The calling rank.
        rank: Rank,
        /// The first handler that differs, as registered on each rank.
        difference: String,
    },
    /// The ids of the barrier differed between ranks or from the id passed to the wait, or the
    /// ranks did not all make the same one of the calls [`barrier`](crate::Conduit::barrier),
    /// [`quiesce`](crate::Conduit::quiesce) and [`finish`](crate::Conduit::finish). All ranks that
    /// made one of these calls get this error. If only the id passed to the wait differed, only the
    /// rank that passed that id gets the error.
    #[error("{call} on rank {rank}: {calls}")]
    BarrierMismatch {
        /// The call that failed.
        call: &'static str,
        /// The calling rank.
        rank: Rank,
        /// The kinds of calls that met. If they are only [`Calls::BARRIER`], the ids differ.
        calls: Calls,
    },
}

/// The name of the call that joins a job, unless the caller gives another name.
pub(crate) const START: &str = "start";

/// Returns " on rank N" if the rank is known.
fn on(rank: Option<Rank>) -> String {
    rank.map_or_else(String::new, |rank| format!(" on rank {rank}"))
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The text is written in one piece, because a `main` that returns the error prints it to
        // standard error, which all ranks share.
        f.write_str(&self.to_string())
    }
}

impl Error {
    /// Returns the job's exit code if this error reports that a rank has ended the job.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 0)?;
    /// let error = conduit.put(conduit.size(), 0, &1u8).unwrap_err();
    /// assert!(error.to_string().starts_with("put on rank 0: "));
    /// // An argument was wrong; no rank has ended the job.
    /// assert_eq!(error.exit_code(), None);
    /// # conduit.finish()
    /// # }
    /// ```
    pub fn exit_code(&self) -> Option<i32> {
        match self {
            Self::Engine {
                error: EngineError::Exited { code, .. },
                ..
            } => Some(*code),
            _ => None,
        }
    }

    pub(crate) fn of(call: &'static str, rank: Rank, error: EngineError) -> Self {
        Self::Engine { call, rank, error }
    }

    pub(crate) fn start(reason: impl fmt::Display) -> Self {
        Self::Start {
            call: START,
            rank: None,
            reason: reason.to_string(),
        }
    }

    pub(crate) fn settings(reason: impl fmt::Display) -> Self {
        Self::Settings {
            call: START,
            rank: None,
            reason: reason.to_string(),
        }
    }

    /// Sets the name of the call that joins the job and, if known, the number of this rank.
    pub(crate) fn of_start(mut self, name: &'static str, of: Option<Rank>) -> Self {
        match &mut self {
            Self::Settings { call, rank, .. }
            | Self::Start { call, rank, .. }
            | Self::Network { call, rank, .. } => (*call, *rank) = (name, rank.or(of)),
            Self::Engine { call, .. } => *call = name,
            _ => {}
        }
        self
    }
}
