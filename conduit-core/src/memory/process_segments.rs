//! The segments that are process memory and known to this rank.

use std::collections::HashMap;
use std::sync::OnceLock;

use parking_lot::Mutex;

use super::segment::{NO_SEGMENT, Segment};
use crate::kernel::Kernel;
use crate::kernel::control::SharedPtr;
use crate::ni::{Ni, Rank};
use crate::threads::Mode;

/// A segment that is the whole memory of a process.
pub(super) const ALL: Segment = Segment {
    window: SharedPtr(std::ptr::null_mut()),
    len: usize::MAX,
    address: 0,
};

/// The target range that an operation was asked to access.
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
    /// The segments, indexed by rank, filled in as they become known. Takes 40 bytes per rank.
    pub(super) of: Box<[OnceLock<Known>]>,
    /// The target ranges of operations that travel in messages. If a range is not accessible, the
    /// error names it, because the completion identifies only the operation. The keys are indices
    /// in the table of operations, so there are never more entries than operations that were in
    /// flight at once. Each entry takes 24 bytes.
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

    /// Returns a rank's segment, which is empty while it is unknown. Returns `None` if the rank is
    /// not in the job.
    pub(super) fn of(&self, rank: Rank) -> Option<&Segment> {
        let known = self.of.get(rank as usize)?.get();
        Some(known.map_or(&NO_SEGMENT, |known| &known.segment))
    }

    /// Stores a rank's segment. Only the first one is kept.
    pub(super) fn set<N: Ni, M: Mode>(
        &self,
        kernel: &Kernel<N, M>,
        rank: Rank,
        segment: Segment,
        at_once: bool,
    ) {
        // A rank can always access its own segment directly.
        let at_once = at_once || rank == kernel.job.rank;
        let _ = self.of[rank as usize].set(Known { segment, at_once });
    }
}
