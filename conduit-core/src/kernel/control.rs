//! Control memory shared by several processes.

use std::sync::atomic::AtomicU64;

use crate::ni::{NiError, Rank, Window};

/// Memory shared with other processes, as an address that may cross threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedPtr(pub *mut u8);
// SAFETY: this is only an address; code that dereferences it must justify the access.
unsafe impl Send for SharedPtr {}
// SAFETY: this is only an address; code that dereferences it must justify the access.
unsafe impl Sync for SharedPtr {}

/// A rank's control region, and those of the mapped peers: each holds the barriers' cells and then,
/// for each rank, the counter of the credits that this rank has returned
/// ([`crate::messages::flow::Returned`]).
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
    /// Creates the region with `cells` barrier cells. No peer's region is known yet.
    pub(crate) fn new(own: SharedPtr, cells: usize, rank: Rank) -> Self {
        Self {
            own,
            peers: Box::default(),
            cells,
            rank,
        }
    }

    /// Records the mappings of the peers' regions. `find` returns `None` for a peer that is not
    /// mapped, and otherwise its window, if it has one.
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
        // SAFETY: `base` is a control region, which lives as long as the network, and thus as long
        // as the engine that owns both the network and `self`. The region is only accessed as
        // atomic words. The callers ensure that `index` is one of the words that `start` created
        // (cells + ranks). The region is page-aligned.
        unsafe { AtomicU64::from_ptr(base.0.cast::<u64>().add(index)) }
    }

    /// Returns this rank's barrier cell.
    pub(crate) fn cell(&self, cell: usize) -> &AtomicU64 {
        assert!(cell < self.cells, "barrier cell out of range");
        self.word(self.own, cell)
    }

    /// Returns a peer's barrier cell if the peer is mapped.
    pub(crate) fn peer_cell(&self, peer: Rank, cell: usize) -> Option<&AtomicU64> {
        assert!(cell < self.cells, "barrier cell out of range");
        Some(self.word(self.peers[peer as usize]?, cell))
    }

    /// Returns the counter of credits that `peer` has returned to this rank.
    pub(crate) fn returned_by(&self, peer: Rank) -> Option<&AtomicU64> {
        self.peers[peer as usize]?;
        Some(self.word(self.own, self.cells + peer as usize))
    }

    /// Returns the counter of credits that this rank has returned to `peer`.
    pub(crate) fn returned_to(&self, peer: Rank) -> Option<&AtomicU64> {
        let base = self.peers[peer as usize]?;
        Some(self.word(base, self.cells + self.rank as usize))
    }

    /// Returns the number of barrier cells.
    pub(crate) fn cells(&self) -> usize {
        self.cells
    }
}
