//! Known segments that are process memory.

use std::collections::HashMap;
use std::sync::OnceLock;

use parking_lot::Mutex;

use super::segment::{NO_SEGMENT, Segment};
use crate::kernel::Kernel;
use crate::kernel::control::SharedPtr;
use crate::ni::{Ni, Rank};
use crate::threads::Mode;

/// A segment that is all memory of a process.
pub(super) const ALL: Segment = Segment {
    window: SharedPtr(std::ptr::null_mut()),
    len: usize::MAX,
    address: 0,
};

/// The target range of an operation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked {
    pub(super) rank: Rank,
    pub(super) address: usize,
    pub(super) length: usize,
}

/// A known segment.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) segment: Segment,
    /// Whether the system lets this process copy to and from the segment.
    pub(super) at_once: bool,
}

/// Segments that are process memory.
#[derive(Debug)]
pub(super) struct ProcessSegments {
    pub(super) is_everything: bool,
    /// The segments by rank, filled as they become known. It takes 40 bytes per rank.
    pub(super) of: Box<[OnceLock<Known>]>,
    /// Target ranges of operations by messages, which the error names if there is no such memory,
    /// because the completion only names the operation. Indexed like the table of operations, so
    /// there are never more than were in flight at once. Each entry takes 24 bytes.
    pub(super) asked: Mutex<HashMap<usize, Asked>>,
}

impl ProcessSegments {
    pub(super) fn new(ranks: u32, is_everything: bool) -> Self {
        Self {
            is_everything,
            of: (0..ranks).map(|_| OnceLock::new()).collect(),
            asked: Mutex::default(),
        }
    }

    /// Returns a rank's segment, or an empty one while it is unknown.
    pub(super) fn of(&self, rank: Rank) -> Option<&Segment> {
        let known = self.of.get(rank as usize)?.get();
        Some(known.map_or(&NO_SEGMENT, |known| &known.segment))
    }

    /// Stores a segment; the first one is kept.
    pub(super) fn set<N: Ni, M: Mode>(
        &self,
        kernel: &Kernel<N, M>,
        rank: Rank,
        segment: Segment,
        at_once: bool,
    ) {
        // A rank accesses its own segment by its addresses.
        let at_once = at_once || rank == kernel.job.rank;
        let _ = self.of[rank as usize].set(Known { segment, at_once });
    }
}
