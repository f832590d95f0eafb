//! The initiator's half of every operation: it checks the arguments, reserves slots in the target's
//! queue and writes the message.
//!
//! | operation | how the bytes travel |
//! |---|---|
//! | inject | in the queue |
//! | put, short | in the queue |
//! | put, from a region | not at all: the target reads them in place |
//! | put, other | through a staging piece |
//! | get, short | in the reply |
//! | get, into a region | not at all: the target writes them to their destination |
//! | get, other | through a staging piece |

use std::ptr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use conduit_core::ni::{
    Ack, Atomic, EqId, Exchange, Get, Inject, NiError, PtIndex, Put, Rank, Submit,
};
use conduit_core::threads::Mode;

use crate::ring::{Frame, Producer, ReservedTags, RingView, SLOT};
use conduit_portals::matching::{atomic_code, no_such_index, over_limit};

use super::message::{
    ATOMIC, COMPACT, Compact, FETCH, FULL, GET, Header, NO_MD, PUT, PUT_COMPACT, PUT_REFERENCE,
    PUT_REPLY_SLOT, REPLY_INLINE, SEND, STAGED, WANT_ACK, WANT_SEND, before_payload, slots_for,
};
use super::{Peer, Shm, staging};

/// The destination of an operation.
struct Route<'a> {
    peer: &'a Peer,
    producer: &'a Producer<RingView>,
}

#[inline]
fn frame(slots: u32, kind: u8, index: PtIndex) -> Frame {
    Frame::new(slots as u16, kind, index.0)
}

impl<M: Mode> Shm<M> {
    /// Returns the ring for a peer's queue, or `None` if the peer has no such queue yet or this
    /// rank is leaving a lane of that queue.
    #[inline]
    pub(super) fn producer(&self, to: Rank, queue: usize) -> Option<&Producer<RingView>> {
        let way = self.peers.get(to as usize)?.ways.get(queue)?;
        match way.get() {
            Some(producer) => Some(producer),
            None => self.find_producer(to, queue),
        }
    }

    #[cold]
    fn find_producer(&self, to: Rank, queue: usize) -> Option<&Producer<RingView>> {
        let way = self.peers.get(to as usize)?.ways.get(queue)?;
        let chosen = self.choose_way(to, queue)?;
        // SAFETY: the producer is kept in the peer's `producers` or among the lanes' `ends`.
        // Neither drops a producer before the network, which owns the `Way`, is dropped.
        unsafe { way.set(&chosen) };
        way.get()
    }

    /// Returns this rank's end of the base ring of a peer's queue, through which it can send at any
    /// time.
    pub(super) fn base(&self, to: Rank, queue: usize) -> Option<&Arc<Producer<RingView>>> {
        let peer = self.peers.get(to as usize)?;
        let place = peer.producers.get(queue)?;
        if let Some(producer) = place.get() {
            return Some(producer);
        }
        let entry = peer.mapping.control().queues.get(queue)?;
        let ring = if self.shared_rings {
            0
        } else {
            self.rank as usize
        };
        let (view, extent) = peer.mapping.ring(entry, ring, self.shared_rings)?;
        peer.mapping.control().announce(entry, ring);
        let end = Producer::new(view, extent, self.discipline());
        Some(place.get_or_init(|| Arc::new(end)))
    }

    /// Returns the peer and the ring for one of its indices, or `None` while that index is not open
    /// or this rank is leaving a lane of its queue.
    #[inline]
    fn route(
        &self,
        operation: &'static str,
        target: Rank,
        index: PtIndex,
    ) -> Result<Option<Route<'_>>, NiError> {
        let Some(peer) = self.peers.get(target as usize) else {
            return Err(self.no_such_rank(operation, target));
        };
        let Some(ring) = peer.rings.get(usize::from(index.0)) else {
            return Err(no_such_index(operation, index));
        };
        let producer = match ring.get() {
            Some(producer) => Some(producer),
            None => self.find_ring(target, index),
        };
        Ok(producer.map(|producer| Route { peer, producer }))
    }

    /// Returns the ring for an index of a peer.
    #[cold]
    fn find_ring(&self, to: Rank, index: PtIndex) -> Option<&Producer<RingView>> {
        let peer = self.peers.get(to as usize)?;
        let index = usize::from(index.0);
        // SYNC (pt): the acquire pairs with the release store in `open_index`, because a queue is
        // published before an index leads to it.
        let queue = peer
            .mapping
            .control()
            .pt
            .get(index)?
            .load(Ordering::Acquire) as usize;
        let queue = queue.checked_sub(1)?;
        let found = self.producer(to, queue)?;
        let ring = peer.rings.get(index)?;
        // SAFETY: `find_producer` has returned this producer, which lives as long as the network.
        unsafe { ring.set(found) };
        Some(found)
    }

    #[cold]
    fn no_such_rank(&self, operation: &'static str, rank: Rank) -> NiError {
        NiError::NoSuchRank {
            operation,
            rank,
            size: self.size,
        }
    }

    #[inline(always)]
    pub(super) fn submit_inject(&self, inject: &Inject<'_>) -> Result<Submit, NiError> {
        let length = inject.head.len() + inject.body.len();
        if length > self.config.inject_size {
            return Err(over_limit(
                "inject",
                "length",
                length as u64,
                self.config.inject_size as u64,
            ));
        }
        if inject.exchange == Exchange::IsReply && self.reply_in_slot(inject) {
            return Ok(Submit::Posted);
        }
        let Some(route) = self.route("inject", inject.target, inject.index)? else {
            return Ok(Submit::Again);
        };
        let slots = slots_for(COMPACT, length);
        if slots == 1 && inject.exchange == Exchange::OneWay {
            route.producer.claim_ahead();
        }
        let Some(reserved) = route.producer.reserve(slots) else {
            return Ok(Submit::Again);
        };
        let slot = route
            .producer
            .slots()
            .address(route.producer.slot(reserved));
        // SAFETY: this call has reserved slots for the header and the payload.
        unsafe { self.write_compact(slot, inject) };
        let frame = if slots > 1 {
            let frame = frame(slots, PUT_COMPACT, inject.index);
            let head = before_payload(length);
            let body = head + inject.head.len();
            let reserved_tags = route.producer.reserved_tags(reserved);
            let clean = is_clean(inject.head, head, reserved_tags)
                && is_clean(inject.body, body, reserved_tags);
            if clean { frame.clean() } else { frame }
        } else {
            let offers = inject.exchange == Exchange::ExpectsReply
                && self.offer_slot(inject.target, route.producer);
            let kind = if offers { PUT_REPLY_SLOT } else { PUT_COMPACT };
            frame(1, kind, inject.index)
        };
        route.producer.commit(reserved, frame);
        self.ring_bell(route.peer);
        self.note_sent();
        Ok(Submit::Posted)
    }

    /// Writes a compact put except for the ring's word.
    ///
    /// # Safety
    /// The slots that the header and the payload need, from `slot` on, must be reserved for the
    /// caller.
    #[inline(always)]
    pub(super) unsafe fn write_compact(&self, slot: *mut u8, inject: &Inject<'_>) {
        let Inject { head, body, .. } = *inject;
        let length = head.len() + body.len();
        // The first slot is written last, because the target polls the first slot's line and would
        // take the line away between two stores. SAFETY: the caller guarantees that the slots are
        // reserved for it, and they hold the header and the payload.
        unsafe {
            let payload = slot.add(before_payload(length));
            if !body.is_empty() {
                ptr::copy_nonoverlapping(body.as_ptr(), payload.add(head.len()), body.len());
            }
            copy_words(head, payload);
            Compact::write(
                slot,
                length as u32,
                self.rank,
                inject.match_bits,
                inject.hdr_data,
            );
        }
    }

    /// # Safety
    /// Same as [`conduit_core::ni::Ni::put`].
    pub(super) unsafe fn submit_put(&self, put: &Put) -> Result<Submit, NiError> {
        let limit = self.config.put_limit();
        let bound = self
            .descriptors
            .piece("put", put.md, put.local_offset, put.length, limit)?;
        let Some(route) = self.route("put", put.target, put.index)? else {
            return Ok(Submit::Again);
        };
        // SAFETY: `piece` has checked that the offset lies within the descriptor.
        let source = unsafe { bound.base.add(put.local_offset) };
        let header = Header {
            length: put.length as u32,
            source: self.rank,
            match_bits: put.match_bits,
            hdr_data: put.hdr_data,
            remote_offset: put.remote_offset,
            token: put.token,
            md: put.md.0,
            eq: bound.eq.0,
            flags: if put.ack == Ack::Remote { WANT_ACK } else { 0 },
            ..Header::default()
        };
        if put.length <= self.config.inline_size {
            return Ok(self.put_inline(put, &route, header, source));
        }
        // A managed entry hands out the bytes in place, so they must be aligned to 16 bytes in the
        // region.
        let own = self.own();
        if let Some(offset) = own.region_offset_of(source, put.length)
            && source.addr().is_multiple_of(16)
        {
            let header = Header {
                frame: frame(1, PUT_REFERENCE, put.index),
                reference: offset as u64,
                flags: match put.ack {
                    Ack::Remote => WANT_ACK,
                    Ack::Local => WANT_SEND,
                },
                ..header
            };
            self.descriptors.start(put.md);
            if !self.post(&route, &header) {
                self.descriptors.finish(put.md.0);
                return Ok(Submit::Again);
            }
            return Ok(Submit::Posted);
        }
        let Some(piece) = self.staging.take(own) else {
            return Ok(Submit::Again);
        };
        let offset = staging::offset(own, piece);
        // SAFETY: the piece belongs to this call and is large enough for the largest put. The
        // caller guarantees that the source is valid.
        unsafe { ptr::copy_nonoverlapping(source, own.at(offset), put.length) };
        let header = Header {
            frame: frame(1, PUT_REFERENCE, put.index),
            reference: offset as u64,
            piece,
            flags: header.flags | STAGED,
            ..header
        };
        let posted = self.put_copied(put, &route, &header, 1, |_| ());
        if posted == Submit::Again {
            staging::give_back(own, piece);
        }
        Ok(posted)
    }

    /// Posts a put whose payload follows its header in the queue.
    #[inline]
    fn put_inline(&self, put: &Put, route: &Route<'_>, header: Header, source: *mut u8) -> Submit {
        let compact = put.ack == Ack::Local && put.remote_offset == 0;
        let (kind, before) = if compact {
            (PUT_COMPACT, before_payload(put.length))
        } else {
            (PUT, FULL)
        };
        let slots = slots_for(before, put.length);
        let header = Header {
            frame: frame(slots, kind, put.index),
            ..header
        };
        self.put_copied(put, route, &header, slots, |slot| {
            // SAFETY: the reserved slots have room for the header and the payload, and the caller
            // of `submit_put` guarantees that the source is valid. The payload of a compact message
            // overwrites the second half of its header.
            unsafe { ptr::copy_nonoverlapping(source, slot.add(before), put.length) }
        })
    }

    /// Posts a put whose source is copied before the call returns. The local completion is raised
    /// here, because the source is free once it has been copied.
    #[inline]
    fn put_copied(
        &self,
        put: &Put,
        route: &Route<'_>,
        header: &Header,
        slots: u32,
        payload: impl FnOnce(*mut u8),
    ) -> Submit {
        let Some(reserved) = route.producer.reserve(slots) else {
            return Submit::Again;
        };
        self.descriptors.start(put.md);
        if put.ack == Ack::Local && !self.post_send(put, EqId(header.eq)) {
            self.descriptors.finish(put.md.0);
            route.producer.abandon(reserved, slots);
            return Submit::Again;
        }
        let slot = route
            .producer
            .slots()
            .address(route.producer.slot(reserved));
        // SAFETY: `slot` is the first slot of this call's reservation.
        unsafe { header.write(slot) };
        payload(slot);
        route.producer.commit(reserved, header.frame);
        self.ring_bell(route.peer);
        self.note_sent();
        Submit::Posted
    }

    /// Raises [`conduit_core::ni::Event::Send`] at this rank. Returns `false` if this rank's own
    /// queue has no room.
    #[inline]
    fn post_send(&self, put: &Put, eq: EqId) -> bool {
        let peer = &self.peers[self.rank as usize];
        let Some(producer) = self.producer(self.rank, usize::from(eq.0)) else {
            return false;
        };
        let header = Header {
            frame: frame(1, SEND, put.index),
            source: self.rank,
            token: put.token,
            md: put.md.0,
            ..Header::default()
        };
        self.post(&Route { peer, producer }, &header)
    }

    /// Posts a message of one slot. Returns `false` if there is no room.
    #[inline]
    fn post(&self, route: &Route<'_>, header: &Header) -> bool {
        let Some(reserved) = route.producer.reserve(1) else {
            return false;
        };
        let slot = route
            .producer
            .slots()
            .address(route.producer.slot(reserved));
        // SAFETY: `slot` is the slot that this call has reserved.
        unsafe { header.write(slot) };
        route.producer.commit(reserved, header.frame);
        self.ring_bell(route.peer);
        self.note_sent();
        true
    }

    /// Posts a completion to a queue of the operation's initiator. Returns `Some(false)` if there
    /// is no room, and `None` if the initiator has no such queue.
    #[inline]
    pub(super) fn post_completion(&self, header: &Header, to: Rank) -> Option<bool> {
        let peer = self.peers.get(to as usize)?;
        let Some(producer) = self.producer(to, usize::from(header.eq)) else {
            // While this rank leaves a lane, the queue exists but has no room.
            return self.base(to, usize::from(header.eq)).map(|_| false);
        };
        Some(self.post(&Route { peer, producer }, header))
    }

    /// Posts a message of one slot through the given ring to the rank `to`. Returns `false` if
    /// there is no room.
    pub(super) fn post_by(&self, to: Rank, producer: &Producer<RingView>, header: &Header) -> bool {
        let peer = &self.peers[to as usize];
        self.post(&Route { peer, producer }, header)
    }

    /// # Safety
    /// Same as [`conduit_core::ni::Ni::get`].
    pub(super) unsafe fn submit_get(&self, get: &Get) -> Result<Submit, NiError> {
        let limit = self.config.max_message;
        let bound = self
            .descriptors
            .piece("get", get.md, get.local_offset, get.length, limit)?;
        let Some(route) = self.route("get", get.target, get.index)? else {
            return Ok(Submit::Again);
        };
        let mut header = Header {
            frame: frame(1, GET, get.index),
            length: get.length as u32,
            source: self.rank,
            match_bits: get.match_bits,
            hdr_data: get.local_offset as u64,
            remote_offset: get.remote_offset,
            token: get.token,
            md: get.md.0,
            eq: bound.eq.0,
            ..Header::default()
        };
        let own = self.own();
        // SAFETY: `piece` has checked that the offset lies within the descriptor.
        let destination = unsafe { bound.base.add(get.local_offset) };
        if get.length <= self.config.inline_size {
            header.flags = REPLY_INLINE;
        } else if let Some(offset) = own.region_offset_of(destination, get.length) {
            header.reference = offset as u64;
        } else if let Some(piece) = self.staging.take(own) {
            header.reference = staging::offset(own, piece) as u64;
            header.piece = piece;
            header.flags = STAGED;
        } else {
            return Ok(Submit::Again);
        }
        self.descriptors.start(get.md);
        if self.post(&route, &header) {
            return Ok(Submit::Posted);
        }
        self.descriptors.finish(get.md.0);
        if header.flags & STAGED != 0 {
            staging::give_back(own, header.piece);
        }
        Ok(Submit::Again)
    }

    pub(super) fn submit_atomic(&self, atomic: &Atomic) -> Result<Submit, NiError> {
        self.queue("atomic", atomic.eq)?;
        let Some(route) = self.route("atomic", atomic.target, atomic.index)? else {
            return Ok(Submit::Again);
        };
        let header = Header {
            frame: frame(1, ATOMIC, atomic.index),
            length: atomic_code(atomic.op, atomic.ty),
            source: self.rank,
            match_bits: atomic.match_bits,
            hdr_data: atomic.operand,
            remote_offset: atomic.remote_offset,
            token: atomic.token,
            reference: atomic.comparand,
            md: NO_MD,
            eq: atomic.eq.0,
            flags: if atomic.fetch { FETCH } else { 0 },
            ..Header::default()
        };
        Ok(match self.post(&route, &header) {
            true => Submit::Posted,
            false => Submit::Again,
        })
    }
}

/// Checks a part of a message that follows `at` other bytes of the message. Returns `false` if any
/// slot that begins within the part begins with a reserved tag or with less than one whole word of
/// the part.
#[inline]
fn is_clean(bytes: &[u8], at: usize, reserved_tags: ReservedTags) -> bool {
    let Some(behind) = bytes.get(at.next_multiple_of(SLOT) - at..) else {
        return true;
    };
    let (slots, rest) = behind.as_chunks::<SLOT>();
    let begins = |slot: &[u8]| match slot.first_chunk() {
        Some(&word) => reserved_tags.is_in(u64::from_ne_bytes(word)),
        None => !slot.is_empty(),
    };
    !slots.iter().any(|slot| begins(slot)) && !begins(rest)
}

/// Copies the few words of a head one by one. A call of `memcpy` would cost more. Its loads may be
/// wider than the stores that wrote the words, and would then wait until those stores have left the
/// store buffer.
///
/// # Safety
/// `to` must be valid for writes of `head.len()` bytes, which must not overlap with `head`.
#[inline(always)]
unsafe fn copy_words(head: &[u8], to: *mut u8) {
    let (words, rest) = head.as_chunks::<4>();
    for (at, word) in words.iter().enumerate() {
        // SAFETY: the caller guarantees that `to` is valid for `head.len()` bytes, and the word
        // lies within these.
        unsafe { to.add(at * 4).cast::<[u8; 4]>().write(*word) };
    }
    if !rest.is_empty() {
        // SAFETY: the caller guarantees that `to` is valid for `head.len()` bytes, and that they
        // don't overlap with `head`.
        unsafe { ptr::copy_nonoverlapping(rest.as_ptr(), to.add(words.len() * 4), rest.len()) };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TAG: u32 = 0x8000_0007;

    /// Generates bytes that often contain words like the tag, at any offset.
    fn bytes(most: usize) -> impl Strategy<Value = Vec<u8>> {
        let word = prop_oneof![Just(TAG), Just(TAG + 100), any::<u32>()];
        (proptest::collection::vec(word, 0..most / 4), 0_usize..8).prop_map(|(words, less)| {
            let mut bytes: Vec<u8> = words.into_iter().flat_map(u32::to_ne_bytes).collect();
            bytes.truncate(bytes.len().saturating_sub(less));
            bytes
        })
    }

    proptest! {
        #[test]
        fn no_slot_of_a_clean_message_begins_with_the_tag(head in bytes(80), body in bytes(400)) {
            let length = head.len() + body.len();
            let before = before_payload(length);
            let at = before + head.len();
            let reserved_tags = ReservedTags::after(TAG - 1);
            let plain = is_clean(&head, before, reserved_tags) && is_clean(&body, at, reserved_tags);
            let message = [&vec![0; before][..], &head, &body].concat();
            let begins = |slot: usize| {
                let word = message.get(slot..)?.first_chunk()?;
                Some(reserved_tags.is_in(u64::from_ne_bytes(*word)))
            };
            let mut slots = (SLOT..message.len()).step_by(SLOT);
            // If a slot begins with less than a word of the message, or with bytes from both the
            // head and the body, the check may be too strict.
            if plain {
                prop_assert!(slots.all(|slot| begins(slot) == Some(false)));
            } else {
                prop_assert!(slots.any(|slot| begins(slot) != Some(false) || (slot < at && at < slot + 8)));
            }
        }
    }
}
