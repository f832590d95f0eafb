//! The receiving end of a ring.

use conduit_portals::sync::{AtomicU64, Ordering};

use super::{Extent, Frame, KIND_SKIP, ReservedTags, Slots, frame_in, tag, tag_in, word};

/// The content of the ring at the consumer's position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// No message has arrived yet.
    Empty,
    /// A message that begins at `slot`. The message stays there until [`Consumer::release`].
    Message {
        /// The message's first slot.
        slot: usize,
        /// The message's frame. All slots that the frame covers lie within the ring.
        frame: Frame,
    },
    /// The frame is malformed, so no further message can be found.
    Broken,
}

/// A run of consecutive messages of one lap with the same frame. The messages are passed one by one
/// and released together; see [`Consumer::run`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct SlotRun {
    /// The slot of the next message.
    next: u32,
    /// The last slot at which a message can begin.
    last: u32,
    /// The first word of each message.
    word: u64,
    frame: Frame,
    /// The slot behind the last slot that was scrubbed.
    released: u32,
}

impl SlotRun {
    /// Returns the frame of these messages.
    #[inline]
    pub(crate) fn frame(&self) -> Frame {
        self.frame
    }

    /// Passes the next message, which stays in use until the one after it is passed or the run is
    /// released.
    #[inline(always)]
    pub(crate) fn pass(&mut self) {
        self.next += u32::from(self.frame.slots());
    }
}

/// The receiving end. Each ring has exactly one.
#[derive(Debug)]
pub(crate) struct Consumer<S> {
    slots: S,
    extent: Extent,
    capacity: u32,
    /// The position at which the current lap began.
    lap: u64,
    /// The slot at the head, where `tag` is awaited.
    pub(super) slot: u32,
    tag: u32,
    /// The slot, in this lap, up to which the head was last published.
    pub(super) published: u32,
    /// The slot at which the head has to be published, because enough slots have been released or
    /// the lap ends.
    due: u32,
    /// Whether messages that were released since the head was last published have slots to scrub.
    unscrubbed: bool,
    /// The number of slots that wrap markers have passed over.
    passed_over: u64,
}

impl<S: Slots> Consumer<S> {
    /// Creates the receiving end of a ring of zeroed slots.
    pub(crate) fn new(slots: S, extent: Extent) -> Self {
        debug_assert!(extent.shift < 32);
        let mut ring = Self {
            slots,
            extent,
            capacity: extent.slots() as u32,
            lap: 0,
            slot: 0,
            tag: tag(0, extent.shift),
            published: 0,
            due: 0,
            unscrubbed: false,
            passed_over: 0,
        };
        ring.note_published();
        ring
    }

    /// Returns the ring's memory.
    #[inline]
    pub(crate) fn slots(&self) -> &S {
        &self.slots
    }

    #[inline]
    fn slot(&self) -> usize {
        self.slot as usize
    }

    #[inline]
    pub(crate) fn position(&self) -> u64 {
        self.lap.wrapping_add(self.slot.into())
    }

    /// Returns the number of slots of all messages taken.
    pub(crate) fn taken(&self) -> u64 {
        self.position().wrapping_sub(self.passed_over)
    }

    /// Returns whether a message or a Skip is at the head. Changes nothing.
    #[inline]
    pub(crate) fn is_ready(&self) -> bool {
        // SYNC (tag): this acquire pairs with the release in `Producer::commit`, as in `peek`.
        tag_in(self.slots.word(self.slot()).load(Ordering::Acquire)) == self.tag
    }

    /// Returns the word and the tag that will publish the next message, or `None` if [`Self::next`]
    /// still has slots to free.
    #[inline]
    pub(crate) fn awaited(&self) -> Option<(&AtomicU64, u32)> {
        (self.published == self.slot).then(|| (self.slots.word(self.slot()), self.tag))
    }

    /// Returns the slot and the frame of the message or Skip at the head, if there is one and it
    /// ends within the ring. Changes nothing.
    #[inline(always)]
    pub(crate) fn peek(&self) -> Option<(usize, Frame)> {
        let (slot, left) = (self.slot(), self.capacity - self.slot);
        // SYNC (tag): this acquire pairs with the release in `Producer::commit`, so everything that
        // the producer wrote before the awaited tag is visible with the tag.
        let word = self.slots.word(slot).load(Ordering::Acquire);
        if tag_in(word) != self.tag {
            return None;
        }
        let frame = frame_in(word);
        // The message must cover at least one slot, and at most as many as are left in the ring.
        let fits = u32::from(frame.slots()).wrapping_sub(1) < left;
        fits.then_some((slot, frame))
    }

    /// Returns whether another message follows the message at the head, which has this frame.
    /// Always returns `false` if the message at the head ends at the ring's end.
    #[inline(always)]
    pub(crate) fn is_followed(&self, frame: Frame) -> bool {
        let next = self.slot + u32::from(frame.slots());
        // The load may be relaxed, because nothing else of the message is read here.
        next < self.capacity
            && tag_in(self.slots.word(next as usize).load(Ordering::Relaxed)) == self.tag
    }

    /// Returns the run of consecutive messages with this frame, starting at the head. The frame
    /// must come from [`Self::peek`].
    #[inline(always)]
    pub(crate) fn run(&self, frame: Frame) -> SlotRun {
        SlotRun {
            next: self.slot,
            last: self.capacity - u32::from(frame.slots()),
            word: word(self.tag, frame),
            frame,
            released: self.slot,
        }
    }

    /// Returns the slot of the next message of a run, if it has arrived. Changes nothing.
    #[inline(always)]
    pub(crate) fn peek_run(&self, run: &SlotRun) -> Option<usize> {
        let slot = run.next as usize;
        // The comparison is needed because the ring may end right behind the last message. SYNC
        // (tag): this acquire pairs with the release in `Producer::commit`, as in `peek`.
        let there =
            run.next <= run.last && self.slots.word(slot).load(Ordering::Acquire) == run.word;
        there.then_some(slot)
    }

    /// Ends the use of the run's message that was passed last, if any.
    #[inline(always)]
    pub(crate) fn release_last(&self, run: &mut SlotRun) {
        if run.frame.needs_scrub() && run.released != run.next {
            run.released = run.next;
            self.scrub(run.next - u32::from(run.frame.slots()), run.next);
        }
    }

    /// Ends the use of a run, and releases the messages that were passed.
    #[inline(always)]
    pub(crate) fn release_run(&mut self, mut run: SlotRun) {
        self.release_last(&mut run);
        self.slot = run.next;
        if self.slot >= self.due {
            self.publish_head();
        }
    }

    /// Passes any Skips, and returns the message at the head, if there is one. If there is no
    /// message, frees the slots of all released messages.
    #[inline]
    pub(crate) fn next(&mut self) -> Next {
        loop {
            if !self.is_ready() {
                self.publish();
                return Next::Empty;
            }
            match self.peek() {
                None => return Next::Broken,
                Some((slot, frame))
                    if frame.is_early_wrap() && slot as u64 >= self.extent.least_lap() =>
                {
                    self.wrap_early()
                }
                Some((_, frame)) if frame.kind == KIND_SKIP => self.release(frame),
                Some((slot, frame)) => return Next::Message { slot, frame },
            }
        }
    }

    /// Ends the lap at a wrap marker.
    #[cold]
    fn wrap_early(&mut self) {
        // The producer writes a marker only after it has seen the head at this position, so no
        // earlier slots are left to scrub. The slots that the marker passes over need no scrubbing
        // either.
        self.passed_over += u64::from(self.capacity - self.slot);
        self.slot = self.capacity;
        self.publish_head();
    }

    /// Ends the use of the message that [`Self::next`] or [`Self::peek`] returned.
    #[inline(always)]
    pub(crate) fn release(&mut self, frame: Frame) {
        self.unscrubbed |= frame.needs_scrub();
        self.slot += u32::from(frame.slots());
        if self.slot >= self.due {
            self.publish_head();
        }
    }

    /// Restores the module's invariant for the slots between `first`, where a message begins, and
    /// `end`.
    #[inline]
    fn scrub(&self, first: u32, end: u32) {
        // All these slots belong to one lap.
        let reserved_tags = ReservedTags::after(self.tag);
        for slot in first + 1..end {
            let word = self.slots.word(slot as usize);
            // The accesses may be relaxed, because the message's tag made this word visible, and
            // `publish_head` orders the store below before any producer's.
            let found = word.load(Ordering::Relaxed);
            // If several messages are scrubbed at once, another message may begin in this slot. Its
            // word holds this lap's tag, which may stay because it is not awaited again in its
            // epoch.
            if reserved_tags.is_in(found) && tag_in(found) != self.tag {
                word.store(0, Ordering::Relaxed);
            }
        }
    }

    /// Frees the slots of all released messages.
    #[inline]
    pub(crate) fn publish(&mut self) {
        if self.published != self.slot {
            self.publish_head();
        }
    }

    #[inline(never)]
    fn publish_head(&mut self) {
        if self.unscrubbed {
            // Scrubbing was deferred until now because it takes a while, and a peer may be waiting
            // for messages that the handlers have sent.
            self.scrub(self.published, self.slot);
            self.unscrubbed = false;
        }
        if self.lap == 0 && self.published == 0 {
            // This is the first publication, by which time the producer has allocated the pages, so
            // they need only be mapped here.
            self.slots.warm(1 << self.extent.part);
        }
        // SYNC (head): this release pairs with the acquire in `Producer::refresh_head`, so the
        // consumer's reads and scrubbing of the released slots come before a producer's stores into
        // these slots.
        self.slots.head().store(self.position(), Ordering::Release);
        if self.slot == self.capacity {
            self.lap = self.position();
            self.slot = 0;
            self.tag = tag(self.lap, self.extent.shift);
        }
        self.note_published();
    }

    fn note_published(&mut self) {
        self.published = self.slot;
        self.due = self.capacity.min(self.slot + (self.capacity / 8).max(1));
    }
}
