//! The layout of a rank's memory. Offsets count from the start of the mapping. The memory contains
//! no pointers.
//!
//! ```text
//! Control | event queues: (RingControl, slots) per ring | staging: states, pieces | regions
//! ```
//!
//! All ranks run with the same settings, so a rank knows everything about a peer's layout except
//! the sizes of its queues and regions.

use std::mem::{align_of, offset_of, size_of};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crossbeam_utils::CachePadded;

use crate::ring::{RingControl, SLOT};
use conduit_portals::matching::PT_INDICES;

use super::config::ShmConfig;

/// The first word of every mapping.
pub(super) const MAGIC: u64 = 0x4d48_535f_5544_4e43;
/// The layout version. It must be changed whenever this file or [`super::message`] is changed.
pub(super) const VERSION: u32 = 6;

/// The number of event queues available to the network's user.
pub(super) const USER_QUEUES: usize = 16;
/// The queue of indices that were opened without a queue.
pub(super) const INTERNAL_QUEUE: usize = USER_QUEUES;
/// The number of all queues of a rank.
pub(super) const QUEUES: usize = USER_QUEUES + 1;
/// The maximum number of regions of a rank.
pub(super) const REGIONS: usize = 32;

/// The page size of most processors. Regions consist of whole pages.
pub(super) const PAGE: usize = 4096;
/// The size of a huge page.
pub(super) const HUGE_PAGE: usize = 2 << 20;

/// A value of [`Control::state`], which means that the owner uses the network.
pub(super) const STATE_OPEN: u32 = 1;
/// A value of [`Control::state`], which means that the owner has left normally, so its process may
/// end.
pub(super) const STATE_CLOSED: u32 = 2;

/// An event queue as its senders see it.
#[derive(Debug)]
#[repr(C)]
pub(super) struct QueueEntry {
    /// The offset of the queue's first [`RingControl`], or 0 until the queue exists. The other
    /// rings follow at distances of [`ring_stride`]. This field is stored last, with release
    /// ordering.
    pub(super) offset: AtomicU64,
    /// The base-2 logarithm of the number of slots of each ring of one source.
    pub(super) shift: AtomicU32,
    /// The base-2 logarithm of the number of slots in the first part of a ring of one source. A
    /// ring of all sources has only this part.
    pub(super) part: AtomicU32,
    /// The number of rings.
    pub(super) rings: AtomicU32,
    /// The rings through which a source has begun to send. Bit `ring % 64` stands for `ring`.
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
    /// The owner's [`settings_hash`].
    pub(super) settings: AtomicU64,
    pub(super) state: AtomicU32,
    /// The number of regions that can be looked up. This field is stored last, with release
    /// ordering.
    pub(super) region_count: AtomicU32,
    /// The number of bytes that the owner may touch in the course of the job. Ranks add up these
    /// numbers before they reserve memory.
    pub(super) promised: AtomicU64,
    /// The [control group](crate::memory::Memory::group_id) in which these bytes count.
    pub(super) memory_group: AtomicU64,
    /// The doorbell, which has a cache line of its own, because every sender reads it with every
    /// message.
    pub(super) doorbell: CachePadded<DoorbellWords>,
    /// For each portal table index, the number of its queue plus 1, or 0 while the index is not
    /// open. The numbers are stored with release ordering.
    pub(super) pt: CachePadded<[AtomicU32; PT_INDICES]>,
    /// [`ACTIVATIONS`] from the moment when a rank activates a ring or signals the owner until the
    /// owner has noticed, otherwise 0. This word has a cache line of its own, because the owner
    /// reads it constantly.
    pub(super) activations: CachePadded<AtomicU64>,
    pub(super) queues: [QueueEntry; QUEUES],
    pub(super) regions: [RegionEntry; REGIONS],
}

impl Control {
    /// Announces that a source is going to send through a ring of a queue.
    pub(super) fn announce(&self, queue: &QueueEntry, ring: usize) {
        // SYNC (activations): the bit is stored before the word in `signal`, and the word before
        // the messages. This release pairs with the swap in `Shm::activate_all`.
        queue.used.fetch_or(1 << (ring % 64), Ordering::Release);
        self.signal();
    }

    /// Makes the owner poll all queues and check for activated rings.
    pub(super) fn signal(&self) {
        self.activations.store(ACTIVATIONS, Ordering::Release);
    }
}

/// The value of [`Control::activations`] that asks the owner to check for activated rings and
/// pending work on lanes.
pub(super) const ACTIVATIONS: u64 = 1;

/// The state of one staging piece, on a cache line of its own: 0 if the piece is free, 1 if it is
/// in use. The initiator takes the piece. The target of a put, or the initiator of a get, frees it.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct PieceState(pub(super) AtomicU32);

// The layout is a protocol between processes, so it must depend on nothing but this file.
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

/// Returns the number of bytes from the start of one ring of a queue to the start of the next.
pub(super) const fn ring_stride(shift: u32) -> usize {
    size_of::<RingControl>() + (SLOT << shift)
}

/// Returns the number of bytes of a queue that precede the ring `index`. If `shared` is set, the
/// queue's first ring is one of all sources.
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
    /// The size in bytes of the whole mapping.
    pub(super) total: usize,
}

impl Layout {
    /// Creates the layout for these settings. The caller must have checked the settings, so that
    /// nothing overflows.
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
