//! Messages that have arrived: what they carry, and what can be wrong with them.

use am::handlers::CallError;
use am::{Header, HeaderError, Long, MAX_ARGS};
use credits::Violation;

use crate::memory::Unplaced;
use crate::rma::vis::Malformed;

/// What a message carries besides its arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Payload<'a> {
    /// A short carries nothing.
    None,
    /// A medium's bytes, in place, aligned to 16, only as long as the handler runs. Where the
    /// sender's process has the same memory mapped this relies on it not to write there again
    /// before: see "What is safe" of the crate `conduit`.
    Medium(&'a [u8]),
    /// A long's bytes lie in this rank's segment. Peers may write there at any time, so they are
    /// not lent as a slice.
    Long {
        /// First byte, from the segment's start. Of an empty payload what its sender has said,
        /// which may be anything.
        offset: usize,
        /// Bytes.
        length: usize,
    },
}

/// What is wrong with a message that has arrived. All of it is the sender's fault, and ends the
/// job.
#[derive(Debug, Clone, Copy, thiserror::Error)]
pub(crate) enum ProtocolError {
    #[error(transparent)]
    Header(#[from] HeaderError),
    #[error(transparent)]
    Call(#[from] CallError),
    #[error(transparent)]
    Violation(#[from] Violation),
    #[error("no handler is registered with id {id}")]
    NoHandler { id: u8 },
    #[error(transparent)]
    Unplaced(#[from] Unplaced),
    #[error(transparent)]
    Ranges(#[from] Malformed),
    #[error("an answer of {bytes} bytes to a transfer that there is not")]
    NoTransfer { bytes: usize },
    #[error("more longs under way than its credits allow")]
    TooManyLongs,
    #[error("two halves of the same kind for long {lid}")]
    SameHalf { lid: u32 },
    #[error("a request where replies arrive")]
    RequestAmongReplies,
    #[error("a reply where requests arrive")]
    ReplyAmongRequests,
    #[error("a reply outside of its request's chunk")]
    OutsideOfChunk,
}

/// A long request's header, kept until its data is there.
#[derive(Clone, Debug)]
pub(crate) struct PendingLong {
    pub(crate) header: Header,
    pub(crate) args: [u32; MAX_ARGS],
    pub(crate) long: Long,
}

impl PendingLong {
    /// Of a header that has been checked, so with no more arguments than there may be.
    pub(crate) fn new(header: Header, args: &[u32], long: Long) -> Self {
        let mut kept = [0; MAX_ARGS];
        kept[..args.len()].copy_from_slice(args);
        Self {
            header,
            args: kept,
            long,
        }
    }
}
