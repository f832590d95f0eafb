//! What is known of the way that requests to a peer take: found out once, at start.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// The way that requests to a peer take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Way {
    /// Nothing is known: each is checked. Its number is 0: a child knows nothing else.
    General = 0,
    /// Straight into a queue that is mapped here.
    Mapped,
    /// By the network; a chunk is held for the reply.
    Unmapped,
}

/// A [`Way`] that becomes [`Way::General`] when the job has failed.
#[derive(Debug)]
pub(super) struct AtomicWay(AtomicU8);

impl AtomicWay {
    pub(super) const fn new(way: Way) -> Self {
        Self(AtomicU8::new(way as u8))
    }

    pub(super) fn set(&self, way: Way) {
        self.0.store(way as u8, Relaxed);
    }

    #[inline(always)]
    pub(super) fn get(&self) -> Way {
        const MAPPED: u8 = Way::Mapped as u8;
        const UNMAPPED: u8 = Way::Unmapped as u8;
        match self.0.load(Relaxed) {
            MAPPED => Way::Mapped,
            UNMAPPED => Way::Unmapped,
            _ => Way::General,
        }
    }
}
