//! The state of the traffic to and from one node.

use std::collections::{BTreeMap, VecDeque};

use credits::CreditByte;

use crate::machine::state::bulk::Pulled;
use crate::machine::wire::{Port, Protocol, Told};

use crate::code::Code;
use crate::host::{MAX_DESCRIPTOR, Nanos};

/// Bytes of an eager buffer.
pub(crate) const BUFFER: usize = 2048;
/// The maximum number of eager buffers to one node that are being filled or in flight.
pub(in crate::machine) const BUFFERS: usize = 4;

/// The maximum size of a memory name in an entry.
pub(in crate::machine) const MAX_NAME: usize = 2 + MAX_DESCRIPTOR;

/// The shortest time between two attempts to reach an agent that has not started yet; it doubles up
/// to 32 times this.
pub(in crate::machine) const PAUSE: Nanos = 20_000_000;

/// An entry that has not been packed yet.
#[derive(Debug, Clone, Hash)]
pub(in crate::machine) enum Entry {
    /// A request of a process of this node, by its key.
    Request(u32),
    /// The result of an operation on this node.
    Response(Box<Response>),
    /// Cancels a request.
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
    /// A message taken from a channel, as this source.
    Message(u32),
}

/// A buffer or strip that the network reads.
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

/// The traffic of one node.
#[derive(Debug, Clone, Default, Hash)]
pub(in crate::machine) struct NodeLink {
    pub(in crate::machine) entries: VecDeque<Entry>,
    /// The buffer being packed, the time of its first entry, and the packed buffers.
    pub(in crate::machine) open: Vec<u8>,
    pub(in crate::machine) since: Nanos,
    pub(in crate::machine) packed: VecDeque<Vec<u8>>,
    /// Number of buffers that the network still reads.
    pub(in crate::machine) flying: usize,
    /// Sequence numbers of the next buffers to and from the node, and buffers that arrived early.
    pub(in crate::machine) next: u32,
    pub(in crate::machine) expected: u32,
    pub(in crate::machine) early: BTreeMap<u32, (CreditByte, Vec<u8>)>,
    /// Short fragments that the network had no room for yet.
    pub(in crate::machine) control: VecDeque<(Vec<u8>, Box<[u8]>)>,
    pub(in crate::machine) told: Told,
    /// Number of the node's unfinished operations on channels here, and of its ports.
    pub(in crate::machine) operations: usize,
    pub(in crate::machine) ports: usize,
    /// Bytes of eager messages that the node holds for this one, and this one for the node.
    pub(in crate::machine) left: u64,
    pub(in crate::machine) held: u64,
    /// Ranges of messages that the node has requested.
    pub(in crate::machine) pulls: VecDeque<Pulled>,
    pub(in crate::machine) listed: bool,
    /// While its agent has not started: when to try it again, and the last pause.
    pub(in crate::machine) again: Nanos,
    pub(in crate::machine) pause: Nanos,
}

impl NodeLink {
    pub(in crate::machine) fn due(&self, age: Nanos) -> Option<Nanos> {
        (!self.open.is_empty()).then_some(self.since + age)
    }

    /// Returns when an agent that has not started is tried again, or `None` if it may be tried now.
    pub(in crate::machine) fn again(&self, now: Nanos) -> Option<Nanos> {
        (self.again > now).then_some(self.again)
    }

    /// Postpones the next attempt at an agent that has not started.
    pub(in crate::machine) fn try_later(&mut self, now: Nanos) {
        self.pause = (2 * self.pause).clamp(PAUSE, 32 * PAUSE);
        self.again = now + self.pause;
    }

    /// Returns the number of buffers in use.
    pub(in crate::machine) fn used(&self) -> usize {
        self.packed.len() + self.flying + usize::from(!self.open.is_empty())
    }

    /// Makes room for an entry of at most `bytes` bytes. Returns `false` if there is none now.
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

    /// Records that `bytes` bytes of the node's eager messages are no longer held.
    pub(in crate::machine) fn consume(&mut self, bytes: u32) {
        self.held -= u64::from(bytes);
        self.told.consumed += bytes;
    }
}
