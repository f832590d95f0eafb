//! What a call can refuse.

use std::fmt;

use conduit_core::barrier::Calls;
use conduit_core::kernel::Error as EngineError;
use conduit_core::ni::Rank;

/// The result of a call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call was refused or the job cannot continue. The text names the call as the program spells
/// it, the calling rank, and the rank or setting concerned.
///
/// `Debug` prints the same text, so that a `main` that returns it reports what is wrong.
///
/// An [`EngineError`] is returned as [`Error::Engine`].
///
/// # Failure of the job
/// These errors are final: all later calls that use the network return the first of them again, and
/// the buffers of operations under way belong to the caller again. Return the error from `main`, so
/// that the launcher ends the other ranks.
///
/// - [`EngineError::PeerFailed`]: another rank has died or cannot be reached.
/// - [`EngineError::HandlerPanicked`] and [`EngineError::Panicked`]: a handler panicked, or a
///   function of the caller that a call ran.
/// - [`EngineError::BadMessage`], [`EngineError::Protocol`], [`EngineError::CatchBasin`] and
///   [`EngineError::Refused`]: a rank violated the protocol, or collective calls did not match.
/// - [`EngineError::WaitRefused`]: a call had to wait where it may not.
/// - [`EngineError::Finished`]: this rank has called [`finish`](crate::Conduit::finish).
/// - [`EngineError::Forked`]: this process is a child of the rank's.
///
/// The network itself may refuse an operation with [`EngineError::Network`]. If parts of the
/// operation are under way already, that is final too.
///
/// Copies to and from mapped memory do not use the network and may still succeed.
///
/// # Calls in handlers
/// In a handler, in the function of a reduction, and while a thread holds a
/// [`PreparedMedium`](crate::PreparedMedium), calls that poll or wait return
/// [`EngineError::Context`]. Debug builds also refuse puts, gets, atomics and requests that would
/// need neither (unless `CONDUIT_CHECKS=0`). A call that turns out to need a wait when it is half
/// done fails the job with [`EngineError::WaitRefused`].
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The engine refused an operation, or the job has failed.
    #[error("{call} on rank {rank}: {error}")]
    Engine {
        /// The call.
        call: &'static str,
        /// The calling rank.
        rank: Rank,
        /// What is wrong.
        error: EngineError,
    },
    /// A setting is unknown or has no acceptable value.
    #[error("{call}{}: {reason}", on(*rank))]
    Settings {
        /// The call.
        call: &'static str,
        /// The calling rank, if the launcher says which that is.
        rank: Option<Rank>,
        /// The setting, what was found and what is accepted.
        reason: String,
    },
    /// The job could not be joined.
    #[error("{call}{}: {reason}", on(*rank))]
    Start {
        /// The call.
        call: &'static str,
        /// The calling rank, if it is known.
        rank: Option<Rank>,
        /// What failed.
        reason: String,
    },
    /// The network could not be started.
    #[error("{call}{}: {error}", on(*rank))]
    Network {
        /// The call.
        call: &'static str,
        /// The calling rank, if it is known.
        rank: Option<Rank>,
        /// What failed.
        error: networks::Error,
    },
    /// The segment does not fit.
    #[error(
        "attach on rank {rank}: a segment of {bytes} bytes, the most is {limit} \
         (CONDUIT_MAX_SEGMENT, or 85 % of the memory available when the job started, shared by its ranks; \
         less where `ulimit -v` or `ulimit -f` leaves less)"
    )]
    SegmentTooLarge {
        /// The calling rank.
        rank: Rank,
        /// Bytes asked for.
        bytes: usize,
        /// Bytes there are.
        limit: usize,
    },
    /// Elements that can't be lent or copied: not aligned for their type, or not as many bytes as there are.
    #[error("{call} on rank {rank}: {count} elements of {size} bytes at offset {offset} {problem}")]
    Local {
        /// The call.
        call: &'static str,
        /// The calling rank.
        rank: Rank,
        /// Offset given, bytes.
        offset: usize,
        /// Elements asked for.
        count: usize,
        /// Bytes of an element.
        size: usize,
        /// What is wrong.
        problem: String,
    },
    /// A handler that can't be registered: fixed ids must lie in 128..=255 and be used once, payloads be aligned to at most 16; or an id
    /// or a name that no handler was added for.
    #[error("attach on rank {rank}: {problem}")]
    Handlers {
        /// The calling rank.
        rank: Rank,
        /// The handler, by name and types, and what is wrong.
        problem: String,
    },
    /// The ranks have not registered the same handlers. All of them get this error, and none has a segment.
    #[error("attach on rank {rank}: the ranks' handlers differ: {difference}")]
    HandlersDiffer {
        /// The calling rank.
        rank: Rank,
        /// The first handler that differs, as each rank has it.
        difference: String,
    },
    /// The barrier's ids differed between ranks, or from the one given to wait; or ranks have called
    /// [`barrier`](crate::Conduit::barrier), [`quiesce`](crate::Conduit::quiesce) and
    /// [`finish`](crate::Conduit::finish) where all must make the same call. All ranks that did get the error.
    #[error("{call} on rank {rank}: {calls}")]
    BarrierMismatch {
        /// The call.
        call: &'static str,
        /// The calling rank.
        rank: Rank,
        /// Which calls have met. If barriers alone, it is their ids that differ.
        calls: Calls,
    },
}

/// What joins a job, unless its caller names it otherwise.
pub(crate) const START: &str = "start";

/// " on rank N" where it is known.
fn on(rank: Option<Rank>) -> String {
    rank.map_or_else(String::new, |rank| format!(" on rank {rank}"))
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

    /// The same, of a start by this name that has learnt which rank this is.
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
