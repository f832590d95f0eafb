//! What a poll does with puts.

use std::sync::atomic::Ordering;
use std::{ptr, slice};

use conduit_core::ni::{Event, MeEvents, Outcome, PtIndex, PutEvent, Rank, Sink};
use conduit_core::threads::{Lock, Mode};

use crate::ring::{Frame, SLOT};

use super::match_list::{Incoming, Place, Want};
use super::message::{ACK, COMPACT, Compact, FULL, Header, PUT, SEND, STAGED, WANT_ACK, WANT_SEND};
use super::receive::{Later, Message, Out, Queue, Taken, mark};
use super::{Shm, me_id, staging};

impl<M: Mode> Shm<M> {
    /// Delivers a compact put in the common case: see [`MatchList::accept_quickly`](super::match_list::MatchList). False
    /// if it isn't one; nothing has happened then.
    #[inline]
    pub(super) fn take_quickly<S: Sink>(
        &self,
        number: usize,
        queue: &Queue<M>,
        only_source: Option<Rank>,
        slot: *const u8,
        frame: Frame,
        out: &mut Out<'_, S>,
    ) -> bool {
        // A copy, not a reference: what is checked below is what is used, whatever a broken peer writes meanwhile.
        // SAFETY: the first slot of a message that was found committed and is not released before we return; aligned to
        // 64, and any bits are a `Compact`. The tag, which only its producer writes, is not used.
        let header = unsafe { slot.cast::<Compact>().read() };
        let length = header.length as usize;
        let Some(index) = self.indices.get(usize::from(frame.index)) else {
            return false;
        };
        if length > usize::from(frame.slots) * SLOT - COMPACT
            || only_source.is_some_and(|source| source != header.source)
            || header.source >= self.size
            || index.queue.load(Ordering::Relaxed) as usize != number + 1
        {
            return false;
        }
        let quick = {
            let mut list = index.list.lock();
            let Some(quick) = list.accept_quickly(header.source, header.match_bits, length) else {
                return false;
            };
            // Under the list's lock: see `find`.
            let me = me_id(frame.index, quick.id);
            queue.delivering.store(mark(me.0), Ordering::Relaxed);
            quick
        };
        out.count += 1;
        out.sink.event(Event::Put(PutEvent {
            index: PtIndex(frame.index),
            tag: quick.tag,
            source: header.source,
            match_bits: header.match_bits,
            hdr_data: header.hdr_data,
            offset: quick.offset,
            length,
            requested: length,
            // SAFETY: the payload lies within the message, as just checked, which stays until the sink has returned.
            data: unsafe { slice::from_raw_parts(slot.add(COMPACT), length) },
        }));
        queue.delivering.store(0, Ordering::Release);
        true
    }

    /// Places and delivers a put. Gives how it ended and the bytes placed.
    #[inline]
    #[allow(clippy::too_many_arguments)]
    pub(super) fn take_put<S: Sink + ?Sized>(
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

    pub(super) fn take_full_put<S: Sink + ?Sized>(
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
