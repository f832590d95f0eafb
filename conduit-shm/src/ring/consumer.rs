//! The receiving end of a ring.

use conduit_portals::sync::{AtomicU64, Ordering};

use super::{Extent, Frame, KIND_SKIP, ReservedTags, Slots, frame_in, tag, tag_in, word};

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

/// Consecutive messages of one lap with the same frame, which are passed one by one and freed together.
/// See [`Consumer::run`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct SlotRun {
    /// The slot of the next one.
    next: u32,
    /// The last slot at which one can begin.
    last: u32,
    /// Their first word.
    word: u64,
    frame: Frame,
    /// The slot behind the last one that was scrubbed.
    released: u32,
}

impl SlotRun {
    /// Their frame.
    #[inline]
    pub(crate) fn frame(&self) -> Frame {
        self.frame
    }

    /// Goes on behind the next message, which stays in use until the one after it has been passed or the row is released.
    #[inline(always)]
    pub(crate) fn pass(&mut self) {
        self.next += u32::from(self.frame.slots());
    }
}

/// The receiving end. There is one.
#[derive(Debug)]
pub(crate) struct Consumer<S> {
    slots: S,
    extent: Extent,
    capacity: u32,
    /// Position at which the lap began.
    lap: u64,
    /// The slot at the head, and the tag that is awaited there.
    pub(super) slot: u32,
    tag: u32,
    /// The slot, in this lap, up to which the head was published last.
    pub(super) published: u32,
    /// The slot at which something is to be done: the head is to be published, or the lap ends.
    due: u32,
    /// Messages have been released since then whose slots are to be scrubbed.
    unscrubbed: bool,
    /// Slots that wrap markers have passed over.
    passed_over: u64,
}

impl<S: Slots> Consumer<S> {
    /// The end of a ring of zeroed slots.
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
    pub(crate) fn position(&self) -> u64 {
        self.lap.wrapping_add(self.slot.into())
    }

    /// Slots of all messages that were taken.
    pub(crate) fn taken(&self) -> u64 {
        self.position().wrapping_sub(self.passed_over)
    }

    /// Whether anything (also a Skip) is there. Changes nothing.
    #[inline]
    pub(crate) fn is_ready(&self) -> bool {
        // SYNC (tag): see `peek`.
        tag_in(self.slots.word(self.slot()).load(Ordering::Acquire)) == self.tag
    }

    /// The word and the tag that will publish the next message; `None` if [`Self::next`] has something to publish itself.
    #[inline]
    pub(crate) fn awaited(&self) -> Option<(&AtomicU64, u32)> {
        (self.published == self.slot).then(|| (self.slots.word(self.slot()), self.tag))
    }

    /// The slot and frame at the head, if anything (also a Skip) that ends within the ring is there. Changes nothing.
    #[inline(always)]
    pub(crate) fn peek(&self) -> Option<(usize, Frame)> {
        let (slot, left) = (self.slot(), self.capacity - self.slot);
        // SYNC (tag): with the awaited tag comes all that the producer wrote before it. Pairs with `Producer::commit`.
        let word = self.slots.word(slot).load(Ordering::Acquire);
        if tag_in(word) != self.tag {
            return None;
        }
        let frame = frame_in(word);
        // At least one slot, at most those that are left.
        let fits = u32::from(frame.slots()).wrapping_sub(1) < left;
        fits.then_some((slot, frame))
    }

    /// Whether another message lies behind the one at the head, which has this frame. Behind the last slot: no.
    #[inline(always)]
    pub(crate) fn is_followed(&self, frame: Frame) -> bool {
        let next = self.slot + u32::from(frame.slots());
        // Relaxed: nothing is read of it here.
        next < self.capacity
            && tag_in(self.slots.word(next as usize).load(Ordering::Relaxed)) == self.tag
    }

    /// The messages with this frame that lie behind one another from the head on. The frame is one that [`Self::peek`] has
    /// given.
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

    /// The next message of a run, if it is there. Changes nothing.
    #[inline(always)]
    pub(crate) fn peek_run(&self, run: &SlotRun) -> Option<usize> {
        let slot = run.next as usize;
        // Beyond the last slot at which one can begin there may be the end of the ring.
        // SYNC (tag): as in `peek`.
        let there =
            run.next <= run.last && self.slots.word(slot).load(Ordering::Acquire) == run.word;
        there.then_some(slot)
    }

    /// Ends the use of the last message of a row that was passed, if there is one.
    #[inline(always)]
    pub(crate) fn release_last(&self, run: &mut SlotRun) {
        if run.frame.needs_scrub() && run.released != run.next {
            run.released = run.next;
            self.scrub(run.next - u32::from(run.frame.slots()), run.next);
        }
    }

    /// Ends the use of a run: frees the messages that were passed.
    #[inline(always)]
    pub(crate) fn release_run(&mut self, mut run: SlotRun) {
        self.release_last(&mut run);
        self.slot = run.next;
        if self.slot >= self.due {
            self.publish_head();
        }
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

    /// Ends the lap.
    #[cold]
    fn wrap_early(&mut self) {
        // The producer has seen all before it published, so what the marker passes over needs no scrubbing.
        self.passed_over += u64::from(self.capacity - self.slot);
        self.slot = self.capacity;
        self.publish_head();
    }

    /// Ends the use of the message that [`Self::next`] or [`Self::peek`] gave.
    #[inline(always)]
    pub(crate) fn release(&mut self, frame: Frame) {
        self.unscrubbed |= frame.needs_scrub();
        self.slot += u32::from(frame.slots());
        if self.slot >= self.due {
            self.publish_head();
        }
    }

    /// Keeps the module's invariant for the slots from one at which a message begins up to `end`.
    #[inline]
    fn scrub(&self, first: u32, end: u32) {
        // All these slots are of one lap.
        let reserved_tags = ReservedTags::after(self.tag);
        for slot in first + 1..end {
            let word = self.slots.word(slot as usize);
            // Relaxed: the message's tag has brought this word, and `publish_head` orders the store before any
            // producer's.
            let found = word.load(Ordering::Relaxed);
            // Other messages may begin here, too. This lap's tag is not awaited again in its epoch.
            if reserved_tags.is_in(found) && tag_in(found) != self.tag {
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
        if self.unscrubbed {
            // Not earlier: scrubbing takes a while, and a peer may wait for what the messages' handlers have sent.
            self.scrub(self.published, self.slot);
            self.unscrubbed = false;
        }
        if self.lap == 0 && self.published == 0 {
            // The producer has made the pages with its first messages.
            self.slots.warm(1 << self.extent.part);
        }
        // SYNC (head): our reads of the released slots, and our zeros, come before a producer's stores into them. Pairs
        // with `Producer::refresh_head`.
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
