//! A ring of 64-byte slots in memory that processes share. Producers reserve slots and publish
//! messages in them; the consumer releases the slots.
//!
//! **Positions** count slots since the start. A position lies in slot `position % capacity` of lap
//! `position / capacity`. The capacity is a power of two. A message takes `n` consecutive slots. If
//! it does not fit before the ring's end, a *Skip* covers the slots up to the end. The message and
//! the Skip are reserved in one step.
//!
//! **Publication.** The first word of a message's first slot holds the message's *tag*, which is a
//! function of the lap, and its [`Frame`]. Storing this word publishes the message, so one cache
//! line carries header, short payload and tag, and the consumer polls this line. Slots are never
//! cleared, so an earlier lap's leftovers must not look like the awaited tag. The consumer keeps
//! this invariant:
//!
//! > before the head passes slot `s` in lap `k`, the first word of `s` does not hold the tag of any
//! > lap from `k + 1` to the one in which `s` is written again.
//!
//! A slot that began a message holds `tag(k)`, which is none of these tags. A slot inside a message
//! (or under a Skip) may hold anything. When the consumer releases the message, it therefore reads
//! the slot's first word. If this word holds a reserved tag, the consumer *scrubs* it to 0, which
//! is not a tag. A *clean* message needs no scrubbing ([`Frame::clean`]), because its producer has
//! checked the bytes while it copied them.
//!
//! **Guarantees.** The ring has no locks. If a producer dies between reservation and commit, it
//! leaves a hole. The consumer then finds no further message in this ring, but other rings
//! continue, and the job ends because the rank's death is detected by other means. *SYNC* comments
//! mark both sides of each ordering.
//!
//! **Costs.** With one producing thread ([`Discipline::Thread`]), a plain store moves the tail. A
//! locked instruction would make every message wait until the previous message's stores have left
//! the store buffer (measured: 20 million messages per second instead of 160 million).

use conduit_portals::sync::{AtomicU64, Ordering};

mod consumer;
#[cfg(all(test, loom))]
mod loom;
mod producer;
#[cfg(all(test, not(loom)))]
mod tests;
#[cfg(not(loom))]
mod view;

pub(crate) use consumer::{Consumer, Next, SlotRun};
pub(crate) use producer::{Discipline, Producer};
#[cfg(not(loom))]
pub(crate) use view::{RingControl, RingView};

/// The size in bytes of a slot, which is a cache line.
pub(crate) const SLOT: usize = 64;
/// The frame kind of a Skip. All other kinds are free for the ring's user.
pub(crate) const KIND_SKIP: u8 = 0;
/// The [`Frame::index`] of a Skip that is a wrap marker.
const EARLY_WRAP: u8 = 1;
/// An epoch is `2^EPOCH` laps. Its last lap does not wrap early, so each slot is written in every
/// epoch.
const EPOCH: u32 = if cfg!(test) { 2 } else { 16 };
/// The minimum number of slots in a lap that ends early. On Zen 4, a round trip of messages of 512
/// bytes took 267 ns with at most 128 slots, 329 ns with 256 and 325 ns with 4,096. With the same
/// numbers of slots, messages of 1 KiB took 300, 368 and 405 ns, and messages of 4 KiB took 723,
/// 753 and 896 ns.
const LEAST_LAP: u64 = if cfg!(test) { 4 } else { 64 };
/// The number of slots of the longest message. It is limited by the width of [`Frame`]'s field, in
/// which one bit is [`CLEAN`].
pub(crate) const MAX_SLOTS: u32 = (CLEAN - 1) as u32;
/// A flag in the frame, which says that the message is clean.
const CLEAN: u16 = 1 << 15;
/// A bit that is set in every tag, so that 0, which is in fresh memory and in scrubbed words, is
/// not a tag.
const TAG: u32 = 1 << 31;

/// The second half of a message's first word. It holds the message's length and two bytes for the
/// ring's user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub(crate) struct Frame {
    /// The number of slots that the message covers, at least 1, and the flag [`CLEAN`].
    extent: u16,
    /// The message's kind. [`KIND_SKIP`] is used by the ring itself.
    pub(crate) kind: u8,
    /// A byte for the ring's user. In a Skip, it says whether the Skip is a wrap marker.
    pub(crate) index: u8,
}

impl Frame {
    /// Creates the frame of a message that covers `slots` slots, at most [`MAX_SLOTS`].
    #[inline]
    pub(crate) const fn new(slots: u16, kind: u8, index: u8) -> Self {
        Self {
            extent: slots & !CLEAN,
            kind,
            index,
        }
    }
    /// Marks the message as clean: no slot after the first begins with one of
    /// [`Producer::reserved_tags`], and the first word of each slot was written.
    #[inline]
    pub(crate) const fn clean(self) -> Self {
        Self {
            extent: self.extent | CLEAN,
            ..self
        }
    }
    /// Returns the number of slots that the message covers.
    #[inline]
    pub(crate) const fn slots(self) -> u16 {
        self.extent & !CLEAN
    }
    /// Returns whether the consumer has to scrub the slots after the first.
    #[inline]
    const fn needs_scrub(self) -> bool {
        self.extent > 1 && self.extent < CLEAN
    }
    #[inline]
    fn is_early_wrap(self) -> bool {
        self.kind == KIND_SKIP && self.index == EARLY_WRAP
    }
    #[inline]
    const fn to_bits(self) -> u32 {
        self.extent as u32 | (self.kind as u32) << 16 | (self.index as u32) << 24
    }
    /// Returns the kind and the index in one number.
    #[inline]
    pub(crate) const fn use_word(self) -> u16 {
        self.kind as u16 | (self.index as u16) << 8
    }
    #[inline]
    const fn from_bits(bits: u32) -> Self {
        Self {
            extent: bits as u16,
            kind: (bits >> 16) as u8,
            index: (bits >> 24) as u8,
        }
    }
}

/// The size of a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extent {
    /// The ring has `2^shift` slots.
    pub(crate) shift: u32,
    /// The ring's first part, which is mapped from the start, has `2^part` slots. `part` equals
    /// `shift` if laps don't wrap early.
    pub(crate) part: u32,
}

impl Extent {
    const fn slots(self) -> u64 {
        1 << self.shift
    }
    const fn part(self) -> u64 {
        1 << self.part
    }
    /// Returns the minimum number of slots after which a lap may wrap early.
    const fn least_lap(self) -> u64 {
        if self.part == self.shift {
            self.slots()
        } else if self.part() < LEAST_LAP {
            self.part()
        } else {
            LEAST_LAP
        }
    }
}

/// The tags with which no slot may begin once its lap is over. These are the tags of the next lap's
/// epoch, because the slot is written again by the end of that epoch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReservedTags(u32);

impl ReservedTags {
    /// Returns the tags reserved after the lap with this tag.
    #[inline]
    pub(crate) const fn after(tag: u32) -> Self {
        Self(next_tag(tag) >> EPOCH)
    }
    /// Returns whether the first word of a slot holds a reserved tag.
    #[inline(always)]
    pub(crate) const fn is_in(self, word: u64) -> bool {
        tag_in(word) >> EPOCH == self.0
    }
}

/// A ring's memory, as seen by one process. Slot indices must be below the capacity.
pub(crate) trait Slots {
    /// Returns the first word of a slot.
    fn word(&self, slot: usize) -> &AtomicU64;
    /// Returns the position up to which slots are free again. Only the consumer writes it.
    fn head(&self) -> &AtomicU64;
    /// Returns the position of the next reservation, if several processes produce.
    fn tail(&self) -> &AtomicU64;
    /// Maps the first `count` slots now instead of page by page at each first touch.
    fn warm(&self, count: usize);
    /// Takes ownership of a slot's cache line by a store behind the first word. The slot must be
    /// free, and this must be the only producer.
    fn claim(&self, slot: usize);
}

/// The lap at which counting starts. The tags of the first epochs stay reserved for a long time, so
/// they should be rare in payloads. Words that look like small negative numbers or negative zeros,
/// for example, are not rare. The bits that count laps within an epoch start at 0.
const FIRST_LAP: u32 = 0x2d5b << 16;

/// Returns the tag of the message that begins at `position`.
#[inline]
fn tag(position: u64, shift: u32) -> u32 {
    ((position >> shift) as u32).wrapping_add(FIRST_LAP) | TAG
}

/// Returns the tag one lap later.
#[inline]
const fn next_tag(tag: u32) -> u32 {
    tag.wrapping_add(1) | TAG
}

/// Returns the tag of the reply to the message with this tag. No message's tag equals it.
#[inline]
const fn reply_tag(tag: u32) -> u32 {
    tag & !TAG
}

/// Publishes the reply to the message whose first word is `offered`. The rest of the slot must have
/// been written, and the message must not have been released.
#[inline(always)]
pub(crate) fn publish_reply(offered: &AtomicU64, frame: Frame) {
    // The load may be relaxed, because the message has already been found.
    let tag = reply_tag(tag_in(offered.load(Ordering::Relaxed)));
    // SYNC (reply): this release pairs with the acquire in `Producer::reply_at`, so everything that
    // was written into the slot before this call becomes visible with this word.
    offered.store(word(tag, frame), Ordering::Release);
}

/// Returns the first word of a message.
#[inline]
const fn word(tag: u32, frame: Frame) -> u64 {
    tag as u64 | (frame.to_bits() as u64) << 32
}

/// Returns the frame in the first word of a message.
#[inline]
pub(crate) const fn frame_in(word: u64) -> Frame {
    Frame::from_bits((word >> 32) as u32)
}

/// Returns the tag in the first word of a slot.
#[inline]
pub(crate) const fn tag_in(word: u64) -> u32 {
    word as u32
}
