//! What the protocol and its surroundings are to each other: the seal of its packets, the driver. What it and the layer above it
//! are to each other is any transport's: [`soft_portals::fragment`].

use conduit_core::ni::Rank;

pub use soft_portals::fragment::{
    Failure, Fragment, MAX_HEADER, MAX_TINY, Payload, Refused, Upper,
};

/// Time since some moment, in nanoseconds. Never goes back.
pub type Nanos = u64;

/// Bytes of the authentication tag that ends every packet.
pub const TAG: usize = 16;

/// Makes packets that nobody outside the job can make, change or repeat.
///
/// A packet is `clear | body | tag`: `clear` bytes at its begin are authenticated only, the body is authenticated and, where
/// the job asks for it, encrypted; the last [`TAG`] bytes are the tag. `number` is never used twice towards the same peer.
pub trait Seal {
    /// Seals a packet to `peer`, whose last [`TAG`] bytes are free.
    fn seal(&mut self, peer: Rank, number: u64, packet: &mut [u8], clear: usize);
    /// The tag of a packet whose bytes before the tag are `parts`, one behind the other: the one that [`seal`](Self::seal) would
    /// write. `None`: it would also change other bytes of it.
    fn tag_of(&mut self, _peer: Rank, _number: u64, _parts: [&[u8]; 2]) -> Option<[u8; TAG]> {
        None
    }
    /// Checks a packet from `peer` and decrypts its body in place. `false`: not sealed by this incarnation of `peer` for this
    /// incarnation of this rank; the packet's contents are then anything.
    fn open(&mut self, peer: Rank, number: u64, packet: &mut [u8], clear: usize) -> bool;
}

/// Packets that were made for one peer, one behind the other in a buffer: all of `segment` bytes but the last, which may be
/// shorter. The driver hands them to the system at once where it can (segmentation offload).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transmit<'u> {
    /// To whom.
    pub peer: Rank,
    /// Bytes in the buffer.
    pub length: usize,
    /// Bytes of each packet but the last.
    pub segment: usize,
    /// Bytes of the one packet that are not in the buffer.
    pub outside: Option<Outside<'u>>,
}

/// Bytes of a packet that lie with the upper layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outside<'u> {
    /// Bytes of the packet before them.
    pub at: usize,
    /// They.
    pub bytes: &'u [u8],
}
