//! The counters of a rank, which count dropped messages, malformed messages and events of lanes.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use conduit_core::ni::Rank;

const NONE: u32 = u32::MAX;

/// The values of the counters since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Statistics {
    /// The number of messages that no entry accepted.
    pub dropped: u64,
    /// The number of malformed messages, which were skipped.
    pub bad_messages: u64,
    /// The source of the first malformed message, if known.
    pub bad_peer: Option<Rank>,
    /// The counters of the lanes that this rank lends and holds.
    pub lanes: ::lanes::Statistics,
}

impl Statistics {
    /// Returns all counters with their names.
    pub fn each(&self) -> [(&'static str, u64); 7] {
        [
            ("dropped", self.dropped),
            ("bad_messages", self.bad_messages),
            ("lanes_offered", self.lanes.offers),
            ("lanes_denied", self.lanes.denials),
            ("lanes_recalled", self.lanes.recalls),
            ("promotions", self.lanes.promotions),
            ("demotions", self.lanes.demotions),
        ]
    }
}

#[derive(Debug)]
pub(super) struct Counters {
    dropped: AtomicU64,
    bad_messages: AtomicU64,
    bad_peer: AtomicU32,
}

impl Counters {
    pub(super) fn new() -> Self {
        Self {
            dropped: AtomicU64::new(0),
            bad_messages: AtomicU64::new(0),
            bad_peer: AtomicU32::new(NONE),
        }
    }

    pub(super) fn note_dropped(&self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }

    #[cold]
    pub(super) fn note_bad(&self, peer: Option<Rank>) {
        self.bad_messages.fetch_add(1, Ordering::Relaxed);
        let peer = peer.unwrap_or(NONE);
        // The exchange fails if a peer is already recorded, so the first one is kept.
        let _ = self
            .bad_peer
            .compare_exchange(NONE, peer, Ordering::Relaxed, Ordering::Relaxed);
    }

    pub(super) fn bad_peer(&self) -> Option<Rank> {
        let peer = self.bad_peer.load(Ordering::Relaxed);
        (peer != NONE).then_some(peer)
    }

    pub(super) fn read(&self, lanes: ::lanes::Statistics) -> Statistics {
        Statistics {
            dropped: self.dropped.load(Ordering::Relaxed),
            bad_messages: self.bad_messages.load(Ordering::Relaxed),
            bad_peer: self.bad_peer(),
            lanes,
        }
    }
}
