//! A ring of 64-byte slots in memory that processes share: reservation, publication and release.
//!
//! **Positions** are counts of slots since the start; slot `position % capacity` holds it, lap
//! `position / capacity`. The capacity is a power of two. A message takes `n` consecutive slots;
//! where the ring's end is too near, a *Skip* covers the rest, and is reserved in one step with the
//! message that comes after it.
//!
//! **Publication.** The first word of a message's first slot holds its *tag*, a function of the lap,
//! and its [`Frame`]. Storing it publishes the message, so header, short payload and flag travel as
//! one cache line, and a consumer polls exactly the line that brings the message. Slots are never
//! cleared, so what an earlier lap left in one must not look like the awaited tag. The consumer
//! keeps this invariant:
//!
//! > before the head passes slot `s` in lap `k`, the first word of `s` does not hold the tag of any
//! > lap from `k + 1` to the one in which `s` is written again.
//!
//! A slot that began a message holds `tag(k)`, which differs. One inside a message (or under a Skip)
//! holds anything: the consumer reads its first word when it releases the message, and *scrubs* it
//! to 0, which has no tag, if it holds a reserved one. A *clean* message needs none of this
//! ([`Frame::clean`]): its producer has checked the bytes while it copied them.
//!
//! **Promises.** No one waits for a lock. A producer that dies between reservation and commit leaves
//! a hole: its consumers see nothing more of this ring, others' rings go on, and the job ends because
//! the dead rank is noticed by other means. *SYNC* marks both sides of each ordering.
//!
//! **Costs.** With one producing process ([`Discipline`]) the tail is private: a locked instruction
//! would make every message wait until the stores of the one before have left the store buffer (20
//! million messages a second were measured instead of 160).

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

/// Bytes of a slot: a cache line.
pub(crate) const SLOT: usize = 64;
/// The frame kind of a Skip. All others belong to the ring's user.
pub(crate) const KIND_SKIP: u8 = 0;
/// The index of a Skip that is a wrap marker.
const EARLY_WRAP: u8 = 1;
/// Laps go together by `2^EPOCH`. The last of each epoch does not wrap early, so that each slot is written in every epoch.
const EPOCH: u32 = if cfg!(test) { 2 } else { 16 };
/// Slots, at least, of a lap that ends early. Measured on Zen 4, mediums there and back: 512 bytes 267 ns with up to 128, 329 with 256,
/// 325 with 4,096; 1 KiB 300, 368 and 405; 4 KiB 723, 753 and 896.
const LEAST_LAP: u64 = if cfg!(test) { 4 } else { 64 };
/// Slots of the longest message, by the width of the frame's field, of which one bit is [`CLEAN`].
pub(crate) const MAX_SLOTS: u32 = (CLEAN - 1) as u32;
/// The frame says of its message that it is clean.
const CLEAN: u16 = 1 << 15;
/// Set in every tag, so that 0 (fresh memory, a cleared word) has none.
const TAG: u32 = 1 << 31;

/// The second half of a message's first word: how far it reaches, and two bytes of its user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub(crate) struct Frame {
    /// Slots that the message covers, from 1, and [`CLEAN`].
    extent: u16,
    /// What it is; [`KIND_SKIP`] is the ring's own.
    pub(crate) kind: u8,
    /// The user's; of a Skip, whether it is a wrap marker.
    pub(crate) index: u8,
}

impl Frame {
    /// Of a message that covers so many slots, at most [`MAX_SLOTS`].
    #[inline]
    pub(crate) const fn new(slots: u16, kind: u8, index: u8) -> Self {
        Self {
            extent: slots & !CLEAN,
            kind,
            index,
        }
    }
    /// No slot after the first begins with one of [`Producer::reserved_tags`], and all of their first words were written.
    #[inline]
    pub(crate) const fn clean(self) -> Self {
        Self {
            extent: self.extent | CLEAN,
            ..self
        }
    }
    /// Slots that the message covers.
    #[inline]
    pub(crate) const fn slots(self) -> u16 {
        self.extent & !CLEAN
    }
    /// Whether the consumer has to scrub the slots after the first.
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
    /// Kind and index as one number.
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

/// How many slots a ring has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extent {
    /// All are `2^shift`.
    pub(crate) shift: u32,
    /// The first part, which is mapped from the start, has `2^part`; all of it where laps don't wrap early.
    pub(crate) part: u32,
}

impl Extent {
    const fn slots(self) -> u64 {
        1 << self.shift
    }
    const fn part(self) -> u64 {
        1 << self.part
    }
    /// Slots after which a lap may wrap early.
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

/// Tags that a slot must not begin with when its lap is over: those of the next lap's epoch. By the end of that epoch
/// the slot is written again.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReservedTags(u32);

impl ReservedTags {
    /// Behind the lap that has this tag.
    #[inline]
    pub(crate) const fn after(tag: u32) -> Self {
        Self(next_tag(tag) >> EPOCH)
    }
    /// Whether the first word of a slot has one.
    #[inline(always)]
    pub(crate) const fn is_in(self, word: u64) -> bool {
        tag_in(word) >> EPOCH == self.0
    }
}

/// A ring's memory, as one process sees it. All indices are below the capacity.
pub(crate) trait Slots {
    /// The first word of a slot.
    fn word(&self, slot: usize) -> &AtomicU64;
    /// Position up to which slots are free again. Written by the consumer only.
    fn head(&self) -> &AtomicU64;
    /// Position of the next reservation, where producers are several processes.
    fn tail(&self) -> &AtomicU64;
    /// Maps `count` slots from the first now instead of one page at a time at each first touch.
    fn warm(&self, count: usize);
    /// Takes a slot's line for writing, by a store after the first word. The slot is free, and no other end produces.
    fn claim(&self, slot: usize);
}

/// Laps are counted from here, because the first epochs' tags stay reserved for long and should not be what payloads are
/// full of (small negative numbers, zeros with a sign). The bits within an epoch begin with 0.
const FIRST_LAP: u32 = 0x2d5b << 16;

/// The tag of the message that begins at `position`.
#[inline]
fn tag(position: u64, shift: u32) -> u32 {
    ((position >> shift) as u32).wrapping_add(FIRST_LAP) | TAG
}

/// The tag a lap after this one.
#[inline]
const fn next_tag(tag: u32) -> u32 {
    tag.wrapping_add(1) | TAG
}

/// The tag of the reply to the message that has this one. No message has it.
#[inline]
const fn reply_tag(tag: u32) -> u32 {
    tag & !TAG
}

/// Publishes the reply to the message that begins with `offered`. All but this word has been written; the message has not been released.
#[inline(always)]
pub(crate) fn publish_reply(offered: &AtomicU64, frame: Frame) {
    // Relaxed: the message has been found.
    let tag = reply_tag(tag_in(offered.load(Ordering::Relaxed)));
    // SYNC (reply): with this word comes all that was written into the slot before. Pairs with `Producer::reply`.
    offered.store(word(tag, frame), Ordering::Release);
}

/// The first word of a message.
#[inline]
const fn word(tag: u32, frame: Frame) -> u64 {
    tag as u64 | (frame.to_bits() as u64) << 32
}

/// The frame in the first word of a message.
#[inline]
pub(crate) const fn frame_in(word: u64) -> Frame {
    Frame::from_bits((word >> 32) as u32)
}

/// The tag in the first word of a slot.
#[inline]
pub(crate) const fn tag_in(word: u64) -> u32 {
    word as u32
}
