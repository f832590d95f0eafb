//! The sending end of a ring.
//!
//! **Early wrap.** A flood should go through more memory than a core's cache holds, because a store
//! to a line that is still in the consumer's cache has to take it from there. Messages that are
//! waited for should use few lines, which stay in both caches. So a ring is large, and a producer
//! that finds it empty beyond [`LEAST_LAP`](super::LEAST_LAP) slots ends the lap there with a wrap
//! marker: a Skip to the ring's end, of which only the first slot is read. The slots that it passes
//! over are written again in the last lap of an epoch at the latest, which has no early wrap; so
//! the tags of a whole epoch are reserved ([`ReservedTags`]). Until the consumer has passed the
//! marker, all slots of the next lap but the marker's own are free, and an ordinary Skip steps over
//! that one. So a short lap does not make the ring small.
//!
//! **Reply slots.** A producer that waits for a short reply can *offer* the slot of its message for
//! it ([`Producer::offer`]): the consumer may write the reply there instead of releasing the
//! message as it is. One cache line then goes there and back, which takes two thirds of the time of
//! two lines that go one way each. An offered slot is not written again before the reply has been
//! taken, or the head shows that there is none; so a producer may have to take a reply before there
//! is room behind it. A reply's tag is no message's.

use std::sync::atomic::AtomicBool;

use conduit_portals::sync::{AtomicU64, Ordering};

use super::{
    EARLY_WRAP, EPOCH, Extent, Frame, KIND_SKIP, MAX_SLOTS, ReservedTags, Slots, frame_in,
    reply_tag, tag, tag_in, word,
};

/// Slots whose lines are asked for at once. Measured on Zen 4, messages with 24 other stores for each: 145 ns without, 88 with two, 49
/// with four, 77 with eight, where the consumer takes some away again. A smaller ring never has room for them.
const TOGETHER: u64 = 4;

/// The last lap of an epoch, in the bits that count within it.
const EPOCH_END: u64 = (1 << EPOCH) - 1;
/// Slots, at least, until it is checked again whether a lap can end.
const AGAIN: u64 = if cfg!(test) { 3 } else { 64 };

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

/// A process's end for sending.
#[derive(Debug)]
pub(crate) struct Producer<S> {
    slots: S,
    extent: Extent,
    /// Slots, less one.
    mask: u64,
    discipline: Discipline,
    tail: AtomicU64,
    /// Where slots stop being free, by a head that was read some time ago; or where the lap could end before.
    room: AtomicU64,
    /// The slots behind the first part have been mapped, see [`Slots::warm`].
    warm: AtomicBool,
    /// The position of the message whose slot is offered for a reply, plus 1; 0 for none.
    offered: AtomicU64,
    /// The position of the last wrap marker; 0 for none.
    wrapped: AtomicU64,
}

/// Slots that are this producer's until [`Producer::commit`] or [`Producer::abandon`]; one of them must follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) struct Reserved {
    slot: usize,
    tag: u32,
}

impl<S: Slots> Producer<S> {
    /// An end for a ring of which nothing has been sent by this process. One for several processes never wraps early.
    pub(crate) fn new(slots: S, extent: Extent, discipline: Discipline) -> Self {
        slots.warm(1 << extent.part);
        Self {
            slots,
            extent,
            mask: extent.slots() - 1,
            discipline,
            tail: AtomicU64::new(0),
            room: AtomicU64::new(extent.least_lap()),
            warm: AtomicBool::new(false),
            offered: AtomicU64::new(0),
            wrapped: AtomicU64::new(0),
        }
    }

    /// Goes on in a ring that another process has sent by before: where its consumer is, which has
    /// taken all that was sent. Nobody else sends by it any more, and what this end has sent before
    /// was taken, too.
    ///
    /// So positions go on, and with them laps, tags and epochs: what the consumer keeps, see the module, holds whoever has
    /// written a slot.
    pub(crate) fn resume(&self) {
        // SYNC (head): as in `refresh_head`.
        let head = self.slots.head().load(Ordering::Acquire);
        let room = head.wrapping_add(self.capacity());
        let room = self.next_look(head, head).min(room);
        self.tail.store(head, Ordering::Relaxed);
        self.room.store(room, Ordering::Relaxed);
        self.offered.store(0, Ordering::Relaxed);
        self.wrapped.store(0, Ordering::Relaxed);
    }

    /// Whether the consumer has freed all that was sent, and no reply is to come or to be taken: then
    /// another process may [go on](Self::resume).
    pub(crate) fn is_drained(&self) -> bool {
        // SYNC (head): as in `refresh_head`: whoever goes on learns of it by messages that come behind.
        let head = self.slots.head().load(Ordering::Acquire);
        head == self.tail.load(Ordering::Relaxed) && self.has_no_reply()
    }

    /// Whether one thread of one process sends by this ring.
    #[inline(always)]
    pub(crate) fn is_of_one_thread(&self) -> bool {
        self.discipline == Discipline::Thread
    }

    /// The memory below.
    #[inline]
    pub(crate) fn slots(&self) -> &S {
        &self.slots
    }

    fn capacity(&self) -> u64 {
        self.mask + 1
    }

    /// Slots that a message may cover: with more, a message and the Skip before it might never fit together.
    #[inline]
    pub(crate) fn max_slots(&self) -> u32 {
        (self.capacity() / 2).min(u64::from(MAX_SLOTS)) as u32
    }

    /// Slots, about, of messages that the consumer has not freed.
    pub(crate) fn unfreed(&self) -> u64 {
        // Relaxed: nothing is written because of it.
        let head = self.slots.head().load(Ordering::Relaxed);
        let left = self.tail.load(Ordering::Relaxed).wrapping_sub(head);
        // Signed: the head is another process's word.
        (left.cast_signed()).max(0).cast_unsigned()
    }

    /// The first slot of a reservation; the others follow it in memory.
    #[inline]
    pub(crate) fn slot(&self, reserved: Reserved) -> usize {
        reserved.slot
    }

    #[inline(always)]
    fn reserved(&self, position: u64) -> Reserved {
        Reserved {
            slot: (position & self.mask) as usize,
            tag: tag(position, self.extent.shift),
        }
    }

    /// Several messages of a slot each are likely to follow one another: asks for the cache lines of a few at once, by a store into each.
    ///
    /// Without it, stores that belong to something else stand between the messages', and a core asks ahead for the lines of only so
    /// many stores: with more than some ten for each message it waits for one line after the other. What asks for a line to write it
    /// does nothing where the core has fetched it ahead to read it, as it does with lines that follow one another.
    #[inline(always)]
    pub(crate) fn claim_ahead(&self) {
        let position = self.tail.load(Ordering::Relaxed);
        let behind = position.wrapping_add(TOGETHER);
        if self.discipline != Discipline::Thread
            || !position.is_multiple_of(TOGETHER)
            || !self.has_room(behind)
        {
            return;
        }
        // Free, and nobody else reserves any.
        for ahead in 0..TOGETHER {
            let slot = position.wrapping_add(ahead) & self.mask;
            self.slots.claim(slot as usize);
        }
    }

    /// Reserves `n` slots, at most [`Self::max_slots`]; `None` (and nothing has changed) while the ring is too full.
    #[inline(always)]
    pub(crate) fn reserve(&self, n: u32) -> Option<Reserved> {
        debug_assert!(n >= 1 && n <= self.max_slots());
        let (position, skip) = match self.discipline {
            Discipline::Thread => {
                let mut place = self.place(n);
                while !self.has_room(place.2) && !self.refresh_head(n, place)? {
                    place = self.place(n);
                }
                let (position, skip, end) = place;
                self.tail.store(end, Ordering::Relaxed);
                (position, skip)
            }
            Discipline::Process | Discipline::Shared => self.reserve_among_others(n)?,
        };
        if skip > 0 {
            self.publish_skip(self.reserved(position), skip as u16);
        }
        Some(self.reserved(position.wrapping_add(skip)))
    }

    /// Where `n` slots would be taken: the tail, how many are to be skipped there, and the tail afterwards.
    #[inline(always)]
    fn place(&self, n: u32) -> (u64, u64, u64) {
        let position = self.tail.load(Ordering::Relaxed);
        let n = u64::from(n);
        let to_end = self.capacity() - (position & self.mask);
        let skip = if n > 1 && n > to_end { to_end } else { 0 };
        (position, skip, position.wrapping_add(skip + n))
    }

    /// Whether all slots before `end` are known to be free.
    #[inline(always)]
    fn has_room(&self, end: u64) -> bool {
        // Signed: a guess at the shared tail can lie behind the head.
        // SYNC (head): pairs with the store in `refresh_head`, so that what one thread has learnt of the consumer also
        // holds for the others.
        self.room.load(Ordering::Acquire).wrapping_sub(end) as i64 >= 0
    }

    /// The tail and what is skipped there, where others may be reserving too.
    fn reserve_among_others(&self, n: u32) -> Option<(u64, u64)> {
        loop {
            let place = self.place(n);
            let (position, skip, end) = place;
            if !self.has_room(end) && !self.refresh_head(n, place)? {
                continue;
            }
            // The tail only shares out slots; what may be written into them follows from the head alone. So neither
            // compare-and-swap orders anything.
            if self.discipline == Discipline::Process {
                let moved = self.tail.compare_exchange_weak(
                    position,
                    end,
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                );
                if moved.is_ok() {
                    return Some((position, skip));
                }
                continue;
            }
            let moved = self.slots.tail().compare_exchange(
                position,
                end,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            match moved {
                Ok(_) => {
                    self.tail.store(end, Ordering::Relaxed);
                    return Some((position, skip));
                }
                Err(seen) => self.tail.store(seen, Ordering::Relaxed),
            }
        }
    }

    /// Looks at the shared head because the ring seemed too full for `n` slots at a place, or the lap could end. `None`: it is too
    /// full. `Some(false)`: the tail is another one, start again. `Some(true)`: there is room.
    #[cold]
    #[inline(never)]
    fn refresh_head(&self, n: u32, (tail, _, end): (u64, u64, u64)) -> Option<bool> {
        // SYNC (head): the consumer has read everything before `head`, and made its first words harmless, before it
        // stored it. Pairs with `Consumer::publish_head`; so our stores into these slots come after its reads.
        let head = self.slots.head().load(Ordering::Acquire);
        let head = self.before_offered(head);
        if head == tail && self.can_wrap_early(n, tail) {
            self.wrap_early(tail);
            return Some(false);
        }
        // Not at the first look there: the last message may just not have been released yet.
        let far = tail & self.mask >= self.extent.part() + AGAIN;
        if far && !self.warm.swap(true, Ordering::Relaxed) {
            self.slots.warm(1 << self.extent.shift);
        }
        let free = self.free(tail, head);
        // SYNC (head): hands the above on to other threads, see `has_room`. An older head may overwrite a newer one, which
        // costs another look.
        let until = self.next_look(tail, end).wrapping_sub(end);
        let left = free.wrapping_sub(end) as i64;
        let looks = left.min(until as i64);
        self.room
            .store(end.wrapping_add_signed(looks), Ordering::Release);
        if left >= 0 {
            return Some(true);
        }
        if self.step_over_wrap(n, tail, head) {
            return Some(false);
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

    /// Asks for a reply to the message reserved last, of one slot, which is to be committed next. One at a time; for one thread.
    /// Gives the word and the tag that will publish it.
    #[inline(always)]
    pub(crate) fn offer(&self) -> (&AtomicU64, u32) {
        debug_assert!(self.discipline == Discipline::Thread);
        let tail = self.tail.load(Ordering::Relaxed);
        self.offered.store(tail, Ordering::Relaxed);
        let Reserved { slot, tag } = self.reserved(tail.wrapping_sub(1));
        (self.slots.word(slot), reply_tag(tag))
    }

    /// The message that has offered.
    #[inline(always)]
    fn offered(&self) -> Option<u64> {
        let offered = self.offered.load(Ordering::Relaxed);
        (offered != 0).then(|| offered.wrapping_sub(1))
    }

    /// The reply, if there is one: its slot, where it stays until [`Self::end_offer`], and its frame.
    #[inline(always)]
    pub(crate) fn reply(&self) -> Option<(usize, Frame)> {
        self.reply_at(self.offered()?)
    }

    #[inline(always)]
    fn reply_at(&self, position: u64) -> Option<(usize, Frame)> {
        let Reserved { slot, tag } = self.reserved(position);
        // SYNC (reply): with the tag comes all that the consumer has written into the slot. Pairs with `publish_reply`.
        let word = self.slots.word(slot).load(Ordering::Acquire);
        (tag_in(word) == reply_tag(tag)).then(|| (slot, frame_in(word)))
    }

    /// Waits for no reply any more: it has been taken.
    #[inline(always)]
    pub(crate) fn end_offer(&self) {
        self.offered.store(0, Ordering::Relaxed);
    }

    /// Whether no reply is to come; so not if one waits to be taken.
    pub(crate) fn has_no_reply(&self) -> bool {
        // SYNC (head): as in `refresh_head`.
        let head = self.slots.head().load(Ordering::Acquire);
        self.before_offered(head);
        self.offered().is_none()
    }

    /// A head, or, if that lies before it, the message whose slot is offered. Where the head shows that there is no reply, none is waited for.
    fn before_offered(&self, head: u64) -> u64 {
        match self.offered() {
            Some(offered) if head.wrapping_sub(offered) as i64 <= 0 => head,
            // Written before the head, if at all.
            Some(offered) if self.reply_at(offered).is_some() => offered,
            Some(_) => {
                self.end_offer();
                head
            }
            None => head,
        }
    }

    /// Whether the lap can end at a position of an empty ring, so that the next one begins with `n` slots: those are free behind the
    /// wrap marker.
    fn can_wrap_early(&self, n: u32, position: u64) -> bool {
        let (slot, lap) = (position & self.mask, position >> self.extent.shift);
        // One slot before the marker's is left for the Skip that steps over it.
        slot >= self.extent.least_lap().max(u64::from(n) + 1)
            && self.discipline != Discipline::Shared
            && lap & EPOCH_END != EPOCH_END
    }

    /// Ends the lap at a position, if it is still the tail.
    fn wrap_early(&self, position: u64) {
        let next = (position | self.mask).wrapping_add(1);
        let moved =
            self.tail
                .compare_exchange(position, next, Ordering::Relaxed, Ordering::Relaxed);
        if moved.is_ok() {
            // SYNC (wrap): the slots behind it are as free as those before it are, by the head that was read. Pairs with
            // `marker_again`. Before the consumer, and so the next marker, can pass it.
            self.wrapped.store(position, Ordering::Release);
            let frame = Frame::new(1, KIND_SKIP, EARLY_WRAP);
            self.commit(self.reserved(position), frame);
        }
    }

    /// Where the slot of the last marker comes again in the tail's lap, if the consumer may not have passed it.
    fn marker_again(&self, tail: u64, head: u64) -> Option<u64> {
        // SYNC (wrap): see `wrap_early`.
        let wrapped = self.wrapped.load(Ordering::Acquire);
        let again = wrapped.wrapping_add(self.capacity());
        let is_passed = head.wrapping_sub(wrapped) as i64 > 0;
        let is_next = again >> self.extent.shift == tail >> self.extent.shift;
        (wrapped != 0 && !is_passed && is_next).then_some(again)
    }

    /// Where slots stop being free. While the consumer stands before a marker all slots of the next lap but the marker's
    /// are free; the one before that is left for the Skip that steps over it.
    fn free(&self, tail: u64, head: u64) -> u64 {
        match self.marker_again(tail, head) {
            None => head.wrapping_add(self.capacity()),
            Some(again) if tail <= again => again - 1,
            Some(_) => (tail | self.mask).wrapping_add(1),
        }
    }

    /// Goes on behind a marker's slot that the consumer has not passed; false if something else is in the way, or `n` slots
    /// don't fit behind it either.
    fn step_over_wrap(&self, n: u32, tail: u64, head: u64) -> bool {
        let Some(again) = self.marker_again(tail, head) else {
            return false;
        };
        let slots = (again + 1).wrapping_sub(tail);
        let behind = (tail | self.mask).wrapping_sub(again);
        if !(2..=u64::from(MAX_SLOTS)).contains(&slots) || behind < n.into() {
            return false;
        }
        let moved =
            self.tail
                .compare_exchange(tail, again + 1, Ordering::Relaxed, Ordering::Relaxed);
        if moved.is_ok() {
            self.publish_skip(self.reserved(tail), slots as u16);
        }
        true
    }

    /// Up to where slots behind `end` may be reserved before it is checked again whether the lap can end.
    fn next_look(&self, tail: u64, end: u64) -> u64 {
        if self.discipline == Discipline::Shared {
            return end.wrapping_add(self.capacity());
        }
        let (slot, least) = (tail & self.mask, self.extent.least_lap());
        let first = tail - slot + least;
        let look = match slot < least {
            true => first,
            // Twice as far from there as this one, so that a flood checks seldom.
            false => tail.wrapping_add((slot - least).max(AGAIN)),
        };
        let lap_end = (tail | self.mask).wrapping_add(1);
        let look = if look >= lap_end {
            lap_end + least
        } else {
            look
        };
        look.max(end)
    }

    /// The tags with which no slot of a clean message behind its first begins ([`Frame::clean`]).
    #[inline]
    pub(crate) fn reserved_tags(&self, reserved: Reserved) -> ReservedTags {
        ReservedTags::after(reserved.tag)
    }

    /// Publishes a message whose slots have been written, all but the first word of the first.
    #[inline]
    pub(crate) fn commit(&self, reserved: Reserved, frame: Frame) {
        let word = word(reserved.tag, frame);
        // SYNC (tag): everything written into the message's slots becomes visible with this word. Pairs with the load in
        // `Consumer::peek`.
        self.slots
            .word(self.slot(reserved))
            .store(word, Ordering::Release);
    }

    /// Gives `n` reserved slots up: the consumer will pass over them.
    pub(crate) fn abandon(&self, reserved: Reserved, n: u32) {
        self.publish_skip(reserved, n as u16);
    }

    fn publish_skip(&self, reserved: Reserved, slots: u16) {
        self.commit(reserved, Frame::new(slots, KIND_SKIP, 0));
    }
}
