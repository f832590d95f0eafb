//! What a poll does with puts.

use std::{ptr, slice};

use conduit_core::ni::{Event, MeEvents, Outcome, PtIndex, PutEvent};
use conduit_core::threads::Mode;

use super::match_list::{Incoming, Place, Want};
use super::message::{ACK, FULL, Header, PUT, SEND, STAGED, WANT_ACK, WANT_SEND};
use super::receive::{Later, Message, Out, Queue, Taken};
use super::{Shm, staging};

impl<M: Mode> Shm<M> {
    /// Places and delivers a put. Gives how it ended and the bytes placed.
    #[inline]
    #[allow(clippy::too_many_arguments)]
    pub(super) fn take_put<S: FnMut(Event<'_>)>(
        &self,
        number: usize,
        queue: &Queue<M>,
        message: &Message,
        header: &Header,
        payload: *const u8,
        later: &mut Later,
        out: &mut Out<'_, S>,
    ) -> Option<(Outcome, usize)> {
        let incoming = Incoming {
            want: Want::Put,
            source: message.source,
            match_bits: header.match_bits,
            offset: header.remote_offset,
            length: header.length as usize,
        };
        let Some(hit) = self.find(number, queue, message, &incoming)? else {
            return Some((Outcome::NoMatch, 0));
        };
        let mut data: &[u8] = &[];
        match hit.place {
            // SAFETY: the bytes lie in the slots, or in memory that its owner doesn't write before the completion; neither
            // has happened before the sink returns.
            Place::Managed => data = unsafe { slice::from_raw_parts(payload, hit.length) },
            // SAFETY: `length` bytes there lie within the entry, which `me_append` has found within a region. A put to
            // oneself may overlap.
            Place::Region(offset) => unsafe {
                ptr::copy(payload, self.own().at(offset), hit.length);
            },
            Place::Nothing => {}
        }
        if hit.outcome == Outcome::Done && hit.events.contains(MeEvents::OPERATION) {
            out.event(Event::Put(PutEvent {
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
        self.found(queue, &hit, later);
        Some((hit.outcome, hit.length))
    }

    pub(super) fn take_full_put<S: FnMut(Event<'_>)>(
        &self,
        number: usize,
        queue: &Queue<M>,
        message: &Message,
        header: &Header,
        later: &mut Later,
        out: &mut Out<'_, S>,
    ) -> Option<Taken> {
        let initiator = &self.peers.get(message.source as usize)?.mapping;
        let payload = match message.frame.kind {
            PUT => message.payload(FULL, header.length)?,
            _ => initiator.range(header.reference, header.length as usize)?,
        };
        let (outcome, length) =
            self.take_put(number, queue, message, header, payload, later, out)?;
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
