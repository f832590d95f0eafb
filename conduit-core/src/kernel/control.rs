//! Memory that several processes see.

use std::sync::atomic::AtomicU64;

use crate::ni::{NiError, Rank, Window};

/// Memory shared with other processes, as an address that may cross threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedPtr(pub *mut u8);
// SAFETY: only an address; whoever dereferences it argues for the access.
unsafe impl Send for SharedPtr {}
// SAFETY: as above.
unsafe impl Sync for SharedPtr {}

/// A rank's control region, and those of the peers that are mapped here: the barriers' cells, then
/// for each rank the counter of what it has given back ([`crate::messages::flow::Returned`]).
///
/// 8 bytes a rank, and the cells.
#[derive(Debug)]
pub(crate) struct Control {
    own: SharedPtr,
    peers: Box<[Option<SharedPtr>]>,
    cells: usize,
    rank: Rank,
}

impl Control {
    /// With `cells` barrier cells. No peer's is known yet.
    pub(crate) fn new(own: SharedPtr, cells: usize, rank: Rank) -> Self {
        Self {
            own,
            peers: Box::default(),
            cells,
            rank,
        }
    }

    /// Notes where those of the peers are mapped here, as `find` says: nothing of a peer that is
    /// not, the window or that there is none of one that is.
    ///
    /// # Errors
    /// A peer that shows less than there must be.
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
                    "shows {} bytes of control region, there must be {bytes}",
                    found.map_or(0, |window| window.len)
                ),
            }),
        };
        self.peers = (0..size).map(check).collect::<Result<_, _>>()?;
        Ok(())
    }

    fn word(&self, base: SharedPtr, index: usize) -> &AtomicU64 {
        // SAFETY: `base` is a control region, which lives as long as the network, and so as the
        // engine that owns both it and `self`; it is only ever accessed as atomic words, `index` is
        // one of those that `start` has made (cells + ranks), which the callers see to, and the
        // region is page-aligned.
        unsafe { AtomicU64::from_ptr(base.0.cast::<u64>().add(index)) }
    }

    /// This rank's barrier cell.
    pub(crate) fn cell(&self, cell: usize) -> &AtomicU64 {
        assert!(
            cell < self.cells,
            "the barriers ask for their own cells only"
        );
        self.word(self.own, cell)
    }

    /// A peer's barrier cell, if the peer is mapped.
    pub(crate) fn peer_cell(&self, peer: Rank, cell: usize) -> Option<&AtomicU64> {
        assert!(
            cell < self.cells,
            "the barriers ask for their own cells only"
        );
        Some(self.word(self.peers[peer as usize]?, cell))
    }

    /// What `peer` has given back to this rank.
    pub(crate) fn returned_by(&self, peer: Rank) -> Option<&AtomicU64> {
        self.peers[peer as usize]?;
        Some(self.word(self.own, self.cells + peer as usize))
    }

    /// What this rank has given back to `peer`.
    pub(crate) fn returned_to(&self, peer: Rank) -> Option<&AtomicU64> {
        let base = self.peers[peer as usize]?;
        Some(self.word(base, self.cells + self.rank as usize))
    }

    /// Number of barrier cells.
    pub(crate) fn cells(&self) -> usize {
        self.cells
    }
}
