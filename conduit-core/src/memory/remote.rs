//! The target's side: where a put or get begins there.

use am::select;

use crate::ni::Rank;

/// A place in memory of a rank.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Remote {
    pub(crate) target: Rank,
    /// Which of its match entries.
    pub(crate) match_bits: u64,
    /// From the entry's start.
    pub(crate) offset: usize,
}

impl Remote {
    /// In its segment.
    pub(crate) fn segment(target: Rank, offset: usize) -> Self {
        Self {
            target,
            match_bits: select::RAR.into(),
            offset,
        }
    }
}
