//! The target's side: where a put or get begins there.

use am::select;

use crate::ni::Rank;

/// A place in memory of a rank.
#[derive(Debug, Clone, Copy)]
pub(in crate::engine) struct Remote {
    pub(in crate::engine) target: Rank,
    /// Which of its match entries.
    pub(in crate::engine) match_bits: u64,
    /// From the entry's start.
    pub(in crate::engine) offset: usize,
}

impl Remote {
    /// In its segment.
    pub(in crate::engine) fn segment(target: Rank, offset: usize) -> Self {
        Self {
            target,
            match_bits: select::RAR.into(),
            offset,
        }
    }
}
