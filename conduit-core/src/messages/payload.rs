//! Received messages: their payloads, and the errors in them.

use am::handlers::CallError;
use am::{Header, HeaderError, Long, MAX_ARGS};
use credits::Violation;

use crate::memory::Unplaced;
use crate::rma::vis::Malformed;

/// The data that a message carries besides its arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Payload<'a> {
    /// The message is a short, which carries no data.
    None,
    /// The bytes of a medium, in place. They are aligned to 16 bytes and valid while the handler
    /// runs. If the sender's process has the same memory mapped, their validity depends on that
    /// process not writing there before the handler returns; see "What is safe" in the crate
    /// `conduit`.
    Medium(&'a [u8]),
    /// The bytes of a long in this rank's segment. Peers may write there at any time, so the bytes
    /// are not lent as a slice.
    Long {
        /// The offset of the first byte in the segment. For an empty payload, this is the sender's
        /// value, which may be any number.
        offset: usize,
        /// The length in bytes.
        length: usize,
    },
}

/// An error in a received message. The sender is at fault, and the error ends the job.
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
    #[error("it has more longs in flight than its credits allow")]
    TooManyLongs,
    #[error("the same half of long {lid} arrived twice")]
    SameHalf { lid: u32 },
    #[error("a request arrived in the reply queue")]
    RequestAmongReplies,
    #[error("a reply arrived in the request queue")]
    ReplyAmongRequests,
    #[error("a reply arrived outside its request's chunk")]
    OutsideOfChunk,
}

/// The header of a long request, kept until the data has arrived.
#[derive(Clone, Debug)]
pub(crate) struct PendingLong {
    pub(crate) header: Header,
    pub(crate) args: [u32; MAX_ARGS],
    pub(crate) long: Long,
}

impl PendingLong {
    /// Keeps a header that has been checked. The check ensures that it has at most [`MAX_ARGS`]
    /// arguments.
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
