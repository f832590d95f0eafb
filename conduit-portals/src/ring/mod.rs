//! A ring of 64-byte slots in memory that processes share: reservation, publication and release.
//!
//! **Positions** are counts of slots since the start; slot `position % capacity` holds it, lap `position / capacity`.
//! The capacity is a power of two. A message takes `n` slots one after the other; where the ring's end is too near, a
//! *Skip* covers the rest, and is reserved in one step with the message that comes after it.
//!
//! **Publication.** The first word of a message's first slot is its *tag*, a function of the lap. Storing it is what
//! publishes the message, so header, short payload and flag travel as one cache line and a consumer spins on exactly the
//! line that brings the message. Slots are never cleared. What was left in a slot by an earlier lap must therefore not look
//! like the tag that is awaited; the invariant, kept by the consumer, is:
//!
//! > before the head passes slot `s` in lap `k`, the first word of `s` is not `tag(k + 1)`.
//!
//! A slot that began a message holds `tag(k)`, which differs. One in the middle of a message (or under a Skip) holds
//! anything: the consumer reads its first word when it releases the message, and writes 0, which is no tag, only if it is
//! unlucky.
//!
//! **Discipline.** A ring has one producing process or many ([`Discipline`]); the rest is the same. The private tail
//! exists because a locked instruction makes every message wait until the stores of the one before have left the store
//! buffer: measured, 20 million messages a second instead of 160.
//!
//! **A producer that dies** between reservation and commit leaves a hole: consumers see nothing more of this ring. No one
//! waits for a lock, and others' rings go on; the job ends because the dead rank is noticed by other means.
//!
//! Words: *SYNC* marks both sides of each ordering.

use crate::sync::{AtomicU32, AtomicU64, Ordering};

#[cfg(all(test, loom))]
mod loom;
#[cfg(all(test, not(loom)))]
mod tests;

/// Bytes of a slot: a cache line.
pub(crate) const SLOT: usize = 64;
/// The frame kind of a Skip. All others belong to the ring's user.
pub(crate) const KIND_SKIP: u8 = 0;
/// Slots of the longest message, by the width of the frame's field.
pub(crate) const MAX_SLOTS: u32 = u16::MAX as u32;
/// Set in every tag, so that 0 (fresh memory, a cleared word) is none.
const TAG: u32 = 1 << 31;
/// How many slots ahead of a message its producer asks for the cache line.
const PREFETCH: u64 = 8;
/// How many slots ahead of a message its consumer does.
const READ_AHEAD: u32 = 6;

/// The second word of a message: how far it reaches, and two bytes of its user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Frame {
    /// Slots that the message covers, from 1.
    pub(crate) slots: u16,
    /// What it is; [`KIND_SKIP`] is the ring's own.
    pub(crate) kind: u8,
    /// The user's.
    pub(crate) index: u8,
}

impl Frame {
    #[inline]
    pub(crate) const fn to_word(self) -> u32 {
        self.slots as u32 | (self.kind as u32) << 16 | (self.index as u32) << 24
    }
    /// Kind and index as one number.
    #[inline]
    pub(crate) const fn use_word(self) -> u16 {
        self.kind as u16 | (self.index as u16) << 8
    }
    #[inline]
    pub(crate) const fn from_word(word: u32) -> Self {
        Self {
            slots: word as u16,
            kind: (word >> 16) as u8,
            index: (word >> 24) as u8,
        }
    }
}

/// A ring's memory, as one process sees it. All indices are below the capacity.
pub(crate) trait Slots {
    /// The first word of a slot.
    fn word(&self, slot: usize) -> &AtomicU32;
    /// Position up to which slots are free again. Written by the consumer only.
    fn head(&self) -> &AtomicU64;
    /// Position of the next reservation, where producers are several processes.
    fn tail(&self) -> &AtomicU64;
    /// Writes the second word of a slot.
    fn set_frame(&self, slot: usize, word: u32);
    /// Reads the second word of a slot.
    fn frame(&self, slot: usize) -> u32;
    /// Maps `count` slots from the first now instead of one page at a time at each first touch.
    fn warm(&self, count: usize);
    /// Asks for a slot's cache line, to write it.
    fn prefetch(&self, slot: usize);
    /// Asks for a slot's cache line, to read it.
    fn prefetch_read(&self, slot: usize);
}

/// Who produces into a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Discipline {
    /// One thread of one process: the tail is private, a plain store moves it.
    Thread,
    /// Several threads of one process: the tail is private, compare-and-swap moves it.
    Process,
    /// Several processes: the tail is shared. The private one is the last value seen, tried first without looking, so
    /// that the shared line moves once.
    Shared,
}

/// The tag of the message that begins at `position`.
#[inline]
fn tag(position: u64, shift: u32) -> u32 {
    (position >> shift) as u32 | TAG
}

/// A process's end for sending.
#[derive(Debug)]
pub(crate) struct Producer<S> {
    slots: S,
    shift: u32,
    discipline: Discipline,
    tail: AtomicU64,
    /// A head that was read some time ago.
    head_seen: AtomicU64,
}

/// Slots that are this producer's until [`Producer::commit`] or [`Producer::abandon`]; one of them must follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) struct Reserved {
    position: u64,
}

impl<S: Slots> Producer<S> {
    /// An end for a ring of `2^shift` slots of which nothing has been sent by this process.
    pub(crate) fn new(slots: S, shift: u32, discipline: Discipline) -> Self {
        slots.warm(1 << shift);
        Self {
            slots,
            shift,
            discipline,
            tail: AtomicU64::new(0),
            head_seen: AtomicU64::new(0),
        }
    }

    /// The memory below.
    #[inline]
    pub(crate) fn slots(&self) -> &S {
        &self.slots
    }

    /// Slots that a message may cover: with more, a message and the Skip before it might never fit together.
    #[inline]
    pub(crate) fn max_slots(&self) -> u32 {
        ((1_u64 << self.shift) / 2).min(u64::from(MAX_SLOTS)) as u32
    }

    /// The first slot of a reservation; the others follow it in memory.
    #[inline]
    pub(crate) fn slot(&self, reserved: Reserved) -> usize {
        (reserved.position & ((1 << self.shift) - 1)) as usize
    }

    /// Reserves `n` slots, at most [`Self::max_slots`]; `None` (and nothing has changed) while the ring is too full.
    #[inline]
    pub(crate) fn reserve(&self, n: u32) -> Option<Reserved> {
        let capacity = 1_u64 << self.shift;
        let n = u64::from(n);
        debug_assert!(n >= 1 && n <= u64::from(self.max_slots()));
        let (position, skip) = loop {
            let position = self.tail.load(Ordering::Relaxed);
            let to_end = capacity - (position & (capacity - 1));
            let skip = if n > to_end { to_end } else { 0 };
            let end = position.wrapping_add(skip + n);
            // Signed: a guess at the shared tail can lie behind the head.
            // SYNC (head): pairs with the store in `refresh_head`, so that what one thread has learnt of the consumer
            // also holds for the others.
            let ahead = end.wrapping_sub(self.head_seen.load(Ordering::Acquire)) as i64;
            if ahead > capacity as i64 && !self.refresh_head(end, position)? {
                continue;
            }
            match self.discipline {
                Discipline::Thread => {
                    self.tail.store(end, Ordering::Relaxed);
                    break (position, skip);
                }
                // The tail only shares out slots; what may be written into them follows from the head alone. So
                // neither compare-and-swap orders anything.
                Discipline::Process => {
                    let moved = self.tail.compare_exchange_weak(
                        position,
                        end,
                        Ordering::Relaxed,
                        Ordering::Relaxed,
                    );
                    if moved.is_ok() {
                        break (position, skip);
                    }
                }
                Discipline::Shared => {
                    let moved = self.slots.tail().compare_exchange(
                        position,
                        end,
                        Ordering::Relaxed,
                        Ordering::Relaxed,
                    );
                    match moved {
                        Ok(_) => {
                            self.tail.store(end, Ordering::Relaxed);
                            break (position, skip);
                        }
                        Err(seen) => self.tail.store(seen, Ordering::Relaxed),
                    }
                }
            }
        };
        if skip > 0 {
            self.publish_skip(position, skip as u16);
        }
        let position = position.wrapping_add(skip);
        let ahead = position.wrapping_add(PREFETCH) & (capacity - 1);
        self.slots.prefetch(ahead as usize);
        Some(Reserved { position })
    }

    /// Looks at the shared head because the ring seemed too full for `end`. `None`: it is. `Some(false)`: `tail` was an
    /// outdated guess, start again. `Some(true)`: there is room.
    #[cold]
    #[inline(never)]
    fn refresh_head(&self, end: u64, tail: u64) -> Option<bool> {
        // SYNC (head): the consumer has read everything before `head`, and made its first words harmless, before it
        // stored it. Pairs with `Consumer::publish_head`; so our stores into these slots come after its reads.
        let head = self.slots.head().load(Ordering::Acquire);
        // SYNC (head): hands the above on to other threads, see `reserve`. An older head may overwrite a newer one, which
        // costs another look.
        self.head_seen.store(head, Ordering::Release);
        if end.wrapping_sub(head) as i64 <= 1_i64 << self.shift {
            return Some(true);
        }
        if self.discipline == Discipline::Shared {
            let seen = self.slots.tail().load(Ordering::Relaxed);
            if seen != tail {
                self.tail.store(seen, Ordering::Relaxed);
                return Some(false);
            }
        }
        None
    }

    /// Publishes a message whose slots have been written, all but the first word of the first.
    #[inline]
    pub(crate) fn commit(&self, reserved: Reserved) {
        // SYNC (tag): everything written into the message's slots becomes visible with this word. Pairs with the load in
        // `Consumer::next`.
        self.slots
            .word(self.slot(reserved))
            .store(tag(reserved.position, self.shift), Ordering::Release);
    }

    /// Gives `n` reserved slots up: the consumer will pass over them.
    pub(crate) fn abandon(&self, reserved: Reserved, n: u32) {
        self.publish_skip(reserved.position, n as u16);
    }

    fn publish_skip(&self, position: u64, slots: u16) {
        let reserved = Reserved { position };
        let frame = Frame {
            slots,
            kind: KIND_SKIP,
            index: 0,
        };
        self.slots.set_frame(self.slot(reserved), frame.to_word());
        self.commit(reserved);
    }
}

/// What a consumer finds at its position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// Nothing yet.
    Empty,
    /// A message that begins at `slot`. It stays there until [`Consumer::release`].
    Message {
        /// Its first slot.
        slot: usize,
        /// Its frame; `slots` lies within the ring.
        frame: Frame,
    },
    /// A frame that makes no sense. Nothing after it can be found any more.
    Broken,
}

/// The receiving end. There is one.
#[derive(Debug)]
pub(crate) struct Consumer<S> {
    slots: S,
    shift: u32,
    capacity: u32,
    /// Position at which the lap began.
    lap: u64,
    /// The slot at the head, and the tag that is awaited there.
    slot: u32,
    tag: u32,
    /// The slot, in this lap, up to which the head was published last.
    published: u32,
    /// The slot at which something is to be done: the head is to be published, or the lap ends.
    due: u32,
}

impl<S: Slots> Consumer<S> {
    /// The end of a ring of `2^shift` zeroed slots.
    pub(crate) fn new(slots: S, shift: u32) -> Self {
        debug_assert!(shift < 32);
        let mut ring = Self {
            slots,
            shift,
            capacity: 1 << shift,
            lap: 0,
            slot: 0,
            tag: tag(0, shift),
            published: 0,
            due: 0,
        };
        ring.note_published();
        ring
    }

    /// The memory below.
    #[inline]
    pub(crate) fn slots(&self) -> &S {
        &self.slots
    }

    #[inline]
    fn slot(&self) -> usize {
        self.slot as usize
    }

    #[inline]
    fn position(&self) -> u64 {
        self.lap.wrapping_add(self.slot.into())
    }

    /// Whether anything (also a Skip) is there. Changes nothing.
    #[inline]
    pub(crate) fn is_ready(&self) -> bool {
        // SYNC (tag): see `next`.
        self.slots.word(self.slot()).load(Ordering::Acquire) == self.tag
    }

    /// The word and the tag that will publish the next message; `None` if [`Self::next`] has something to publish itself.
    #[inline]
    pub(crate) fn awaited(&self) -> Option<(&AtomicU32, u32)> {
        (self.published == self.slot).then(|| (self.slots.word(self.slot()), self.tag))
    }

    /// The slot and frame at the head, if anything (also a Skip) that ends within the ring is there. Changes nothing.
    #[inline(always)]
    pub(crate) fn peek(&self) -> Option<(usize, Frame)> {
        let (slot, tag, left) = (self.slot(), self.tag, self.capacity - self.slot);
        // SYNC (tag): with the awaited tag comes all that the producer wrote before it. Pairs with `Producer::commit`.
        if self.slots.word(slot).load(Ordering::Acquire) != tag {
            return None;
        }
        let frame = Frame::from_word(self.slots.frame(slot));
        // At least one slot, at most those that are left.
        let fits = u32::from(frame.slots).wrapping_sub(1) < left;
        fits.then_some((slot, frame))
    }

    /// The message at the head, if there is one.
    #[inline]
    pub(crate) fn next(&mut self) -> Next {
        loop {
            if !self.is_ready() {
                self.publish();
                return Next::Empty;
            }
            match self.peek() {
                None => return Next::Broken,
                Some((_, frame)) if frame.kind == KIND_SKIP => self.release(frame),
                Some((slot, frame)) => return Next::Message { slot, frame },
            }
        }
    }

    /// Asks for the cache line of a slot that is likely to be read soon. For use within a run of messages: in front of a
    /// producer that is not ahead, it would only take the line away from it.
    #[inline]
    pub(crate) fn prefetch(&self) {
        let ahead = (self.slot + READ_AHEAD) & (self.capacity - 1);
        self.slots.prefetch_read(ahead as usize);
    }

    /// Ends the use of the message that [`Self::next`] or [`Self::peek`] gave.
    #[inline(always)]
    pub(crate) fn release(&mut self, frame: Frame) {
        if frame.slots > 1 {
            self.defuse(frame.slots);
        }
        self.slot += u32::from(frame.slots);
        if self.slot >= self.due {
            self.publish_head();
        }
    }

    /// Keeps the module's invariant for the slots after a message's first.
    #[inline]
    fn defuse(&self, slots: u16) {
        // All slots of a message are of one lap, so one tag is to be feared.
        let feared = tag(self.lap.wrapping_add(1 << self.shift), self.shift);
        let first = self.slot();
        for slot in first + 1..first + usize::from(slots) {
            let word = self.slots.word(slot);
            // Relaxed: the message's tag has brought this word, and `publish_head` orders the store before any
            // producer's.
            if word.load(Ordering::Relaxed) == feared {
                word.store(0, Ordering::Relaxed);
            }
        }
    }

    /// Frees the slots of all messages that were released.
    #[inline]
    pub(crate) fn publish(&mut self) {
        if self.published != self.slot {
            self.publish_head();
        }
    }

    #[inline(never)]
    fn publish_head(&mut self) {
        if self.lap == 0 && self.published == 0 {
            // The first messages of a producer, who has made the pages.
            self.slots.warm(1 << self.shift);
        }
        // SYNC (head): our reads of the released slots, and our zeros, come before a producer's stores into them. Pairs
        // with `Producer::refresh_head`.
        self.slots.head().store(self.position(), Ordering::Release);
        if self.slot == self.capacity {
            self.lap = self.position();
            self.slot = 0;
            self.tag = tag(self.lap, self.shift);
        }
        self.note_published();
    }

    fn note_published(&mut self) {
        self.published = self.slot;
        self.due = self.capacity.min(self.slot + (self.capacity / 8).max(1));
    }
}
