//! Staging pieces, which are parts of a rank's own memory. They serve messages whose source or
//! destination is in memory that peers cannot map.
//!
//! A put that is too long to travel in a queue is copied into a piece. The target reads the piece
//! and frees it by a store into the piece's state, so freeing takes no message. A get's piece is
//! written by the target and freed by the initiator.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::mapping::Mapping;

/// The allocator of this rank's pieces.
#[derive(Debug, Default)]
pub(super) struct Staging {
    /// The piece at which the next search starts. Pieces are freed in roughly the order in which
    /// they were taken.
    next: AtomicUsize,
}

impl Staging {
    /// Takes a free piece, or returns `None` if there is none.
    pub(super) fn take(&self, own: &Mapping) -> Option<u16> {
        let pieces = own.layout().pieces;
        let mut piece = self.next.load(Ordering::Relaxed);
        for _ in 0..pieces {
            if piece >= pieces {
                piece = 0;
            }
            let state = own.piece_state(piece)?;
            // SYNC (piece): this acquire pairs with the release in `give_back`, so the last user's
            // accesses to the piece come before those of this user.
            if state.load(Ordering::Relaxed) == 0
                && state
                    .compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
            {
                self.next.store(piece + 1, Ordering::Relaxed);
                return Some(piece as u16);
            }
            piece += 1;
        }
        None
    }
}

/// Returns the offset of a piece in its rank's mapping.
#[inline]
pub(super) fn offset(owner: &Mapping, piece: u16) -> usize {
    owner.layout().piece_offset + usize::from(piece) * owner.layout().piece_bytes
}

/// Frees a piece. Returns `false` if the rank has no such piece.
pub(super) fn give_back(owner: &Mapping, piece: u16) -> bool {
    match owner.piece_state(usize::from(piece)) {
        Some(state) => {
            // SYNC (piece): this release pairs with the acquire in `Staging::take`, so this user's
            // accesses to the piece come before those of the next user.
            state.store(0, Ordering::Release);
            true
        }
        None => false,
    }
}
