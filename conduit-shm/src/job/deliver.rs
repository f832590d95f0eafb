//! Delivery of puts.

use std::slice;
use std::sync::atomic::Ordering;

use conduit_core::ni::{Event, MeEvents, Outcome, PtIndex, PutEvent, Rank, Sink};
use conduit_core::process_memory;
use conduit_core::shared;
use conduit_core::threads::{Lock, Mode};

use crate::ring::{Consumer, RingView, SLOT, SlotRun};
use conduit_portals::matching::{Incoming, Location, MessageKind, Run, rounded};

use super::message::{
    ACK, COMPACT, Compact, FULL, Header, PUT, PUT_COMPACT, SEND, STAGED, WANT_ACK, WANT_SEND,
    before_payload,
};
use super::receive::{DeferredEvents, Inbound, Message, PollBudget, Queue, Sources, Taken, mark};
use super::{Shm, staging};

/// A batch of similar messages of a run. They have the same frame, length, source and match bits as
/// the first message, so the checks made on it hold for all of them.
struct PutBatch<'r> {
    ring: &'r Consumer<RingView>,
    slots: SlotRun,
    /// The first message's header.
    header: Compact,
    tag: u64,
    /// The next message's offset within the entry.
    offset: u64,
    /// The number of bytes before the payload.
    before: usize,
    /// The number of messages that may still be delivered.
    left: u32,
}

impl PutBatch<'_> {
    /// Returns the next message. Ends the delivery of the previous one.
    #[inline(always)]
    fn next(&mut self) -> Option<PutEvent<'_>> {
        self.ring.release_last(&mut self.slots);
        if self.left == 0 {
            return None;
        }
        let slot = self.ring.peek_run(&self.slots)?;
        // The header is read only now that `peek_run` has found the next message. Reading further
        // ahead would take a cache line away from the sender that is writing it.
        let slot = self.ring.slots().address(slot);
        // SAFETY: the slot is the first of a message that was found committed and has not been
        // released. It is aligned to 64 bytes, and any bits are a valid `Compact`. The header is
        // copied rather than borrowed, so that the checked values are the ones used even if a
        // faulty peer writes meanwhile.
        let header = unsafe { slot.cast::<Compact>().read() };
        if !header.is_like(&self.header) {
            return None;
        }
        let (offset, length) = (self.offset, self.header.length as usize);
        self.offset += rounded(length) as u64;
        self.left -= 1;
        self.slots.pass();
        Some(PutEvent {
            index: PtIndex(self.slots.frame().index),
            tag: self.tag,
            source: self.header.source,
            match_bits: self.header.match_bits,
            hdr_data: header.hdr_data,
            offset,
            length,
            requested: length,
            // SAFETY: the payload lies within the message, because its frame and length equal those
            // of the first message, for which this was checked. The message is not overwritten
            // before it is released.
            data: unsafe { slice::from_raw_parts(slot.add(self.before), length) },
        })
    }
}

impl<M: Mode> Shm<M> {
    /// Delivers compact puts in the common case: at most `most` consecutive puts, from the head of
    /// the ring, into the same managed entry. The checks that apply to all of them are made once,
    /// on the first. Returns the number of puts delivered.
    ///
    /// This is not inlined, so that the message loop has the registers to itself.
    #[inline(never)]
    pub(super) fn deliver_run<S: Sink>(
        &self,
        number: usize,
        queue: &Queue<M>,
        inbound: &mut Inbound,
        most: u32,
        sink: &mut S,
    ) -> u32 {
        let ring = &mut inbound.ring;
        let Some((_, first)) = ring.peek().filter(|(_, frame)| frame.kind == PUT_COMPACT) else {
            return 0;
        };
        let Some((mut run, sources)) = self.begin_run(number, queue, first.index, inbound.source)
        else {
            return 0;
        };
        let mut left = most;
        while left > 0
            && let Some((slot, frame)) = ring.peek()
            && frame.use_word() == first.use_word()
        {
            let slot = ring.slots().address(slot);
            // SAFETY: the slot is the first of a message that was found committed and is not
            // released before the sink has returned. It is aligned to 64 bytes, and any bits are a
            // valid `Compact`. The first word is not used. The header is copied rather than
            // borrowed, so that the checked values are the ones used even if a faulty peer writes
            // meanwhile.
            let header = unsafe { slot.cast::<Compact>().read() };
            if header.length as usize > usize::from(frame.slots()) * SLOT - COMPACT
                || !sources.contains(header.source)
                || !run.matches(header.match_bits)
            {
                break;
            }
            let length = header.length as usize;
            let most = run.room_for(left, length);
            let mut batch = PutBatch {
                ring,
                slots: ring.run(frame),
                header,
                tag: run.tag,
                offset: run.offset(),
                before: before_payload(length),
                left: most,
            };
            while sink.is_ready()
                && let Some(put) = batch.next()
            {
                sink.put(put);
            }
            let (slots, delivered) = (batch.slots, most - batch.left);
            ring.release_run(slots);
            run.charge(delivered, length);
            left -= delivered;
            if delivered == 0 {
                // The entry has no room for the first message.
                break;
            }
        }
        self.indices[usize::from(first.index)]
            .list
            .lock()
            .end_run(&run);
        // SYNC: the release orders this thread's accesses to the entry's memory before the load in
        // `me_unlink` that finds no mark.
        queue.delivering.store(0, Ordering::Release);
        most - left
    }

    /// Begins a run on the list of this index. Returns the run and the sources from which it
    /// accepts messages.
    #[inline]
    fn begin_run(
        &self,
        number: usize,
        queue: &Queue<M>,
        index: u8,
        only_source: Option<Rank>,
    ) -> Option<(Run, Sources)> {
        let found = self.indices.get(usize::from(index))?;
        if found.queue.load(Ordering::Relaxed) as usize != number + 1 {
            return None;
        }
        let mut list = found.list.lock();
        let run = list.begin_run()?;
        // The mark is stored under the list's lock, for the reason given in `find`.
        let me = run.id.me(index);
        queue.delivering.store(mark(me.0), Ordering::Relaxed);
        let all = Sources::of(only_source, self.size);
        let sources = run.source.map_or(all, |source| all.and_only(source));
        Some((run, sources))
    }

    /// Places and delivers a put. Returns its outcome and the number of bytes placed, or `None` if
    /// the index does not belong to this queue.
    #[inline]
    #[allow(clippy::too_many_arguments)]
    pub(super) fn take_put<S: Sink + ?Sized>(
        &self,
        number: usize,
        queue: &Queue<M>,
        message: &Message,
        header: &Header,
        payload: *const u8,
        deferred: &mut DeferredEvents,
        budget: &mut PollBudget<'_, S>,
    ) -> Option<(Outcome, usize)> {
        let incoming = Incoming {
            kind: MessageKind::Put,
            source: message.source,
            match_bits: header.match_bits,
            offset: header.remote_offset,
            length: header.length as usize,
        };
        let Some(mut hit) = self.find(number, queue, message, &incoming)? else {
            return Some((Outcome::NoMatch, 0));
        };
        let mut data: &[u8] = &[];
        match hit.location {
            // SAFETY: the bytes lie in the message's slots, or in memory that its owner must not
            // write before the completion. The slots are released, and the completion is posted,
            // only after the sink has returned.
            Location::Managed => data = unsafe { slice::from_raw_parts(payload, hit.length) },
            // SAFETY: the `hit.length` bytes lie within the entry, and `me_append` has checked that
            // the entry lies within a region. `copy` allows the overlap that a put to oneself may
            // have.
            Location::Region(offset) => unsafe {
                shared::copy(payload, self.own().at(offset), hit.length);
            },
            Location::Process(address) => {
                let this = process_memory::this();
                // SAFETY: the payload stays valid until the slots are released and the completion
                // is posted, as for a managed entry. The caller that appended the entry guarantees
                // that the address is valid.
                if unsafe { process_memory::write(this, address, payload, hit.length) }.is_err() {
                    hit.outcome = Outcome::OutOfRange;
                    hit.length = 0;
                }
            }
            Location::Nothing => {}
        }
        if hit.outcome == Outcome::Done && hit.events.contains(MeEvents::OPERATION) {
            budget.event(Event::Put(PutEvent {
                index: PtIndex(message.frame.index),
                tag: hit.tag,
                source: message.source,
                match_bits: header.match_bits,
                hdr_data: header.hdr_data,
                offset: hit.offset,
                length: hit.length,
                requested: incoming.length,
                data,
            }));
        }
        self.found(queue, &hit, deferred);
        Some((hit.outcome, hit.length))
    }

    pub(super) fn take_full_put<S: Sink + ?Sized>(
        &self,
        number: usize,
        queue: &Queue<M>,
        message: &Message,
        header: &Header,
        deferred: &mut DeferredEvents,
        budget: &mut PollBudget<'_, S>,
    ) -> Option<Taken> {
        let initiator = &self.peers.get(message.source as usize)?.mapping;
        let payload = match message.frame.kind {
            PUT => message.payload(FULL, header.length)?,
            _ => initiator.range(header.reference, header.length as usize)?,
        };
        let (outcome, length) =
            self.take_put(number, queue, message, header, payload, deferred, budget)?;
        if header.flags & STAGED != 0 && !staging::give_back(initiator, header.piece) {
            return None;
        }
        let kind = match header.flags & (WANT_ACK | WANT_SEND) {
            0 => return Some(Taken::Done),
            WANT_SEND => SEND,
            _ => ACK,
        };
        Some(Taken::Completed(
            self.completion(kind, header, outcome, length, 0, 1),
        ))
    }
}
