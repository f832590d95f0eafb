//! Identifiers and descriptions of memory, queues and lists.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The number of a process in the job, `0..size` (node in GASNet-1).
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
    /// The region's name for peers.
    pub id: RegionId,
    /// The region's first byte in this process.
    pub base: *mut u8,
    /// The length in bytes, a whole number of pages.
    pub len: usize,
}

// SAFETY: a region only names memory that lives as long as its network; every access through the
// pointer takes its own `unsafe`.
unsafe impl Send for Region {}
// SAFETY: a region only names memory; every access through the pointer takes its own `unsafe`.
unsafe impl Sync for Region {}

/// A region of a peer as it is mapped here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// The first byte in this process. Valid for reads and writes as long as the network lives.
    /// Shared with other processes, so no references into it are formed.
    pub base: *mut u8,
    /// The length in bytes.
    pub len: usize,
}

// SAFETY: a window only names memory; every access through the pointer takes its own `unsafe`.
unsafe impl Send for Window {}
// SAFETY: a window only names memory; every access through the pointer takes its own `unsafe`.
unsafe impl Sync for Window {}

/// The memory that a match entry's messages go to or come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MeMemory {
    /// Space owned by the network, filled in order of arrival; the initiator's offset is ignored.
    /// The entry unlinks itself when fewer than `min_free` bytes are left, which is checked after
    /// each message.
    Managed {
        /// Capacity in bytes. Each message takes its length, rounded up to a multiple of 64 bytes.
        bytes: usize,
        /// The free bytes below which the entry is unlinked; at least the largest message expected.
        min_free: usize,
    },
    /// A piece of a region; the initiator's offset counts from its start.
    Region {
        /// The region.
        region: RegionId,
        /// The first byte within the region.
        offset: usize,
        /// The length in bytes.
        len: usize,
    },
    /// A range of this process's memory that need not belong to the network; the initiator's offset
    /// counts from its start. The processor performs atomics on the range. Accesses beyond the
    /// range or to invalid or unwritable memory end as [`OutOfRange`](super::Outcome::OutOfRange),
    /// possibly after some bytes were moved.
    ///
    /// The code that appends such an entry must guarantee that nothing in this process relies on
    /// the contents of memory that peers may write.
    Process {
        /// The first address.
        base: u64,
        /// The length in bytes.
        len: u64,
    },
    /// No memory: only headers arrive (the catch basin, system messages).
    Nothing,
}

impl MeMemory {
    /// All memory of this process; offsets are addresses.
    pub const EVERYTHING: Self = Self::Process {
        base: 0,
        len: u64::MAX,
    };

    /// Returns whether this is memory of the process that need not belong to the network.
    #[must_use]
    pub fn is_process(self) -> bool {
        matches!(self, Self::Process { .. })
    }
}

bitflags::bitflags! {
    /// The operations that an entry accepts, and how it ends.
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
        /// A message that doesn't fit is truncated; without this option, it doesn't match.
        const TRUNCATE = 16;
        /// The entry is always behind all entries without this option, in whatever order the
        /// entries are appended (Portals 4's overflow list). It serves as the catch basin behind
        /// buffers that are linked again and again. The initiator may get
        /// [`NoMatch`](super::Outcome::NoMatch) for a message that such an entry took.
        const OVERFLOW = 32;
    }
    /// The events that an entry raises on its index's queue.
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
/// A message matches if `(message.match_bits ^ match_bits) & !ignore_bits == 0`, its source and its
/// kind are accepted, and it fits or may be truncated. The first matching entry in list order takes
/// it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MatchEntry {
    /// The memory that messages go to or come from.
    pub memory: MeMemory,
    /// Bits to match.
    pub match_bits: u64,
    /// Bits that are not compared.
    pub ignore_bits: u64,
    /// The only accepted source, if set.
    pub source: Option<Rank>,
    /// The accepted operations, and how the entry ends.
    pub options: MeOptions,
    /// The events raised.
    pub events: MeEvents,
    /// The owner's name for the entry, returned in its events.
    pub tag: u64,
}

/// The arbiter of a use-once entry that several networks share: the first network to take the claim
/// uses the entry.
#[derive(Debug, Clone, Default)]
pub struct Claim(Arc<AtomicBool>);

impl Claim {
    /// Takes the claim. Returns false if another network has taken it.
    pub fn take(&self) -> bool {
        !self.0.swap(true, Ordering::AcqRel)
    }

    /// Returns whether the claim is taken.
    pub fn is_taken(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// The result of unlinking or releasing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Unlink {
    /// The object is gone.
    Done,
    /// Operations on it are in flight: try again.
    InUse,
}
