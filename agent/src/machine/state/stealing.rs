//! The loans of long messages between the agents of a node.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{Hash, Hasher};
use std::ops::Range;

use slab::Slab;

use crate::host::Nanos;
use crate::machine::state::hash;
use crate::machine::wire::{Reader, put_bytes};

/// A part is as long as so many strips at most; what is shorter than one strip by this factor isn't
/// lent.
pub(in crate::machine) const STRIPS: u64 = 4;
/// Parts that one sibling has at most.
pub(in crate::machine) const MAX_LOANS: usize = 64;
/// Parts of others' memory that are under way from here at most.
pub(in crate::machine) const MAX_PARTS: usize = 1024;
/// What siblings tell that is heard at a time.
pub(in crate::machine) const EVENTS: usize = 64;
/// An agent that has got nothing asks the same one again after this.
pub(in crate::machine) const AGAIN: Nanos = 1_000_000;
/// An owner with nothing else to ask for recalls what it has lent after this.
pub(in crate::machine) const LATE: Nanos = 1_000_000_000;
/// Who has returned a part undone gets none for so long.
pub(in crate::machine) const SHUN: Nanos = 10_000_000_000;

/// What the agents of a node tell each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::machine) enum Tells {
    /// There is work to steal, or no more.
    Backlog(bool),
    /// Give a part of at most so many bytes.
    Steal { most: u64 },
    /// The answer: there is none.
    Nothing,
    /// The answer: a part.
    Part(Part),
    /// A part is to be returned.
    Recall { loan: u32 },
    /// A part has come, or is given back.
    Return { loan: u32, is_done: bool },
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in crate::machine) struct Part {
    pub(in crate::machine) loan: u32,
    /// The host id of the source's node.
    pub(in crate::machine) host: u64,
    pub(in crate::machine) offset: u64,
    pub(in crate::machine) length: u64,
    /// The source's memory, and the destination's.
    pub(in crate::machine) name: Box<[u8]>,
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

    /// `None`: it makes no sense.
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

/// Another agent of the node.
#[derive(Debug, Default, Clone, Hash)]
pub(in crate::machine) struct Sibling {
    pub(in crate::machine) has_backlog: bool,
    /// Not asked before.
    pub(in crate::machine) ask_at: Nanos,
    /// Given nothing before.
    pub(in crate::machine) lend_at: Nanos,
    /// Parts that it has.
    pub(in crate::machine) loans: usize,
    /// What it is to be told.
    pub(in crate::machine) out: VecDeque<Vec<u8>>,
    /// It has broken the protocol: nothing that it says counts, until it has ended.
    pub(in crate::machine) is_broken: bool,
}

/// A part of an arrival here that a sibling has.
#[derive(Debug, Clone, Hash)]
pub(in crate::machine) struct Loan {
    pub(in crate::machine) sibling: u32,
    pub(in crate::machine) arrival: u32,
    pub(in crate::machine) part: Range<u64>,
    pub(in crate::machine) late_at: Nanos,
    pub(in crate::machine) is_recalled: bool,
}

/// A part of memory that a node wants.
#[derive(Debug, Clone, Hash)]
pub(in crate::machine) struct Wanted {
    pub(in crate::machine) node: u32,
    pub(in crate::machine) arrival: u32,
    pub(in crate::machine) part: (u64, u64),
    pub(in crate::machine) name: Box<[u8]>,
}

/// See the [module](self).
#[derive(Debug, Default, Clone)]
pub(in crate::machine) struct Stealing {
    pub(in crate::machine) siblings: BTreeMap<u32, Sibling>,
    pub(in crate::machine) loans: Slab<Loan>,
    /// The arrivals of parts that siblings have lent, by the sibling and its number of it.
    pub(in crate::machine) stolen: HashMap<(u32, u32), u32>,
    pub(in crate::machine) wanted: VecDeque<Wanted>,
    /// Siblings know of a backlog here.
    pub(in crate::machine) offers: bool,
    /// Who was asked for a part and has not answered.
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
        // What is to be told is bounded: by loans, and by one question at a time.
        if let Some(sibling) = self.siblings.get_mut(&sibling) {
            sibling.out.push_back(tells.encode());
        }
    }
}
