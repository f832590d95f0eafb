//! State for lending parts of long messages between the agents of a node.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{Hash, Hasher};
use std::ops::Range;

use slab::Slab;

use crate::host::Nanos;
use crate::machine::state::hash;
use crate::machine::wire::{Reader, put_bytes};

/// The maximum length of a part, in strips. Parts of a message are lent only if the message is at
/// least a quarter (`1 / STRIPS`) of a strip long.
pub(in crate::machine) const STRIPS: u64 = 4;
/// The maximum number of parts lent to one sibling at a time.
pub(in crate::machine) const MAX_LOANS: usize = 64;
/// The maximum number of parts from other agents' memory that this agent is sending or has queued.
pub(in crate::machine) const MAX_PARTS: usize = 1024;
/// The maximum number of sibling events handled per call.
pub(in crate::machine) const EVENTS: usize = 64;
/// How long a thief waits before it again asks a sibling that had no part to lend.
pub(in crate::machine) const AGAIN: Nanos = 1_000_000;
/// How long a part may be lent before an owner that has nothing else to request recalls it.
pub(in crate::machine) const LATE: Nanos = 1_000_000_000;
/// How long the owner lends nothing more to a sibling that has returned an unfinished part.
pub(in crate::machine) const SHUN: Nanos = 10_000_000_000;

/// The messages between the agents of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::machine) enum Tells {
    /// Announces whether the sender has work to steal.
    Backlog(bool),
    /// Asks for a part of at most this many bytes.
    Steal { most: u64 },
    /// Answers that no part can be lent.
    Nothing,
    /// Answers with a part.
    Part(Part),
    /// Asks for the return of a part.
    Recall { loan: u32 },
    /// Returns a part. `is_done` says whether the sender has transferred the part.
    Return { loan: u32, is_done: bool },
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in crate::machine) struct Part {
    pub(in crate::machine) loan: u32,
    /// The host id of the source's node.
    pub(in crate::machine) host: u64,
    pub(in crate::machine) offset: u64,
    pub(in crate::machine) length: u64,
    /// The exported name of the source's memory.
    pub(in crate::machine) name: Box<[u8]>,
    /// The exported name of the destination's memory.
    pub(in crate::machine) destination: Box<[u8]>,
}

impl Tells {
    pub(in crate::machine) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(32);
        match self {
            Self::Backlog(there_is) => bytes.extend([1, u8::from(*there_is)]),
            Self::Steal { most } => {
                bytes.push(2);
                bytes.extend(most.to_le_bytes());
            }
            Self::Nothing => bytes.push(3),
            Self::Part(part) => {
                bytes.push(4);
                bytes.extend(part.loan.to_le_bytes());
                for number in [part.host, part.offset, part.length] {
                    bytes.extend(number.to_le_bytes());
                }
                put_bytes(&mut bytes, &part.name);
                put_bytes(&mut bytes, &part.destination);
            }
            Self::Recall { loan } => {
                bytes.push(5);
                bytes.extend(loan.to_le_bytes());
            }
            Self::Return { loan, is_done } => {
                bytes.extend([6, u8::from(*is_done)]);
                bytes.extend(loan.to_le_bytes());
            }
        }
        bytes
    }

    /// Decodes a message. Returns `None` if it is malformed.
    pub(in crate::machine) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let tells = match reader.u8()? {
            1 => Self::Backlog(reader.bool()?),
            2 => Self::Steal {
                most: reader.u64()?,
            },
            3 => Self::Nothing,
            4 => Self::Part(Part {
                loan: reader.u32()?,
                host: reader.u64()?,
                offset: reader.u64()?,
                length: reader.u64()?,
                name: reader.counted()?.into(),
                destination: reader.counted()?.into(),
            }),
            5 => Self::Recall {
                loan: reader.u32()?,
            },
            6 => Self::Return {
                is_done: reader.bool()?,
                loan: reader.u32()?,
            },
            _ => return None,
        };
        reader.0.is_empty().then_some(tells)
    }
}

/// Another agent of this node.
#[derive(Debug, Default, Clone, Hash)]
pub(in crate::machine) struct Sibling {
    /// Whether the sibling has announced work to steal.
    pub(in crate::machine) has_backlog: bool,
    /// When this agent may ask the sibling for a part again.
    pub(in crate::machine) ask_at: Nanos,
    /// When this agent may lend the sibling a part again.
    pub(in crate::machine) lend_at: Nanos,
    /// The number of parts lent to the sibling.
    pub(in crate::machine) loans: usize,
    /// The messages to be sent to the sibling.
    pub(in crate::machine) out: VecDeque<Vec<u8>>,
    /// Whether this agent has stopped the exchange with the sibling, for example after a protocol
    /// violation. The sibling's messages are ignored until it ends the exchange too.
    pub(in crate::machine) is_broken: bool,
}

/// A part of a local arrival, lent to a sibling.
#[derive(Debug, Clone, Hash)]
pub(in crate::machine) struct Loan {
    pub(in crate::machine) sibling: u32,
    pub(in crate::machine) arrival: u32,
    pub(in crate::machine) part: Range<u64>,
    /// When this agent may recall the part because the sibling has not returned it.
    pub(in crate::machine) late_at: Nanos,
    /// Whether this agent has asked the sibling to return the part.
    pub(in crate::machine) is_recalled: bool,
}

/// A range of exported memory that a node has requested.
#[derive(Debug, Clone, Hash)]
pub(in crate::machine) struct Wanted {
    pub(in crate::machine) node: u32,
    pub(in crate::machine) arrival: u32,
    /// The offset and the length of the range.
    pub(in crate::machine) part: (u64, u64),
    pub(in crate::machine) name: Box<[u8]>,
}

/// The state of lending and stealing; see the [module](self).
#[derive(Debug, Default, Clone)]
pub(in crate::machine) struct Stealing {
    pub(in crate::machine) siblings: BTreeMap<u32, Sibling>,
    pub(in crate::machine) loans: Slab<Loan>,
    /// The arrivals of parts that siblings have lent to this agent, by sibling and the sibling's
    /// loan number.
    pub(in crate::machine) stolen: HashMap<(u32, u32), u32>,
    /// The ranges that nodes have requested and that have not been imported yet.
    pub(in crate::machine) wanted: VecDeque<Wanted>,
    /// Whether this agent has announced a backlog to its siblings.
    pub(in crate::machine) offers: bool,
    /// The sibling that was asked for a part and has not answered.
    pub(in crate::machine) asked: Option<u32>,
}

impl Hash for Stealing {
    fn hash<S: Hasher>(&self, state: &mut S) {
        let Self {
            siblings,
            loans,
            stolen,
            wanted,
            offers,
            asked,
        } = self;
        hash::table(loans, state);
        hash::map(stolen, state);
        (siblings, wanted, offers, asked).hash(state);
    }
}

impl Stealing {
    pub(in crate::machine) fn tell(&mut self, sibling: u32, tells: &Tells) {
        // The queue is bounded: it holds messages about a limited number of loans, and a sibling
        // has at most one unanswered request.
        if let Some(sibling) = self.siblings.get_mut(&sibling) {
            sibling.out.push_back(tells.encode());
        }
    }
}
