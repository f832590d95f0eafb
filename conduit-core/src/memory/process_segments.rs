//! Known segments that are memory of the ranks' processes.

use std::collections::HashMap;
use std::sync::OnceLock;

use parking_lot::Mutex;

use super::segment::{NO_SEGMENT, Segment};
use crate::kernel::Kernel;
use crate::kernel::control::SharedPtr;
use crate::ni::{Ni, Rank};
use crate::threads::Mode;

/// A segment that is all of a process's memory.
pub(super) const ALL: Segment = Segment {
    window: SharedPtr(std::ptr::null_mut()),
    len: usize::MAX,
    address: 0,
};

/// What an operation asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked {
    pub(super) rank: Rank,
    pub(super) address: usize,
    pub(super) length: usize,
}

/// A segment that is known.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) segment: Segment,
    /// The system lets this process copy to and from it.
    pub(super) at_once: bool,
}

/// Segments that are memory of processes.
#[derive(Debug)]
pub(super) struct ProcessSegments {
    pub(super) is_everything: bool,
    /// As they come to be known. 40 bytes a rank.
    pub(super) of: Box<[OnceLock<Known>]>,
    /// What operations by messages have asked for, for the error if there is no such memory: the
    /// completion names the operation only. By place in the table of operations, so no more than
    /// were ever under way at once. 24 bytes each.
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

    /// A rank's segment, an empty one as long as it is not known.
    pub(super) fn of(&self, rank: Rank) -> Option<&Segment> {
        let known = self.of.get(rank as usize)?.get();
        Some(known.map_or(&NO_SEGMENT, |known| &known.segment))
    }

    /// The first is kept.
    pub(super) fn set<N: Ni, M: Mode>(
        &self,
        kernel: &Kernel<N, M>,
        rank: Rank,
        segment: Segment,
        at_once: bool,
    ) {
        // A rank finds its own by its addresses.
        let at_once = at_once || rank == kernel.job.rank;
        let _ = self.of[rank as usize].set(Known { segment, at_once });
    }
}
