//! Settings of the shared-memory network. All ranks of a job run with the same ones; start compares them.

use std::time::Duration;

use crate::ring::{MAX_SLOTS, SLOT};

use super::error::ShmError;

/// Settings of the shared-memory network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShmConfig {
    /// Bytes that all regions of a rank can have together. Address space only, in every rank for every rank, until it is
    /// used.
    pub region_bytes: usize,
    /// Bytes that all event queues of a rank can have together; likewise.
    pub queue_bytes: usize,
    /// Whether the system is asked to back regions with huge pages.
    pub huge_pages: bool,
    /// Whether peers' regions can be reached by stores and loads ([`Ni::window`](conduit_core::ni::Ni::window)). Without,
    /// everything goes through messages, as in a network between hosts.
    pub windows: bool,
    /// Bytes of the largest inject, which travels inside a queue; 0 turns it off.
    pub inject_size: usize,
    /// Bytes up to which puts, and the replies of gets, travel inside a queue as well.
    pub inline_size: usize,
    /// Bytes of the largest put or get to an entry.
    pub max_message: usize,
    /// Bytes of the largest put to a locally managed entry.
    pub max_managed: usize,
    /// Pieces of memory for puts and gets whose own memory peers can't see, each for one message of the largest size.
    pub staging_pieces: usize,
    /// With more ranks than this, an event queue is one ring for all sources. With less, it is a ring for each, which
    /// is quicker and takes more memory.
    pub shared_ring_above: u32,
    /// Rings of their own that this rank then lends to the sources that it hears from most; not where several threads use
    /// the network at once. Ranks may differ in it.
    pub lane_rings: u32,
    /// For tests: messages, about, after which a source has to give such a ring back; 0 for none. Ranks may differ in it.
    pub lane_force_switch: u32,
    /// Bytes up to which the rings of an event queue are larger together than was asked for, so that floods go through
    /// more memory than a core's own cache holds. Not where a queue is one ring for all sources.
    pub flood_bytes: usize,
    /// The longest time for which this rank leaves messages of a flood alone, so that more of them come together. Zero
    /// turns it off. Ranks may differ in it.
    pub max_coalescing: Duration,
    /// Whether this rank offers the slots of its requests for the replies. Ranks may differ in it.
    pub reply_slots: bool,
    /// Whether it delays its first look for such a reply. Ranks may differ in it.
    pub adaptive_delay: bool,
}

impl Default for ShmConfig {
    fn default() -> Self {
        Self {
            region_bytes: 64 << 30,
            queue_bytes: 1 << 30,
            huge_pages: false,
            windows: true,
            inject_size: 8 << 10,
            inline_size: 1 << 10,
            max_message: 64 << 10,
            max_managed: 66 << 10,
            staging_pieces: 64,
            shared_ring_above: 32,
            lane_rings: 16,
            lane_force_switch: 0,
            flood_bytes: 8 << 20,
            max_coalescing: Duration::from_micros(2),
            reply_slots: true,
            adaptive_delay: true,
        }
    }
}

impl ShmConfig {
    /// Bytes of shared memory besides queues and regions, at most, with default settings.
    pub const STAGING: usize = 16 << 20;

    /// Bytes of the largest put.
    pub(super) fn put_limit(&self) -> usize {
        self.max_message.max(self.max_managed)
    }

    /// Whether every queue is one ring for all sources, in a job of `ranks`.
    pub(super) fn shared_rings(&self, ranks: u32) -> bool {
        ranks > self.shared_ring_above
    }

    /// Every setting by name, for comparison between ranks.
    pub(super) fn entries(&self) -> [(&'static str, u64); 11] {
        [
            ("region_bytes", self.region_bytes as u64),
            ("queue_bytes", self.queue_bytes as u64),
            ("huge_pages", u64::from(self.huge_pages)),
            ("windows", u64::from(self.windows)),
            ("inject_size", self.inject_size as u64),
            ("inline_size", self.inline_size as u64),
            ("max_message", self.max_message as u64),
            ("max_managed", self.max_managed as u64),
            ("staging_pieces", self.staging_pieces as u64),
            ("shared_ring_above", u64::from(self.shared_ring_above)),
            ("flood_bytes", self.flood_bytes as u64),
        ]
    }

    /// Refuses what can't work.
    pub(super) fn check(&self) -> Result<(), ShmError> {
        // Half of what a message can cover leaves room for any ring.
        let in_queue = MAX_SLOTS.div_ceil(2) as usize * SLOT;
        let bounds = [
            ("region_bytes", self.region_bytes, 1, 1 << 44),
            ("queue_bytes", self.queue_bytes, 1 << 16, 1 << 40),
            ("inject_size", self.inject_size, 0, in_queue),
            ("inline_size", self.inline_size, 0, in_queue),
            ("max_message", self.max_message, 64, 1 << 30),
            ("max_managed", self.max_managed, 64, 1 << 30),
            ("staging_pieces", self.staging_pieces, 1, 1 << 15),
            ("lane_rings", self.lane_rings as usize, 0, ::lanes::ROWS),
        ];
        for (setting, value, least, most) in bounds {
            if value < least || value > most {
                return Err(ShmError::Setting {
                    setting,
                    value: value as u64,
                    least: least as u64,
                    most: most as u64,
                });
            }
        }
        Ok(())
    }
}
