//! Delivery of a single message. A rank often waits for just one message, so each instruction
//! before the message's handler counts.

use std::slice;
use std::sync::atomic::Ordering;

use ::lanes::Sampler;
use conduit_core::ni::{PtIndex, PutEvent, Rank, Sink};
use conduit_core::threads::{Lock, Mode};

use crate::ring::{Frame, SLOT};

use super::Shm;
use super::message::{COMPACT, Compact, PUT_COMPACT, PUT_REPLY_SLOT, before_payload};
use super::receive::{Inbound, Inbox, Queue, mark};
use super::reply_slots::ReplySlotGuard;

/// A copy of a slot.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Slot(pub(super) [u8; SLOT]);

/// The possible sources of a ring's messages.
pub(super) enum Source<'i> {
    /// The ring belongs to this rank.
    Only(Rank),
    /// The ring belongs to all ranks, and its messages are sampled.
    Any(&'i mut Sampler),
}

impl<M: Mode> Shm<M> {
    /// Delivers one message from a ring that was empty before. Returns `false` if there is no
    /// message, or if it needs the general path.
    ///
    /// The slot after the message is not read. Reading it would fetch a line that the sender is
    /// about to write, and all of the sender's stores, including those of a reply or of its next
    /// request, would wait for that line. Messages that have arrived by the next poll are delivered
    /// by [`Self::deliver_run`].
    #[inline(always)]
    pub(super) fn poll_single<S: Sink>(
        &self,
        number: usize,
        queue: &Queue<M>,
        inbox: &mut Inbox,
        sink: &mut S,
    ) -> bool {
        if inbox.deferred.is_pending() {
            return false;
        }
        inbox.seek();
        let place = inbox.next;
        let behind = inbox.behind(place);
        let Some(inbound) = inbox.rings.get_mut(place).filter(|ring| ring.watched) else {
            return false;
        };
        let Some(head) = inbound.ring.peek() else {
            return false;
        };
        let sent = self.sent();
        if !sink.is_ready() || !self.deliver_single(number, queue, inbound, head, sink) {
            return false;
        }
        inbox.next = behind;
        // The head is not published here but by the next poll, so that the effects of this message
        // need not wait for its publication.
        if head.1.slots() > 1 {
            self.coalesce(inbound, sent);
        }
        self.watch(inbound, &inbox.deferred);
        true
    }

    /// Delivers the last of several messages. This is not inlined, so that the loop over messages
    /// has the registers to itself.
    #[inline(never)]
    pub(super) fn deliver_last<S: Sink>(
        &self,
        number: usize,
        queue: &Queue<M>,
        inbound: &mut Inbound,
        head: (usize, Frame),
        sink: &mut S,
    ) -> bool {
        self.deliver_single(number, queue, inbound, head, sink)
    }

    /// Delivers one compact put in the common case. Unlike [`Self::deliver_run`], this does not
    /// prepare for further messages, which would take longer than everything else. Returns `false`
    /// if the message needs the general path.
    #[inline(always)]
    fn deliver_single<S: Sink>(
        &self,
        number: usize,
        queue: &Queue<M>,
        inbound: &mut Inbound,
        (slot, frame): (usize, Frame),
        sink: &mut S,
    ) -> bool {
        let slot = inbound.ring.slots().address(slot);
        // A reply may be written into an offered slot during delivery, so such a slot is copied.
        let copy: Slot;
        let (from, guard) = match frame.kind {
            PUT_COMPACT => (slot.cast_const(), None),
            PUT_REPLY_SLOT if !M::PARALLEL && frame.slots() == 1 => {
                let Some(source) = inbound.source else {
                    return false;
                };
                // SAFETY: the slot is the first of a message that was found committed and has not
                // been released. It is aligned to 64 bytes, and any bits are a valid `Slot`.
                copy = unsafe { slot.cast::<Slot>().read() };
                // Fetches the reply's line for writing, by a store that changes nothing. A prefetch
                // instruction would have no effect, because the line has already been read. SAFETY:
                // `last` is the slot's last word, which is aligned. The sender writes the slot
                // again only once the head has passed it and any reply has been taken. Neither can
                // happen before `begin`, because until then nothing is released and no reply is
                // written.
                unsafe {
                    let last = slot.add(SLOT - size_of::<u32>()).cast::<u32>();
                    last.write_volatile(last.read_volatile());
                }
                let guard = self
                    .reply_slots
                    .begin(source, slot, &mut inbound.ring, frame);
                (copy.0.as_ptr(), Some(guard))
            }
            _ => return false,
        };
        let source = match inbound.source {
            Some(only) => Source::Only(only),
            None => Source::Any(&mut inbound.sampler),
        };
        let done = self.deliver_put(number, queue, from, frame, source, sink);
        let _: Option<()> = guard.map(ReplySlotGuard::end);
        if done {
            inbound.ring.release(frame);
        }
        done
    }

    /// Delivers a compact put from `source`.
    #[inline(always)]
    pub(super) fn deliver_put<S: Sink>(
        &self,
        number: usize,
        queue: &Queue<M>,
        slot: *const u8,
        frame: Frame,
        source: Source<'_>,
        sink: &mut S,
    ) -> bool {
        // SAFETY: `slot` points to a copy of a message's first slot, or to the first slot of a
        // message that was found committed and is neither released nor written before the sink has
        // returned. It is aligned to 64 bytes, and any bits are a valid `Compact`.
        let header = unsafe { slot.cast::<Compact>().read() };
        let length = header.length as usize;
        let is_source = match source {
            Source::Only(only) => header.source == only,
            Source::Any(sampler) => {
                // Samples messages, and weights each sample by the message's number of slots.
                if sampler.pass(1) > 0 {
                    self.note_traffic(header.source, frame.slots().into());
                }
                header.source < self.size
            }
        };
        let source = header.source;
        let Some(index) = self.indices.get(usize::from(frame.index)) else {
            return false;
        };
        if length > usize::from(frame.slots()) * SLOT - COMPACT
            || !is_source
            || index.queue.load(Ordering::Relaxed) as usize != number + 1
        {
            return false;
        }
        let hit = {
            let mut list = index.list.lock();
            let Some(hit) = list.accept_fast(source, header.match_bits, length) else {
                return false;
            };
            // The mark is stored under the list's lock, for the reason given in `find`.
            let me = hit.id.me(frame.index);
            queue.delivering.store(mark(me.0), Ordering::Relaxed);
            hit
        };
        sink.put(PutEvent {
            index: PtIndex(frame.index),
            tag: hit.tag,
            source,
            match_bits: header.match_bits,
            hdr_data: header.hdr_data,
            offset: hit.offset,
            length,
            requested: length,
            // SAFETY: the bytes lie within the message, as just checked, and the message does not
            // change before the sink returns.
            data: unsafe { slice::from_raw_parts(slot.add(before_payload(length)), length) },
        });
        // The release orders this thread's accesses to the entry's memory before the load in
        // `me_unlink` that finds no mark.
        queue.delivering.store(0, Ordering::Release);
        true
    }
}
