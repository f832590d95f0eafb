//! Errors of the engine's calls, including those that end a job.

use crate::memory::Bound;
use crate::ni::{NiError, Rank};
use crate::settings::InJobError;
use pmi::bootstrap::BootstrapError;

/// The result of an engine call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error above the network. Each error holds the rank or setting concerned, and the engine's
/// name of the operation. The error text omits the operation and the calling rank; the layer above
/// adds both in its own terms.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An error of the network.
    #[error(transparent)]
    Network(#[from] NiError),
    /// The launcher's side channel failed.
    #[error("{0}")]
    Bootstrap(String),
    /// A rank that is not in the job.
    #[error("rank {rank} is not in a job of {size} ranks")]
    NoSuchRank {
        /// The name of the call.
        operation: &'static str,
        /// The rank given.
        rank: Rank,
        /// The number of ranks in the job.
        size: u32,
    },
    /// A remote range that does not lie in the target's segment.
    #[error(
        "{length} bytes at offset {offset} do not lie in the segment of rank {rank} ({segment} bytes)"
    )]
    OutOfSegment {
        /// The call.
        operation: &'static str,
        /// The target.
        rank: Rank,
        /// The offset given, in bytes.
        offset: usize,
        /// The length given, in bytes.
        length: usize,
        /// The size of the target's segment in bytes.
        segment: usize,
    },
    /// Memory that is not bound to this endpoint, or has not been published to this rank.
    #[error("rank {rank} has published no memory bound to endpoint {index}")]
    Unbound {
        /// The call.
        operation: &'static str,
        /// The target.
        rank: Rank,
        /// The endpoint's number.
        index: u16,
    },
    /// A range that does not lie in the memory bound to this endpoint.
    #[error(
        "{length} bytes at {address:#x} do not lie in the memory of rank {rank} bound to endpoint {} ({} bytes at {:#x})",
        bound.index, bound.len, bound.address
    )]
    OutOfBound {
        /// The call.
        operation: &'static str,
        /// The target.
        rank: Rank,
        /// The address given.
        address: u64,
        /// The length given, in bytes.
        length: usize,
        /// The target's bound memory.
        bound: Bound,
    },
    /// A range of process memory that the target does not have. Occurs only in jobs whose segments
    /// are process memory.
    #[error("cannot access {length} bytes at address {address:#x} of rank {rank}: {reason}")]
    NoMemory {
        /// The target.
        rank: Rank,
        /// The address given.
        address: usize,
        /// The length given, in bytes.
        length: usize,
        /// The system's description of the error.
        reason: String,
    },
    /// Lists of ranges that do not match each other.
    #[error("invalid ranges for rank {rank}: {reason}")]
    Ranges {
        /// The call.
        operation: &'static str,
        /// The target.
        rank: Rank,
        /// The mismatch.
        reason: String,
    },
    /// An atomic whose offset is not a multiple of the integer's size.
    #[error("offset {offset} on rank {rank} is not a multiple of {size}")]
    Misaligned {
        /// The call.
        operation: &'static str,
        /// The target.
        rank: Rank,
        /// The offset given, in bytes.
        offset: usize,
        /// The integer's size in bytes.
        size: usize,
    },
    /// A call that passes a value in a register, with a number of bytes that a register can't hold.
    #[error("{bytes} bytes do not fit a register value (1 to 8)")]
    ValueWidth {
        /// The call.
        operation: &'static str,
        /// The number of bytes given.
        bytes: usize,
    },
    /// Too many arguments for an active message.
    #[error("an active message has {count} arguments; at most {limit} are allowed")]
    TooManyArgs {
        /// The call.
        operation: &'static str,
        /// The number of arguments given.
        count: usize,
        /// [`am::MAX_ARGS`].
        limit: usize,
    },
    /// A payload longer than its category allows.
    #[error("a payload of {length} bytes to rank {rank} exceeds the limit of {limit} bytes")]
    PayloadTooLong {
        /// The call.
        operation: &'static str,
        /// The target.
        rank: Rank,
        /// The number of bytes given.
        length: usize,
        /// The limit in bytes, as the limit functions return it.
        limit: usize,
    },
    /// An active message for a handler that is not registered, or is not registered for this kind
    /// of message. Ends the job.
    #[error("an active message from rank {source_rank}: {reason}")]
    BadMessage {
        /// The rank that received the message.
        rank: Rank,
        /// The rank that sent the message.
        source_rank: Rank,
        /// The reason.
        reason: String,
    },
    /// A handler panicked, in this call or on another thread. Ends the job.
    #[error("handler {handler} panicked")]
    HandlerPanicked {
        /// This rank.
        rank: Rank,
        /// The handler's id, and its name if it has one.
        handler: String,
    },
    /// A panic outside a handler interrupted a waiting call. Ends the job.
    #[error("{operation} was interrupted by a panic")]
    Panicked {
        /// The call.
        operation: &'static str,
        /// This rank.
        rank: Rank,
    },
    /// A refused handler registration.
    #[error("handler registration: {reason}")]
    Register {
        /// This rank.
        rank: Rank,
        /// The reason.
        reason: am::handlers::RegisterError,
    },
    /// A call that needs a segment, made before attach.
    #[error("called before a segment is attached")]
    NotAttached {
        /// The call.
        operation: &'static str,
        /// This rank.
        rank: Rank,
    },
    /// A second call of attach.
    #[error("a segment is already attached")]
    AlreadyAttached {
        /// This rank.
        rank: Rank,
    },
    /// A segment size that is not a whole number of pages.
    #[error("a segment of {bytes} bytes is not a multiple of the page size {page}")]
    SegmentSize {
        /// This rank.
        rank: Rank,
        /// The number of bytes requested.
        bytes: usize,
        /// The page size in bytes.
        page: usize,
    },
    /// A call that is not allowed in its context, for example a call in a handler or a second
    /// reply. Some violations are detected only in debug builds.
    #[error("{reason}")]
    Context {
        /// The call.
        operation: &'static str,
        /// This rank.
        rank: Rank,
        /// The violated rule.
        reason: am::ContextError,
    },
    /// A call that had to wait where waiting is not allowed, so that it remained half done. Ends
    /// the job.
    #[error("{operation}: {reason}")]
    WaitRefused {
        /// The call that had to wait.
        operation: &'static str,
        /// This rank.
        rank: Rank,
        /// The violated rule.
        reason: am::ContextError,
    },
    /// A resource is exhausted, and waiting would not help.
    #[error("all {limit} {what} are in use; raise {setting}")]
    Exhausted {
        /// The call.
        operation: &'static str,
        /// This rank.
        rank: Rank,
        /// The kind of object.
        what: &'static str,
        /// The number of objects.
        limit: u64,
        /// The setting that determines the limit.
        setting: &'static str,
    },
    /// A handle that has already been synchronised, or is invalid.
    #[error("the handle has been synchronised already")]
    StaleHandle {
        /// The call.
        operation: &'static str,
        /// This rank.
        rank: Rank,
    },
    /// A violated rule of access regions: they do not nest, and implicit operations must not be
    /// synchronised inside them.
    #[error("{rule}")]
    AccessRegion {
        /// The call.
        operation: &'static str,
        /// This rank.
        rank: Rank,
        /// The violated rule.
        rule: &'static str,
    },
    /// A barrier call in the wrong order.
    #[error("{reason}")]
    Barrier {
        /// The call.
        operation: &'static str,
        /// This rank.
        rank: Rank,
        /// The violated rule.
        reason: String,
    },
    /// An unknown collective operation, or one in which this rank can't take part.
    #[error("{reason}")]
    Collective {
        /// The call.
        operation: &'static str,
        /// This rank.
        rank: Rank,
        /// The reason.
        reason: String,
    },
    /// An operation that passed this rank's checks but was refused by its target.
    #[error("a target refused an operation: {outcome}")]
    Refused {
        /// This rank.
        rank: Rank,
        /// The outcome as the network reports it.
        outcome: &'static str,
    },
    /// A peer violated the flow-control or message protocol. Ends the job.
    #[error("protocol violation by rank {peer}: {reason}")]
    Protocol {
        /// This rank.
        rank: Rank,
        /// The peer.
        peer: Rank,
        /// The violation.
        reason: String,
    },
    /// Requests overran the receive buffers. Ends the job.
    #[error(
        "a request of rank {peer} overran the receive buffers: they are too small \
         (GASNET_PORTAL_AMRECV_SPACE) or flow control is off (GASNET_PORTAL_FLOW_CONTROL)"
    )]
    CatchBasin {
        /// This rank.
        rank: Rank,
        /// The sender.
        peer: Rank,
    },
    /// A peer died or can no longer be reached.
    #[error("rank {peer} {reason}")]
    PeerFailed {
        /// This rank's operation that detected the failure.
        operation: &'static str,
        /// This rank.
        rank: Rank,
        /// The dead rank.
        peer: Rank,
        /// The network's description of the failure.
        reason: String,
    },
    /// A rank ended the job by calling `exit`.
    #[error("rank {by} has ended the job with code {code}")]
    Exited {
        /// The rank that ended the job.
        by: Rank,
        /// The exit code.
        code: i32,
    },
    /// This rank has left the job normally.
    #[error("the rank has finished")]
    Finished,
    /// A child of the rank's process, made by `fork`, used its parent's network.
    #[error(
        "process {process} is a child of rank {rank} (fork) and can't use its network; it may only call exec or _exit"
    )]
    Forked {
        /// The rank of the child's parent.
        rank: Rank,
        /// The child's process id.
        process: u32,
    },
    /// A value of a setting with which this job can't run.
    #[error("setting {name}: {reason}")]
    Setting {
        /// The setting's name.
        name: &'static str,
        /// The reason.
        reason: String,
    },
}

impl From<InJobError> for Error {
    fn from(InJobError { name, reason, .. }: InJobError) -> Self {
        Self::Setting { name, reason }
    }
}

impl From<BootstrapError> for Error {
    fn from(error: BootstrapError) -> Self {
        Self::Bootstrap(error.to_string())
    }
}
