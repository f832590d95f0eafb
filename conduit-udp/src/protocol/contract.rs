//! The protocol's interface to its driver and to the seal. Its interface to the layer above is that
//! of every transport ([`conduit_portals::transport::fragment`]).

use conduit_core::ni::Rank;

pub use conduit_portals::transport::fragment::{
    Failure, Fragment, FragmentHandler, MAX_HEADER, MAX_TINY, Payload, Refused,
};
pub use seal::{Seal, TAG};

/// Monotonic time in nanoseconds, from an arbitrary start.
pub type Nanos = u64;

/// Packets for one peer, which are contiguous in the driver's buffer. Each has `segment` bytes,
/// except for the last, which may be shorter. The driver passes them to the system in one call if
/// it can (UDP segmentation offload).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transmit<'u> {
    /// The peer.
    pub peer: Rank,
    /// The total number of bytes of the packets in the buffer.
    pub length: usize,
    /// The number of bytes of each packet except the last.
    pub segment: usize,
    /// The payload that is not in the buffer, if this is a single packet with such a payload.
    pub zero_copy: Option<ZeroCopy<'u>>,
}

/// The payload of a packet, which stays in the fragment handler's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ZeroCopy<'u> {
    /// The offset of the payload in the packet.
    pub at: usize,
    /// The payload.
    pub bytes: &'u [u8],
}
