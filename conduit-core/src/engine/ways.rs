//! The way that requests to a peer take: found out once, at start.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// The way that requests to a peer take, where nothing is to be refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Way {
    /// That of `send_request`, with all checks. Its number is 0: a child has no other.
    General = 0,
    /// That of `request_plain`.
    Mapped,
    /// That of `request_injected`, for those that are short enough.
    Injected,
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
    pub(super) fn is(&self, way: Way) -> bool {
        self.0.load(Relaxed) == way as u8
    }
}
