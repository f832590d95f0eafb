//! The state of messages that are not eager: at the sender's agent until they have been pulled, at
//! the receiver's until they have arrived.

use std::collections::VecDeque;
use std::hash::{Hash, Hasher};
use std::ops::Range;

use slab::Slab;

use crate::code::Code;
use crate::host::{Memory, Message};
use crate::machine::state::hash;

/// A message here that another agent pulls, or that is still to be packed.
#[derive(Debug, Clone, Hash)]
pub(in crate::machine) struct Source<M> {
    pub(in crate::machine) node: u32,
    pub(in crate::machine) message: Message<M>,
    /// Bytes to be pulled: the whole message, or only the wanted part of imported memory.
    pub(in crate::machine) length: u64,
    /// Bytes that were pulled, and how many of them were sent.
    pub(in crate::machine) pulled: u64,
    pub(in crate::machine) sent: u64,
    /// Strips that the network still reads.
    pub(in crate::machine) flying: u32,
    /// The key of the request, if that gets no response.
    pub(in crate::machine) request: Option<u32>,
    /// Taken from a channel of this node.
    pub(in crate::machine) is_taken: bool,
    /// In memory of another agent of this node.
    pub(in crate::machine) is_part: bool,
    /// No longer wanted.
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
    /// Returns the remainder after the first `bytes` bytes.
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
    /// An operation of this node, by its key.
    Operation(u32),
    /// A get of a process of this node, by its key.
    Request(u32),
    /// A part stolen from a sibling, by the sibling and its number of the loan.
    Loan(u32, u32),
}

/// Where the bytes of an arrival are.
#[derive(Debug, Clone, Hash)]
pub(in crate::machine) enum Origin {
    /// In this agent already.
    Here(Vec<u8>),
    /// At the sending node's agent, as this source. That node's other agents know the memory by
    /// this name.
    Source {
        source: u32,
        name: Option<Box<[u8]>>,
    },
    /// In memory of that name, which another agent of the sending node has exported. The bytes go
    /// into memory of this node that a sibling has exported.
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
    /// The range of its memory that is transferred.
    pub(in crate::machine) span: Range<u64>,
    pub(in crate::machine) hints: u64,
    pub(in crate::machine) client: u64,
    pub(in crate::machine) memory: Option<M>,
    /// The range that has been neither requested nor lent.
    pub(in crate::machine) rest: Range<u64>,
    /// Ranges that siblings have given back, to be requested too.
    pub(in crate::machine) returned: Vec<Range<u64>>,
    /// Bytes requested; bytes of strips that have begun; bytes that have arrived. Each is at least
    /// the next, so nothing writes to a finished arrival.
    pub(in crate::machine) requested: u64,
    pub(in crate::machine) begun: u64,
    pub(in crate::machine) arrived: u64,
    /// Number of parts lent to siblings, and bytes that siblings have transferred.
    pub(in crate::machine) lent: u32,
    pub(in crate::machine) stolen: u64,
    /// All bytes are here, and the source's agent was asked whether it kept the source until now.
    pub(in crate::machine) settling: bool,
    pub(in crate::machine) owner: For,
    /// No longer wanted, but strips are in flight or siblings may write to its memory.
    pub(in crate::machine) unwanted: Option<Code>,
    /// The session with the sending node has ended.
    pub(in crate::machine) lost: bool,
}

impl<M: Memory> Arrival<M> {
    pub(in crate::machine) fn length(&self) -> u64 {
        self.span.end - self.span.start
    }

    /// Returns how many bytes can be lent to a sibling.
    pub(in crate::machine) fn lendable(&self) -> u64 {
        let is_named = matches!(self.origin, Origin::Source { name: Some(_), .. });
        match &self.memory {
            Some(memory) if is_named && self.unwanted.is_none() && memory.is_own() => {
                self.rest.end - self.rest.start
            }
            _ => 0,
        }
    }

    /// Returns the names of the source's memory and of this arrival's.
    pub(in crate::machine) fn names(&self) -> Option<[Box<[u8]>; 2]> {
        match &self.origin {
            Origin::Source {
                name: Some(name), ..
            } => Some([name.clone(), self.memory.as_ref()?.export()?]),
            _ => None,
        }
    }

    /// Lends a part of at most `most` bytes, from the end of the range.
    pub(in crate::machine) fn lend(&mut self, most: u64) -> Range<u64> {
        let end = self.rest.end;
        self.rest.end = end - most.min(end - self.rest.start);
        self.lent += 1;
        self.rest.end..end
    }

    /// Takes back a lent part, finished or not. Returns whether it has to be requested here.
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

    /// Returns the range to request from next.
    pub(in crate::machine) fn next(&mut self) -> &mut Range<u64> {
        match self.returned.last_mut() {
            Some(part) => part,
            None => &mut self.rest,
        }
    }
}

/// See the [module](self).
#[derive(Debug, Clone)]
pub(in crate::machine) struct Bulk<M> {
    pub(in crate::machine) sources: Slab<Source<M>>,
    pub(in crate::machine) arrivals: Slab<Arrival<M>>,
    /// Arrivals without memory, in the order of their announcement.
    pub(in crate::machine) unallocated: VecDeque<u32>,
    /// Arrivals with memory that are not fully requested.
    pub(in crate::machine) hungry: Vec<u32>,
    /// Bytes requested that have not arrived, and bytes that this agent is sending.
    pub(in crate::machine) ejected: u64,
    pub(in crate::machine) injected: u64,
    /// Number of sources in memory of other agents of this node.
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

    /// Returns whether an arrival waits for memory. No event reports free memory, so it is polled
    /// for.
    pub(in crate::machine) fn is_starved(&self) -> bool {
        !self.unallocated.is_empty()
    }

    /// Returns whether there is nothing left to request.
    pub(in crate::machine) fn asks_nothing(&self) -> bool {
        self.hungry.is_empty() && self.unallocated.is_empty()
    }

    /// Stops requesting for all arrivals except the wanted ones.
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
            // Fits: within the message.
            source.message.memory.read(offset as usize, into);
        }
    }

    /// Returns a source's message.
    pub(in crate::machine) fn describe(&self, source: u32) -> Option<&Message<M>> {
        Some(&self.sources.get(source as usize)?.message)
    }
}
