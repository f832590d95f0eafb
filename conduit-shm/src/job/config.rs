//! Settings of the shared-memory network. All ranks of a job run with the same values; start
//! compares them.

use std::time::Duration;

use crate::ring::{MAX_SLOTS, SLOT};

use super::error::ShmError;

/// Settings of the shared-memory network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShmConfig {
    /// The number of bytes available for all regions of a rank together. Until these bytes are
    /// used, they are only address space, which every rank reserves for every rank.
    pub region_bytes: usize,
    /// The number of bytes available for all event queues of a rank together. These, too, are only
    /// address space until they are used.
    pub queue_bytes: usize,
    /// Whether to ask the system to back regions with huge pages.
    pub huge_pages: bool,
    /// Whether peers' regions can be accessed by loads and stores
    /// ([`Ni::window`](conduit_core::ni::Ni::window)). If not, all data travel in messages, as in a
    /// network between hosts.
    pub windows: bool,
    /// The size in bytes of the largest inject, which travels inside a queue. If this is 0, there
    /// are no injects.
    pub inject_size: usize,
    /// The size in bytes up to which puts and the replies to gets also travel inside a queue.
    pub inline_size: usize,
    /// The size in bytes of the largest put or get to an entry.
    pub max_message: usize,
    /// The size in bytes of the largest put to a locally managed entry.
    pub max_managed: usize,
    /// The number of staging pieces for puts and gets on memory that peers cannot map. Each holds
    /// one message of the largest size.
    pub staging_pieces: usize,
    /// In a job with more ranks than this, each event queue is one ring for all sources. Otherwise,
    /// it has a ring for each source, which is faster but takes more memory.
    pub shared_ring_above: u32,
    /// The number of rings that this rank lends to the sources that send the most, if each of its
    /// event queues is one ring for all sources. A rank in which several threads use the network at
    /// once lends none. Ranks may have different values.
    pub lane_rings: u32,
    /// For tests: the approximate number of messages after which a source has to give back a lent
    /// ring. If this is 0, sources never have to give it back. Ranks may have different values.
    pub lane_force_switch: u32,
    /// The number of bytes to which the rings of an event queue may together grow beyond the
    /// requested size, so that a flood can use more memory than a core's cache holds. Ignored if a
    /// queue is one ring for all sources.
    pub flood_bytes: usize,
    /// The longest time for which this rank stops polling a ring during a flood, so that more
    /// messages gather. Zero turns these pauses off. Ranks may have different values.
    pub max_coalescing: Duration,
    /// Whether this rank offers the slots of its requests for their replies. Ranks may have
    /// different values.
    pub reply_slots: bool,
    /// Whether this rank delays its first poll for a reply in an offered slot. Ranks may have
    /// different values.
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
    /// The maximum number of bytes of shared memory besides queues and regions, with default
    /// settings.
    pub const STAGING: usize = 16 << 20;

    /// Returns the size in bytes of the largest put.
    pub(super) fn put_limit(&self) -> usize {
        self.max_message.max(self.max_managed)
    }

    /// Returns whether every queue is one ring for all sources, in a job of `ranks`.
    pub(super) fn shared_rings(&self, ranks: u32) -> bool {
        ranks > self.shared_ring_above
    }

    /// Returns every setting that must be the same on all ranks, by name.
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

    /// Rejects values out of range.
    pub(super) fn check(&self) -> Result<(), ShmError> {
        // A message that covers at most half of the slots that a message can cover fits into any
        // ring.
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
