//! What the engine's calls can refuse, and what ends a job.

use crate::bootstrap::BootstrapError;
use crate::memory::Bound;
use crate::ni::{NiError, Rank};
use crate::settings::InJobError;

/// The result of an engine call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that can go wrong above the network. Each names the rank or setting that it concerns,
/// and has the operation as it is called here; its text leaves out that and the calling rank, which
/// the layer above says in its own words.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The network refused.
    #[error(transparent)]
    Network(#[from] NiError),
    /// The launcher's side channel failed.
    #[error("{0}")]
    Bootstrap(String),
    /// A rank that the job doesn't have.
    #[error("rank {rank} is not in a job of {size} ranks")]
    NoSuchRank {
        /// The call.
        operation: &'static str,
        /// The rank given.
        rank: Rank,
        /// Ranks in the job.
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
        /// Offset given, bytes.
        offset: usize,
        /// Length given, bytes.
        length: usize,
        /// The target's segment, bytes.
        segment: usize,
    },
    /// Memory that is bound to no such number, or was not published to this rank.
    #[error("rank {rank} has published no memory bound to endpoint {index}")]
    Unbound {
        /// The call.
        operation: &'static str,
        /// The target.
        rank: Rank,
        /// The number.
        index: u16,
    },
    /// A range that does not lie in the memory that is bound to this number.
    #[error(
        "{length} bytes at {address:#x} do not lie in what rank {rank} has bound to endpoint {}, {} bytes at {:#x}",
        bound.index, bound.len, bound.address
    )]
    OutOfBound {
        /// The call.
        operation: &'static str,
        /// The target.
        rank: Rank,
        /// Address given.
        address: u64,
        /// Length given, bytes.
        length: usize,
        /// What the target has bound.
        bound: Bound,
    },
    /// A range of memory that the target does not have, where segments are memory of processes.
    #[error("{length} bytes at address {address:#x} of rank {rank}: {reason}")]
    NoMemory {
        /// The target.
        rank: Rank,
        /// Address given.
        address: usize,
        /// Length given, bytes.
        length: usize,
        /// The system's words.
        reason: String,
    },
    /// Ranges that do not go with one another.
    #[error("ranges for rank {rank}: {reason}")]
    Ranges {
        /// The call.
        operation: &'static str,
        /// The target.
        rank: Rank,
        /// What is wrong.
        reason: String,
    },
    /// An atomic's address is not a multiple of its size.
    #[error("offset {offset} on rank {rank} is not a multiple of {size}")]
    Misaligned {
        /// The call.
        operation: &'static str,
        /// The target.
        rank: Rank,
        /// Offset given, bytes.
        offset: usize,
        /// The integer's size, bytes.
        size: usize,
    },
    /// A value call with a width that no register has.
    #[error("{bytes} bytes do not fit a register value (1 to 8)")]
    ValueWidth {
        /// The call.
        operation: &'static str,
        /// Bytes given.
        bytes: usize,
    },
    /// Too many arguments for an AM.
    #[error("{count} arguments, the most is {limit}")]
    TooManyArgs {
        /// The call.
        operation: &'static str,
        /// Arguments given.
        count: usize,
        /// [`am::MAX_ARGS`].
        limit: usize,
    },
    /// A payload beyond the category's limit.
    #[error("a payload of {length} bytes to rank {rank}, the limit is {limit}")]
    PayloadTooLong {
        /// The call.
        operation: &'static str,
        /// The target.
        rank: Rank,
        /// Bytes given.
        length: usize,
        /// What the limit functions say.
        limit: usize,
    },
    /// An AM named a handler that is not registered, or not for this kind of message. Ends the job.
    #[error("an active message from rank {source_rank}: {reason}")]
    BadMessage {
        /// The rank that received it.
        rank: Rank,
        /// The rank that sent it.
        source_rank: Rank,
        /// What is wrong.
        reason: String,
    },
    /// A handler panicked, in this call or on another thread. Ends the job.
    #[error("handler {handler} has panicked")]
    HandlerPanicked {
        /// This rank.
        rank: Rank,
        /// The handler's id, and its name if it has one.
        handler: String,
    },
    /// Something else has panicked while a call waited. Ends the job.
    #[error("{operation} was left by a panic")]
    Panicked {
        /// The call.
        operation: &'static str,
        /// This rank.
        rank: Rank,
    },
    /// A handler id that is reserved or a table that doesn't hold.
    #[error("registration of handlers: {reason}")]
    Register {
        /// This rank.
        rank: Rank,
        /// What is wrong.
        reason: am::handlers::RegisterError,
    },
    /// A call that needs a segment came before attach.
    #[error("before a segment is attached")]
    NotAttached {
        /// The call.
        operation: &'static str,
        /// This rank.
        rank: Rank,
    },
    /// Attach was called again.
    #[error("a segment is attached already")]
    AlreadyAttached {
        /// This rank.
        rank: Rank,
    },
    /// A segment size that is not a whole number of pages.
    #[error("a segment of {bytes} bytes is not a multiple of the page size {page}")]
    SegmentSize {
        /// This rank.
        rank: Rank,
        /// Bytes asked for.
        bytes: usize,
        /// The page size.
        page: usize,
    },
    /// A call that is not allowed where it was made: from a handler, a second reply, … (some in
    /// debug builds only).
    #[error("{reason}")]
    Context {
        /// The call.
        operation: &'static str,
        /// This rank.
        rank: Rank,
        /// The rule.
        reason: am::ContextError,
    },
    /// A call had to wait where it may not, and was left half done. Ends the job.
    #[error("{operation} was {reason}")]
    WaitRefused {
        /// The call that had to wait.
        operation: &'static str,
        /// This rank.
        rank: Rank,
        /// The rule.
        reason: am::ContextError,
    },
    /// All of something are in use and waiting would not help.
    #[error("all {limit} {what} are in use (setting {setting})")]
    Exhausted {
        /// The call.
        operation: &'static str,
        /// This rank.
        rank: Rank,
        /// Of what.
        what: &'static str,
        /// How many there are.
        limit: u64,
        /// The setting that holds the limit.
        setting: &'static str,
    },
    /// A handle that was synchronised before, or is of another kind.
    #[error("the handle has been synchronised already")]
    StaleHandle {
        /// The call.
        operation: &'static str,
        /// This rank.
        rank: Rank,
    },
    /// Access regions do not nest, and allow no implicit synchronisation inside.
    #[error("{rule}")]
    AccessRegion {
        /// The call.
        operation: &'static str,
        /// This rank.
        rank: Rank,
        /// The rule that was broken.
        rule: &'static str,
    },
    /// A barrier call out of order.
    #[error("{reason}")]
    Barrier {
        /// The call.
        operation: &'static str,
        /// This rank.
        rank: Rank,
        /// The rule that was broken.
        reason: String,
    },
    /// A collective operation that there is not, or that this rank can't take part in.
    #[error("{reason}")]
    Collective {
        /// The call.
        operation: &'static str,
        /// This rank.
        rank: Rank,
        /// What is wrong.
        reason: String,
    },
    /// An operation was refused at its target although it had been checked here.
    #[error("a target answered {outcome}")]
    Refused {
        /// This rank.
        rank: Rank,
        /// The network's word.
        outcome: &'static str,
    },
    /// A peer broke the flow-control or message protocol. Ends the job.
    #[error("protocol violation by rank {peer}: {reason}")]
    Protocol {
        /// This rank.
        rank: Rank,
        /// The peer.
        peer: Rank,
        /// What it did.
        reason: String,
    },
    /// Requests overran the receive buffers. Ends the job.
    #[error(
        "a request of rank {peer} fell into the catch basin: receive buffers are too small \
         (GASNET_PORTAL_AMRECV_SPACE) or flow control is off (GASNET_PORTAL_FLOW_CONTROL)"
    )]
    CatchBasin {
        /// This rank.
        rank: Rank,
        /// The sender.
        peer: Rank,
    },
    /// A peer died, or can't be reached any more.
    #[error("rank {peer} {reason}")]
    PeerFailed {
        /// What this rank was doing.
        operation: &'static str,
        /// This rank.
        rank: Rank,
        /// The dead rank.
        peer: Rank,
        /// What the network knows of it.
        reason: String,
    },
    /// A rank has ended the job by `exit`.
    #[error("rank {by} has ended the job with code {code}")]
    Exited {
        /// Who.
        by: Rank,
        /// The exit code.
        code: i32,
    },
    /// The rank has left the job, in good order.
    #[error("the rank has finished")]
    Finished,
    /// A child of the rank's process (`fork`) has used what is its parent's.
    #[error(
        "process {process} is a child of rank {rank} (fork) and can't use its network: it may only exec, or end by _exit"
    )]
    Forked {
        /// The rank that its parent is.
        rank: Rank,
        /// Its number.
        process: u32,
    },
    /// A setting that this job can't run with.
    #[error("setting {name}: {reason}")]
    Setting {
        /// Its name.
        name: &'static str,
        /// What is wrong.
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
