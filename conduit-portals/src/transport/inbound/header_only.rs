//! Gets and atomics, which have no payload, and their replies and responses.

use std::ptr;

use conduit_core::ni::{Event, Outcome, Rank, apply_atomic, apply_atomic_at};
use conduit_core::process_memory;

use crate::matching::{EntryId, Hit, Incoming, Location, MessageKind};
use crate::transport::fragment::MAX_TINY;

use super::{Found, Held, ProtocolError};
use crate::transport::buffers::Buffer;
use crate::transport::control::Control;
use crate::transport::queue::Queued;
use crate::transport::regions;
use crate::transport::state::Portals;
use crate::transport::window::Cost;
use crate::transport::wire::{Atomic, Get, Header};

/// The maximum length of a get's data that are copied when the get arrives and sent in a tiny
/// fragment. Longer data are read in place.
const SHORT_REPLY: usize = MAX_TINY - crate::transport::fragment::MAX_HEADER;

/// The location of a get's data.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ReplySource {
    /// An address in a region.
    Region(usize),
    /// An address of the process.
    Process(u64),
}

impl ReplySource {
    /// Returns whether `length` bytes can be read.
    fn is_there(self, length: usize) -> bool {
        match self {
            Self::Region(_) => true,
            Self::Process(address) => process_memory::is_readable(address, length),
        }
    }

    /// Copies data from `offset` on; returns `false` if they are not mapped.
    ///
    /// # Safety
    /// `into.len()` bytes from `offset` on must lie within the entry that the get has matched.
    pub(crate) unsafe fn read(self, offset: usize, into: &mut [u8]) -> bool {
        match self {
            Self::Region(address) => {
                let from = regions::pointer(address).wrapping_add(offset);
                // SAFETY: the caller guarantees that the bytes lie within an entry, which is in use
                // and therefore not unlinked. The program is responsible for concurrent writes.
                unsafe { ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len()) };
                true
            }
            Self::Process(address) => {
                let at = address.wrapping_add(offset as u64);
                let this = process_memory::this();
                // SAFETY: `into` is a slice, so its pointer is valid for writes of `into.len()`
                // bytes.
                unsafe { process_memory::read(into.as_mut_ptr(), this, at, into.len()) }.is_ok()
            }
        }
    }
}

/// A reply whose data are read in place.
#[derive(Debug)]
pub(crate) struct LongReply {
    pub(crate) to: Rank,
    pub(crate) operation: u32,
    pub(crate) source: ReplySource,
    pub(crate) length: usize,
    index: u8,
    entry: EntryId,
    /// The event that is raised when the data have been sent.
    event: Option<Event<'static>>,
}

impl Portals {
    /// Returns the entry for a get or an atomic. Returns `None` if the message needs nothing more
    /// now, because it is held until its index is open, or because its response reports that no
    /// entry matches.
    fn entry_for(
        &mut self,
        source: Rank,
        index: u8,
        header: Header,
        incoming: &Incoming,
    ) -> Result<Option<Hit>, ProtocolError> {
        match self.accept(index, incoming)? {
            Found::Entry(hit) => {
                self.advertise(source, index, hit.id);
                return Ok(Some(hit));
            }
            Found::Closed => {
                let held = Held {
                    source,
                    header,
                    data: Buffer::empty(),
                    cost: Cost::of_header(index),
                };
                self.hold(index, held);
            }
            Found::Nothing => {
                self.consumed(source, Cost::of_header(index));
                match header {
                    Header::Get(get) => {
                        self.reply(source, get.operation, Outcome::NoMatch, Buffer::empty())?;
                    }
                    Header::Atomic(atomic) => {
                        self.respond(source, atomic.operation, Outcome::NoMatch, 0, 0)?;
                    }
                    // Unreachable, because this function is called only for gets and atomics.
                    _ => return Err(ProtocolError),
                }
            }
        }
        Ok(None)
    }

    pub(crate) fn get_arrives(&mut self, source: Rank, get: &Get) -> Result<(), ProtocolError> {
        let length = get.length as usize;
        if length > self.config.max_message {
            return Err(ProtocolError);
        }
        let incoming = Incoming {
            kind: MessageKind::Get,
            source,
            match_bits: get.match_bits,
            offset: get.offset,
            length,
        };
        let header = Header::Get(*get);
        let Some(hit) = self.entry_for(source, get.index, header, &incoming)? else {
            return Ok(());
        };
        self.unlinked(get.index, &hit);
        let from = match hit.location {
            Location::Region(address) => Some(ReplySource::Region(address)),
            Location::Process(address) => Some(ReplySource::Process(address)),
            // There is nothing to read.
            Location::Managed | Location::Nothing => None,
        };
        let from = from.filter(|_| hit.length > 0);
        let event = |outcome| {
            let raised = outcome == Outcome::Done && Self::raises_event(&hit);
            raised.then_some(Event::Get {
                tag: hit.tag,
                source,
                match_bits: get.match_bits,
                offset: hit.offset,
                length: hit.length,
            })
        };
        if let Some(from) = from
            && source != self.rank
            && hit.length > SHORT_REPLY
            && from.is_there(hit.length)
        {
            self.begin_use(get.index, hit.id);
            let reply = LongReply {
                to: source,
                operation: get.operation,
                source: from,
                length: hit.length,
                index: get.index,
                entry: hit.id,
                event: event(hit.outcome),
            };
            self.queue_control(source, Control::LongReply(reply));
            return Ok(());
        }
        if let Some(ReplySource::Region(address)) = from
            && source == self.rank
        {
            self.post_or_consume(source, get.index, event(hit.outcome));
            let from: *const u8 = regions::pointer(address);
            // SAFETY: `hit.length` bytes at `address` lie within the entry that the get has
            // matched.
            return unsafe {
                self.reply_arrives(source, get.operation, hit.outcome, from, hit.length)
            };
        }
        let (mut outcome, mut data) = (hit.outcome, Buffer::empty());
        if let Some(from) = from {
            data = self.pool.take(hit.length);
            // SAFETY: `hit.length` bytes lie within the entry that the get has matched.
            if !unsafe { from.read(0, data.bytes_mut()) } {
                self.pool
                    .give(std::mem::replace(&mut data, Buffer::empty()));
                outcome = Outcome::OutOfRange;
            }
        }
        self.post_or_consume(source, get.index, event(outcome));
        self.reply(source, get.operation, outcome, data)
    }

    /// Queues the event of a get or an atomic. If there is no event, the operation is consumed at
    /// once.
    fn post_or_consume(&mut self, source: Rank, index: u8, event: Option<Event<'static>>) {
        let cost = Cost::of_header(index);
        match (event, self.queue_of(index)) {
            (Some(event), Some(eq)) => self.queue(
                eq,
                Queued::Operation {
                    source,
                    event,
                    cost,
                },
            ),
            _ => self.consumed(source, cost),
        }
    }

    /// Replies to a get with data from a buffer.
    fn reply(
        &mut self,
        to: Rank,
        operation: u32,
        outcome: Outcome,
        data: Buffer,
    ) -> Result<(), ProtocolError> {
        if to == self.rank {
            let bytes = data.bytes();
            // SAFETY: `bytes` is the content of a buffer that is kept until the call has returned.
            let arrived =
                unsafe { self.reply_arrives(to, operation, outcome, bytes.as_ptr(), bytes.len()) };
            self.pool.give(data);
            return arrived;
        }
        let reply = Control::Reply {
            operation,
            outcome,
            data,
        };
        self.queue_control(to, reply);
        Ok(())
    }

    /// Ends a reply whose data are not read any more, because all were `sent` or because the peer
    /// is gone.
    pub(crate) fn end_long_reply(&mut self, reply: LongReply, sent: bool) {
        self.end_use(reply.index, reply.entry);
        if sent {
            self.post_or_consume(reply.to, reply.index, reply.event);
        }
    }

    pub(crate) fn atomic_arrives(
        &mut self,
        source: Rank,
        atomic: &Atomic,
    ) -> Result<(), ProtocolError> {
        let incoming = Incoming {
            kind: MessageKind::Atomic,
            source,
            match_bits: atomic.match_bits,
            offset: atomic.offset,
            length: atomic.ty.size(),
        };
        let header = Header::Atomic(*atomic);
        let Some(hit) = self.entry_for(source, atomic.index, header, &incoming)? else {
            return Ok(());
        };
        if self.direct.enabled && self.native_atomic(source, atomic, &hit) {
            return Ok(());
        }
        let (mut outcome, mut value, mut done) = (hit.outcome, 0, 0);
        let Atomic {
            op,
            ty,
            operand,
            comparand,
            ..
        } = *atomic;
        let old = match hit.location {
            // SAFETY: the integer is aligned and lies within the entry, which lies in a region. The
            // contract of atomics requires the program to access the integer only by atomics.
            Location::Region(address) => address.is_multiple_of(ty.size()).then(|| unsafe {
                apply_atomic(regions::pointer(address), op, ty, operand, comparand)
            }),
            // SAFETY: the caller that appended the entry is responsible for the word at this
            // address.
            Location::Process(address) => unsafe {
                apply_atomic_at(address, op, ty, operand, comparand)
            },
            Location::Managed | Location::Nothing => None,
        };
        match old {
            Some(old) => (value, done) = (old, ty.size()),
            None => outcome = Outcome::OutOfRange,
        }
        let raised = outcome == Outcome::Done && Self::raises_event(&hit);
        let event = raised.then_some(Event::Atomic {
            tag: hit.tag,
            source,
            match_bits: atomic.match_bits,
            offset: hit.offset,
        });
        self.post_or_consume(source, atomic.index, event);
        self.unlinked(atomic.index, &hit);
        // The cast is lossless: the size is 4 or 8.
        self.respond(source, atomic.operation, outcome, done as u32, value)
    }

    pub(crate) fn respond(
        &mut self,
        to: Rank,
        operation: u32,
        outcome: Outcome,
        length: u32,
        value: u64,
    ) -> Result<(), ProtocolError> {
        if to == self.rank {
            return self.response_arrives(to, operation, outcome, length, value);
        }
        let response = Control::Response {
            operation,
            outcome,
            length,
            value,
        };
        self.queue_control(to, response);
        Ok(())
    }
}
