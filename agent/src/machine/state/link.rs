//! One node's link: entries, packed into eager buffers, and the fragments beside them.

use std::collections::{BTreeMap, VecDeque};

use credits::CreditByte;

use crate::machine::state::bulk::Pulled;
use crate::machine::wire::{Port, Protocol, Told};

use crate::code::Code;
use crate::host::{MAX_DESCRIPTOR, Nanos};

/// Bytes of an eager buffer.
pub(crate) const BUFFER: usize = 2048;
/// Eager buffers to one node that are filled or under way.
pub(in crate::machine) const BUFFERS: usize = 4;

/// The most bytes that the name of a message's memory takes in an entry.
pub(in crate::machine) const MAX_NAME: usize = 2 + MAX_DESCRIPTOR;

/// How long an agent that has not started yet is left alone; doubled up to 32 times as much.
pub(in crate::machine) const PAUSE: Nanos = 20_000_000;

/// An entry that is not packed yet.
#[derive(Debug, Clone, Hash)]
pub(in crate::machine) enum Entry {
    /// A request of a process here, by its key.
    Request(u32),
    /// What became of an operation here.
    Response(Box<Response>),
    /// A request is not waited for any more.
    Cancel(u32),
    Close(Port, Protocol),
    Closed(Port, Protocol),
}

#[derive(Debug, Clone, Hash)]
pub(in crate::machine) struct Response {
    pub(in crate::machine) port: Port,
    pub(in crate::machine) protocol: Protocol,
    pub(in crate::machine) number: u32,
    pub(in crate::machine) code: Code,
    pub(in crate::machine) answer: Reply,
}

#[derive(Debug, Clone, Hash)]
pub(in crate::machine) enum Reply {
    Nothing,
    Value(u64),
    /// A message that was taken from a channel, as this source.
    Message(u32),
}

/// What the network reads.
#[derive(Debug, Clone, Hash)]
pub(in crate::machine) enum Sending {
    Buffer {
        node: u32,
        bytes: Vec<u8>,
    },
    Strip {
        node: u32,
        source: u32,
        offset: u64,
        length: u64,
    },
}

impl Sending {
    pub(in crate::machine) fn node(&self) -> u32 {
        match self {
            Self::Buffer { node, .. } | Self::Strip { node, .. } => *node,
        }
    }
}

/// One node's.
#[derive(Debug, Clone, Default, Hash)]
pub(in crate::machine) struct NodeLink {
    pub(in crate::machine) entries: VecDeque<Entry>,
    /// The buffer that is being packed, since when, and those that are packed.
    pub(in crate::machine) open: Vec<u8>,
    pub(in crate::machine) since: Nanos,
    pub(in crate::machine) packed: VecDeque<Vec<u8>>,
    /// Buffers that the network still reads.
    pub(in crate::machine) flying: usize,
    /// Numbers of the next buffers to and from the node, and those that came early.
    pub(in crate::machine) next: u32,
    pub(in crate::machine) expected: u32,
    pub(in crate::machine) early: BTreeMap<u32, (CreditByte, Vec<u8>)>,
    /// Short fragments that the network had no room for.
    pub(in crate::machine) control: VecDeque<(Vec<u8>, Box<[u8]>)>,
    pub(in crate::machine) told: Told,
    /// Operations of the node on channels here, and its ports, that have not ended.
    pub(in crate::machine) operations: usize,
    pub(in crate::machine) ports: usize,
    /// Bytes of eager messages that the node holds of ours, and we of its.
    pub(in crate::machine) left: u64,
    pub(in crate::machine) held: u64,
    /// What it has asked for.
    pub(in crate::machine) pulls: VecDeque<Pulled>,
    pub(in crate::machine) listed: bool,
    /// While its agent has not started yet: when it is tried again, and the pause after that.
    pub(in crate::machine) again: Nanos,
    pub(in crate::machine) pause: Nanos,
}

impl NodeLink {
    pub(in crate::machine) fn due(&self, age: Nanos) -> Option<Nanos> {
        (!self.open.is_empty()).then_some(self.since + age)
    }

    /// When an agent that has not started yet is tried again, if it is left alone until then.
    pub(in crate::machine) fn again(&self, now: Nanos) -> Option<Nanos> {
        (self.again > now).then_some(self.again)
    }

    /// The node's agent has not started yet.
    pub(in crate::machine) fn try_later(&mut self, now: Nanos) {
        self.pause = (2 * self.pause).clamp(PAUSE, 32 * PAUSE);
        self.again = now + self.pause;
    }

    /// Buffers that are not free.
    pub(in crate::machine) fn used(&self) -> usize {
        self.packed.len() + self.flying + usize::from(!self.open.is_empty())
    }

    /// Makes room for an entry of so many bytes at most. `false`: there is none now.
    pub(in crate::machine) fn make_room(&mut self, bytes: usize, now: Nanos) -> bool {
        if self.open.len() + bytes > BUFFER {
            self.packed.push_back(std::mem::take(&mut self.open));
        }
        if self.open.is_empty() {
            self.since = now;
            self.open.reserve(BUFFER);
            return self.used() < BUFFERS;
        }
        true
    }

    pub(in crate::machine) fn is_quiet(&self) -> bool {
        self.entries.is_empty()
            && self.open.is_empty()
            && self.packed.is_empty()
            && self.control.is_empty()
            && self.pulls.is_empty()
            && self.told == Told::default()
    }

    /// A message of so many bytes of the node is not held any more.
    pub(in crate::machine) fn consume(&mut self, bytes: u32) {
        self.held -= u64::from(bytes);
        self.told.consumed += bytes;
    }
}
