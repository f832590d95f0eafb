//! The layout of a rank's memory. Offsets count from the start of the mapping; it contains no
//! pointers.
//!
//! ```text
//! Control | event queues: (RingControl, slots) per ring | staging: states, pieces | regions
//! ```
//!
//! All ranks run with the same settings, so everything but the sizes of queues and regions is known
//! without asking.

use std::mem::{align_of, offset_of, size_of};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crossbeam_utils::CachePadded;

use crate::ring::{RingControl, SLOT};
use conduit_portals::matching::PT_INDICES;

use super::config::ShmConfig;

/// The first word of every mapping.
pub(super) const MAGIC: u64 = 0x4d48_535f_5544_4e43;
/// The layout version. Must change with any change of this file or of [`super::message`].
pub(super) const VERSION: u32 = 6;

/// Event queues available to the network's user.
pub(super) const USER_QUEUES: usize = 16;
/// The queue of indices that were opened without one.
pub(super) const INTERNAL_QUEUE: usize = USER_QUEUES;
/// All queues of a rank.
pub(super) const QUEUES: usize = USER_QUEUES + 1;
/// Regions of a rank.
pub(super) const REGIONS: usize = 32;

/// The page size of most processors; regions are whole pages.
pub(super) const PAGE: usize = 4096;
/// The size of a huge page.
pub(super) const HUGE_PAGE: usize = 2 << 20;

/// [`Control::state`]: the owner uses the network.
pub(super) const STATE_OPEN: u32 = 1;
/// [`Control::state`]: the owner has left normally; its process may end.
pub(super) const STATE_CLOSED: u32 = 2;

/// An event queue as its senders see it.
#[derive(Debug)]
#[repr(C)]
pub(super) struct QueueEntry {
    /// Offset of the queue's first [`RingControl`]. The others follow at [`ring_stride`]. 0 until
    /// the queue exists. Stored last, with release.
    pub(super) offset: AtomicU64,
    /// Base-2 logarithm of the slots of each ring of one source.
    pub(super) shift: AtomicU32,
    /// Base-2 logarithm of the slots of its first part. A ring of all sources has only this part.
    pub(super) part: AtomicU32,
    /// Number of rings.
    pub(super) rings: AtomicU32,
    /// The rings through which a source has begun to send: bit `ring % 64`.
    pub(super) used: AtomicU64,
}

/// A region as its peers see it.
#[derive(Debug)]
#[repr(C)]
pub(super) struct RegionEntry {
    pub(super) offset: AtomicU64,
    pub(super) len: AtomicU64,
}

/// The words of [`crate::doorbell::Doorbell`].
#[derive(Debug)]
#[repr(C)]
pub(super) struct DoorbellWords {
    pub(super) sleeping: AtomicU32,
    pub(super) notified: AtomicU32,
}

/// The start of every mapping.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Control {
    pub(super) magic: AtomicU64,
    pub(super) version: AtomicU32,
    pub(super) rank: AtomicU32,
    /// [`settings_hash`] of the owner.
    pub(super) settings: AtomicU64,
    pub(super) state: AtomicU32,
    /// Number of regions that can be looked up. Stored last, with release.
    pub(super) region_count: AtomicU32,
    /// Bytes that the owner may come to touch, for the sum over ranks.
    pub(super) promised: AtomicU64,
    /// The [control group](crate::memory::Memory::group_id) that these bytes count in.
    pub(super) memory_group: AtomicU64,
    /// Alone on its cache line, because every sender reads it with every message.
    pub(super) doorbell: CachePadded<DoorbellWords>,
    /// The queue of each portal table index, plus 1; 0 while the index is not open. Stored with
    /// release.
    pub(super) pt: CachePadded<[AtomicU32; PT_INDICES]>,
    /// 1 after a peer has activated a ring of any queue, until the owner has seen it. Alone on its
    /// cache line, because the owner reads it constantly.
    pub(super) activations: CachePadded<AtomicU64>,
    pub(super) queues: [QueueEntry; QUEUES],
    pub(super) regions: [RegionEntry; REGIONS],
}

impl Control {
    /// Announces that a source is going to send through a ring of a queue.
    pub(super) fn announce(&self, queue: &QueueEntry, ring: usize) {
        // SYNC (activations): first the bit, then the word, then messages. Pairs with
        // `Shm::activate_all`.
        queue.used.fetch_or(1 << (ring % 64), Ordering::Release);
        self.signal();
    }

    /// Makes the owner poll all queues and check for activated rings.
    pub(super) fn signal(&self) {
        self.activations.store(ACTIVATIONS, Ordering::Release);
    }
}

/// [`Control::activations`]: rings were activated.
pub(super) const ACTIVATIONS: u64 = 1;

/// The state of one piece, alone on its line: 0 free, 1 in use. The initiator takes the piece; the
/// target of a put or the initiator of a get frees it.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct PieceState(pub(super) AtomicU32);

// The layout is the protocol between processes, so it may depend only on this file.
const _: () = {
    assert!(size_of::<AtomicU64>() == 8 && align_of::<AtomicU64>() == 8);
    assert!(size_of::<AtomicU32>() == 4 && align_of::<AtomicU32>() == 4);
    assert!(cfg!(target_has_atomic = "64") && cfg!(target_has_atomic = "32"));
    assert!(cfg!(target_pointer_width = "64"));
    assert!(size_of::<QueueEntry>() == 32 && size_of::<RegionEntry>() == 16);
    assert!(size_of::<PieceState>() == 64);
    assert!(offset_of!(Control, magic) == 0);
    assert!(
        offset_of!(Control, doorbell).is_multiple_of(128)
            && offset_of!(Control, pt).is_multiple_of(128)
    );
    assert!(size_of::<Control>() <= PAGE);
};

/// Returns the number of bytes from one ring of a queue to the next.
pub(super) const fn ring_stride(shift: u32) -> usize {
    size_of::<RingControl>() + (SLOT << shift)
}

/// Returns the number of bytes before a ring of a queue, whose first ring may be one of all
/// sources.
pub(super) fn ring_start(index: usize, shift: u32, part: u32, shared: bool) -> Option<usize> {
    match index.checked_sub(1) {
        Some(others) if shared => others
            .checked_mul(ring_stride(shift))?
            .checked_add(ring_stride(part)),
        _ => index.checked_mul(ring_stride(shift)),
    }
}

/// The fixed offsets of a mapping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) queue_offset: usize,
    pub(super) queue_end: usize,
    pub(super) piece_states: usize,
    pub(super) piece_offset: usize,
    pub(super) piece_bytes: usize,
    pub(super) pieces: usize,
    pub(super) region_offset: usize,
    /// Bytes of the whole mapping.
    pub(super) total: usize,
}

impl Layout {
    /// Creates the layout for these settings. They have been checked, so nothing overflows.
    pub(super) fn new(config: &ShmConfig) -> Self {
        let queue_offset = PAGE;
        let queue_end = queue_offset + config.queue_bytes.next_multiple_of(PAGE);
        let piece_states = queue_end;
        let pieces = config.staging_pieces;
        let piece_offset = (piece_states + pieces * size_of::<PieceState>()).next_multiple_of(PAGE);
        let piece_bytes = config.put_limit().next_multiple_of(PAGE);
        let region_offset = (piece_offset + pieces * piece_bytes).next_multiple_of(HUGE_PAGE);
        Self {
            queue_offset,
            queue_end,
            piece_states,
            piece_offset,
            piece_bytes,
            pieces,
            region_offset,
            total: region_offset + config.region_bytes.next_multiple_of(HUGE_PAGE),
        }
    }
}

/// Returns a hash of the settings (FNV-1a over names and values).
pub(super) fn settings_hash(config: &ShmConfig, ranks: u32) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut add = |byte: u8| hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    for (name, value) in config.entries() {
        name.bytes().chain(value.to_le_bytes()).for_each(&mut add);
    }
    ranks.to_le_bytes().into_iter().for_each(&mut add);
    hash
}
