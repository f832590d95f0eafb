//! The state of the requests of this node's processes, and of their ports.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{Hash, Hasher};

use slab::Slab;

use crate::host::{Limit, Message, Nanos, ReturnMode};
use crate::machine::state::hash;
use crate::machine::wire::{Port, Protocol};

/// The progress of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::machine) enum ClientState {
    /// The request has not been packed yet.
    Queued,
    /// The request has been completed for its user, but is still in the packing queue.
    Over,
    /// The request has been sent to the channel's agent. That agent has to respond or, if the
    /// request has no response, to pull the message.
    Sent,
    /// The channel's agent has been asked to respond at once.
    Canceled,
    /// The response has arrived, but its message has not been pulled or placed in memory yet.
    Arriving,
}

/// A request that has not ended.
#[derive(Debug, Clone, Hash)]
pub(in crate::machine) struct Pending<M> {
    pub(in crate::machine) id: u64,
    pub(in crate::machine) node: u32,
    pub(in crate::machine) port: Port,
    /// The key of the port.
    pub(in crate::machine) by: u32,
    pub(in crate::machine) limit: Limit,
    pub(in crate::machine) protocol: Protocol,
    pub(in crate::machine) mode: ReturnMode,
    /// The mask of a poll, or 0 for other requests.
    pub(in crate::machine) mask: u16,
    /// The destination of a send.
    pub(in crate::machine) destination: Option<Box<[u8]>>,
    /// The message of a send until the request is packed.
    pub(in crate::machine) message: Option<Message<M>>,
    pub(in crate::machine) state: ClientState,
    /// Whether the request has been completed for its user.
    pub(in crate::machine) completed: bool,
}

impl<M> Pending<M> {
    pub(in crate::machine) fn is_over(&self) -> bool {
        self.state == ClientState::Over
    }

    /// Returns whether the channel's agent sends a response.
    pub(in crate::machine) fn is_answered(&self) -> bool {
        use ReturnMode::{Deposited, Received};
        self.protocol != Protocol::SendMsg || matches!(self.mode, Deposited | Received)
    }
}

/// The identity of an ordered sequence of operations.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in crate::machine) struct Sequence {
    pub(in crate::machine) node: u32,
    pub(in crate::machine) protocol: Protocol,
    /// The send handle, or the process for gets and polls.
    pub(in crate::machine) of: u128,
    pub(in crate::machine) channel: Box<[u8]>,
}

#[derive(Debug, Clone, Hash)]
pub(in crate::machine) struct PortState {
    pub(in crate::machine) sequence: Sequence,
    pub(in crate::machine) port: Port,
    /// Whether the channel's agent knows the port.
    pub(in crate::machine) is_open: bool,
    /// The number of unfinished requests that use the port.
    pub(in crate::machine) uses: u32,
    /// The port's key in [`Client::idle`] while it has no requests.
    pub(in crate::machine) idle: u64,
    /// Whether the port is closing. It is removed once the channel's agent has answered every
    /// close. Until then, that agent may still hold messages of this port, which must precede the
    /// messages of a new port for the same sequence.
    pub(in crate::machine) is_closing: bool,
    /// The number of closes that the channel's agent has not answered.
    pub(in crate::machine) closes: u32,
}

/// The requests and ports of this node's processes; see the [module](self).
#[derive(Debug, Clone)]
pub(in crate::machine) struct Client<M> {
    pub(in crate::machine) requests: Slab<Pending<M>>,
    /// The keys of the requests, by the host's request id.
    pub(in crate::machine) by_id: HashMap<u64, u32>,
    pub(in crate::machine) deadlines: BTreeSet<(Nanos, u32)>,
    pub(in crate::machine) ports: Slab<PortState>,
    pub(in crate::machine) by_sequence: HashMap<Sequence, u32>,
    pub(in crate::machine) by_port: HashMap<Port, u32>,
    /// The number of closing ports.
    pub(in crate::machine) closing: usize,
    /// The ports without requests, least recently used first.
    pub(in crate::machine) idle: BTreeMap<u64, u32>,
    /// The last key that was inserted into `idle`.
    pub(in crate::machine) idled: u64,
    pub(in crate::machine) next_port: Port,
}

impl<M: Hash> Hash for Client<M> {
    fn hash<S: Hasher>(&self, state: &mut S) {
        let Self {
            requests,
            by_id,
            deadlines,
            ports,
            by_sequence,
            by_port,
            closing,
            idle,
            idled,
            next_port,
        } = self;
        hash::table(requests, state);
        hash::map(by_id, state);
        hash::table(ports, state);
        hash::map(by_sequence, state);
        hash::map(by_port, state);
        (deadlines, closing, idle, idled, next_port).hash(state);
    }
}

impl<M> Client<M> {
    pub(in crate::machine) fn new(own: u32) -> Self {
        Self {
            requests: Slab::new(),
            by_id: HashMap::new(),
            deadlines: BTreeSet::new(),
            ports: Slab::new(),
            by_sequence: HashMap::new(),
            by_port: HashMap::new(),
            closing: 0,
            idle: BTreeMap::new(),
            idled: 0,
            // The upper bits hold the node's number, so that ports are unique in the job.
            next_port: u64::from(own) << 40,
        }
    }

    pub(in crate::machine) fn len(&self) -> usize {
        self.requests.len()
    }

    pub(in crate::machine) fn due(&self) -> Option<Nanos> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    pub(in crate::machine) fn get_mut(&mut self, key: u32) -> Option<&mut Pending<M>> {
        self.requests.get_mut(key as usize)
    }

    pub(in crate::machine) fn get(&self, key: u32) -> Option<&Pending<M>> {
        self.requests.get(key as usize)
    }

    /// Returns the descriptor of a request's channel if the channel's agent does not know the
    /// request's port yet.
    pub(in crate::machine) fn descriptor(&self, key: u32) -> Option<Box<[u8]>> {
        let port = self.ports.get(self.get(key)?.by as usize)?;
        (!port.is_open).then(|| port.sequence.channel.clone())
    }

    /// Returns the key of a sequence's port and counts one more use of the port. Creates the port
    /// if the sequence has none.
    pub(in crate::machine) fn port(&mut self, sequence: Sequence) -> u32 {
        if let Some(&key) = self.by_sequence.get(&sequence) {
            let port = &mut self.ports[key as usize];
            if std::mem::take(&mut port.is_closing) {
                self.closing -= 1;
            } else if port.uses == 0 {
                self.idle.remove(&port.idle);
            }
            port.uses += 1;
            return key;
        }
        self.next_port += 1;
        let key = self.ports.insert(PortState {
            sequence: sequence.clone(),
            port: self.next_port,
            is_open: false,
            uses: 1,
            idle: 0,
            is_closing: false,
            closes: 0,
        }) as u32;
        self.by_sequence.insert(sequence, key);
        self.by_port.insert(self.next_port, key);
        key
    }

    pub(in crate::machine) fn remove_port(&mut self, key: u32) {
        if let Some(port) = self.ports.try_remove(key as usize) {
            self.closing -= usize::from(port.is_closing);
            self.idle.remove(&port.idle);
            self.by_sequence.remove(&port.sequence);
            self.by_port.remove(&port.port);
        }
    }

    /// Releases a port after one of its requests has ended.
    pub(in crate::machine) fn release(&mut self, key: u32) {
        let Some(port) = self.ports.get_mut(key as usize) else {
            return;
        };
        port.uses -= 1;
        if port.uses == 0 {
            self.idled += 1;
            port.idle = self.idled;
            self.idle.insert(self.idled, key);
        }
    }
}
