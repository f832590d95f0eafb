//! The state of messages that are not eager. The sender's agent keeps a [`Source`] until the
//! message has been pulled, and the receiver's agent keeps an [`Arrival`] until the message has
//! arrived.

use std::collections::VecDeque;
use std::hash::{Hash, Hasher};
use std::ops::Range;

use slab::Slab;

use crate::code::Code;
use crate::host::{Memory, Message};
use crate::machine::state::hash;

/// A message at this agent that another agent pulls, or that has not been packed yet.
#[derive(Debug, Clone, Hash)]
pub(in crate::machine) struct Source<M> {
    pub(in crate::machine) node: u32,
    pub(in crate::machine) message: Message<M>,
    /// The number of bytes to be pulled: the length of the message, or the length of the wanted
    /// part if the memory is imported.
    pub(in crate::machine) length: u64,
    /// The number of bytes that have been requested, including those of parts that other agents of
    /// this node have sent.
    pub(in crate::machine) pulled: u64,
    /// The number of requested bytes that have been sent.
    pub(in crate::machine) sent: u64,
    /// The number of this source's strips that the network is still reading.
    pub(in crate::machine) flying: u32,
    /// The key of the request that sends the message, if that request gets no response.
    pub(in crate::machine) request: Option<u32>,
    /// Whether the message was taken from a channel of this node.
    pub(in crate::machine) is_taken: bool,
    /// Whether the message is in memory that belongs to another agent of this node.
    pub(in crate::machine) is_part: bool,
    /// The reason why the message is no longer wanted, or `None` while it is wanted.
    pub(in crate::machine) dropped: Option<Code>,
}

/// A range of a source that an arrival at another agent has requested.
#[derive(Debug, Clone, Copy, Hash)]
pub(in crate::machine) struct Pulled {
    pub(in crate::machine) source: u32,
    pub(in crate::machine) arrival: u32,
    pub(in crate::machine) offset: u64,
    pub(in crate::machine) length: u64,
}

impl Pulled {
    /// Returns the range without its first `bytes` bytes, or `None` if nothing remains.
    pub(in crate::machine) fn after(self, bytes: u64) -> Option<Self> {
        (bytes < self.length).then(|| Self {
            offset: self.offset + bytes,
            length: self.length - bytes,
            ..self
        })
    }
}

/// The purpose of an arriving message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::machine) enum For {
    /// An operation on a channel of this node, identified by its key.
    Operation(u32),
    /// A get of a process of this node, identified by its key.
    Request(u32),
    /// A part stolen from a sibling, identified by the sibling and by the loan's number at that
    /// sibling.
    Loan(u32, u32),
}

/// Where the bytes of an arrival are.
#[derive(Debug, Clone, Hash)]
pub(in crate::machine) enum Origin {
    /// The bytes are already at this agent.
    Here(Vec<u8>),
    /// The bytes are at the sending node's agent, in the source with this number. If the
    /// memory has a name, the other agents of that node can import the memory by this name.
    Source {
        source: u32,
        name: Option<Box<[u8]>>,
    },
    /// The bytes are in memory that another agent of the sending node has exported under `name`.
    /// They are transferred into memory that a sibling of this agent has exported as `destination`.
    Part {
        name: Box<[u8]>,
        destination: Box<[u8]>,
    },
}

/// A message, or a part of one, that is transferred once there is memory and budget for it.
#[derive(Debug, Clone, Hash)]
pub(in crate::machine) struct Arrival<M> {
    pub(in crate::machine) node: u32,
    pub(in crate::machine) origin: Origin,
    /// The range of the memory that is transferred.
    pub(in crate::machine) span: Range<u64>,
    pub(in crate::machine) hints: u64,
    pub(in crate::machine) client: u64,
    pub(in crate::machine) memory: Option<M>,
    /// The range that has been neither requested nor lent yet.
    pub(in crate::machine) rest: Range<u64>,
    /// The ranges that siblings have given back and that this agent has to request itself.
    pub(in crate::machine) returned: Vec<Range<u64>>,
    /// The number of bytes that have been requested. Because `arrived <= begun <= requested` holds,
    /// nothing writes to a finished arrival.
    pub(in crate::machine) requested: u64,
    /// The number of bytes in strips that have begun to arrive.
    pub(in crate::machine) begun: u64,
    /// The number of bytes in strips that have arrived completely.
    pub(in crate::machine) arrived: u64,
    /// The number of parts that are lent to siblings.
    pub(in crate::machine) lent: u32,
    /// The number of bytes that siblings have transferred.
    pub(in crate::machine) stolen: u64,
    /// Whether all bytes have arrived and the source's agent has been asked to confirm that it
    /// still keeps the source.
    pub(in crate::machine) settling: bool,
    pub(in crate::machine) owner: For,
    /// The reason why the message is no longer wanted, or `None` while it is wanted. An
    /// unwanted arrival is kept while strips are in flight or siblings may write to its memory.
    pub(in crate::machine) unwanted: Option<Code>,
    /// Whether the session with the sending node has ended.
    pub(in crate::machine) lost: bool,
}

impl<M: Memory> Arrival<M> {
    pub(in crate::machine) fn length(&self) -> u64 {
        self.span.end - self.span.start
    }

    /// Returns the number of bytes that can be lent to siblings.
    pub(in crate::machine) fn lendable(&self) -> u64 {
        let is_named = matches!(self.origin, Origin::Source { name: Some(_), .. });
        match &self.memory {
            Some(memory) if is_named && self.unwanted.is_none() && memory.is_own() => {
                self.rest.end - self.rest.start
            }
            _ => 0,
        }
    }

    /// Returns the names of the source's memory and of this arrival's memory, or `None` if either
    /// memory has no name.
    pub(in crate::machine) fn names(&self) -> Option<[Box<[u8]>; 2]> {
        match &self.origin {
            Origin::Source {
                name: Some(name), ..
            } => Some([name.clone(), self.memory.as_ref()?.export()?]),
            _ => None,
        }
    }

    /// Lends a part of at most `most` bytes from the end of `rest`, and returns this part.
    pub(in crate::machine) fn lend(&mut self, most: u64) -> Range<u64> {
        let end = self.rest.end;
        self.rest.end = end - most.min(end - self.rest.start);
        self.lent += 1;
        self.rest.end..end
    }

    /// Takes back a lent part. `is_done` says whether the sibling has transferred the part. Returns
    /// whether this agent has to request the part itself.
    pub(in crate::machine) fn lent_back(&mut self, part: Range<u64>, is_done: bool) -> bool {
        self.lent -= 1;
        if is_done {
            self.stolen += part.end - part.start;
            return false;
        }
        let is_wanted = self.unwanted.is_none();
        if is_wanted {
            self.returned.push(part);
        }
        is_wanted
    }

    /// Returns the range from which the next bytes are to be requested.
    pub(in crate::machine) fn next(&mut self) -> &mut Range<u64> {
        match self.returned.last_mut() {
            Some(part) => part,
            None => &mut self.rest,
        }
    }
}

/// The sources and arrivals at this agent; see the [module](self).
#[derive(Debug, Clone)]
pub(in crate::machine) struct Bulk<M> {
    pub(in crate::machine) sources: Slab<Source<M>>,
    pub(in crate::machine) arrivals: Slab<Arrival<M>>,
    /// The arrivals that have no memory yet, in the order in which they were announced.
    pub(in crate::machine) unallocated: VecDeque<u32>,
    /// The arrivals that have memory and are not fully requested yet.
    pub(in crate::machine) hungry: Vec<u32>,
    /// The number of bytes that this agent has requested and that have not arrived yet.
    pub(in crate::machine) ejected: u64,
    /// The number of bytes of strips that this agent is sending.
    pub(in crate::machine) injected: u64,
    /// The number of sources in memory of other agents of this node.
    pub(in crate::machine) parts: usize,
}

impl<M: Hash> Hash for Bulk<M> {
    fn hash<S: Hasher>(&self, state: &mut S) {
        let Self {
            sources,
            arrivals,
            unallocated,
            hungry,
            ejected,
            injected,
            parts,
        } = self;
        hash::table(sources, state);
        hash::table(arrivals, state);
        (unallocated, hungry, ejected, injected, parts).hash(state);
    }
}

impl<M: Memory> Bulk<M> {
    pub(in crate::machine) fn new() -> Self {
        Self {
            sources: Slab::new(),
            arrivals: Slab::new(),
            unallocated: VecDeque::new(),
            hungry: Vec::new(),
            ejected: 0,
            injected: 0,
            parts: 0,
        }
    }

    pub(in crate::machine) fn len(&self) -> usize {
        self.sources.len() + self.arrivals.len()
    }

    /// Returns whether an arrival waits for memory. The agent has to poll for memory, because no
    /// event reports that memory has become free.
    pub(in crate::machine) fn is_starved(&self) -> bool {
        !self.unallocated.is_empty()
    }

    /// Returns whether there is nothing left to request.
    pub(in crate::machine) fn asks_nothing(&self) -> bool {
        self.hungry.is_empty() && self.unallocated.is_empty()
    }

    /// Stops requesting bytes for all arrivals except those for which `is_wanted` returns `true`.
    pub(in crate::machine) fn ask_only(&mut self, is_wanted: impl Fn(u32, &Arrival<M>) -> bool) {
        let arrivals = &self.arrivals;
        let is_left = |key: &u32| {
            let arrival = arrivals.get(*key as usize);
            arrival.is_some_and(|arrival| is_wanted(*key, arrival))
        };
        self.hungry.retain(is_left);
        self.unallocated.retain(is_left);
    }

    /// Reads a range of a source.
    pub(in crate::machine) fn read(&self, source: u32, offset: u64, into: &mut [u8]) {
        if let Some(source) = self.sources.get(source as usize) {
            // The cast is lossless: the offset is within the message.
            source.message.memory.read(offset as usize, into);
        }
    }

    /// Returns a source's message.
    pub(in crate::machine) fn describe(&self, source: u32) -> Option<&Message<M>> {
        Some(&self.sources.get(source as usize)?.message)
    }
}
