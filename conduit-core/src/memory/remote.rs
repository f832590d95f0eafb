//! The target's side of a transfer.

use am::select;

use crate::ni::Rank;

/// A location in the memory of a rank.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Remote {
    pub(crate) target: Rank,
    /// The match bits, which select one of the target's match entries.
    pub(crate) match_bits: u64,
    /// The offset from the start of the memory that the entry describes.
    pub(crate) offset: usize,
}

impl Remote {
    /// Returns a location in a rank's segment.
    pub(crate) fn segment(target: Rank, offset: usize) -> Self {
        Self {
            target,
            match_bits: select::RAR.into(),
            offset,
        }
    }
}
