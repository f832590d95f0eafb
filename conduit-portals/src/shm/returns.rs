//! Short messages that come back in the slots of those that asked for them.
//!
//! Who sends a message that fits into a slot and expects a short one back asks for it there ([`Exchange`](conduit_core::ni::Exchange)). The target, while it
//! delivers that message, writes what it injects to its source into the same slot, if it fits, and not into a ring of the source's. One
//! cache line then goes there and back (see [`crate::ring`]). A rank asks one question at a time, so whoever waits looks at one word
//! more, however many peers there are; and it asks seldom where answers came by other ways or not at all.
//!
//! Only where one thread at a time uses the network.

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering};

use conduit_core::ni::{EqId, Inject, PtIndex, Rank, Ready, Sink};
use conduit_core::threads::Mode;

use crate::ring::{self, Consumer, Frame, Producer, SLOT};

use super::Shm;
use super::mapping::RingView;
use super::message::{COMPACT, Compact, Header, PUT_COMPACT};
use super::receive::{Inbox, Message, Out, Queue, Taken};
use super::send::copy_words;

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
    asked: AtomicU32,
    index: AtomicU8,
    /// Messages that are not to ask.
    pause: AtomicU32,
    /// Questions in a row that were in vain.
    vain: AtomicU32,
    /// The source of the message that is being delivered, if it may be answered in its slot.
    asker: AtomicU32,
    /// That slot's first word, and the tag there.
    word: AtomicPtr<AtomicU64>,
    tag: AtomicU32,
}

impl Returns {
    pub(super) fn new() -> Self {
        Self {
            asked: NOBODY.into(),
            index: 0.into(),
            pause: 0.into(),
            vain: 0.into(),
            asker: NOBODY.into(),
            word: ptr::null_mut::<AtomicU64>().into(),
            tag: 0.into(),
        }
    }

    /// Whether this rank has asked, and has not taken an answer since.
    #[cfg(test)]
    pub(super) fn is_asking(&self) -> bool {
        self.asked.load(Ordering::Relaxed) != NOBODY
    }

    /// Whether a message to `target` that is sent now would go into the slot of one that is being delivered.
    #[inline(always)]
    pub(super) fn has_asked(&self, target: Rank) -> bool {
        self.asker.load(Ordering::Relaxed) == target
    }

    /// The message at the head of a ring, which is going to be delivered, may be answered in its slot.
    #[inline(always)]
    pub(super) fn begin(&self, asker: Rank, ring: &Consumer<RingView>) {
        let (word, tag) = ring.asked();
        self.word
            .store(ptr::from_ref(word).cast_mut(), Ordering::Relaxed);
        self.tag.store(tag, Ordering::Relaxed);
        self.asker.store(asker, Ordering::Relaxed);
    }

    /// It has been answered, or delivered.
    #[inline(always)]
    pub(super) fn end(&self) {
        self.asker.store(NOBODY, Ordering::Relaxed);
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
            && (returns.asked.load(Ordering::Relaxed) == NOBODY || self.may_ask_again())
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
        self.known_lane(self.returns.asked.load(Ordering::Relaxed), PtIndex(index))
    }

    fn await_no_answer(&self) {
        self.returns.asked.store(NOBODY, Ordering::Relaxed);
        self.watches.set_answer(None);
    }

    /// The message reserved last, of a slot, asks `target` for an answer.
    #[inline(always)]
    pub(super) fn ask(&self, target: Rank, index: PtIndex, producer: &Producer<RingView>) {
        self.returns.asked.store(target, Ordering::Relaxed);
        self.returns.pause.store(BETWEEN, Ordering::Relaxed);
        self.returns.index.store(index.0, Ordering::Relaxed);
        self.watches.set_answer(Some(producer.ask(1)));
    }

    /// Answers the message that is being delivered, whose source is the target; false if this can't go that way.
    #[inline(always)]
    pub(super) fn answer(&self, inject: &Inject<'_>) -> bool {
        let returns = &self.returns;
        let length = inject.head.len() + inject.body.len();
        // That the index is open there is known only if something was sent to it.
        if length > MOST || self.known_lane(inject.target, inject.index).is_none() {
            return false;
        }
        let Some(peer) = self.peers.get(inject.target as usize) else {
            return false;
        };
        returns.end();
        let slot = returns.word.load(Ordering::Relaxed).cast::<u8>();
        // SAFETY: the slot of the message that is being delivered (`begin`), in this rank's mapping. It is not released before its
        // delivery ends, which also ends this; of the message a copy is used. Header and payload fit.
        let word = unsafe {
            let payload = slot.add(COMPACT);
            copy_words(inject.head, payload);
            if !inject.body.is_empty() {
                let body = payload.add(inject.head.len());
                ptr::copy_nonoverlapping(inject.body.as_ptr(), body, inject.body.len());
            }
            Compact::write(
                slot,
                length as u32,
                self.rank,
                inject.match_bits,
                inject.hdr_data,
            );
            &*slot.cast::<AtomicU64>()
        };
        let frame = Frame::new(1, PUT_COMPACT, inject.index.0);
        ring::publish_answer(word, returns.tag.load(Ordering::Relaxed), frame);
        self.ring_bell(peer);
        self.note_sent();
        true
    }

    /// Whether an answer waits to be taken.
    #[inline(always)]
    pub(super) fn is_answered(&self) -> bool {
        !M::PARALLEL && self.watches.has_answer()
    }

    /// Delivers the answer that has come, if it is for this queue.
    #[inline(always)]
    pub(super) fn take_answer<S: Sink>(
        &self,
        number: usize,
        queue: &Queue<M>,
        inbox: &mut Inbox,
        sink: &mut S,
    ) -> bool {
        let Some(producer) = self.asked_producer() else {
            return false;
        };
        let Some((slot, frame)) = producer.answer() else {
            return false;
        };
        // A compact put of one slot, whatever a broken peer writes.
        let is_right = frame.kind == PUT_COMPACT && frame.slots() == 1;
        let place = self
            .indices
            .get(usize::from(frame.index))
            .filter(|_| is_right);
        let to = place.map_or(0, |index| usize::from(index.queue.load(Ordering::Relaxed)));
        if to != number + 1 {
            self.pass_answer_on(to);
            return false;
        }
        if inbox.later.is_owed() || !sink.is_ready() {
            return false;
        }
        let source = self.returns.asked.load(Ordering::Relaxed);
        let slot = producer.slots().address(slot);
        if !self.deliver_put(number, queue, slot, frame, Some(source), sink) {
            self.take_answer_slowly(number, queue, inbox, slot, frame, source, sink);
        }
        producer.end_asking();
        self.returns.vain.store(0, Ordering::Relaxed);
        self.returns.pause.store(0, Ordering::Relaxed);
        self.await_no_answer();
        true
    }

    /// The answer is for another queue, or (0) for none that there is.
    #[cold]
    fn pass_answer_on(&self, to: usize) {
        match to.checked_sub(1) {
            Some(number) => self
                .watches
                .set_answer_queue(Ready::queue(EqId(number as u8))),
            None => {
                let source = self.returns.asked.load(Ordering::Relaxed);
                self.statistics.note_bad(Some(source));
                if let Some(producer) = self.asked_producer() {
                    producer.end_asking();
                }
                self.await_no_answer();
            }
        }
    }

    /// In the general way.
    #[cold]
    #[allow(clippy::too_many_arguments)]
    fn take_answer_slowly(
        &self,
        number: usize,
        queue: &Queue<M>,
        inbox: &mut Inbox,
        slot: *const u8,
        frame: Frame,
        source: Rank,
        sink: &mut dyn Sink,
    ) {
        let mut out = Out::new(sink, 1);
        // SAFETY: as in `deliver_put`.
        let header = unsafe { Header::read_compact(slot) };
        let message = Message {
            slot,
            frame,
            source,
        };
        let taken = match header.source == source && frame.slots() == 1 {
            true => self.take(number, queue, &message, &header, &mut inbox.later, &mut out),
            false => Taken::Bad,
        };
        if !matches!(taken, Taken::Done) {
            self.statistics.note_bad(Some(source));
        }
        if inbox.later.is_owed() {
            self.watch_anyway(inbox);
        }
    }
}
