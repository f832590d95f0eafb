//! The state of other agents' operations on channels of this node, in the queues of their ports.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::{Hash, Hasher};

use slab::Slab;

use crate::host::{Limit, Message, Nanos, ReturnMode};
use crate::machine::state::hash;
use crate::machine::wire::{Port, Protocol};

/// The shortest time until a blocked operation is tried again. The time doubles with each attempt,
/// up to [`LONGEST`].
pub(in crate::machine) const SHORTEST: Nanos = 20_000;
/// The longest time until a blocked operation is tried again.
pub(in crate::machine) const LONGEST: Nanos = 1_000_000;

/// The maximum sum of a node's operations, its ports and the entries queued for it, as a multiple
/// of the maximum number of requests (or of 16,384, if that is more). A node with a larger sum
/// violates the protocol.
pub(in crate::machine) const MOST_OPERATIONS: usize = 8;

/// The message of a send.
#[derive(Clone, Hash)]
pub(in crate::machine) enum Load<M> {
    /// The message is at this agent, but not in shared memory yet.
    Eager(Vec<u8>),
    /// The message is still arriving, as the arrival with this key.
    Arriving(u32),
    /// The message is ready to be put into the channel. The value is `None` once the message has
    /// been put there.
    Ready(Option<Message<M>>),
}

#[derive(Clone, Hash)]
pub(in crate::machine) enum Task<M> {
    Send {
        load: Load<M>,
        hints: u64,
        client: u64,
        destination: Option<Box<[u8]>>,
        /// The number of the message's receipt if the sender waits until a receiver takes the
        /// message from the channel.
        receipt: Option<u64>,
    },
    Get,
    Poll(u16),
}

#[derive(Clone, Hash)]
pub(in crate::machine) struct Operation<M> {
    pub(in crate::machine) node: u32,
    pub(in crate::machine) port: Port,
    pub(in crate::machine) queue: u32,
    /// The number of the response, if the requester expects one.
    pub(in crate::machine) number: Option<u32>,
    pub(in crate::machine) protocol: Protocol,
    pub(in crate::machine) mode: ReturnMode,
    pub(in crate::machine) limit: Limit,
    /// The length of the operation's eager message in bytes, or 0 if it has none.
    pub(in crate::machine) eager: u32,
    pub(in crate::machine) task: Task<M>,
}

#[derive(Clone, Hash)]
pub(in crate::machine) struct Queue<C> {
    pub(in crate::machine) descriptor: Box<[u8]>,
    /// The attachment to the channel, made on first use and again after an error.
    pub(in crate::machine) channel: Option<C>,
    /// The keys of the operations, in order.
    pub(in crate::machine) operations: VecDeque<u32>,
    /// The number of ports that use the queue.
    pub(in crate::machine) users: u32,
    /// When the queue is tried next, or `None` if no attempt is scheduled.
    pub(in crate::machine) next: Option<Nanos>,
    /// How long the queue pauses if the next attempt is blocked.
    pub(in crate::machine) pause: Nanos,
    /// Whether the queue holds the gets of all ports of a channel.
    pub(in crate::machine) is_shared: bool,
}

#[derive(Clone, Hash)]
pub(in crate::machine) struct PortState {
    pub(in crate::machine) queue: u32,
    pub(in crate::machine) protocol: Protocol,
    /// The number of unfinished operations.
    pub(in crate::machine) uses: u32,
    /// Whether the port is closed.
    pub(in crate::machine) is_closed: bool,
}

/// See the [module](self).
#[derive(Clone)]
pub(in crate::machine) struct Service<M, C> {
    pub(in crate::machine) operations: Slab<Operation<M>>,
    pub(in crate::machine) queues: Slab<Queue<C>>,
    pub(in crate::machine) ports: HashMap<(u32, Port), PortState>,
    /// The keys of the queues that hold gets, by the channel's descriptor.
    pub(in crate::machine) receives: HashMap<Box<[u8]>, u32>,
    /// The keys of the operations that expect a response, by node and number of the response.
    pub(in crate::machine) numbered: HashMap<(u32, u32), u32>,
    pub(in crate::machine) receipts: HashMap<u64, u32>,
    pub(in crate::machine) next_receipt: u64,
    pub(in crate::machine) deadlines: BTreeSet<(Nanos, u32)>,
    /// The keys of the queues, by the time of their next attempt.
    pub(in crate::machine) schedule: BTreeSet<(Nanos, u32)>,
    /// The number of bytes of messages that were taken from channels and have not been sent yet.
    pub(in crate::machine) taken: u64,
}

impl<M: Hash, C: Hash> Hash for Service<M, C> {
    fn hash<S: Hasher>(&self, state: &mut S) {
        let Self {
            operations,
            queues,
            ports,
            receives,
            numbered,
            receipts,
            next_receipt,
            deadlines,
            schedule,
            taken,
        } = self;
        hash::table(operations, state);
        hash::table(queues, state);
        hash::map(ports, state);
        hash::map(receives, state);
        hash::map(numbered, state);
        hash::map(receipts, state);
        (next_receipt, deadlines, schedule, taken).hash(state);
    }
}

impl<M, C> Service<M, C> {
    pub(in crate::machine) fn new() -> Self {
        Self {
            operations: Slab::new(),
            queues: Slab::new(),
            ports: HashMap::new(),
            receives: HashMap::new(),
            numbered: HashMap::new(),
            receipts: HashMap::new(),
            next_receipt: 0,
            deadlines: BTreeSet::new(),
            schedule: BTreeSet::new(),
            taken: 0,
        }
    }

    pub(in crate::machine) fn len(&self) -> usize {
        self.operations.len()
    }

    pub(in crate::machine) fn due(&self) -> Option<Nanos> {
        let first = |set: &BTreeSet<(Nanos, u32)>| set.first().map(|(at, _)| *at);
        [first(&self.deadlines), first(&self.schedule)]
            .into_iter()
            .flatten()
            .min()
    }

    /// Returns the queue of an operation.
    pub(in crate::machine) fn queue_of(&self, key: u32) -> Option<u32> {
        Some(self.operations.get(key as usize)?.queue)
    }

    /// Returns the destination that a message's sender requested.
    pub(in crate::machine) fn destination(&self, key: u32) -> Option<&[u8]> {
        match &self.operations.get(key as usize)?.task {
            Task::Send { destination, .. } => destination.as_deref(),
            _ => None,
        }
    }

    /// Schedules the next attempt at a queue.
    pub(in crate::machine) fn plan(&mut self, key: u32, at: Nanos) {
        if let Some(queue) = self.queues.get_mut(key as usize) {
            if let Some(before) = queue.next.replace(at) {
                self.schedule.remove(&(before, key));
            }
            self.schedule.insert((at, key));
        }
    }

    /// Returns the key of the queue for a new port. All ports that get from one channel share a
    /// queue.
    pub(in crate::machine) fn queue(&mut self, protocol: Protocol, descriptor: &[u8]) -> u32 {
        let is_shared = protocol == Protocol::GetMsg;
        if is_shared && let Some(&key) = self.receives.get(descriptor) {
            self.queues[key as usize].users += 1;
            return key;
        }
        // The cast is lossless: the number of ports is limited.
        let key = self.queues.insert(Queue {
            descriptor: descriptor.into(),
            channel: None,
            operations: VecDeque::new(),
            users: 1,
            next: None,
            pause: SHORTEST,
            is_shared,
        }) as u32;
        if is_shared {
            self.receives.insert(descriptor.into(), key);
        }
        key
    }

    pub(in crate::machine) fn remove_port(&mut self, node: u32, port: Port) {
        let Some(state) = self.ports.remove(&(node, port)) else {
            return;
        };
        let queue = &mut self.queues[state.queue as usize];
        queue.users -= 1;
        if queue.users > 0 {
            return;
        }
        let queue = self.queues.remove(state.queue as usize);
        if let Some(at) = queue.next {
            self.schedule.remove(&(at, state.queue));
        }
        if queue.is_shared {
            self.receives.remove(&queue.descriptor);
        }
    }
}
