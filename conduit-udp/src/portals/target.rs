//! The target's half of every operation: matching, placing, and what is owed for it.

use std::ptr;

use conduit_core::matching::{EntryId, Hit, Incoming, Place, Want};
use conduit_core::ni::{MeEvents, Outcome, Rank, apply_atomic};

use crate::protocol::MAX_TINY;

use super::buffers::Buffer;
use super::link::Owed;
use super::queue::{Queued, QueuedPut};
use super::regions;
use super::state::{Index, Portals, list};
use super::window::Cost;
use super::wire::{Atomic, Get, Header, Put};

/// A get's data up to this are copied when it arrives, and go in a tiny fragment; longer ones are read where they are.
const SHORT_REPLY: usize = MAX_TINY - crate::protocol::MAX_HEADER;

/// Something that came to an index that is not open yet.
#[derive(Debug)]
pub(super) struct Held {
    source: Rank,
    header: Header,
    /// A put's bytes.
    data: Buffer,
    cost: Cost,
}

impl Index {
    /// Whether messages can be matched. An index that was opened and has no entry yet may be about to have one, which a thread
    /// that attends for the rank can't know; it leaves the messages to the rank.
    #[inline]
    fn is_ready(&self, attended: bool) -> bool {
        self.open.is_some() && (self.used || !attended)
    }
}

/// An entry with bytes that are still to be placed or read.
#[derive(Debug)]
pub(super) struct InUse {
    pub(super) id: EntryId,
    count: u32,
    /// It has left its list: what to tell when the last of its messages is whole.
    free: Option<u64>,
}

/// Where the bytes of a fragment go as they come.
#[derive(Debug)]
pub(super) enum To {
    /// To this address in a region.
    Region(usize),
    /// To a buffer, until its event is delivered.
    Buffer(Buffer),
    /// They are not wanted.
    Nowhere,
}

/// A fragment that has begun to arrive.
#[derive(Debug)]
pub(super) enum Arrival {
    Put {
        source: Rank,
        put: Put,
        requested: usize,
        cost: Cost,
        /// The entry that has taken it.
        hit: Option<Hit>,
        to: To,
    },
    /// A put to an index that is not open.
    Held {
        source: Rank,
        put: Put,
        data: Buffer,
        cost: Cost,
    },
    /// The data of this rank's own get.
    Reply {
        source: Rank,
        operation: u32,
        outcome: Outcome,
        length: usize,
    },
    /// Of no use.
    Nonsense { source: Rank },
}

impl Arrival {
    fn source(&self) -> Rank {
        match *self {
            Self::Put { source, .. }
            | Self::Held { source, .. }
            | Self::Reply { source, .. }
            | Self::Nonsense { source } => source,
        }
    }
}

/// A reply whose bytes are read where they are.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) to: Rank,
    pub(super) operation: u32,
    pub(super) address: usize,
    pub(super) length: usize,
    index: u8,
    entry: EntryId,
    /// What to tell when it has been read.
    event: Option<Queued>,
}

/// What matching has found.
enum Found {
    /// The index is not open.
    Closed,
    Nothing,
    Entry(Hit),
}

/// The answer to a message that could not be matched: it makes no sense.
#[derive(Debug)]
pub(super) struct Nonsense;

impl Portals {
    fn accept(&mut self, index: u8, incoming: &Incoming) -> Result<Found, Nonsense> {
        let place = self.indices.get_mut(usize::from(index)).ok_or(Nonsense)?;
        if !place.is_ready(self.attended) {
            return Ok(Found::Closed);
        }
        Ok(match place.list.accept(incoming) {
            Some(hit) => Found::Entry(hit),
            None => {
                self.counters.unmatched += 1;
                Found::Nothing
            }
        })
    }

    fn hold(&mut self, index: u8, held: Held) {
        if let Some(index) = self.indices.get_mut(usize::from(index)) {
            index.held.push_back(held);
            self.held += 1;
        }
    }

    /// Takes what was held for indices that are open now.
    #[cold]
    pub(super) fn take_held(&mut self) {
        for at in 0..self.indices.len() {
            if self.indices[at].open.is_none() {
                continue;
            }
            while let Some(held) = self.indices[at].held.pop_front() {
                self.held -= 1;
                let Held {
                    source,
                    header,
                    data,
                    cost,
                } = held;
                let taken = match header {
                    Header::Put(put) => {
                        let bytes = data.bytes();
                        // SAFETY: the bytes of a buffer that is kept until the call has returned.
                        unsafe { self.put_arrives(source, &put, bytes.as_ptr(), bytes.len(), cost) }
                    }
                    Header::Get(get) => self.get_arrives(source, &get),
                    Header::Atomic(atomic) => self.atomic_arrives(source, &atomic),
                    _ => Err(Nonsense),
                };
                self.pool.give(data);
                if taken.is_err() {
                    self.bad(source);
                }
            }
        }
    }

    // ---- puts ------------------------------------------------------------------------------------------------------

    /// A put that is all there.
    ///
    /// # Safety
    /// `[bytes, bytes + length)` is valid for reads.
    pub(super) unsafe fn put_arrives(
        &mut self,
        source: Rank,
        put: &Put,
        bytes: *const u8,
        length: usize,
        cost: Cost,
    ) -> Result<(), Nonsense> {
        let incoming = Incoming {
            want: Want::Put,
            source,
            match_bits: put.match_bits,
            offset: put.offset,
            length,
        };
        let mut data = None;
        let hit = match self.accept(put.index, &incoming)? {
            Found::Closed => {
                let mut data = self.pool.take(length);
                // SAFETY: the caller's promise; the buffer has room.
                unsafe { ptr::copy_nonoverlapping(bytes, data.bytes_mut().as_mut_ptr(), length) };
                let held = Held {
                    source,
                    header: Header::Put(*put),
                    data,
                    cost,
                };
                self.hold(put.index, held);
                return Ok(());
            }
            Found::Nothing => None,
            Found::Entry(hit) => {
                let hit = self.within_limits(hit);
                match hit.place {
                    // SAFETY: the caller's promise, and `length` bytes there lie within the entry, which `me_append` has found
                    // within a region. A put to oneself may overlap.
                    Place::Region(address) => unsafe {
                        ptr::copy(bytes, regions::place(address), hit.length);
                    },
                    Place::Managed => {
                        let mut copy = self.pool.take(hit.length);
                        let to = copy.bytes_mut().as_mut_ptr();
                        // SAFETY: the caller's promise; a new buffer overlaps nothing.
                        unsafe { ptr::copy_nonoverlapping(bytes, to, hit.length) };
                        data = Some(copy);
                    }
                    Place::Nothing => {}
                }
                Some(hit)
            }
        };
        let answered = self.put_taken(source, put, length, cost, hit, data);
        if let Some(hit) = &hit {
            self.unlinked(put.index, hit);
            self.freed(put.index, hit);
        }
        answered
    }

    /// A put longer than any managed entry takes by contract is refused there.
    fn within_limits(&self, mut hit: Hit) -> Hit {
        if hit.place == Place::Managed && hit.length > self.config.max_managed {
            hit.outcome = Outcome::OutOfRange;
            hit.length = 0;
        }
        hit
    }

    /// Tells of a put whose bytes are where they belong.
    fn put_taken(
        &mut self,
        source: Rank,
        put: &Put,
        requested: usize,
        cost: Cost,
        hit: Option<Hit>,
        data: Option<Buffer>,
    ) -> Result<(), Nonsense> {
        let (outcome, length) = hit.map_or((Outcome::NoMatch, 0), |hit| (hit.outcome, hit.length));
        match (hit, self.queue_of(put.index)) {
            (Some(hit), Some(eq)) if Self::is_told(&hit) => {
                let event = QueuedPut {
                    index: put.index,
                    source,
                    tag: hit.tag,
                    match_bits: put.match_bits,
                    hdr_data: put.hdr_data,
                    offset: hit.offset,
                    length,
                    requested,
                    data,
                    cost,
                };
                self.tell(eq, Queued::Put(event));
            }
            _ => {
                if let Some(data) = data {
                    self.pool.give(data);
                }
                self.taken(source, cost);
            }
        }
        let Some(operation) = put.operation else {
            return Ok(());
        };
        // Fits: a message's bytes.
        self.respond(source, operation, outcome, length as u32, 0)
    }

    fn is_told(hit: &Hit) -> bool {
        hit.outcome == Outcome::Done && hit.events.contains(MeEvents::OPERATION)
    }

    fn queue_of(&self, index: u8) -> Option<conduit_core::ni::EqId> {
        self.indices.get(usize::from(index))?.open?
    }

    /// Tells that an entry has left its list with this message.
    fn unlinked(&mut self, index: u8, hit: &Hit) {
        if !hit.unlinked {
            return;
        }
        self.entry_left();
        if let Some(eq) = self.queue_of(index)
            && hit.events.contains(MeEvents::LINK)
        {
            self.tell(eq, Queued::Unlinked { tag: hit.tag });
        }
    }

    /// Tells that it is free, once all its messages are in the queue.
    fn freed(&mut self, index: u8, hit: &Hit) {
        if !hit.unlinked || hit.place != Place::Managed || !hit.events.contains(MeEvents::LINK) {
            return;
        }
        let Some(eq) = self.queue_of(index) else {
            return;
        };
        let in_use = &mut self.indices[usize::from(index)].in_use;
        match in_use.iter_mut().find(|in_use| in_use.id == hit.id) {
            Some(in_use) => in_use.free = Some(hit.tag),
            None => self.tell(eq, Queued::Free { tag: hit.tag }),
        }
    }

    fn begin_use(&mut self, index: u8, id: EntryId) {
        let in_use = &mut self.indices[usize::from(index)].in_use;
        match in_use.iter_mut().find(|in_use| in_use.id == id) {
            Some(in_use) => in_use.count += 1,
            None => in_use.push(InUse {
                id,
                count: 1,
                free: None,
            }),
        }
    }

    fn end_use(&mut self, index: u8, id: EntryId) {
        let in_use = &mut self.indices[usize::from(index)].in_use;
        let Some(at) = in_use.iter().position(|in_use| in_use.id == id) else {
            return;
        };
        in_use[at].count -= 1;
        if in_use[at].count > 0 {
            return;
        }
        let ended = in_use.swap_remove(at);
        if let (Some(tag), Some(eq)) = (ended.free, self.queue_of(index)) {
            self.tell(eq, Queued::Free { tag });
        }
    }

    // ---- puts that come in pieces ----------------------------------------------------------------------------------

    /// Whether a put that begins can be taken now: one to a closed index that is too long to be kept can not.
    pub(super) fn can_begin(&self, put: &Put, length: usize) -> bool {
        let index = self.indices.get(usize::from(put.index));
        length <= self.config.max_managed || index.is_none_or(|index| index.is_ready(self.attended))
    }

    /// A put begins to arrive: it is matched.
    pub(super) fn put_begins(
        &mut self,
        source: Rank,
        put: &Put,
        length: usize,
        cost: Cost,
    ) -> Result<Arrival, Nonsense> {
        let incoming = Incoming {
            want: Want::Put,
            source,
            match_bits: put.match_bits,
            offset: put.offset,
            length,
        };
        let (hit, to) = match self.accept(put.index, &incoming)? {
            Found::Closed => {
                let data = self.pool.take(length);
                return Ok(Arrival::Held {
                    source,
                    put: *put,
                    data,
                    cost,
                });
            }
            Found::Nothing => (None, To::Nowhere),
            Found::Entry(hit) => {
                let hit = self.within_limits(hit);
                self.unlinked(put.index, &hit);
                self.begin_use(put.index, hit.id);
                self.freed(put.index, &hit);
                let to = match hit.place {
                    Place::Region(address) => To::Region(address),
                    Place::Managed => To::Buffer(self.pool.take(hit.length)),
                    Place::Nothing => To::Nowhere,
                };
                (Some(hit), to)
            }
        };
        Ok(Arrival::Put {
            source,
            put: *put,
            requested: length,
            cost,
            hit,
            to,
        })
    }

    /// Places a piece of a fragment.
    pub(super) fn piece_arrives(&mut self, place: usize, offset: usize, bytes: &[u8]) {
        let Some(arrival) = self.arrivals.get_mut(place) else {
            return;
        };
        match arrival {
            Arrival::Put {
                hit: Some(hit), to, ..
            } => {
                // What is cut off goes nowhere.
                let wanted = hit.length.saturating_sub(offset).min(bytes.len());
                let bytes = &bytes[..wanted];
                match to {
                    _ if bytes.is_empty() => {}
                    // SAFETY: `hit.length` bytes there lie within the entry, which `me_append` has found within a region and
                    // which is not unlinked as long as it is in use.
                    To::Region(address) => unsafe {
                        let to = regions::place(*address + offset);
                        ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
                    },
                    To::Buffer(buffer) => copy_into(buffer, offset, bytes),
                    To::Nowhere => {}
                }
            }
            Arrival::Held { data, .. } => copy_into(data, offset, bytes),
            Arrival::Reply { operation, .. } => {
                let operation = *operation;
                if let Some(operation) = self.operations.get(operation)
                    && offset + bytes.len() <= operation.length
                {
                    // SAFETY: within the operation's piece of its descriptor, which is valid as long as it is under way.
                    unsafe {
                        let to = operation.memory.add(offset);
                        ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
                    }
                }
            }
            Arrival::Put { hit: None, .. } | Arrival::Nonsense { .. } => {}
        }
    }

    /// A fragment is whole.
    pub(super) fn arrival_ends(&mut self, place: usize) {
        let Some(arrival) = self.arrivals.try_remove(place) else {
            return;
        };
        match arrival {
            Arrival::Put {
                source,
                put,
                requested,
                cost,
                hit,
                to,
            } => {
                let data = match to {
                    To::Buffer(buffer) => Some(buffer),
                    To::Region(_) | To::Nowhere => None,
                };
                let answered = self.put_taken(source, &put, requested, cost, hit, data);
                if let Some(hit) = hit {
                    self.end_use(put.index, hit.id);
                }
                if answered.is_err() {
                    self.bad(source);
                }
            }
            Arrival::Held {
                source,
                put,
                data,
                cost,
            } => {
                let held = Held {
                    source,
                    header: Header::Put(put),
                    data,
                    cost,
                };
                self.hold(put.index, held);
            }
            Arrival::Reply {
                source,
                operation,
                outcome,
                length,
            } => {
                if self.replied(source, operation, outcome, length).is_err() {
                    self.bad(source);
                }
            }
            Arrival::Nonsense { .. } => {}
        }
    }

    /// Forgets the fragments that a peer has begun.
    pub(super) fn drop_arrivals_of(&mut self, peer: Rank) {
        let begun: Vec<_> = self
            .arrivals
            .iter()
            .filter(|(_, arrival)| arrival.source() == peer)
            .map(|(at, _)| at)
            .collect();
        for at in begun {
            if let Arrival::Put { put, hit, to, .. } = self.arrivals.remove(at) {
                if let To::Buffer(buffer) = to {
                    self.pool.give(buffer);
                }
                if let Some(hit) = hit {
                    self.end_use(put.index, hit.id);
                }
            }
        }
    }

    // ---- gets and atomics ------------------------------------------------------------------------------------------

    pub(super) fn get_arrives(&mut self, source: Rank, get: &Get) -> Result<(), Nonsense> {
        let length = get.length as usize;
        if length > self.config.max_message {
            return Err(Nonsense);
        }
        let incoming = Incoming {
            want: Want::Get,
            source,
            match_bits: get.match_bits,
            offset: get.offset,
            length,
        };
        let hit = match self.accept(get.index, &incoming)? {
            Found::Closed => {
                let held = Held {
                    source,
                    header: Header::Get(*get),
                    data: Buffer::empty(),
                    cost: Cost::HEADER,
                };
                self.hold(get.index, held);
                return Ok(());
            }
            Found::Nothing => {
                self.taken(source, Cost::HEADER);
                return self.reply(source, get.operation, Outcome::NoMatch, 0, 0);
            }
            Found::Entry(hit) => hit,
        };
        self.unlinked(get.index, &hit);
        let event = Self::is_told(&hit).then_some(Queued::Get {
            tag: hit.tag,
            source,
            match_bits: get.match_bits,
            offset: hit.offset,
            length: hit.length,
        });
        let address = match hit.place {
            Place::Region(address) => address,
            // Matching gives nothing to read.
            Place::Managed | Place::Nothing => 0,
        };
        if source != self.rank && address != 0 && hit.length > SHORT_REPLY {
            self.begin_use(get.index, hit.id);
            let reading = Reading {
                to: source,
                operation: get.operation,
                address,
                length: hit.length,
                index: get.index,
                entry: hit.id,
                event,
            };
            self.owe(source, Owed::LongReply(reading));
            return Ok(());
        }
        self.tell_or_take(source, get.index, event);
        let length = if address == 0 { 0 } else { hit.length };
        self.reply(source, get.operation, hit.outcome, address, length)
    }

    /// Tells of an operation with a header only, or counts it as taken where nobody wants to know.
    fn tell_or_take(&mut self, source: Rank, index: u8, event: Option<Queued>) {
        match (event, self.queue_of(index)) {
            (Some(event), Some(eq)) => self.tell(eq, event),
            _ => self.taken(source, Cost::HEADER),
        }
    }

    /// Answers a get with few bytes from an address in a region, or one of this rank's own with any.
    fn reply(
        &mut self,
        to: Rank,
        operation: u32,
        outcome: Outcome,
        address: usize,
        length: usize,
    ) -> Result<(), Nonsense> {
        let from: *const u8 = match length {
            0 => ptr::dangling(),
            _ => regions::place(address),
        };
        if to == self.rank {
            // SAFETY: `length` bytes there lie within an entry.
            return unsafe { self.reply_arrives(to, operation, outcome, from, length) };
        }
        let mut data = self.pool.take(length);
        // SAFETY: as above; the buffer has room.
        unsafe { ptr::copy_nonoverlapping(from, data.bytes_mut().as_mut_ptr(), length) };
        let reply = Owed::Reply {
            operation,
            outcome,
            data,
        };
        self.owe(to, reply);
        Ok(())
    }

    /// The bytes of a reply are not read any more.
    pub(super) fn end_reading(&mut self, reading: Reading, told: bool) {
        self.end_use(reading.index, reading.entry);
        if told {
            self.tell_or_take(reading.to, reading.index, reading.event);
        }
    }

    pub(super) fn atomic_arrives(&mut self, source: Rank, atomic: &Atomic) -> Result<(), Nonsense> {
        let incoming = Incoming {
            want: Want::Atomic,
            source,
            match_bits: atomic.match_bits,
            offset: atomic.offset,
            length: atomic.ty.size(),
        };
        let hit = match self.accept(atomic.index, &incoming)? {
            Found::Closed => {
                let held = Held {
                    source,
                    header: Header::Atomic(*atomic),
                    data: Buffer::empty(),
                    cost: Cost::HEADER,
                };
                self.hold(atomic.index, held);
                return Ok(());
            }
            Found::Nothing => {
                self.taken(source, Cost::HEADER);
                return self.respond(source, atomic.operation, Outcome::NoMatch, 0, 0);
            }
            Found::Entry(hit) => hit,
        };
        let (mut outcome, mut value, mut done) = (hit.outcome, 0, 0);
        if let Place::Region(address) = hit.place {
            if address.is_multiple_of(atomic.ty.size()) {
                // SAFETY: aligned (just checked), and within the entry, which lies in a region; that others touch it by atomics
                // only is what a program promises that uses atomics on it.
                value = unsafe {
                    apply_atomic(
                        regions::place(address),
                        atomic.op,
                        atomic.ty,
                        atomic.operand,
                        atomic.comparand,
                    )
                };
                done = atomic.ty.size();
            } else {
                outcome = Outcome::OutOfRange;
            }
        }
        let told = outcome == Outcome::Done && Self::is_told(&hit);
        let event = told.then_some(Queued::Atomic {
            tag: hit.tag,
            source,
            match_bits: atomic.match_bits,
            offset: hit.offset,
        });
        self.tell_or_take(source, atomic.index, event);
        self.unlinked(atomic.index, &hit);
        // Fits: 4 or 8.
        self.respond(source, atomic.operation, outcome, done as u32, value)
    }

    fn respond(
        &mut self,
        to: Rank,
        operation: u32,
        outcome: Outcome,
        length: u32,
        value: u64,
    ) -> Result<(), Nonsense> {
        if to == self.rank {
            return self.responded(to, operation, outcome, length, value);
        }
        let response = Owed::Response {
            operation,
            outcome,
            length,
            value,
        };
        self.owe(to, response);
        Ok(())
    }

    fn owe(&mut self, to: Rank, owed: Owed) {
        if let Some(link) = self.links.get(to) {
            link.owed.push_back(owed);
            list(&mut self.outgoing, link);
        }
    }
}

/// Copies what fits.
fn copy_into(buffer: &mut Buffer, offset: usize, bytes: &[u8]) {
    let end = offset.saturating_add(bytes.len());
    if let Some(to) = buffer.bytes_mut().get_mut(offset..end) {
        to.copy_from_slice(bytes);
    }
}
