//! Identifiers and descriptions of memory, queues and lists.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The number of a process in the job, in `0..size`. GASNet-1 calls it the node.
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
/// A region of a rank. Regions are numbered from 0 in the order of their creation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RegionId(pub u32);

/// Memory of this rank that peers can access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    /// The id by which peers identify the region.
    pub id: RegionId,
    /// The region's first byte in this process.
    pub base: *mut u8,
    /// The length in bytes, a whole number of pages.
    pub len: usize,
}

// SAFETY: a region only names memory that lives as long as its network. Every access through the
// pointer requires its own `unsafe`.
unsafe impl Send for Region {}
// SAFETY: a region only names memory. Every access through the pointer requires its own `unsafe`.
unsafe impl Sync for Region {}

/// A region of a peer, as it is mapped in this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// The first byte in this process. Valid for reads and writes as long as the network lives. The
    /// memory is shared with other processes, so no references into it may be formed.
    pub base: *mut u8,
    /// The length in bytes.
    pub len: usize,
}

// SAFETY: a window only names memory. Every access through the pointer requires its own `unsafe`.
unsafe impl Send for Window {}
// SAFETY: a window only names memory. Every access through the pointer requires its own `unsafe`.
unsafe impl Sync for Window {}

/// The memory to which or from which a match entry's messages move data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MeMemory {
    /// Space owned by the network, filled in order of arrival. The initiator's offset is ignored.
    /// The entry unlinks itself when fewer than `min_free` bytes are left, which is checked after
    /// each message.
    Managed {
        /// Capacity in bytes. Each message takes its length, rounded up to a multiple of 64 bytes.
        bytes: usize,
        /// The number of free bytes below which the entry is unlinked. It must be at least the size
        /// of the largest message expected.
        min_free: usize,
    },
    /// A piece of a region. The initiator's offset counts from the start of the piece.
    Region {
        /// The region.
        region: RegionId,
        /// The first byte within the region.
        offset: usize,
        /// The length in bytes.
        len: usize,
    },
    /// A range of this process's memory that need not belong to the network. The initiator's offset
    /// counts from the start of the range. The processor performs the atomics on the range.
    /// Accesses beyond the range, or to invalid or unwritable memory, end as
    /// [`OutOfRange`](super::Outcome::OutOfRange), possibly after some bytes have been moved.
    ///
    /// The code that appends such an entry must guarantee that nothing in this process relies on
    /// the contents of the memory, because peers may write to it.
    Process {
        /// The first address.
        base: u64,
        /// The length in bytes.
        len: u64,
    },
    /// No memory, for entries that receive only headers (the catch basin, system messages).
    Nothing,
}

impl MeMemory {
    /// All memory of this process. Offsets are addresses.
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
    /// The operations that an entry accepts, and the conditions under which it ends.
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
        /// A message that doesn't fit is truncated. Without this option, the message doesn't match.
        const TRUNCATE = 16;
        /// The entry is always behind all entries without this option, in whatever order the
        /// entries are appended (Portals 4's overflow list). It can thus serve as the catch basin
        /// behind buffers that are linked again and again. The initiator of a message that such an
        /// entry takes may get the outcome [`NoMatch`](super::Outcome::NoMatch).
        const OVERFLOW = 32;
    }
    /// The events that an entry raises on the queue of its index.
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
/// A message matches if `(message.match_bits ^ match_bits) & !ignore_bits == 0`, if the entry
/// accepts its source and its kind of operation, and if it fits or may be truncated. The first
/// matching entry in list order takes the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MatchEntry {
    /// The memory to which or from which messages move data.
    pub memory: MeMemory,
    /// Bits to match.
    pub match_bits: u64,
    /// Bits that are not compared.
    pub ignore_bits: u64,
    /// The only accepted source, if set.
    pub source: Option<Rank>,
    /// The accepted operations, and the conditions under which the entry ends.
    pub options: MeOptions,
    /// The events raised.
    pub events: MeEvents,
    /// The owner's name for the entry. The entry's events carry it.
    pub tag: u64,
}

/// The arbiter of a use-once entry that several networks share. The first network that takes the
/// claim uses the entry.
#[derive(Debug, Clone, Default)]
pub struct Claim(Arc<AtomicBool>);

impl Claim {
    /// Takes the claim. Returns false if another network has already taken it.
    pub fn take(&self) -> bool {
        !self.0.swap(true, Ordering::AcqRel)
    }

    /// Returns whether the claim is taken.
    pub fn is_taken(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// The result of unlinking an entry or releasing a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Unlink {
    /// The object no longer exists.
    Done,
    /// Operations on the object are in flight. The caller must try again.
    InUse,
}
