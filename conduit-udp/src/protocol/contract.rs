//! What the protocol and its surroundings are to each other: the seal of its packets, the driver.
//! What it and the layer above it are to each other is any transport's:
//! [`conduit_portals::transport::fragment`].

use conduit_core::ni::Rank;

pub use conduit_portals::transport::fragment::{
    Failure, Fragment, FragmentHandler, MAX_HEADER, MAX_TINY, Payload, Refused,
};
pub use seal::{Seal, TAG};

/// Time since some moment, in nanoseconds. Never goes back.
pub type Nanos = u64;

/// Packets that were made for one peer, one behind the other in a buffer: all of `segment` bytes
/// but the last, which may be shorter. The driver hands them to the system at once where it can
/// (segmentation offload).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transmit<'u> {
    /// To whom.
    pub peer: Rank,
    /// Bytes in the buffer.
    pub length: usize,
    /// Bytes of each packet but the last.
    pub segment: usize,
    /// Bytes of the one packet that are not in the buffer.
    pub zero_copy: Option<ZeroCopy<'u>>,
}

/// Bytes of a packet that lie with the fragment handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ZeroCopy<'u> {
    /// Bytes of the packet before them.
    pub at: usize,
    /// They.
    pub bytes: &'u [u8],
}
