//! The sending end of a ring.
//!
//! **Early wrap.** A flood should use more memory than a core's cache holds, because a store to a
//! line that is still in the consumer's cache has to fetch it from there. Messages for which a rank
//! waits should use few lines, which stay in both caches. A ring is therefore large, and a producer
//! that finds it empty beyond [`LEAST_LAP`](super::LEAST_LAP) slots ends the lap there with a wrap
//! marker: a Skip to the ring's end, of which only the first slot is read. The last lap of an epoch
//! has no early wrap, so the slots that the marker passes over are written again in that lap at the
//! latest. Therefore the tags of a whole epoch are reserved ([`ReservedTags`]). Until the consumer
//! has passed the marker, all slots of the next lap except the marker's own are free, and an
//! ordinary Skip steps over that slot. A short lap thus does not reduce the room in the ring.
//!
//! **Reply slots.** A producer that waits for a short reply can *offer* the slot of its message for
//! the reply ([`Producer::offer`]). The consumer may then write the reply into this slot before it
//! releases the message. One cache line then travels in both directions, which takes two thirds of
//! the time of two lines that travel in one direction each. An offered slot is not written again
//! until the reply has been taken, or until the head rules out a reply. A producer may therefore
//! have to take a reply before it finds room. A reply's tag is never a message's tag.

use std::sync::atomic::AtomicBool;

use conduit_portals::sync::{AtomicU64, Ordering};

use super::{
    EARLY_WRAP, EPOCH, Extent, Frame, KIND_SKIP, MAX_SLOTS, ReservedTags, Slots, frame_in,
    reply_tag, tag, tag_in, word,
};

/// The number of slots whose lines are claimed at once. On Zen 4, a message with 24 unrelated
/// stores took 145 ns without claims, 88 ns with two, 49 ns with four, and 77 ns with eight. With
/// eight, the consumer takes some of the lines away again. In a ring that is too small for this
/// many claims, no lines are claimed.
const TOGETHER: u64 = 4;

/// The number of an epoch's last lap within the epoch.
const EPOCH_END: u64 = (1 << EPOCH) - 1;
/// The minimum number of slots between two checks of whether the lap can end.
const AGAIN: u64 = if cfg!(test) { 3 } else { 64 };

/// The kinds of producers that a ring may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Discipline {
    /// One thread of one process produces. The tail is private, and a plain store moves it.
    Thread,
    /// Several threads of one process produce. The tail is private, and a compare-and-swap moves
    /// it.
    Process,
    /// Several processes produce. The tail is shared. The private tail caches the last value seen
    /// and is tried first, so that no load precedes the compare-and-swap and the shared line moves
    /// only once.
    Shared,
}

/// A process's sending end of a ring.
#[derive(Debug)]
pub(crate) struct Producer<S> {
    slots: S,
    extent: Extent,
    /// The number of slots minus one.
    mask: u64,
    discipline: Discipline,
    tail: AtomicU64,
    /// The position before which slots are known to be free, according to a head that was read some
    /// time ago. If the lap could end at an earlier position, this is that position.
    room: AtomicU64,
    /// Whether the slots behind the first part have been mapped; see [`Slots::warm`].
    warm: AtomicBool,
    /// The position of the message whose slot is offered for a reply, plus 1, or 0 if there is
    /// none.
    offered: AtomicU64,
    /// The position of the last wrap marker, or 0 if there is none.
    wrapped: AtomicU64,
}

/// A reservation of slots for this producer. It must be passed to [`Producer::commit`] or
/// [`Producer::abandon`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) struct Reserved {
    slot: usize,
    tag: u32,
}

impl<S: Slots> Producer<S> {
    /// Creates the sending end of a ring into which this process has sent nothing. A producer of a
    /// ring with [`Discipline::Shared`] never ends a lap early.
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

    /// Takes over a ring through which another process has sent, and continues at the consumer's
    /// position. The consumer must have taken everything that was sent, including what this end has
    /// sent earlier, and no other process may send through the ring from now on.
    ///
    /// Positions continue, and with them laps, tags and epochs, so the module's invariant holds no
    /// matter which process wrote a slot.
    pub(crate) fn resume(&self) {
        // SYNC (head): this acquire pairs with the release in `Consumer::publish_head`, as in
        // `refresh_head`.
        let head = self.slots.head().load(Ordering::Acquire);
        let room = head.wrapping_add(self.capacity());
        let room = self.next_look(head, head).min(room);
        self.tail.store(head, Ordering::Relaxed);
        self.room.store(room, Ordering::Relaxed);
        self.offered.store(0, Ordering::Relaxed);
        self.wrapped.store(0, Ordering::Relaxed);
    }

    /// Returns whether the consumer has freed all that was sent and no reply is outstanding or
    /// waits to be taken. Another process may then [take over](Self::resume).
    pub(crate) fn is_drained(&self) -> bool {
        // SYNC (head): this acquire pairs with the release in `Consumer::publish_head`, as in
        // `refresh_head`. The process that takes over learns of the result by messages that are
        // sent after this call.
        let head = self.slots.head().load(Ordering::Acquire);
        head == self.tail.load(Ordering::Relaxed) && self.has_no_reply()
    }

    /// Returns whether one thread of one process sends through this ring.
    #[inline(always)]
    pub(crate) fn is_of_one_thread(&self) -> bool {
        self.discipline == Discipline::Thread
    }

    /// Returns the ring's memory.
    #[inline]
    pub(crate) fn slots(&self) -> &S {
        &self.slots
    }

    fn capacity(&self) -> u64 {
        self.mask + 1
    }

    /// Returns the maximum number of slots that a message may cover. With more slots, a message and
    /// the Skip before it might never fit together.
    #[inline]
    pub(crate) fn max_slots(&self) -> u32 {
        (self.capacity() / 2).min(u64::from(MAX_SLOTS)) as u32
    }

    /// Returns the approximate number of slots that the consumer has not freed.
    pub(crate) fn unfreed(&self) -> u64 {
        // The load may be relaxed, because no write depends on it.
        let head = self.slots.head().load(Ordering::Relaxed);
        let left = self.tail.load(Ordering::Relaxed).wrapping_sub(head);
        // The difference is taken as signed, because another process writes the head, so the head
        // may be beyond the tail.
        (left.cast_signed()).max(0).cast_unsigned()
    }

    /// Returns the first slot of a reservation. The other slots follow it in memory.
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

    /// Claims the cache lines of the next few slots, by a store into each, if several messages of
    /// one slot each are likely to follow.
    ///
    /// A program makes unrelated stores between those of its messages. A core prefetches lines for
    /// writing only for a limited number of pending stores, so without claims and with more than
    /// about ten unrelated stores per message, it waits for one line after the other. An explicit
    /// write prefetch has no effect on a line that the core has already prefetched for reading, as
    /// it does with consecutive lines.
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
        // The slots are free, and no other thread reserves slots in this ring.
        for ahead in 0..TOGETHER {
            let slot = position.wrapping_add(ahead) & self.mask;
            self.slots.claim(slot as usize);
        }
    }

    /// Reserves `n` slots, which must be at most [`Self::max_slots`]. Returns `None`, and changes
    /// nothing, while the ring is too full.
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

    /// Returns where `n` slots would be taken: the tail, the number of slots to skip there, and the
    /// tail afterwards.
    #[inline(always)]
    fn place(&self, n: u32) -> (u64, u64, u64) {
        let position = self.tail.load(Ordering::Relaxed);
        let n = u64::from(n);
        let to_end = self.capacity() - (position & self.mask);
        let skip = if n > 1 && n > to_end { to_end } else { 0 };
        (position, skip, position.wrapping_add(skip + n))
    }

    /// Returns whether all slots before `end` are known to be free.
    #[inline(always)]
    fn has_room(&self, end: u64) -> bool {
        // The difference is taken as signed, because a guess at the shared tail can lie behind the
        // head. SYNC (head): this acquire pairs with the release in `refresh_head`, so that slots
        // that one thread knows to be free are also free for the other threads.
        self.room.load(Ordering::Acquire).wrapping_sub(end) as i64 >= 0
    }

    /// Reserves slots while others may be reserving too. Returns the tail and the number of slots
    /// skipped there.
    fn reserve_among_others(&self, n: u32) -> Option<(u64, u64)> {
        loop {
            let place = self.place(n);
            let (position, skip, end) = place;
            if !self.has_room(end) && !self.refresh_head(n, place)? {
                continue;
            }
            // The tail only assigns slots. Whether the slots may be written depends only on the
            // head. Therefore neither compare-and-swap orders anything.
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

    /// Reads the shared head because the ring seemed too full for `n` slots at a place, or because
    /// the lap could end. Returns `None` if the ring is too full, `Some(false)` if the tail has
    /// moved and the caller must start again, and `Some(true)` if there is room.
    #[cold]
    #[inline(never)]
    fn refresh_head(&self, n: u32, (tail, _, end): (u64, u64, u64)) -> Option<bool> {
        // SYNC (head): the consumer had read the slots before `head`, and scrubbed their first
        // words, when it stored `head`. This acquire pairs with the release in
        // `Consumer::publish_head`, so this producer's stores into these slots come after the
        // consumer's reads.
        let head = self.slots.head().load(Ordering::Acquire);
        let head = self.before_offered(head);
        if head == tail && self.can_wrap_early(n, tail) {
            self.wrap_early(tail);
            return Some(false);
        }
        // The first check behind the first part does not map the rest of the ring, because it may
        // be only the last message that has not been released yet.
        let far = tail & self.mask >= self.extent.part() + AGAIN;
        if far && !self.warm.swap(true, Ordering::Relaxed) {
            self.slots.warm(1 << self.extent.shift);
        }
        let free = self.free(tail, head);
        // SYNC (head): this release passes this thread's view of the head on to other threads; see
        // `has_room`. An older head may overwrite a newer one, which only costs another check.
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

    /// Offers the slot of the message reserved last for a reply. The message must have one slot and
    /// must be the next one committed. There may be only one offer at a time, and only in a ring of
    /// [`Discipline::Thread`]. Returns the word and the tag that will publish the reply.
    #[inline(always)]
    pub(crate) fn offer(&self) -> (&AtomicU64, u32) {
        debug_assert!(self.discipline == Discipline::Thread);
        let tail = self.tail.load(Ordering::Relaxed);
        self.offered.store(tail, Ordering::Relaxed);
        let Reserved { slot, tag } = self.reserved(tail.wrapping_sub(1));
        (self.slots.word(slot), reply_tag(tag))
    }

    /// Returns the position of the message whose slot is offered.
    #[inline(always)]
    fn offered(&self) -> Option<u64> {
        let offered = self.offered.load(Ordering::Relaxed);
        (offered != 0).then(|| offered.wrapping_sub(1))
    }

    /// Returns the reply's slot and frame if the reply has arrived. The reply stays in the slot
    /// until [`Self::end_offer`].
    #[inline(always)]
    pub(crate) fn reply(&self) -> Option<(usize, Frame)> {
        self.reply_at(self.offered()?)
    }

    #[inline(always)]
    fn reply_at(&self, position: u64) -> Option<(usize, Frame)> {
        let Reserved { slot, tag } = self.reserved(position);
        // SYNC (reply): this acquire pairs with the release in `publish_reply`, so everything that
        // the consumer wrote into the slot is visible with the tag.
        let word = self.slots.word(slot).load(Ordering::Acquire);
        (tag_in(word) == reply_tag(tag)).then(|| (slot, frame_in(word)))
    }

    /// Ends the offer. Must be called once the reply has been taken.
    #[inline(always)]
    pub(crate) fn end_offer(&self) {
        self.offered.store(0, Ordering::Relaxed);
    }

    /// Returns whether no reply is outstanding or waits to be taken. Ends the offer if the head
    /// rules out a reply.
    pub(crate) fn has_no_reply(&self) -> bool {
        // SYNC (head): this acquire pairs with the release in `Consumer::publish_head`, as in
        // `refresh_head`.
        let head = self.slots.head().load(Ordering::Acquire);
        self.before_offered(head);
        self.offered().is_none()
    }

    /// Returns `head`, or the position of the offered slot if that comes first. Ends the offer if
    /// the head rules out a reply.
    fn before_offered(&self, head: u64) -> u64 {
        match self.offered() {
            Some(offered) if head.wrapping_sub(offered) as i64 <= 0 => head,
            // If there is a reply, it was written before the head was stored.
            Some(offered) if self.reply_at(offered).is_some() => offered,
            Some(_) => {
                self.end_offer();
                head
            }
            None => head,
        }
    }

    /// Returns whether the lap can end at `position`, given that the ring is empty there. If the
    /// lap ends, `n` slots must be free at the start of the next lap.
    fn can_wrap_early(&self, n: u32, position: u64) -> bool {
        let (slot, lap) = (position & self.mask, position >> self.extent.shift);
        // One slot before the marker's slot is left for the Skip that will step over the marker's
        // slot.
        slot >= self.extent.least_lap().max(u64::from(n) + 1)
            && self.discipline != Discipline::Shared
            && lap & EPOCH_END != EPOCH_END
    }

    /// Ends the lap at a position, if that is still the tail.
    fn wrap_early(&self, position: u64) {
        let next = (position | self.mask).wrapping_add(1);
        let moved =
            self.tail
                .compare_exchange(position, next, Ordering::Relaxed, Ordering::Relaxed);
        if moved.is_ok() {
            // SYNC (wrap): the head that was read shows that the slots behind the marker are as
            // free as those before it. This release pairs with the acquire in `marker_again`, so a
            // thread that sees `wrapped` may rely on this. The position is stored before the
            // consumer can pass the marker, and so before the next marker.
            self.wrapped.store(position, Ordering::Release);
            let frame = Frame::new(1, KIND_SKIP, EARLY_WRAP);
            self.commit(self.reserved(position), frame);
        }
    }

    /// Returns the position in the tail's lap of the last marker's slot, if the tail's lap follows
    /// the marker's lap and the consumer is not known to have passed the marker.
    fn marker_again(&self, tail: u64, head: u64) -> Option<u64> {
        // SYNC (wrap): this acquire pairs with the release in `wrap_early`.
        let wrapped = self.wrapped.load(Ordering::Acquire);
        let again = wrapped.wrapping_add(self.capacity());
        let is_passed = head.wrapping_sub(wrapped) as i64 > 0;
        let is_next = again >> self.extent.shift == tail >> self.extent.shift;
        (wrapped != 0 && !is_passed && is_next).then_some(again)
    }

    /// Returns the position at which slots stop being free. While the consumer stands before a
    /// marker, all slots of the next lap except the marker's are free, but the slot before the
    /// marker's slot is left for the Skip that steps over the marker's slot.
    fn free(&self, tail: u64, head: u64) -> u64 {
        match self.marker_again(tail, head) {
            None => head.wrapping_add(self.capacity()),
            Some(again) if tail <= again => again - 1,
            Some(_) => (tail | self.mask).wrapping_add(1),
        }
    }

    /// Continues behind the slot of a marker that the consumer has not passed. Returns `false` if
    /// there is no such marker, or if `n` slots don't fit behind its slot either.
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

    /// Returns the position up to which slots behind `end` may be reserved before the next check of
    /// whether the lap can end.
    fn next_look(&self, tail: u64, end: u64) -> u64 {
        if self.discipline == Discipline::Shared {
            return end.wrapping_add(self.capacity());
        }
        let (slot, least) = (tail & self.mask, self.extent.least_lap());
        let first = tail - slot + least;
        let look = match slot < least {
            true => first,
            // The next check is twice as far from the minimum as this check, so that a flood causes
            // few checks.
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

    /// Returns the tags with which no slot but the first of a clean message may begin
    /// ([`Frame::clean`]).
    #[inline]
    pub(crate) fn reserved_tags(&self, reserved: Reserved) -> ReservedTags {
        ReservedTags::after(reserved.tag)
    }

    /// Publishes a message. All of its slots must have been written, except for the first word of
    /// the first slot.
    #[inline]
    pub(crate) fn commit(&self, reserved: Reserved, frame: Frame) {
        let word = word(reserved.tag, frame);
        // SYNC (tag): this release pairs with the acquire in `Consumer::peek`, so everything that
        // was written into the message's slots becomes visible with this word.
        self.slots
            .word(self.slot(reserved))
            .store(word, Ordering::Release);
    }

    /// Gives up `n` reserved slots, over which the consumer will pass.
    pub(crate) fn abandon(&self, reserved: Reserved, n: u32) {
        self.publish_skip(reserved, n as u16);
    }

    fn publish_skip(&self, reserved: Reserved, slots: u16) {
        self.commit(reserved, Frame::new(slots, KIND_SKIP, 0));
    }
}
