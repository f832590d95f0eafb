//! Reply slots, which are the slots of requests, used again for short replies.
//!
//! The sender of a message of one slot that [expects a reply](conduit_core::ni::Exchange) offers
//! that slot for the reply. While the target delivers the message, the first short reply that the
//! target injects to the source goes into the slot instead of one of the source's rings. Request
//! and reply then share one cache line (see [`crate::ring`]). A rank offers one slot at a time, so
//! its polls read only one additional word, no matter how many peers it has. A rank offers slots
//! less often if replies come by other paths or not at all.
//!
//! Other modules call [`Shm::offer_slot`] and [`Shm::reply_in_slot`] to send, and
//! [`Shm::reply_ready`] and [`Shm::take_reply`] to poll. They hold a [`ReplySlotGuard`] while they
//! deliver a message. `CONDUIT_SHM_REPLY_SLOTS` turns the offers off. Slots are offered only if one
//! thread at a time uses the network.

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use conduit_core::ni::{Inject, Rank, Ready, Sink};
use conduit_core::threads::Mode;

use crate::ring::{self, Consumer, Frame, Producer, RingView, SLOT};

use super::Shm;
use super::adaptive_delay::AdaptiveDelay;
use super::deliver_one::{Slot, Source};
use super::lanes::Way;
use super::message::{COMPACT, Header, PUT_COMPACT};
use super::receive::{Inbox, Message, PollBudget, Queue, Taken};
use super::setup::ready_of;

/// The number of bytes that fit into a slot behind a compact header.
pub(super) const MOST: usize = SLOT - COMPACT;
/// A number that stands for no rank.
const NOBODY: Rank = Rank::MAX;
/// The number of messages to send without an offer when the last offer's slot may still get a
/// reply.
const MIN_INTERVAL: u32 = 16;
/// With each consecutive offer that gets no reply, the number of messages to send without an offer
/// doubles, up to two to the power of this number.
const MAX_MISSES: u32 = 12;

/// The state of the slot that this rank offers, and of the slot that is offered to this rank.
#[derive(Debug)]
pub(super) struct ReplySlots {
    /// The target of the open offer, or [`NOBODY`] if there is none.
    target_rank: AtomicU32,
    /// The ring with the slot that is offered.
    ring: Way,
    /// The number of messages to send without an offer.
    pause: AtomicU32,
    /// The number of consecutive offers without a reply.
    misses: AtomicU32,
    /// The source of the message being delivered, if it offers its slot.
    requester: AtomicU32,
    /// The slot offered by that message.
    slot: AtomicPtr<u8>,
    delay: AdaptiveDelay,
}

impl ReplySlots {
    pub(super) fn new(adaptive_delay: bool) -> Self {
        Self {
            target_rank: NOBODY.into(),
            ring: Way::default(),
            pause: 0.into(),
            misses: 0.into(),
            requester: NOBODY.into(),
            slot: ptr::null_mut::<u8>().into(),
            delay: AdaptiveDelay::new(adaptive_delay),
        }
    }

    /// Returns the number of polls since the last offer.
    #[cfg(test)]
    pub(super) fn polls(&self) -> u32 {
        self.delay.polls()
    }

    /// Returns the number of steps by which the first poll after an offer is delayed.
    #[cfg(test)]
    pub(super) fn steps(&self) -> u32 {
        self.delay.steps()
    }

    /// Returns whether an offer is open.
    #[cfg(test)]
    pub(super) fn is_offering(&self) -> bool {
        self.target_rank.load(Ordering::Relaxed) != NOBODY
    }

    /// Records that the message at the head of a ring is about to be delivered. The message counts
    /// as offering its slot until the guard ends.
    #[inline(always)]
    pub(super) fn begin<'r>(
        &'r self,
        requester: Rank,
        slot: *mut u8,
        ring: &'r mut Consumer<RingView>,
        frame: Frame,
    ) -> ReplySlotGuard<'r> {
        self.slot.store(slot, Ordering::Relaxed);
        self.requester.store(requester, Ordering::Relaxed);
        ReplySlotGuard {
            reply_slots: self,
            ring,
            frame,
        }
    }
}

/// Guards the delivery of a message that offers its slot.
pub(super) struct ReplySlotGuard<'r> {
    reply_slots: &'r ReplySlots,
    ring: &'r mut Consumer<RingView>,
    frame: Frame,
}

impl ReplySlotGuard<'_> {
    /// Ends the delivery normally, once the sink has returned.
    #[inline(always)]
    pub(super) fn end(self) {
        self.reply_slots.requester.store(NOBODY, Ordering::Relaxed);
        std::mem::forget(self);
    }
}

impl Drop for ReplySlotGuard<'_> {
    /// Runs if the sink has panicked. If the message's slot already holds a reply, releases the
    /// message, because it is no longer valid and must not block the ring.
    #[cold]
    fn drop(&mut self) {
        if self.reply_slots.requester.swap(NOBODY, Ordering::Relaxed) == NOBODY {
            self.ring.release(self.frame);
        }
    }
}

impl<M: Mode> Shm<M> {
    /// Offers a message's slot to `target` if an offer is due. Returns whether the slot was
    /// offered. The slot must have been reserved and not yet committed.
    #[inline(always)]
    pub(super) fn offer_slot(&self, target: Rank, producer: &Producer<RingView>) -> bool {
        let slots = &self.reply_slots;
        if M::PARALLEL || !self.is_offer_due(target, producer) {
            return false;
        }
        slots.target_rank.store(target, Ordering::Relaxed);
        slots.pause.store(MIN_INTERVAL, Ordering::Relaxed);
        // SAFETY: the caller got the ring from a `Way`, so the ring lives as long as the network.
        unsafe { slots.ring.set(producer) };
        slots.delay.begin();
        self.ready_table.set_reply(Some(producer.offer()));
        true
    }

    /// Counts a message that is about to be sent, and returns whether its slot should be offered.
    #[inline(always)]
    fn is_offer_due(&self, target: Rank, producer: &Producer<RingView>) -> bool {
        let slots = &self.reply_slots;
        let pause = slots.pause.load(Ordering::Relaxed);
        if pause > 0 {
            slots.pause.store(pause - 1, Ordering::Relaxed);
            return false;
        }
        producer.is_of_one_thread()
            && self.config.reply_slots
            && target != self.rank
            && (slots.target_rank.load(Ordering::Relaxed) == NOBODY || self.may_offer_again())
    }

    /// Returns whether this rank may make an offer although the last one seems to be open. If a
    /// reply may still come, returns `false` and pauses the offers. If the offer went unanswered,
    /// does the same and also ends the open offer.
    #[inline(never)]
    fn may_offer_again(&self) -> bool {
        let reply_slots = &self.reply_slots;
        let Some(producer) = self.offering_producer() else {
            return true;
        };
        if !producer.has_no_reply() {
            reply_slots.pause.store(MIN_INTERVAL, Ordering::Relaxed);
            return false;
        }
        let misses = reply_slots.misses.load(Ordering::Relaxed);
        reply_slots
            .misses
            .store((misses + 1).min(MAX_MISSES), Ordering::Relaxed);
        reply_slots.pause.store(1 << misses, Ordering::Relaxed);
        self.end_wait();
        false
    }

    /// Returns this rank's end of the ring with the slot that it offers.
    fn offering_producer(&self) -> Option<&Producer<RingView>> {
        let slots = &self.reply_slots;
        let is_offering = slots.target_rank.load(Ordering::Relaxed) != NOBODY;
        slots.ring.get().filter(|_| is_offering)
    }

    fn end_wait(&self) {
        self.reply_slots
            .target_rank
            .store(NOBODY, Ordering::Relaxed);
        self.ready_table.set_reply(None);
    }

    /// Sends a reply in the slot of the message being delivered. Returns `false` if that message
    /// offers no slot to this target, if the reply does not fit, or if this rank has never sent to
    /// the reply's index.
    #[inline(always)]
    pub(super) fn reply_in_slot(&self, inject: &Inject<'_>) -> bool {
        let reply_slots = &self.reply_slots;
        if M::PARALLEL || reply_slots.requester.load(Ordering::Relaxed) != inject.target {
            return false;
        }
        let length = inject.head.len() + inject.body.len();
        // This rank knows that the index is open at the peer only if it has already sent something
        // to that index.
        let peer = self.peers.get(inject.target as usize);
        let Some(peer) =
            peer.filter(|peer| length <= MOST && peer.known_ring(inject.index).is_some())
        else {
            return false;
        };
        reply_slots.requester.store(NOBODY, Ordering::Relaxed);
        let slot = reply_slots.slot.load(Ordering::Relaxed);
        // SAFETY: `slot` is the slot of the message being delivered, in this rank's mapping. The
        // slot is not released while the `ReplySlotGuard` lives, and `requester` shows that the
        // guard is alive. The message has already been copied, so nothing else refers to the slot.
        // Header and payload fit into it, and the word is aligned.
        let word = unsafe {
            self.write_compact(slot, inject);
            &*slot.cast::<AtomicU64>()
        };
        ring::publish_reply(word, Frame::new(1, PUT_COMPACT, inject.index.0));
        self.ring_bell(peer);
        self.note_sent();
        true
    }

    /// Returns whether a reply has arrived and not yet been taken.
    #[inline(always)]
    pub(super) fn is_replied(&self) -> bool {
        !M::PARALLEL && self.ready_table.reply().is_some()
    }

    /// Returns the queue to poll for a reply that has arrived, or [`Ready::NONE`] if none has. If
    /// this rank has nothing else to do (`is_idle`), delays the first poll after an offer.
    #[inline(always)]
    pub(super) fn reply_ready(&self, is_idle: bool) -> Ready {
        let slots = &self.reply_slots;
        if M::PARALLEL || slots.target_rank.load(Ordering::Relaxed) == NOBODY {
            return Ready::NONE;
        }
        if is_idle {
            slots.delay.before_poll(|| self.is_replied());
        }
        let Some(frame) = self.ready_table.reply() else {
            return Ready::NONE;
        };
        slots.delay.seen();
        // If the frame belongs to no queue, polling any queue detects the protocol error.
        self.queue_of(frame).map_or(Ready::ALL, ready_of)
    }

    /// Returns the number of the queue to which a reply with this frame belongs. A reply is a
    /// compact put of one slot to an open index; anything else is the peer's fault.
    #[inline(always)]
    fn queue_of(&self, frame: Frame) -> Option<usize> {
        let is_right = frame.kind == PUT_COMPACT && frame.slots() == 1;
        let index = self.indices.get(usize::from(frame.index))?;
        let number = usize::from(index.queue.load(Ordering::Relaxed)).checked_sub(1);
        number.filter(|_| is_right)
    }

    /// Takes and delivers the reply, if one has arrived for this queue. Returns the number of
    /// events.
    #[inline(always)]
    pub(super) fn take_reply<S: Sink>(
        &self,
        number: usize,
        queue: &Queue<M>,
        inbox: &mut Inbox,
        sink: &mut S,
    ) -> Option<u32> {
        let Some((producer, (slot, frame))) = self
            .offering_producer()
            .and_then(|producer| Some((producer, producer.reply()?)))
        else {
            self.miss_reply();
            return None;
        };
        match self.queue_of(frame) {
            Some(to) if to != number => return None,
            Some(_) if inbox.deferred.is_pending() || !sink.is_ready() => return None,
            Some(_) => {}
            None => {
                self.refuse_reply(producer);
                return None;
            }
        }
        let source = self.reply_slots.target_rank.load(Ordering::Relaxed);
        let slot = producer.slots().address(slot);
        // The slot is copied, because the sink may send the next request, which may overwrite the
        // slot. SAFETY: the address is that of an aligned slot of a ring, which is not written
        // before its reply has been taken. Any bits are valid bytes.
        let copy = unsafe { slot.cast::<Slot>().read() };
        producer.end_offer();
        self.reply_slots.delay.end();
        self.reply_slots.misses.store(0, Ordering::Relaxed);
        self.reply_slots.pause.store(0, Ordering::Relaxed);
        self.end_wait();
        let slot = copy.0.as_ptr();
        if self.deliver_put(number, queue, slot, frame, Source::Only(source), sink) {
            return Some(1);
        }
        Some(self.deliver_reply_generally(number, queue, inbox, slot, frame, source, sink))
    }

    /// Ends the offer if the word looks like a reply but the ring has since ruled out a reply.
    #[cold]
    fn miss_reply(&self) {
        if self.offering_producer().is_none_or(Producer::has_no_reply) {
            self.end_wait();
        }
    }

    /// Drops a malformed reply.
    #[cold]
    fn refuse_reply(&self, producer: &Producer<RingView>) {
        let source = self.reply_slots.target_rank.load(Ordering::Relaxed);
        self.statistics.note_bad(Some(source));
        producer.end_offer();
        self.end_wait();
    }

    /// Delivers a reply that the fast path does not take.
    #[cold]
    #[allow(clippy::too_many_arguments)]
    fn deliver_reply_generally(
        &self,
        number: usize,
        queue: &Queue<M>,
        inbox: &mut Inbox,
        slot: *const u8,
        frame: Frame,
        source: Rank,
        sink: &mut dyn Sink,
    ) -> u32 {
        let mut budget = PollBudget::new(sink, 1);
        // SAFETY: the slot is a copy, aligned to 64 bytes, and any bits are a valid header.
        let header = unsafe { Header::read_compact(slot) };
        let message = Message {
            slot,
            frame,
            source,
        };
        let taken = match header.source == source {
            true => self.take(
                number,
                queue,
                &message,
                &header,
                &mut inbox.deferred,
                &mut budget,
            ),
            false => Taken::Bad,
        };
        let events = budget.count;
        if !matches!(taken, Taken::Done) {
            self.statistics.note_bad(Some(source));
        }
        if inbox.deferred.is_pending() {
            self.watch_anyway(inbox);
        }
        events
    }
}
