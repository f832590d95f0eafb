//! Control memory that several processes share.

use std::sync::atomic::AtomicU64;

use crate::ni::{NiError, Rank, Window};

/// The address of memory shared with other processes, which may be sent between threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedPtr(pub *mut u8);
// SAFETY: this is only an address; code that dereferences it must justify the access.
unsafe impl Send for SharedPtr {}
// SAFETY: this is only an address; code that dereferences it must justify the access.
unsafe impl Sync for SharedPtr {}

/// The control region of a rank, and those of the mapped peers. A region holds the cells of the
/// barriers, followed by one counter for each rank: the number of credits that this rank has
/// returned ([`crate::messages::flow::Returned`]).
///
/// A region takes 8 bytes per rank, plus the cells.
#[derive(Debug)]
pub(crate) struct Control {
    own: SharedPtr,
    peers: Box<[Option<SharedPtr>]>,
    cells: usize,
    rank: Rank,
}

impl Control {
    /// Creates the value for this rank's region, which has `cells` barrier cells. The peers'
    /// regions are still unknown.
    pub(crate) fn new(own: SharedPtr, cells: usize, rank: Rank) -> Self {
        Self {
            own,
            peers: Box::default(),
            cells,
            rank,
        }
    }

    /// Records the mappings of the peers' regions. `find` returns `None` for a peer that is not
    /// mapped. For a mapped peer it returns the peer's window, or `Some(None)` if that is missing.
    ///
    /// # Errors
    /// If the region of a mapped peer is missing or too small.
    pub(crate) fn map(
        &mut self,
        size: u32,
        find: impl Fn(Rank) -> Option<Option<Window>>,
    ) -> Result<(), NiError> {
        let bytes = (self.cells + size as usize) * size_of::<u64>();
        let check = |peer| match find(peer) {
            None => Ok(None),
            Some(Some(window)) if window.len >= bytes => Ok(Some(SharedPtr(window.base))),
            Some(found) => Err(NiError::BadPeer {
                operation: "start",
                rank: peer,
                reason: format!(
                    "has a control region of {} bytes; at least {bytes} are needed",
                    found.map_or(0, |window| window.len)
                ),
            }),
        };
        self.peers = (0..size).map(check).collect::<Result<_, _>>()?;
        Ok(())
    }

    fn word(&self, base: SharedPtr, index: usize) -> &AtomicU64 {
        // SAFETY: `base` is a control region. The region lives as long as the network, and the
        // engine that owns `self` owns the network too. The region is accessed only as atomic
        // words. The callers ensure that `index` is one of the words that `start` created (one per
        // cell and one per rank). The words are aligned, because the region is page-aligned.
        unsafe { AtomicU64::from_ptr(base.0.cast::<u64>().add(index)) }
    }

    /// Returns this rank's barrier cell.
    pub(crate) fn cell(&self, cell: usize) -> &AtomicU64 {
        assert!(cell < self.cells, "barrier cell out of range");
        self.word(self.own, cell)
    }

    /// Returns a peer's barrier cell, or `None` if the peer is not mapped.
    pub(crate) fn peer_cell(&self, peer: Rank, cell: usize) -> Option<&AtomicU64> {
        assert!(cell < self.cells, "barrier cell out of range");
        Some(self.word(self.peers[peer as usize]?, cell))
    }

    /// Returns the counter of the credits that `peer` has returned to this rank, or `None` if
    /// `peer` is not mapped.
    pub(crate) fn returned_by(&self, peer: Rank) -> Option<&AtomicU64> {
        self.peers[peer as usize]?;
        Some(self.word(self.own, self.cells + peer as usize))
    }

    /// Returns the counter of the credits that this rank has returned to `peer`, or `None` if
    /// `peer` is not mapped.
    pub(crate) fn returned_to(&self, peer: Rank) -> Option<&AtomicU64> {
        let base = self.peers[peer as usize]?;
        Some(self.word(base, self.cells + self.rank as usize))
    }

    /// Returns the number of barrier cells.
    pub(crate) fn cells(&self) -> usize {
        self.cells
    }
}
