//! The target's half of every operation, and completions at their initiator: what polling a queue does.
//!
//! What a peer wrote is not trusted to be in range: a message that makes no sense is counted and passed over, and its
//! source remembered ([`super::Statistics`]).

use std::sync::atomic::{AtomicU64, Ordering};
use std::{ptr, slice};

use conduit_core::ni::{Event, MeEvents, Outcome, PtIndex, PutEvent, Rank, apply_atomic};
use conduit_core::threads::{Lock, Mode};

use crate::ring::{Consumer, Frame, Next, SLOT};

use super::mapping::RingView;
use super::match_list::{Hit, Incoming, Place, Want};
use super::message::{
    ACK, ATOMIC, COMPACT, FETCH, FULL, GET, Header, NO_MD, PUT, PUT_COMPACT, PUT_REFERENCE, REPLY,
    REPLY_INLINE, SEND, STAGED, WANT_ACK, WANT_SEND, atomic, outcome, outcome_code, slots_for,
};
use super::{Shm, me_id, staging};

/// Messages of one ring that a poll takes at most before it looks at the next: those that raise no event don't count
/// against the caller's limit.
const BATCH: u32 = 64;

/// An event queue: the rings that lead to it.
pub(super) struct Queue<M: Mode> {
    pub(super) inbox: M::Lock<Inbox>,
    /// The entry whose message is being delivered, as [`mark`] gives it; 0 for none.
    pub(super) delivering: AtomicU64,
}

/// What one thread at a time works on.
#[derive(Debug)]
pub(super) struct Inbox {
    pub(super) rings: Box<[Inbound]>,
    /// Where the next poll begins: after the ring at which the last one ended.
    next: usize,
    later: Later,
}

/// A ring as its consumer keeps it.
#[derive(Debug)]
pub(super) struct Inbound {
    /// The only source, where there is one.
    source: Option<Rank>,
    ring: Consumer<RingView>,
    /// A completion for which the initiator's queue had no room. Until it is posted nothing more is taken from this ring:
    /// so one is enough, and nothing is lost.
    pending: Option<(Rank, Header)>,
}

impl Inbound {
    pub(super) fn new(source: Option<Rank>, ring: Consumer<RingView>) -> Self {
        Self {
            source,
            ring,
            pending: None,
        }
    }
}

impl Inbox {
    pub(super) fn new(rings: Box<[Inbound]>) -> Self {
        Self {
            rings,
            next: 0,
            later: Later::default(),
        }
    }

    /// Whether a poll would find anything to do.
    pub(super) fn is_ready(&self) -> bool {
        self.later != Later::default()
            || self
                .rings
                .iter()
                .any(|inbound| inbound.pending.is_some() || inbound.ring.is_ready())
    }
}

/// Events that follow one that was delivered already.
#[derive(Debug, Default, PartialEq, Eq)]
struct Later {
    unlinked: Option<u64>,
    free: Option<u64>,
}

/// An entry as [`Queue::delivering`] holds it.
#[inline]
pub(super) fn mark(me: u32) -> u64 {
    u64::from(me) + 1
}

/// Where a poll's events go, and how many may.
struct Out<'s, S> {
    sink: &'s mut S,
    count: u32,
    limit: u32,
}

impl<S: FnMut(Event<'_>)> Out<'_, S> {
    #[inline]
    fn event(&mut self, event: Event<'_>) {
        self.count += 1;
        (self.sink)(event);
    }

    /// Delivers what was put off; false if the limit is reached.
    #[inline]
    fn settle(&mut self, later: &mut Later) -> bool {
        if let Some(tag) = later.unlinked.filter(|_| self.count < self.limit) {
            later.unlinked = None;
            self.event(Event::Unlinked { tag });
        }
        if let Some(tag) = later.free.filter(|_| self.count < self.limit) {
            later.free = None;
            self.event(Event::Free { tag });
        }
        self.count < self.limit
    }
}

/// What became of a message.
enum Taken {
    /// Its slots can be released.
    Done,
    /// The same, and this completion is to be posted.
    Completed(Header),
    /// There is no room for its reply: ask again.
    Stalled,
    /// It makes no sense.
    Bad,
}

/// A message in its slots.
struct Message {
    slot: *const u8,
    frame: Frame,
    source: Rank,
}

impl Message {
    /// The payload behind `before` bytes of header, if `length` bytes lie within the message.
    #[inline]
    fn payload(&self, before: usize, length: u32) -> Option<*const u8> {
        let room = usize::from(self.frame.slots) * SLOT - before;
        // SAFETY: the message has at least one slot, which holds the header.
        (length as usize <= room).then(|| unsafe { self.slot.add(before) })
    }
}

impl<M: Mode> Shm<M> {
    /// See [`conduit_core::ni::Ni::poll`].
    #[inline]
    pub(super) fn poll_queue<S: FnMut(Event<'_>)>(
        &self,
        number: usize,
        limit: u32,
        sink: &mut S,
    ) -> u32 {
        let Some(queue) = self.queues.get(number).and_then(|queue| queue.get()) else {
            return 0;
        };
        let Some(mut inbox) = queue.inbox.try_lock() else {
            return 0;
        };
        let inbox = &mut *inbox;
        let mut out = Out {
            sink,
            count: 0,
            limit,
        };
        if !out.settle(&mut inbox.later) {
            return out.count;
        }
        let rings = inbox.rings.len();
        let mut at = inbox.next;
        for _ in 0..rings {
            let inbound = &mut inbox.rings[at];
            at += 1;
            if at == rings {
                at = 0;
            }
            if !self.visit(number, queue, inbound, &mut inbox.later, &mut out) {
                break;
            }
        }
        inbox.next = at;
        out.count
    }

    /// Takes what a ring has; false if the limit is reached.
    #[inline]
    fn visit<S: FnMut(Event<'_>)>(
        &self,
        number: usize,
        queue: &Queue<M>,
        inbound: &mut Inbound,
        later: &mut Later,
        out: &mut Out<'_, S>,
    ) -> bool {
        for _ in 0..BATCH {
            if inbound.pending.is_some() && !self.post_pending(inbound) {
                return true;
            }
            let (slot, frame) = match inbound.ring.next() {
                Next::Message { slot, frame } => (slot, frame),
                Next::Empty => return true,
                Next::Broken => {
                    self.statistics.note_bad(inbound.source);
                    return true;
                }
            };
            let slot = inbound.ring.slots().address(slot);
            // SAFETY: found committed, and released only below.
            let header = unsafe { Header::read_compact(slot) };
            let message = Message {
                slot,
                frame,
                source: header.source,
            };
            let known = match inbound.source {
                Some(source) => source == header.source,
                None => header.source < self.size,
            };
            let taken = match known {
                true => self.take(number, queue, &message, &header, later, out),
                false => Taken::Bad,
            };
            match taken {
                Taken::Done => inbound.ring.release(frame),
                Taken::Completed(completion) => {
                    inbound.ring.release(frame);
                    match self.post_completion(&completion, message.source) {
                        Some(true) => {}
                        Some(false) => inbound.pending = Some((message.source, completion)),
                        None => self.statistics.note_bad(Some(message.source)),
                    }
                }
                Taken::Stalled => return true,
                Taken::Bad => {
                    self.statistics
                        .note_bad(inbound.source.or(Some(message.source)));
                    inbound.ring.release(frame);
                }
            }
            if !out.settle(later) {
                return false;
            }
        }
        true
    }

    #[cold]
    fn post_pending(&self, inbound: &mut Inbound) -> bool {
        let Some((to, completion)) = inbound.pending.take() else {
            return true;
        };
        match self.post_completion(&completion, to) {
            Some(true) => true,
            Some(false) => {
                inbound.pending = Some((to, completion));
                false
            }
            None => {
                self.statistics.note_bad(Some(to));
                true
            }
        }
    }

    #[inline]
    fn take<S: FnMut(Event<'_>)>(
        &self,
        number: usize,
        queue: &Queue<M>,
        message: &Message,
        header: &Header,
        later: &mut Later,
        out: &mut Out<'_, S>,
    ) -> Taken {
        if message.frame.kind == PUT_COMPACT {
            let Some(payload) = message.payload(COMPACT, header.length) else {
                return Taken::Bad;
            };
            let put = self.take_put(number, queue, message, header, payload, later, out);
            return match put {
                Some(_) => Taken::Done,
                None => Taken::Bad,
            };
        }
        // SAFETY: the caller found the message committed and has not released it.
        let header = unsafe { Header::read(message.slot) };
        let taken = match message.frame.kind {
            PUT | PUT_REFERENCE => self.take_full_put(number, queue, message, &header, later, out),
            GET => self.take_get(number, queue, message, &header, later, out),
            ATOMIC => self.take_atomic(number, queue, message, &header, later, out),
            SEND | ACK | REPLY => self.take_completion(message, &header, out),
            _ => None,
        };
        taken.unwrap_or(Taken::Bad)
    }

    /// Finds the entry for a message. The outer `None`: the index doesn't belong to the queue it came by.
    #[inline]
    fn find(
        &self,
        number: usize,
        queue: &Queue<M>,
        message: &Message,
        incoming: &Incoming,
    ) -> Option<Option<Hit>> {
        let index = self.indices.get(usize::from(message.frame.index))?;
        if index.queue.load(Ordering::Relaxed) as usize != number + 1 {
            return None;
        }
        let hit = {
            let mut list = index.list.lock();
            let hit = list.accept(incoming);
            if let Some(hit) = &hit {
                // Under the list's lock, so that `me_unlink` either comes before this match or sees the mark.
                let me = me_id(message.frame.index, hit.id);
                queue.delivering.store(mark(me.0), Ordering::Relaxed);
            }
            hit
        };
        match &hit {
            None => self.statistics.note_dropped(),
            Some(hit) if hit.unlinked => {
                self.entries.fetch_sub(1, Ordering::Relaxed);
            }
            Some(_) => {}
        }
        Some(hit)
    }

    /// Ends what [`Self::find`] began, and puts off the events of an entry that has left its list.
    #[inline]
    fn found(&self, queue: &Queue<M>, hit: &Hit, later: &mut Later) {
        // Our accesses to the entry's memory come before the load in `me_unlink` that finds no mark.
        queue.delivering.store(0, Ordering::Release);
        if hit.unlinked && hit.events.contains(MeEvents::LINK) {
            later.unlinked = Some(hit.tag);
            if hit.place == Place::Managed {
                // Messages are delivered one after the other, and this was the entry's last.
                later.free = Some(hit.tag);
            }
        }
    }

    /// Places and delivers a put. Gives how it ended and the bytes placed.
    #[inline]
    #[allow(clippy::too_many_arguments)]
    fn take_put<S: FnMut(Event<'_>)>(
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

    fn take_full_put<S: FnMut(Event<'_>)>(
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

    /// The completion of an operation that `asked` describes.
    #[inline]
    fn completion(
        &self,
        kind: u8,
        asked: &Header,
        outcome: Outcome,
        length: usize,
        value: u64,
        slots: u32,
    ) -> Header {
        let frame = Frame {
            slots: slots as u16,
            kind,
            index: outcome_code(outcome),
        };
        Header {
            frame: frame.to_word(),
            length: length as u32,
            source: self.rank,
            match_bits: value,
            remote_offset: 0,
            ..*asked
        }
    }

    /// Room for the reply is found first, and the reply leaves before the event: nothing is left over if there is none.
    fn take_get<S: FnMut(Event<'_>)>(
        &self,
        number: usize,
        queue: &Queue<M>,
        message: &Message,
        header: &Header,
        later: &mut Later,
        out: &mut Out<'_, S>,
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
        let producer = self.producer(initiator, usize::from(header.eq))?;
        if slots > producer.max_slots() {
            return None;
        }
        let Some(reserved) = producer.reserve(slots) else {
            return Some(Taken::Stalled);
        };
        let incoming = Incoming {
            want: Want::Get,
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
        let (outcome, moved) = found.map_or((Outcome::NoMatch, 0), |hit| (hit.outcome, hit.length));
        if let Some(Place::Region(offset)) = found.map(|hit| hit.place) {
            // SAFETY: the source lies within the entry, the destination within the reservation or within the initiator's
            // memory, and neither holds less than `length` bytes. A get from oneself may overlap.
            unsafe {
                let to = if inline { slot.add(FULL) } else { destination };
                ptr::copy(self.own().at(offset), to, moved);
            }
        }
        let reply = self.completion(REPLY, header, outcome, moved, 0, slots);
        // SAFETY: the first slot of our reservation.
        unsafe { reply.write(slot) };
        producer.commit(reserved);
        self.ring_bell(initiator);
        if let Some(hit) = found {
            if hit.outcome == Outcome::Done && hit.events.contains(MeEvents::OPERATION) {
                out.event(Event::Get {
                    tag: hit.tag,
                    source: message.source,
                    match_bits: header.match_bits,
                    offset: hit.offset,
                    length: hit.length,
                });
            }
            self.found(queue, &hit, later);
        }
        Some(Taken::Done)
    }

    fn take_atomic<S: FnMut(Event<'_>)>(
        &self,
        number: usize,
        queue: &Queue<M>,
        message: &Message,
        header: &Header,
        later: &mut Later,
        out: &mut Out<'_, S>,
    ) -> Option<Taken> {
        let (op, ty) = atomic(header.length)?;
        let incoming = Incoming {
            want: Want::Atomic,
            source: message.source,
            match_bits: header.match_bits,
            offset: header.remote_offset,
            length: ty.size(),
        };
        let found = self.find(number, queue, message, &incoming)?;
        let (mut outcome, mut value, mut done) = (Outcome::NoMatch, 0, 0);
        if let Some(hit) = found {
            outcome = hit.outcome;
            if let Place::Region(offset) = hit.place {
                let address = self.own().at(offset);
                if address.addr() % ty.size() == 0 {
                    // SAFETY: aligned (just checked), and within the entry, which lies in a region; that others touch it
                    // by atomics only is what a program promises that uses atomics on it.
                    value =
                        unsafe { apply_atomic(address, op, ty, header.hdr_data, header.reference) };
                    done = ty.size();
                } else {
                    outcome = Outcome::OutOfRange;
                }
            }
            if outcome == Outcome::Done && hit.events.contains(MeEvents::OPERATION) {
                out.event(Event::Atomic {
                    tag: hit.tag,
                    source: message.source,
                    match_bits: header.match_bits,
                    offset: hit.offset,
                });
            }
            self.found(queue, &hit, later);
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

    /// A completion of this rank's own operation.
    fn take_completion<S: FnMut(Event<'_>)>(
        &self,
        message: &Message,
        header: &Header,
        out: &mut Out<'_, S>,
    ) -> Option<Taken> {
        let outcome = outcome(message.frame.index);
        let (token, length) = (header.token, header.length as usize);
        if message.frame.kind == REPLY && header.md != NO_MD {
            self.bring_home(message, header)?;
        }
        if header.md != NO_MD {
            self.descriptors.finish(header.md)?;
        }
        out.event(match message.frame.kind {
            SEND => Event::Send { token },
            ACK => Event::Ack {
                token,
                outcome: outcome?,
                length,
            },
            _ => Event::Reply {
                token,
                outcome: outcome?,
                length,
                value: header.match_bits,
            },
        });
        Some(Taken::Done)
    }

    /// Moves a get's data to the descriptor, unless the target has written it there.
    fn bring_home(&self, message: &Message, header: &Header) -> Option<()> {
        let length = header.length as usize;
        let own = self.own();
        let bound = self.descriptors.bound(header.md)?;
        let end = usize::try_from(header.hdr_data).ok()?.checked_add(length)?;
        let from = if header.flags & REPLY_INLINE != 0 {
            message.payload(FULL, header.length)?
        } else if header.flags & STAGED != 0 {
            own.piece_state(usize::from(header.piece))?;
            if length > own.layout().piece_bytes {
                return None;
            }
            own.at(staging::offset(own, header.piece))
        } else {
            return Some(());
        };
        if end > bound.len {
            return None;
        }
        // SAFETY: the destination lies within the descriptor (just checked), which stays valid until its operations have
        // ended; the source within the message or the piece.
        unsafe { ptr::copy(from, bound.base.add(end - length), length) };
        if header.flags & STAGED != 0 {
            staging::give_back(own, header.piece);
        }
        Some(())
    }
}
