//! Delivery of gets and atomics, and their replies.

use std::ptr;

use conduit_core::ni::{Event, MeEvents, Outcome, Sink, apply_atomic, apply_atomic_at};
use conduit_core::process_memory;
use conduit_core::shared;
use conduit_core::threads::Mode;

use crate::ring::Frame;
use conduit_portals::matching::{Incoming, Location, MessageKind, atomic_of, outcome_code};

use super::Shm;
use super::message::{ACK, FETCH, FULL, Header, REPLY, REPLY_INLINE, slots_for};
use super::receive::{DeferredEvents, Message, PollBudget, Queue, Taken};

impl<M: Mode> Shm<M> {
    /// Returns the completion of the operation that `asked` describes.
    #[inline]
    pub(super) fn completion(
        &self,
        kind: u8,
        asked: &Header,
        outcome: Outcome,
        length: usize,
        value: u64,
        slots: u32,
    ) -> Header {
        let frame = Frame::new(slots as u16, kind, outcome_code(outcome));
        Header {
            frame,
            length: length as u32,
            source: self.rank,
            match_bits: value,
            remote_offset: 0,
            ..*asked
        }
    }

    /// Delivers a get. Room for the reply is reserved first, so that nothing is left half done if
    /// there is no room. The reply is sent before the event is raised.
    pub(super) fn take_get<S: Sink + ?Sized>(
        &self,
        number: usize,
        queue: &Queue<M>,
        message: &Message,
        header: &Header,
        deferred: &mut DeferredEvents,
        budget: &mut PollBudget<'_, S>,
    ) -> Option<Taken> {
        let initiator = self.peers.get(message.source as usize)?;
        let length = header.length as usize;
        let inline = header.flags & REPLY_INLINE != 0;
        let destination = match inline {
            true if length > self.config.inline_size => return None,
            true => ptr::null_mut(),
            false => initiator.mapping.range(header.reference, length)?,
        };
        let slots = slots_for(FULL, if inline { length } else { 0 });
        let eq = usize::from(header.eq);
        let Some(producer) = self.producer(message.source, eq) else {
            // While this rank leaves a lane, the queue exists but has no room.
            return self.base(message.source, eq).map(|_| Taken::Stalled);
        };
        if slots > producer.max_slots() {
            return None;
        }
        let Some(reserved) = producer.reserve(slots) else {
            return Some(Taken::Stalled);
        };
        let incoming = Incoming {
            kind: MessageKind::Get,
            source: message.source,
            match_bits: header.match_bits,
            offset: header.remote_offset,
            length,
        };
        let Some(found) = self.find(number, queue, message, &incoming) else {
            producer.abandon(reserved, slots);
            return None;
        };
        let slot = producer.slots().address(producer.slot(reserved));
        let (mut outcome, mut moved) =
            found.map_or((Outcome::NoMatch, 0), |hit| (hit.outcome, hit.length));
        // SAFETY: the slots were reserved for an inline reply, which begins with a header of `FULL`
        // bytes.
        let to = unsafe { if inline { slot.add(FULL) } else { destination } };
        match found.map(|hit| hit.location) {
            // SAFETY: the source lies within the entry, the destination lies within the reservation
            // or within the initiator's memory, and each has at least `moved` bytes. `copy` allows
            // the overlap that a get from oneself may have.
            Some(Location::Region(offset)) => unsafe {
                shared::copy(self.own().at(offset), to, moved);
            },
            Some(Location::Process(address)) => {
                let this = process_memory::this();
                // SAFETY: the destination lies within the reservation or within the initiator's
                // memory and has at least `moved` bytes.
                if unsafe { process_memory::read(to, this, address, moved) }.is_err() {
                    (outcome, moved) = (Outcome::OutOfRange, 0);
                }
            }
            Some(Location::Managed | Location::Nothing) | None => {}
        }
        let reply = self.completion(REPLY, header, outcome, moved, 0, slots);
        // SAFETY: `slot` is the first slot of this call's reservation.
        unsafe { reply.write(slot) };
        producer.commit(reserved, reply.frame);
        self.ring_bell(initiator);
        if let Some(hit) = found {
            if outcome == Outcome::Done && hit.events.contains(MeEvents::OPERATION) {
                budget.event(Event::Get {
                    tag: hit.tag,
                    source: message.source,
                    match_bits: header.match_bits,
                    offset: hit.offset,
                    length: hit.length,
                });
            }
            self.found(queue, &hit, deferred);
        }
        Some(Taken::Done)
    }

    pub(super) fn take_atomic<S: Sink + ?Sized>(
        &self,
        number: usize,
        queue: &Queue<M>,
        message: &Message,
        header: &Header,
        deferred: &mut DeferredEvents,
        budget: &mut PollBudget<'_, S>,
    ) -> Option<Taken> {
        let (op, ty) = atomic_of(header.length)?;
        let incoming = Incoming {
            kind: MessageKind::Atomic,
            source: message.source,
            match_bits: header.match_bits,
            offset: header.remote_offset,
            length: ty.size(),
        };
        let found = self.find(number, queue, message, &incoming)?;
        let (mut outcome, mut value, mut done) = (Outcome::NoMatch, 0, 0);
        if let Some(hit) = found {
            outcome = hit.outcome;
            let (operand, comparand) = (header.hdr_data, header.reference);
            let old = match hit.location {
                Location::Region(offset) => {
                    let address = self.own().at(offset);
                    let is_aligned = address.addr().is_multiple_of(ty.size());
                    // SAFETY: the address is aligned and lies within the entry, which lies in a
                    // region. The contract of atomics requires the program to make all concurrent
                    // accesses to the integer atomic.
                    is_aligned.then(|| unsafe { apply_atomic(address, op, ty, operand, comparand) })
                }
                // SAFETY: the caller that appended the entry guarantees that the address is valid.
                Location::Process(address) => unsafe {
                    apply_atomic_at(address, op, ty, operand, comparand)
                },
                Location::Managed | Location::Nothing => None,
            };
            match old {
                Some(old) => (value, done) = (old, ty.size()),
                None => outcome = Outcome::OutOfRange,
            }
            if outcome == Outcome::Done && hit.events.contains(MeEvents::OPERATION) {
                budget.event(Event::Atomic {
                    tag: hit.tag,
                    source: message.source,
                    match_bits: header.match_bits,
                    offset: hit.offset,
                });
            }
            self.found(queue, &hit, deferred);
        }
        let kind = if header.flags & FETCH != 0 {
            REPLY
        } else {
            ACK
        };
        Some(Taken::Completed(
            self.completion(kind, header, outcome, done, value, 1),
        ))
    }
}
