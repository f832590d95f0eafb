//! Received messages: their payloads and their errors.

use am::handlers::CallError;
use am::{Header, HeaderError, Long, MAX_ARGS};
use credits::Violation;

use crate::memory::Unplaced;
use crate::rma::vis::Malformed;

/// The data that a message carries besides its arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Payload<'a> {
    /// A short carries nothing.
    None,
    /// A medium's bytes, in place, aligned to 16 bytes, valid while the handler runs. If the
    /// sender's process has the same memory mapped, this relies on that process not writing there
    /// before the handler returns; see "What is safe" in the crate `conduit`.
    Medium(&'a [u8]),
    /// A long's bytes in this rank's segment. Peers may write there at any time, so they are not
    /// lent as a slice.
    Long {
        /// Offset of the first byte in the segment. For an empty payload, the sender's value, which
        /// may be anything.
        offset: usize,
        /// Length in bytes.
        length: usize,
    },
}

/// An error in a received message. Each is the sender's fault and ends the job.
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
    #[error("a reply of {bytes} bytes for an unknown transfer")]
    NoTransfer { bytes: usize },
    #[error("more longs in flight than its credits allow")]
    TooManyLongs,
    #[error("the same half of long {lid} twice")]
    SameHalf { lid: u32 },
    #[error("a request in the reply queue")]
    RequestAmongReplies,
    #[error("a reply in the request queue")]
    ReplyAmongRequests,
    #[error("a reply outside its request's chunk")]
    OutsideOfChunk,
}

/// A long request's header, kept until its data has arrived.
#[derive(Clone, Debug)]
pub(crate) struct PendingLong {
    pub(crate) header: Header,
    pub(crate) args: [u32; MAX_ARGS],
    pub(crate) long: Long,
}

impl PendingLong {
    /// Takes a checked header, which has no more arguments than allowed.
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
