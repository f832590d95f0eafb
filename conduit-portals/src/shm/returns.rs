//! Short messages that come back in the slots of those that asked for them.
//!
//! Who sends a message that fits into a slot and expects a short one back asks for it there
//! ([`Exchange`](conduit_core::ni::Exchange)). The target, while it delivers that message, writes what it injects to its source into
//! the same slot, if it fits, and not into a ring of the source's. One cache line then goes there and back (see [`crate::ring`]). A
//! rank asks one question at a time, so whoever waits looks at one word more, however many peers there are; and it asks seldom where
//! answers came by other ways or not at all.
//!
//! Only where one thread at a time uses the network.

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering};

use conduit_core::ni::{Inject, PtIndex, Rank, Ready, Sink};
use conduit_core::threads::Mode;

use crate::ring::{self, Consumer, Frame, Producer, SLOT};

use super::Shm;
use super::mapping::RingView;
use super::message::{COMPACT, Header, PUT_COMPACT};
use super::patience::Patience;
use super::receive::{Inbox, Message, Out, Queue, Taken};
use super::setup::ready_of;
use super::single::Slot;

/// Bytes that fit into a slot behind a compact header.
pub(super) const MOST: usize = SLOT - COMPACT;
/// No rank.
const NOBODY: Rank = Rank::MAX;
/// Messages, at least, before the next one asks where one that has asked is under way.
const BETWEEN: u32 = 16;
/// The same where questions were in vain: `2^MOST_VAIN` at most.
const MOST_VAIN: u32 = 12;

/// What a rank has asked, and what it is asked.
#[derive(Debug)]
pub(super) struct Returns {
    /// Whom this rank has asked last, and by which index, if the answer is not known to be there.
    whom: AtomicU32,
    index: AtomicU8,
    /// Messages that are not to ask.
    pause: AtomicU32,
    /// Questions in a row that were in vain.
    vain: AtomicU32,
    /// The source of the message that is being delivered, if it may be answered in its slot.
    asker: AtomicU32,
    /// That slot.
    slot: AtomicPtr<u8>,
    patience: Patience,
}

impl Returns {
    pub(super) fn new() -> Self {
        Self {
            whom: NOBODY.into(),
            index: 0.into(),
            pause: 0.into(),
            vain: 0.into(),
            asker: NOBODY.into(),
            slot: ptr::null_mut::<u8>().into(),
            patience: Patience::default(),
        }
    }

    /// Polls that waited for the answer asked for last.
    #[cfg(test)]
    pub(super) fn polls(&self) -> u32 {
        self.patience.polls()
    }

    /// Turns before the first of them.
    #[cfg(test)]
    pub(super) fn turns(&self) -> u32 {
        self.patience.turns()
    }

    /// Whether this rank has asked, and has not taken an answer since.
    #[cfg(test)]
    pub(super) fn is_asking(&self) -> bool {
        self.whom.load(Ordering::Relaxed) != NOBODY
    }

    /// Whether what is sent to a rank now can go into the slot of a message of its that is being delivered.
    #[inline(always)]
    pub(super) fn is_answerable(&self, asker: Rank) -> bool {
        self.asker.load(Ordering::Relaxed) == asker
    }

    /// The message at the head of a ring, which is going to be delivered, may be answered in its slot, until this is dropped.
    #[inline(always)]
    pub(super) fn begin<'r>(
        &'r self,
        asker: Rank,
        slot: *mut u8,
        ring: &'r mut Consumer<RingView>,
        frame: Frame,
    ) -> Question<'r> {
        self.slot.store(slot, Ordering::Relaxed);
        self.asker.store(asker, Ordering::Relaxed);
        Question {
            returns: self,
            ring,
            frame,
        }
    }
}

/// A message that may be answered in its slot while it is delivered.
pub(super) struct Question<'r> {
    returns: &'r Returns,
    ring: &'r mut Consumer<RingView>,
    frame: Frame,
}

impl Question<'_> {
    /// It has been delivered, or not.
    #[inline(always)]
    pub(super) fn end(self) {
        self.returns.asker.store(NOBODY, Ordering::Relaxed);
        std::mem::forget(self);
    }
}

impl Drop for Question<'_> {
    /// Its sink has panicked. What has been answered is no message any more, and nothing behind it would be found.
    #[cold]
    fn drop(&mut self) {
        if self.returns.asker.swap(NOBODY, Ordering::Relaxed) == NOBODY {
            self.ring.release(self.frame);
        }
    }
}

impl<M: Mode> Shm<M> {
    /// Whether a message of one slot that [asks](conduit_core::ni::Exchange::Asks) is to do so now.
    #[inline(always)]
    pub(super) fn may_ask(&self, target: Rank) -> bool {
        let returns = &self.returns;
        let pause = returns.pause.load(Ordering::Relaxed);
        if pause > 0 {
            returns.pause.store(pause - 1, Ordering::Relaxed);
            return false;
        }
        !M::PARALLEL
            && !self.shared_rings
            && target != self.rank
            && (returns.whom.load(Ordering::Relaxed) == NOBODY || self.may_ask_again())
    }

    /// The same, where it has asked and taken no answer.
    #[inline(never)]
    fn may_ask_again(&self) -> bool {
        let returns = &self.returns;
        let Some(producer) = self.asked_producer() else {
            return true;
        };
        if !producer.awaits_nothing() {
            returns.pause.store(BETWEEN, Ordering::Relaxed);
            return false;
        }
        let vain = returns.vain.load(Ordering::Relaxed);
        returns
            .vain
            .store((vain + 1).min(MOST_VAIN), Ordering::Relaxed);
        returns.pause.store(1 << vain, Ordering::Relaxed);
        self.await_no_answer();
        false
    }

    /// This rank's end of the ring in which it has asked.
    fn asked_producer(&self) -> Option<&Producer<RingView>> {
        let index = self.returns.index.load(Ordering::Relaxed);
        self.known_lane(self.returns.whom.load(Ordering::Relaxed), PtIndex(index))
    }

    fn await_no_answer(&self) {
        self.returns.whom.store(NOBODY, Ordering::Relaxed);
        self.watches.set_answer(None);
    }

    /// The message reserved last, of a slot, asks `target` for an answer.
    #[inline(always)]
    pub(super) fn ask(&self, target: Rank, index: PtIndex, producer: &Producer<RingView>) {
        self.returns.whom.store(target, Ordering::Relaxed);
        self.returns.pause.store(BETWEEN, Ordering::Relaxed);
        self.returns.index.store(index.0, Ordering::Relaxed);
        self.returns.patience.begin();
        self.watches.set_answer(Some(producer.ask()));
    }

    /// Answers the message that is being delivered, whose source is the target; false if this can't go that way.
    #[inline(always)]
    pub(super) fn answer(&self, inject: &Inject<'_>) -> bool {
        let returns = &self.returns;
        let length = inject.head.len() + inject.body.len();
        // That the index is open there is known only if something was sent to it.
        let peer = self.peers.get(inject.target as usize);
        let Some(peer) =
            peer.filter(|peer| length <= MOST && peer.known_lane(inject.index).is_some())
        else {
            return false;
        };
        returns.asker.store(NOBODY, Ordering::Relaxed);
        let slot = returns.slot.load(Ordering::Relaxed);
        // SAFETY: the slot of the message that is being delivered, in this rank's mapping. It is not released before the `Question` has
        // ended, however that comes, and with it this; of the message a copy is used. Header and payload fit. The word is aligned.
        let word = unsafe {
            self.write_compact(slot, inject);
            &*slot.cast::<AtomicU64>()
        };
        ring::publish_answer(word, Frame::new(1, PUT_COMPACT, inject.index.0));
        self.ring_bell(peer);
        self.note_sent();
        true
    }

    /// See [`conduit_core::ni::Ni::hold_off`].
    #[inline(always)]
    pub(super) fn let_answer_come(&self) {
        let returns = &self.returns;
        if returns.whom.load(Ordering::Relaxed) != NOBODY {
            returns.patience.before_poll(|| self.is_answered());
        }
    }

    /// Whether an answer waits to be taken.
    #[inline(always)]
    pub(super) fn is_answered(&self) -> bool {
        !M::PARALLEL && self.watches.answer().is_some()
    }

    /// Where the answer is to be taken that has come, if there is one.
    #[inline(always)]
    pub(super) fn answer_ready(&self) -> Ready {
        match self.watches.answer() {
            Some(frame) if !M::PARALLEL => match self.queue_of(frame) {
                Some(number) => ready_of(number),
                // Whoever polls finds that it makes no sense.
                None => Ready::ALL,
            },
            _ => Ready::NONE,
        }
    }

    /// The queue of an answer with this frame: a compact put of one slot to an index that is open, unless a peer is broken.
    #[inline(always)]
    fn queue_of(&self, frame: Frame) -> Option<usize> {
        let is_right = frame.kind == PUT_COMPACT && frame.slots() == 1;
        let index = self.indices.get(usize::from(frame.index))?;
        let number = usize::from(index.queue.load(Ordering::Relaxed)).checked_sub(1);
        number.filter(|_| is_right)
    }

    /// Delivers the answer that has come, if it is for this queue; how many events that were, if it has taken it.
    #[inline(always)]
    pub(super) fn take_answer<S: Sink>(
        &self,
        number: usize,
        queue: &Queue<M>,
        inbox: &mut Inbox,
        sink: &mut S,
    ) -> Option<u32> {
        let Some((producer, (slot, frame))) = self
            .asked_producer()
            .and_then(|producer| Some((producer, producer.answer()?)))
        else {
            self.miss_answer();
            return None;
        };
        match self.queue_of(frame) {
            Some(to) if to != number => return None,
            Some(_) if inbox.later.is_owed() || !sink.is_ready() => return None,
            Some(_) => {}
            None => {
                self.refuse_answer(producer);
                return None;
            }
        }
        let source = self.returns.whom.load(Ordering::Relaxed);
        let slot = producer.slots().address(slot);
        // A copy, so that the slot need not be kept: what the sink does may already be the next question.
        // SAFETY: a slot of a ring, aligned, which nobody writes before its answer has been taken; any bits are bytes.
        let copy = unsafe { slot.cast::<Slot>().read() };
        producer.end_asking();
        self.returns.patience.end();
        self.returns.vain.store(0, Ordering::Relaxed);
        self.returns.pause.store(0, Ordering::Relaxed);
        self.await_no_answer();
        let slot = copy.0.as_ptr();
        if self.deliver_put(number, queue, slot, frame, Some(source), sink) {
            return Some(1);
        }
        Some(self.deliver_answer_slowly(number, queue, inbox, slot, frame, source, sink))
    }

    /// The word that is watched looks like an answer, and nobody asks there any more: the ring has found that there is none.
    #[cold]
    fn miss_answer(&self) {
        if self.asked_producer().is_none_or(Producer::awaits_nothing) {
            self.await_no_answer();
        }
    }

    /// An answer that makes no sense.
    #[cold]
    fn refuse_answer(&self, producer: &Producer<RingView>) {
        let source = self.returns.whom.load(Ordering::Relaxed);
        self.statistics.note_bad(Some(source));
        producer.end_asking();
        self.await_no_answer();
    }

    /// In the general way.
    #[cold]
    #[allow(clippy::too_many_arguments)]
    fn deliver_answer_slowly(
        &self,
        number: usize,
        queue: &Queue<M>,
        inbox: &mut Inbox,
        slot: *const u8,
        frame: Frame,
        source: Rank,
        sink: &mut dyn Sink,
    ) -> u32 {
        let mut out = Out::new(sink, 1);
        // SAFETY: as in `deliver_put`.
        let header = unsafe { Header::read_compact(slot) };
        let message = Message {
            slot,
            frame,
            source,
        };
        let taken = match header.source == source {
            true => self.take(number, queue, &message, &header, &mut inbox.later, &mut out),
            false => Taken::Bad,
        };
        let events = out.count;
        if !matches!(taken, Taken::Done) {
            self.statistics.note_bad(Some(source));
        }
        if inbox.later.is_owed() {
            self.watch_anyway(inbox);
        }
        events
    }
}
