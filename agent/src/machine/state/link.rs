//! The state of the traffic to and from one node.

use std::collections::{BTreeMap, VecDeque};

use credits::CreditByte;

use crate::machine::state::bulk::Pulled;
use crate::machine::wire::{Port, Protocol, Told};

use crate::code::Code;
use crate::host::{MAX_DESCRIPTOR, Nanos};

/// The size of an eager buffer in bytes.
pub(crate) const BUFFER: usize = 2048;
/// The maximum number of eager buffers to one node that are being filled or in flight.
pub(in crate::machine) const BUFFERS: usize = 4;

/// The maximum size in bytes of a memory name in an entry, including its length field.
pub(in crate::machine) const MAX_NAME: usize = 2 + MAX_DESCRIPTOR;

/// The shortest time between two attempts to reach an agent that has not started yet. The time
/// doubles with each attempt, up to 32 times this value.
pub(in crate::machine) const PAUSE: Nanos = 20_000_000;

/// An entry that has not been packed yet.
#[derive(Debug, Clone, Hash)]
pub(in crate::machine) enum Entry {
    /// A request of a process of this node, identified by its key.
    Request(u32),
    /// The response to the other node's operation on a channel of this node.
    Response(Box<Response>),
    /// Cancels the request with this key.
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
    /// A message taken from a channel, which is the source with this number.
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

/// The traffic to and from one node.
#[derive(Debug, Clone, Default, Hash)]
pub(in crate::machine) struct NodeLink {
    pub(in crate::machine) entries: VecDeque<Entry>,
    /// The buffer that is being packed.
    pub(in crate::machine) open: Vec<u8>,
    /// When `open` got its first entry.
    pub(in crate::machine) since: Nanos,
    /// The packed buffers that have not been sent yet.
    pub(in crate::machine) packed: VecDeque<Vec<u8>>,
    /// The number of buffers that the network is still reading.
    pub(in crate::machine) flying: usize,
    /// The sequence number of the next buffer to the node.
    pub(in crate::machine) next: u32,
    /// The sequence number of the next buffer from the node.
    pub(in crate::machine) expected: u32,
    /// The buffers that arrived before their predecessors, by sequence number.
    pub(in crate::machine) early: BTreeMap<u32, (CreditByte, Vec<u8>)>,
    /// The headers and payloads of short fragments that have not been sent yet.
    pub(in crate::machine) control: VecDeque<(Vec<u8>, Box<[u8]>)>,
    pub(in crate::machine) told: Told,
    /// The number of the node's unfinished operations on channels of this node.
    pub(in crate::machine) operations: usize,
    /// The number of the other node's ports at this agent.
    pub(in crate::machine) ports: usize,
    /// The number of bytes of this node's eager messages that the other node holds.
    pub(in crate::machine) left: u64,
    /// The number of bytes of the other node's eager messages that this node holds.
    pub(in crate::machine) held: u64,
    /// The ranges of messages that the node has requested.
    pub(in crate::machine) pulls: VecDeque<Pulled>,
    /// Whether the node is in the machine's list of nodes with data to send.
    pub(in crate::machine) listed: bool,
    /// When to try again to reach the node's agent if that agent has not started yet.
    pub(in crate::machine) again: Nanos,
    /// The pause before the next attempt to reach an agent that has not started yet.
    pub(in crate::machine) pause: Nanos,
}

impl NodeLink {
    pub(in crate::machine) fn due(&self, age: Nanos) -> Option<Nanos> {
        (!self.open.is_empty()).then_some(self.since + age)
    }

    /// Returns when to try again to reach the node's agent, or `None` if it may be tried now.
    pub(in crate::machine) fn again(&self, now: Nanos) -> Option<Nanos> {
        (self.again > now).then_some(self.again)
    }

    /// Postpones the next attempt to reach an agent that has not started yet.
    pub(in crate::machine) fn try_later(&mut self, now: Nanos) {
        self.pause = (2 * self.pause).clamp(PAUSE, 32 * PAUSE);
        self.again = now + self.pause;
    }

    /// Returns the number of buffers in use.
    pub(in crate::machine) fn used(&self) -> usize {
        self.packed.len() + self.flying + usize::from(!self.open.is_empty())
    }

    /// Makes room for an entry of at most `bytes` bytes. Returns `false` if too many buffers are in
    /// use.
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
