//! The portal table of a rank: indices, regions, the names and selectors of match entries.

use am::select;

use crate::ni::RegionId;

/// The portal table: one index per queue (`facts`: a target's queue belongs to its index).
pub(in crate::engine) mod index {
    use crate::ni::PtIndex;
    /// The segment, for puts and gets. No queue.
    pub(in crate::engine) const RAR: PtIndex = PtIndex(0);
    /// Requests, and the data of long requests.
    pub(in crate::engine) const AM: PtIndex = PtIndex(1);
    /// Replies.
    pub(in crate::engine) const SAFE: PtIndex = PtIndex(2);
    /// System messages.
    pub(in crate::engine) const SYS: PtIndex = PtIndex(3);
}

/// Names of match entries, given back in their events.
pub(in crate::engine) mod tag {
    pub(in crate::engine) const RAR: u64 = 0;
    pub(in crate::engine) const RARAM: u64 = 1;
    pub(in crate::engine) const CATCH_BASIN: u64 = 2;
    pub(in crate::engine) const REQ_SB: u64 = 3;
    pub(in crate::engine) const SYS: u64 = 4;
    /// A request buffer; each has the same name, as each is appended again in the same way.
    pub(in crate::engine) const REQ_RB: u64 = 5;
    /// A reply buffer.
    pub(in crate::engine) const RPL_RB: u64 = 6;
}

/// The selector of the locally managed buffers that injected replies arrive in. GASNet's portals-conduit has no
/// such role: its replies always go to the requester's chunk. Here that is so only where a network cannot inject.
pub(in crate::engine) const SELECT_RPL_RB: u8 = 6;

pub(in crate::engine) const CONTROL: RegionId = RegionId(0);
pub(in crate::engine) const CHUNKS: RegionId = RegionId(1);
pub(in crate::engine) const SEGMENT: RegionId = RegionId(2);

/// Match entries are selected by the low four bits; the others carry the operation.
pub(in crate::engine) const IGNORE: u64 = !select::MASK;
