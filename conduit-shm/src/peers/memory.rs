//! The memory that processes share, which is the front page of each process and the memory of each
//! pair of peers.
//!
//! A *front page* shows its process which rings have records ([`ReadySet`]). All of the process's
//! peers map it. A *pair* consists of four rings, one in each direction for each channel:
//!
//! ```text
//! front page: FrontWords | a bit for each peer
//! pair: PairWords, up to a page | slots of the rings, those of the connecting side first
//! ```

use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crossbeam_utils::CachePadded;
use rustix::io;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::ready_set::ReadySet;
use crate::ring::{Extent, RingControl, RingView, SLOT};
use crate::sealed_file;

use super::config::{MAX_PEERS, MAX_RING, MIN_RING};

/// The first word of a pair.
const PAIR_MAGIC: u64 = 0x5249_4150_5f41_4e43;
/// The layout version. It must be changed whenever this file or [`super::record`] is changed.
const VERSION: u32 = 1;
/// The offset of a pair's slots. File sizes are multiples of this number.
const PAGE: usize = 4096;
/// The base-2 logarithm of the number of slots of a ring that are used while the consumer keeps up.
const PART: u32 = 6;

/// The number of channels of a [`Way`].
pub(super) const CHANNELS: usize = 2;
/// The channel of copied fragments.
pub(super) const COMMANDS: usize = 0;
/// The channel of fragments that are read when there is room.
pub(super) const DATA: usize = 1;

/// The words of a front page. All peers can write to these words, so a new peer must not rely on
/// their values.
#[derive(Debug)]
#[repr(C)]
struct FrontWords {
    sleeping: CachePadded<AtomicU32>,
    /// The summary of the bits, which has a cache line of its own, because the owner polls it.
    summary: CachePadded<AtomicU64>,
}

/// The shared words of one direction of a pair, besides the rings' slots.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Way {
    rings: [RingControl; CHANNELS],
    /// 1 while the consumer polls these rings; see [`crate::ready_set`].
    pub(super) watched: CachePadded<AtomicU32>,
    /// 1 while the producer waits for room.
    pub(super) waiting: CachePadded<AtomicU32>,
}

#[derive(Debug)]
#[repr(C)]
struct PairWords {
    magic: AtomicU64,
    version: AtomicU32,
    /// The base-2 logarithm of the number of slots of a ring.
    shift: AtomicU32,
    /// The way from the connecting process, and the way to it.
    ways: [CachePadded<Way>; 2],
}

// The layout is a protocol between processes, so it must not change by accident.
const _: () = {
    assert!(size_of::<AtomicU64>() == 8 && align_of::<AtomicU64>() == 8);
    assert!(size_of::<AtomicU32>() == 4 && align_of::<AtomicU32>() == 4);
    assert!(cfg!(target_has_atomic = "64") && cfg!(target_pointer_width = "64"));
    assert!(size_of::<FrontWords>() == 2 * 128);
    assert!(size_of::<Way>() == CHANNELS * size_of::<RingControl>() + 2 * 128);
    assert!(size_of::<PairWords>() == 128 + 2 * size_of::<Way>());
    assert!(size_of::<PairWords>() <= PAGE && MIN_RING == SLOT << PART);
};

/// A mapping of a whole file, which is unmapped when dropped. The file is sealed against shrinking,
/// so no access within the mapping raises SIGBUS.
#[derive(Debug)]
struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the pointer refers to memory shared between processes, which is accessed only through
// atomics or according to the ring's protocol. Neither depends on the thread that accesses the
// memory.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps a file of `bytes` bytes, which must consist of whole pages and be sealed against
    /// shrinking.
    fn new(file: impl AsFd, bytes: usize) -> io::Result<Self> {
        // SAFETY: this creates a new mapping at an address that the system chooses.
        let base = unsafe {
            mmap(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                file,
                0,
            )?
        };
        let base = NonNull::new(base.cast()).ok_or(io::Errno::NOMEM)?;
        Ok(Self { base, bytes })
    }

    /// Maps a file that a peer created.
    fn of_peer(file: impl AsFd, bytes: usize) -> Result<Self, Unfit> {
        match sealed_file::examine(&file) {
            Ok((found, is_sealed)) if found == bytes as u64 && is_sealed => {
                Self::new(file, bytes).map_err(Unfit::System)
            }
            _ => Err(Unfit::Wrong(
                "its memory is not a sealed file of the right size",
            )),
        }
    }

    /// # Safety
    /// A `T` at this offset must lie within the mapping, be aligned and consist of atomics.
    unsafe fn at<T>(&self, offset: usize) -> NonNull<T> {
        // SAFETY: the caller guarantees that the offset lies within the mapping.
        unsafe { self.base.byte_add(offset).cast() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `new` has mapped this range with this length, and the only owner of the mapping
        // drops it.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
        if let Err(error) = unmapped {
            tracing::debug!(%error, "cannot unmap shared memory");
        }
    }
}

/// The reason why a peer's memory cannot be used.
#[derive(Debug)]
pub(super) enum Unfit {
    /// The memory is not as the protocol requires.
    Wrong(&'static str),
    /// The system refused an operation.
    System(io::Errno),
}

/// A front page, which is this process's own or a peer's.
#[derive(Debug)]
pub(super) struct FrontPage {
    mapping: Mapping,
    peers: u32,
}

impl FrontPage {
    fn bytes(peers: u32) -> usize {
        (size_of::<FrontWords>() + peers as usize / 8).next_multiple_of(PAGE)
    }

    /// Creates a front page with bits for at least `peers` peers.
    pub(super) fn create(peers: u32) -> io::Result<(OwnedFd, Self)> {
        let peers = peers.next_multiple_of(64);
        let file = sealed_file::create("conduit-na-front", Self::bytes(peers))?;
        let mapping = Mapping::new(&file, Self::bytes(peers))?;
        Ok((file, Self { mapping, peers }))
    }

    /// Maps a peer's front page, which has bits for `peers` peers.
    pub(super) fn of_peer(file: impl AsFd, peers: u32) -> Result<Self, Unfit> {
        if !peers.is_multiple_of(64) || !(64..=MAX_PEERS).contains(&peers) {
            return Err(Unfit::Wrong("its front page has an invalid size"));
        }
        let mapping = Mapping::of_peer(file, Self::bytes(peers))?;
        Ok(Self { mapping, peers })
    }

    /// Returns the number of peers that have bits.
    pub(super) fn peers(&self) -> u32 {
        self.peers
    }

    #[inline]
    fn words(&self) -> &FrontWords {
        // SAFETY: the words are atomics at the start of the mapping, which is page-aligned and has
        // at least one page, in which they fit.
        unsafe { self.mapping.at(0).as_ref() }
    }

    #[inline]
    pub(super) fn ready_set(&self) -> ReadySet<'_> {
        let words = self.words();
        // SAFETY: `bytes` has made room for this many words behind `FrontWords`. The words are
        // aligned, and they are atomics.
        let bits = unsafe {
            let first = self.mapping.at::<AtomicU64>(size_of::<FrontWords>());
            std::slice::from_raw_parts(first.as_ptr(), self.peers as usize / 64)
        };
        ReadySet {
            sleeping: &words.sleeping,
            summary: &words.summary,
            words: bits,
        }
    }
}

/// The side of a pair that a process is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    /// The process created the pair.
    Connects,
    /// The process received the pair.
    Accepts,
}

/// The memory of a pair.
#[derive(Debug)]
pub(super) struct Pair {
    mapping: Mapping,
    shift: u32,
    side: Side,
}

impl Pair {
    fn bytes(shift: u32) -> usize {
        PAGE + 2 * CHANNELS * (SLOT << shift)
    }

    /// Creates a pair with rings of `ring` bytes, which must be a valid [`LocalConfig::ring`].
    ///
    /// [`LocalConfig::ring`]: super::LocalConfig::ring
    pub(super) fn create(ring: usize) -> io::Result<(OwnedFd, Self)> {
        let shift = (ring / SLOT).trailing_zeros();
        let file = sealed_file::create("conduit-na-pair", Self::bytes(shift))?;
        let pair = Self {
            mapping: Mapping::new(&file, Self::bytes(shift))?,
            shift,
            side: Side::Connects,
        };
        let words = pair.words();
        words.version.store(VERSION, Ordering::Relaxed);
        words.shift.store(shift, Ordering::Relaxed);
        words.magic.store(PAIR_MAGIC, Ordering::Release);
        Ok((file, pair))
    }

    /// Maps a pair that a peer created, with rings of `2^shift` slots.
    pub(super) fn of_peer(file: impl AsFd, shift: u32) -> Result<Self, Unfit> {
        let ring = SLOT.checked_shl(shift).unwrap_or(0);
        if shift >= usize::BITS || !(MIN_RING..=MAX_RING).contains(&ring) {
            return Err(Unfit::Wrong("its rings have an invalid size"));
        }
        let pair = Self {
            mapping: Mapping::of_peer(file, Self::bytes(shift))?,
            shift,
            side: Side::Accepts,
        };
        let words = pair.words();
        let magic = words.magic.load(Ordering::Acquire);
        if magic != PAIR_MAGIC
            || words.version.load(Ordering::Relaxed) != VERSION
            || words.shift.load(Ordering::Relaxed) != shift
        {
            return Err(Unfit::Wrong(
                "its rings have a wrong magic, version or size",
            ));
        }
        Ok(pair)
    }

    /// Returns the base-2 logarithm of the number of slots of a ring.
    pub(super) fn shift(&self) -> u32 {
        self.shift
    }

    #[inline]
    fn words(&self) -> &PairWords {
        // SAFETY: the words are atomics at the start of the mapping, which is page-aligned and has
        // at least one page, in which they fit.
        unsafe { self.mapping.at(0).as_ref() }
    }

    /// Returns the way by which this process sends.
    #[inline]
    pub(super) fn outbound(&self) -> &Way {
        &self.words().ways[usize::from(self.side == Side::Accepts)]
    }

    /// Returns the way by which this process receives.
    #[inline]
    pub(super) fn inbound(&self) -> &Way {
        &self.words().ways[usize::from(self.side == Side::Connects)]
    }

    pub(super) fn extent(&self) -> Extent {
        Extent {
            shift: self.shift,
            part: PART,
        }
    }

    /// Returns the memory of a ring.
    ///
    /// # Safety
    /// The view must not be used after this pair is dropped.
    pub(super) unsafe fn ring(&self, is_outbound: bool, channel: usize) -> RingView {
        let is_second = is_outbound == (self.side == Side::Accepts);
        let way = &self.words().ways[usize::from(is_second)];
        let control = &way.rings[channel];
        let before = usize::from(is_second) * CHANNELS + channel;
        // SAFETY: `bytes` has made room for the slots of four rings behind the first page, and the
        // caller guarantees that the view is not used after the mapping has been dropped.
        unsafe {
            let slots = self.mapping.at(PAGE + before * (SLOT << self.shift));
            RingView::new(NonNull::from(control), slots)
        }
    }
}
