//! Identifiers and descriptions of memory, queues and lists.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A process of the job, `0..size`. GASNet-1 says node.
pub type Rank = u32;
/// An index of the portal table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PtIndex(pub u8);
/// An event queue of this rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct EqId(pub u8);
/// A bound memory descriptor of this rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MdId(pub u32);
/// A linked match entry of this rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MeId(pub u32);
/// A region of a rank, numbered in order of creation from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RegionId(pub u32);

/// Memory of this rank that peers can reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    /// How peers name it.
    pub id: RegionId,
    /// Where it is here.
    pub base: *mut u8,
    /// Its bytes, whole pages.
    pub len: usize,
}

// SAFETY: a region is a name for memory that lives as long as its network; the pointer gives no
// access that `unsafe` code doesn't take on itself.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

/// A region of a peer as it is mapped here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Its first byte in this process. Valid for reads and writes as long as the network lives;
    /// shared with other processes, so plain references into it are never formed.
    pub base: *mut u8,
    /// Its bytes.
    pub len: usize,
}

// SAFETY: as for `Region`.
unsafe impl Send for Window {}
// SAFETY: as for `Region`.
unsafe impl Sync for Window {}

/// What a match entry's messages go to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MeMemory {
    /// Space of the network's own, filled in order of arrival; the initiator's offset is ignored.
    /// The entry unlinks itself when fewer than `min_free` bytes are left, which is checked after
    /// each message.
    Managed {
        /// Bytes it holds. Each message counts with its length rounded up to 64.
        bytes: usize,
        /// Bytes that must be left for it to stay linked; at least the largest message expected.
        min_free: usize,
    },
    /// A piece of a region; the initiator's offset counts from its start.
    Region {
        /// Which region.
        region: RegionId,
        /// First byte within the region.
        offset: usize,
        /// Bytes.
        len: usize,
    },
    /// A range of this process's memory that need not be the network's; the initiator's offset
    /// counts from its start. The processor does its atomics. Beyond the range, and where an
    /// address is no memory, or may not be written, the outcome is
    /// [`OutOfRange`](super::Outcome::OutOfRange), and a part may have been moved.
    ///
    /// Who appends such an entry answers for what peers write: that nothing of this process relies
    /// on what is there.
    Process {
        /// Its first address.
        base: u64,
        /// Bytes.
        len: u64,
    },
    /// No memory: only headers arrive (the catch basin, system messages).
    Nothing,
}

impl MeMemory {
    /// All memory of this process: offsets are addresses.
    pub const EVERYTHING: Self = Self::Process {
        base: 0,
        len: u64::MAX,
    };

    /// Whether it is memory of this process that need not be the network's.
    #[must_use]
    pub fn is_process(self) -> bool {
        matches!(self, Self::Process { .. })
    }
}

bitflags::bitflags! {
    /// What may be done to an entry, and how it ends.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct MeOptions: u8 {
        /// Puts match.
        const PUT = 1;
        /// Gets match.
        const GET = 2;
        /// Atomics match.
        const ATOMIC = 4;
        /// The entry unlinks itself after its first match.
        const USE_ONCE = 8;
        /// A message that doesn't fit is cut; without it, such a message doesn't match.
        const TRUNCATE = 16;
        /// The entry stands behind all entries without this option, whenever those were appended
        /// (Portals 4's overflow list): the catch basin behind buffers that are linked again and
        /// again. An initiator may be told [`NoMatch`](super::Outcome::NoMatch) of what it took.
        const OVERFLOW = 32;
    }
    /// Which events an entry raises on its index's queue.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct MeEvents: u8 {
        /// [`Event::Put`](super::Event::Put), [`Event::Get`](super::Event::Get),
        /// [`Event::Atomic`](super::Event::Atomic).
        const OPERATION = 1;
        /// [`Event::Unlinked`](super::Event::Unlinked) and [`Event::Free`](super::Event::Free).
        const LINK = 2;
    }
}

/// An element of a match list.
///
/// A message matches when `(message.match_bits ^ match_bits) & !ignore_bits == 0`, its source is
/// allowed, its kind is, and it fits (or may be cut). The first such entry in list order takes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MatchEntry {
    /// Where messages go.
    pub memory: MeMemory,
    /// Bits to match.
    pub match_bits: u64,
    /// Bits that don't count.
    pub ignore_bits: u64,
    /// Only messages of this rank match.
    pub source: Option<Rank>,
    /// What may be done.
    pub options: MeOptions,
    /// What is told.
    pub events: MeEvents,
    /// The owner's name for the entry, given back in its events.
    pub tag: u64,
}

/// What networks agree by that share an entry which one message may use: the first that takes it
/// has it.
#[derive(Debug, Clone, Default)]
pub struct Claim(Arc<AtomicBool>);

impl Claim {
    /// Takes it. False: another network has.
    pub fn take(&self) -> bool {
        !self.0.swap(true, Ordering::AcqRel)
    }

    /// Whether anybody has taken it.
    pub fn is_taken(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// The answer to unlinking or releasing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Unlink {
    /// It is gone.
    Done,
    /// Operations on it are under way: ask again.
    InUse,
}
