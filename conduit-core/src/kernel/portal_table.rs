//! The portal table of a rank: its indices, its regions, and the tags and selectors of its match
//! entries.

use am::select;

use crate::ni::RegionId;

/// The portal table, which has one index per queue (in Portals, a target queue belongs to its
/// index).
pub(crate) mod index {
    use crate::ni::PtIndex;
    /// The segment, for puts and gets. This index has no queue.
    pub(crate) const RAR: PtIndex = PtIndex(0);
    /// Requests, and the data of long requests.
    pub(crate) const AM: PtIndex = PtIndex(1);
    /// Replies.
    pub(crate) const SAFE: PtIndex = PtIndex(2);
    /// System messages.
    pub(crate) const SYS: PtIndex = PtIndex(3);
}

/// Tags of match entries. Events return the tag of their entry.
pub(crate) mod tag {
    pub(crate) const RAR: u64 = 0;
    pub(crate) const RARAM: u64 = 1;
    pub(crate) const CATCH_BASIN: u64 = 2;
    pub(crate) const REQ_SB: u64 = 3;
    pub(crate) const SYS: u64 = 4;
    /// A request buffer. All request buffers share one tag, because they are all relinked in the
    /// same way.
    pub(crate) const REQ_RB: u64 = 5;
    /// A reply buffer.
    pub(crate) const RPL_RB: u64 = 6;
}

/// The selector of the locally managed buffers in which injected replies arrive. GASNet's
/// portals-conduit has no such buffers: its replies always go to the requester's chunk. Here
/// replies go to that chunk only where the network cannot inject.
pub(crate) const SELECT_RPL_RB: u8 = 6;

pub(crate) const CONTROL: RegionId = RegionId(0);
pub(crate) const CHUNKS: RegionId = RegionId(1);
pub(crate) const SEGMENT: RegionId = RegionId(2);

/// The mask of ignored match bits. The low four bits select match entries; the others describe the
/// operation.
pub(crate) const IGNORE: u64 = !select::MASK;
