//! The messages that are not eager: at their sender's agent until they were pulled, at their
//! receiver's until they have arrived.

use std::collections::VecDeque;
use std::hash::{Hash, Hasher};
use std::ops::Range;

use slab::Slab;

use crate::code::Code;
use crate::host::{Memory, Message};
use crate::machine::state::hash;

/// A message here that another agent pulls, or that waits to be packed.
#[derive(Debug, Clone, Hash)]
pub(in crate::machine) struct Source<M> {
    pub(in crate::machine) node: u32,
    pub(in crate::machine) message: Message<M>,
    /// Bytes of it that are to be pulled: all, but of imported memory.
    pub(in crate::machine) length: u64,
    /// Bytes that were pulled, and those of them that are there.
    pub(in crate::machine) pulled: u64,
    pub(in crate::machine) sent: u64,
    /// Strips that the network reads.
    pub(in crate::machine) flying: u32,
    /// Of a request that isn't answered: its key.
    pub(in crate::machine) request: Option<u32>,
    /// It was taken from a channel here.
    pub(in crate::machine) is_taken: bool,
    /// It is in memory of another agent of this node.
    pub(in crate::machine) is_part: bool,
    /// It isn't wanted any more.
    pub(in crate::machine) dropped: Option<Code>,
}

/// A part of a source that an arrival at another agent is to be given.
#[derive(Debug, Clone, Copy, Hash)]
pub(in crate::machine) struct Pulled {
    pub(in crate::machine) source: u32,
    pub(in crate::machine) arrival: u32,
    pub(in crate::machine) offset: u64,
    pub(in crate::machine) length: u64,
}

impl Pulled {
    /// What is left of it after so many bytes.
    pub(in crate::machine) fn after(self, bytes: u64) -> Option<Self> {
        (bytes < self.length).then(|| Self {
            offset: self.offset + bytes,
            length: self.length - bytes,
            ..self
        })
    }
}

/// What a message is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::machine) enum For {
    /// An operation here, by its key.
    Operation(u32),
    /// A get of a process here, by its key.
    Request(u32),
    /// A part that was taken from a sibling, and its number there.
    Loan(u32, u32),
}

/// Where the bytes of an arrival are.
#[derive(Debug, Clone, Hash)]
pub(in crate::machine) enum Origin {
    /// Here.
    Here(Vec<u8>),
    /// With the node's agent, as this source, and under this name with that node's other agents.
    Source {
        source: u32,
        name: Option<Box<[u8]>>,
    },
    /// In memory of that name, which another agent of that node has exported. They go into memory
    /// here that a sibling has exported.
    Part {
        name: Box<[u8]>,
        destination: Box<[u8]>,
    },
}

/// A message that comes, or a part of one, once there is memory for it and budget.
#[derive(Debug, Clone, Hash)]
pub(in crate::machine) struct Arrival<M> {
    pub(in crate::machine) node: u32,
    pub(in crate::machine) origin: Origin,
    /// The bytes of its memory that come.
    pub(in crate::machine) span: Range<u64>,
    pub(in crate::machine) hints: u64,
    pub(in crate::machine) client: u64,
    pub(in crate::machine) memory: Option<M>,
    /// What was not asked for and not lent.
    pub(in crate::machine) rest: Range<u64>,
    /// Likewise: what siblings have given back.
    pub(in crate::machine) returned: Vec<Range<u64>>,
    /// Bytes that were asked for; those of them whose strips have begun; those that have arrived.
    /// Each is at least the next, so nothing writes to an arrival that is over.
    pub(in crate::machine) requested: u64,
    pub(in crate::machine) begun: u64,
    pub(in crate::machine) arrived: u64,
    /// Parts that siblings have, and bytes that have come by them.
    pub(in crate::machine) lent: u32,
    pub(in crate::machine) stolen: u64,
    /// All is there, and the source's agent is asked whether it was kept until now.
    pub(in crate::machine) settling: bool,
    pub(in crate::machine) owner: For,
    /// It isn't wanted any more; strips of it are under way, or siblings may write to it.
    pub(in crate::machine) unwanted: Option<Code>,
    /// The session with the node has ended.
    pub(in crate::machine) lost: bool,
}

impl<M: Memory> Arrival<M> {
    pub(in crate::machine) fn length(&self) -> u64 {
        self.span.end - self.span.start
    }

    /// Bytes that a sibling can be given.
    pub(in crate::machine) fn lendable(&self) -> u64 {
        let is_named = matches!(self.origin, Origin::Source { name: Some(_), .. });
        match &self.memory {
            Some(memory) if is_named && self.unwanted.is_none() && memory.is_own() => {
                self.rest.end - self.rest.start
            }
            _ => 0,
        }
    }

    /// The names of its source's memory and its own.
    pub(in crate::machine) fn names(&self) -> Option<[Box<[u8]>; 2]> {
        match &self.origin {
            Origin::Source {
                name: Some(name), ..
            } => Some([name.clone(), self.memory.as_ref()?.export()?]),
            _ => None,
        }
    }

    /// The part of at most so many bytes at its end is lent from now on.
    pub(in crate::machine) fn lend(&mut self, most: u64) -> Range<u64> {
        let end = self.rest.end;
        self.rest.end = end - most.min(end - self.rest.start);
        self.lent += 1;
        self.rest.end..end
    }

    /// A part that was lent has come, or was given back; whether there is more to ask for now.
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

    /// Where the next bytes are that are to be asked for.
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
    /// Arrivals without memory, in the order in which they were announced.
    pub(in crate::machine) unallocated: VecDeque<u32>,
    /// Those with memory of which there is more to ask for.
    pub(in crate::machine) hungry: Vec<u32>,
    /// Bytes asked for that have not arrived; bytes under way from here.
    pub(in crate::machine) ejected: u64,
    pub(in crate::machine) injected: u64,
    /// Sources in memory of other agents of this node.
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

    /// Whether an arrival waits for memory, of which nobody tells.
    pub(in crate::machine) fn is_starved(&self) -> bool {
        !self.unallocated.is_empty()
    }

    /// Whether there is nothing more to ask for.
    pub(in crate::machine) fn asks_nothing(&self) -> bool {
        self.hungry.is_empty() && self.unallocated.is_empty()
    }

    /// Nothing more is asked for but of these.
    pub(in crate::machine) fn ask_only(&mut self, is_wanted: impl Fn(u32, &Arrival<M>) -> bool) {
        let arrivals = &self.arrivals;
        let is_left = |key: &u32| {
            let arrival = arrivals.get(*key as usize);
            arrival.is_some_and(|arrival| is_wanted(*key, arrival))
        };
        self.hungry.retain(is_left);
        self.unallocated.retain(is_left);
    }

    /// Reads a part of a source.
    pub(in crate::machine) fn read(&self, source: u32, offset: u64, into: &mut [u8]) {
        if let Some(source) = self.sources.get(source as usize) {
            // Fits: within the message.
            source.message.memory.read(offset as usize, into);
        }
    }

    /// A source's bytes, and what travels beside them.
    pub(in crate::machine) fn describe(&self, source: u32) -> Option<&Message<M>> {
        Some(&self.sources.get(source as usize)?.message)
    }
}
