//! The agent's protocol, over any [open network](OpenTransport) and for any [host](Host): a state
//! machine without I/O, clocks or locks.
//!
//! ```text
//! processes  ── requests ──▶ [client] ── entries ──▶ [link] ── eager buffers ──▶ network
//! channels   ◀─ attempts ── [service] ◀── entries ── [link] ◀─ eager buffers ──
//! messages that are not eager:  [bulk]  ◀── pulls, strips ──▶
//! siblings   ◀── parts of them ──▶ [stealing]
//! ```
//!
//! - An operation becomes an entry in an eager buffer to the channel's node. The agent of that node
//!   puts the operation into the queue of its port, and tries the first operation of each queue
//!   without waiting. If the requester waits, the result returns as another entry.
//! - A message that exceeds a buffer or the other agent's room for eager messages stays with its
//!   sender's agent, which only announces it. The other agent pulls the message once it has memory
//!   and budget for it.
//! - Sending a buffer takes credits, which move to the nodes that need them. All other memory has a
//!   [limit](Limits).

mod bulk;
mod client;
mod hash;
mod link;
mod service;
mod state;
mod stealing;
#[cfg(test)]
mod tests;
mod timeout;
mod wire;

use std::collections::{BTreeSet, HashMap, VecDeque};

use conduit_core::ni::Rank;
use conduit_portals::transport::fragment::{Failure, FragmentHandler};
use conduit_portals::transport::open::{ConnectError, OpenTransport};
use credits::{Dynamic, Scale, Tuning};

use crate::code::Code;
use crate::host::{Event, Host, Message, Nanos, Outcome};
use state::bulk::Bulk;
use state::client::Client;
use state::link::{BUFFER, NodeLink, Sending};
use state::service::Service;
use state::stealing::Stealing;
use wire::Fragment;

/// The maximum number of eager buffers in which an agent receives. In a job with more nodes than
/// this, there is one buffer for each node.
const MAX_RECEIVE: u32 = 128;

/// A node of the job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// The node's host id.
    pub host: u64,
    /// The network address of the node's agent.
    pub address: Vec<u8>,
}

/// The transfer mode of long messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transfer {
    /// The receiver pulls one strip at a time.
    Rma,
    /// The receiver requests as many bytes as it has room for, and the sender sends them in strips.
    PointToPoint,
}

/// Limits on an agent's use of resources.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// The maximum number of bytes of long messages that were requested and have not arrived. Only
    /// a single strip that is longer than the limit exceeds it.
    pub ejection: u64,
    /// The maximum number of bytes of messages that were taken from local channels and have not
    /// been sent yet. The last message taken may exceed this limit.
    pub getmsg: u64,
    /// The maximum number of bytes of long messages that this agent is sending. Only a single strip
    /// that is longer than the limit exceeds it.
    pub injection: u64,
    /// The maximum number of bytes of eager messages from other nodes that wait for their channels.
    /// Each node has an equal share, which is at least one buffer. Messages that exceed the share
    /// stay with their senders.
    pub eager: u64,
    /// The length in bytes of a strip, which is a piece of a long message.
    pub strip: u32,
    /// The transfer mode of long messages.
    pub transfer: Transfer,
    /// The number of unfinished requests of processes at which the agent takes no more requests to
    /// send.
    pub requests: u32,
    /// The number of open ports at which the agent closes an unused port before it opens another.
    pub ports: u32,
    /// How long an entry waits for other entries to share its buffer.
    pub age: Nanos,
    /// The number of bytes of long messages not yet requested at which the node's other agents
    /// start to steal parts of them. They stop when fewer than half as many bytes are left.
    pub backlog: u64,
    /// Whether a buffer is sent before it is full or old if no other buffer is in flight to its
    /// node.
    pub idle: bool,
    /// How long traffic to a node waits for an agent that has not been heard from yet. The
    /// wait is necessary because the agents of a job do not start at the same time.
    pub connect: Nanos,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            ejection: 8 << 20,
            getmsg: 8 << 20,
            injection: 8 << 20,
            eager: 8 << 20,
            strip: 256 << 10,
            transfer: Transfer::Rma,
            requests: 1 << 14,
            ports: 1 << 16,
            age: 50_000,
            backlog: 4 << 20,
            idle: true,
            connect: 300_000_000_000,
        }
    }
}

/// Event counters of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// The number of buffers sent.
    pub buffers: u64,
    /// The number of entries packed into buffers.
    pub entries: u64,
    /// The number of bytes in the buffers sent.
    pub bytes: u64,
    /// The number of strips sent.
    pub strips: u64,
    /// The number of parts of messages that this agent pulled for other agents of the node.
    pub stolen: u64,
    /// The number of parts that this agent took over from other agents of the node and gave back
    /// unfinished.
    pub given_back: u64,
    /// The number of sends that failed after they were reported to their users as complete.
    pub lost: u64,
    /// The number of times that another agent violated the protocol.
    pub protocol_errors: u64,
    /// The number of sessions with nodes that have ended.
    pub failures: u64,
}

/// The resources that an agent holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Held {
    /// The number of requests that have not ended.
    pub requests: usize,
    /// The number of unfinished operations on channels of this node, whichever agent requested
    /// them.
    pub operations: usize,
    /// The number of messages that other agents pull from this one, and of messages or parts of
    /// messages that are still to be placed in memory here.
    pub bulk: usize,
    /// The number of bytes that count against [`Limits::ejection`].
    pub ejection: u64,
    /// The number of bytes that count against [`Limits::getmsg`].
    pub getmsg: u64,
    /// The number of bytes that count against [`Limits::injection`].
    pub injection: u64,
    /// The number of bytes that count against [`Limits::eager`].
    pub eager: u64,
    /// The number of bytes of this node's eager messages that other agents have not reported as
    /// consumed.
    pub left: u64,
}

#[derive(Clone, Hash)]
struct Peer {
    host: u64,
    address: Box<[u8]>,
    rank: Option<Rank>,
    link: Option<Box<NodeLink>>,
    /// Whether the node's agent may not have started yet: nothing has arrived from it, and the
    /// network has taken no greeting for it.
    expected: bool,
}

/// A fragment that has arrived and is not a strip.
#[derive(Clone, Hash)]
struct Arrived {
    from: From,
    header: Vec<u8>,
    payload: Vec<u8>,
}

/// The sender of a fragment.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum From {
    Network(Rank),
    Own,
}

/// The protocol of one agent: a state machine whose inputs are events and the time. For model
/// checkers, the machine can be cloned and hashed if its host's types can.
#[derive(Clone)]
pub struct AgentMachine<H: Host> {
    own: u32,
    limits: Limits,
    now: Nanos,
    nodes: Vec<Peer>,
    by_host: HashMap<u64, u32>,
    by_rank: HashMap<Rank, u32>,
    /// The nodes for which there is data to send.
    listed: Vec<u32>,
    /// The nodes whose agents may not have started yet. Each comes with the time until which
    /// traffic to the node waits, and they are ordered by this time.
    expecting: VecDeque<(Nanos, u32)>,
    credits: Dynamic,
    scale: Scale,
    /// The number of bytes of eager messages that each node may have waiting here.
    share: u64,
    client: Client<H::Memory>,
    service: Service<H::Memory, H::Channel>,
    bulk: Bulk<H::Memory>,
    stealing: Stealing,
    /// The buffers and strips that the network reads.
    sending: slab::Slab<Sending>,
    /// The long fragments that are arriving, with their senders.
    landing: slab::Slab<(Rank, Landing)>,
    arrived: VecDeque<Arrived>,
    joined: Vec<Rank>,
    broken: BTreeSet<u32>,
    outcomes: Vec<(u64, Outcome<H::Memory>)>,
    counters: Counters,
    random: fastrand::Rng,
}

#[derive(Clone, Hash)]
enum Landing {
    Arrived {
        header: Vec<u8>,
        payload: Vec<u8>,
    },
    Strip {
        arrival: u32,
        offset: u64,
        length: usize,
    },
    Nothing,
}

/// The error that another agent violated the protocol.
#[derive(Debug)]
struct ProtocolError;

impl<H: Host> AgentMachine<H> {
    /// Creates the agent of node `own`, an index of `nodes`. All agents of the job must be given
    /// the same nodes in the same order.
    pub fn new(own: u32, nodes: Vec<Node>, limits: Limits, seed: u64) -> Self {
        // The cast is lossless: node numbers have 32 bits.
        let count = nodes.len() as u32;
        let scale = const {
            match Scale::for_chunk(BUFFER as u32) {
                Ok(scale) => scale,
                Err(_) => unreachable!(),
            }
        };
        let cost = u32::from(scale.cost(BUFFER));
        let buffers = (4 * count).min(MAX_RECEIVE).max(count);
        let tuning = Tuning {
            // The casts are lossless: the cost of one buffer is at most 8.
            minimum: cost as u16,
            max_per_peer: (4 * cost) as u16,
            ..Tuning::default()
        };
        // Each node starts with credits for one buffer, so a restarted agent has a buffer at once.
        // The bank lends the other credits where they are needed.
        let banked = (buffers - count) * cost;
        let credits = Dynamic::new(count, own, cost as u16, banked, tuning);
        Self {
            own,
            now: 0,
            by_host: (0..)
                .zip(&nodes)
                .map(|(at, node)| (node.host, at))
                .collect(),
            by_rank: HashMap::new(),
            nodes: (0..)
                .zip(nodes)
                .map(|(at, node)| Peer {
                    host: node.host,
                    address: node.address.into(),
                    rank: None,
                    link: None,
                    expected: at != own && limits.connect > 0,
                })
                .collect(),
            listed: Vec::new(),
            expecting: VecDeque::new(),
            credits,
            scale,
            share: (limits.eager / u64::from(count.max(1))).max(BUFFER as u64),
            client: Client::new(own),
            service: Service::new(),
            bulk: Bulk::new(),
            stealing: Stealing::default(),
            sending: slab::Slab::new(),
            landing: slab::Slab::new(),
            arrived: VecDeque::new(),
            joined: Vec::new(),
            broken: BTreeSet::new(),
            outcomes: Vec::new(),
            counters: Counters::default(),
            random: fastrand::Rng::with_seed(seed),
            limits,
        }
    }

    /// Returns the event counters.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Returns the resources held now.
    pub fn held(&self) -> Held {
        let links = || self.nodes.iter().filter_map(|node| node.link.as_deref());
        Held {
            requests: self.client.len(),
            operations: self.service.len(),
            bulk: self.bulk.len(),
            ejection: self.bulk.ejected,
            getmsg: self.service.taken,
            injection: self.bulk.injected,
            eager: links().map(|link| link.held).sum(),
            left: links().map(|link| link.left).sum(),
        }
    }

    /// Receives, sends, and does all work that is due, without blocking. Returns whether there was
    /// any work.
    pub fn progress(&mut self, now: Nanos, host: &mut H, network: &mut impl OpenTransport) -> bool {
        self.now = now;
        let mut did = network.receive(self);
        self.meet(network);
        did |= self.take_arrived();
        did |= self.take_events(host);
        did |= self.hear_siblings(host);
        self.client_deadlines();
        did |= self.serve(host);
        did |= self.import_parts(host);
        did |= self.feed(host);
        did |= self.tell_siblings(host);
        // Both calls end sessions, so they precede `transmit`: nothing is sent to these nodes any
        // more.
        self.give_up_nodes(network);
        self.part(network);
        did |= self.transmit(network);
        network.transmit(self);
        did |= !self.outcomes.is_empty();
        for (request, outcome) in self.outcomes.drain(..) {
            host.complete(request, outcome);
        }
        did
    }

    /// Returns when [`progress`](Self::progress) has to be called even if nothing arrives, apart
    /// from the network's own time-out.
    pub fn due(&self) -> Option<Nanos> {
        let links = self.listed.iter().filter_map(|node| {
            let peer = &self.nodes[*node as usize];
            let link = peer.link.as_deref()?;
            match peer.expected {
                true => link.again(self.now),
                false => link.due(self.limits.age),
            }
        });
        let expecting = self.expecting.front().map(|(at, _)| *at);
        let hungry = self
            .bulk
            .is_starved()
            .then_some(self.now + state::service::LONGEST);
        let siblings = self.siblings_due();
        let (client, service) = (self.client.due(), self.service.due());
        [client, service, hungry, siblings, expecting]
            .into_iter()
            .flatten()
            .chain(links)
            .min()
    }

    /// Shuts the agent down. The unfinished requests of this node's processes fail as if the other
    /// agents were gone, and other nodes' operations are dropped.
    pub fn leave(&mut self, host: &mut H, network: &mut impl OpenTransport) {
        self.leave_siblings(host);
        for node in 0..self.nodes.len() as u32 {
            self.lose(node);
        }
        self.leak_lent();
        network.leave();
        for (request, outcome) in self.outcomes.drain(..) {
            host.complete(request, outcome);
        }
    }

    fn complete(&mut self, request: u64, outcome: Outcome<H::Memory>) {
        self.outcomes.push((request, outcome));
    }

    // ---- nodes ----

    fn link(&mut self, node: u32) -> &mut NodeLink {
        let peer = &mut self.nodes[node as usize];
        if peer.link.is_none() && peer.expected {
            let until = self.now.saturating_add(self.limits.connect);
            self.expecting.push_back((until, node));
        }
        peer.link.get_or_insert_default()
    }

    /// Marks a node as having data to send.
    fn list(&mut self, node: u32) {
        if !std::mem::replace(&mut self.link(node).listed, true) {
            self.listed.push(node);
        }
    }

    /// Returns the network's rank of a node, after connecting to it if necessary. Returns `None` if
    /// the network cannot connect.
    fn rank(&mut self, node: u32, network: &mut impl OpenTransport) -> Option<Rank> {
        let peer = &mut self.nodes[node as usize];
        if peer.rank.is_none() {
            match network.connect(&peer.address) {
                Ok(rank) => {
                    peer.rank = Some(rank);
                    self.by_rank.insert(rank, node);
                }
                Err(error @ (ConnectError::Malformed(_) | ConnectError::Own)) => {
                    let host = peer.host;
                    tracing::error!(host, %error, "the address of a node's agent is invalid");
                    self.broken.insert(node);
                }
                Err(ConnectError::Exhausted { .. }) => {}
            }
        }
        self.nodes[node as usize].rank
    }

    /// Identifies the peers that have connected to this agent.
    fn meet(&mut self, network: &mut impl OpenTransport) {
        for rank in std::mem::take(&mut self.joined) {
            let address = network.peer_address(rank).unwrap_or_default();
            let known = self.nodes.iter().position(|node| *node.address == *address);
            match known {
                Some(node) => {
                    self.nodes[node].rank = Some(rank);
                    self.nodes[node].expected = false;
                    // The cast is lossless: node numbers have 32 bits.
                    self.by_rank.insert(rank, node as u32);
                }
                None => {
                    tracing::warn!("rejected a process that is not an agent of the job");
                    network.close(rank);
                }
            }
        }
    }

    /// Ends sessions with nodes that violated the protocol.
    fn part(&mut self, network: &mut impl OpenTransport) {
        for node in std::mem::take(&mut self.broken) {
            self.counters.protocol_errors += 1;
            if let Some(rank) = self.nodes[node as usize].rank {
                network.end_session(rank);
            }
            self.lose(node);
        }
    }

    /// Ends the operations that wait for an agent if that has not started in time.
    fn give_up_nodes(&mut self, network: &mut impl OpenTransport) {
        while let Some(&(at, node)) = self.expecting.front() {
            let peer = &self.nodes[node as usize];
            if peer.expected && at > self.now {
                break;
            }
            self.expecting.pop_front();
            if peer.expected {
                let host = peer.host;
                tracing::warn!(
                    host,
                    "a node's agent did not start in time (CONDUIT_HSTA_CONNECT_TIME)"
                );
                if let Some(rank) = peer.rank {
                    network.end_session(rank);
                }
                self.lose(node);
            }
        }
    }

    /// Drops all state of the session with a node.
    fn lose(&mut self, node: u32) {
        self.counters.failures += 1;
        let rank = self.nodes[node as usize].rank;
        self.nodes[node as usize].link = None;
        self.nodes[node as usize].expected = false;
        self.listed.retain(|listed| *listed != node);
        // The network makes no further calls for the fragments that were arriving.
        self.landing.retain(|_, (from, _)| Some(*from) != rank);
        self.lose_parts(node);
        self.lose_bulk(node);
        self.lose_operations(node);
        self.lose_requests(node);
        if node != self.own {
            self.credits.restart(node);
        }
    }

    // ---- arrivals ----

    fn take_events(&mut self, host: &mut H) -> bool {
        let mut did = false;
        loop {
            let sends = self.client.len() < self.limits.requests as usize;
            let Some(event) = host.next(sends) else {
                return did;
            };
            did = true;
            match event {
                Event::Request(request) => self.request(request),
                Event::Abandoned(id) => self.abandon(id),
                Event::Received(receipt) => self.receipt(receipt, Code::SUCCESS),
                Event::Discarded(receipt) => self.receipt(receipt, Code::OBJECT_DESTROYED),
                Event::Changed(queue) => self.channel_changed(queue),
            }
        }
    }

    fn take_arrived(&mut self) -> bool {
        let mut did = false;
        // Handles only as many fragments as have arrived by now. Those that this agent sends to its
        // own node in the loop are left to the next call.
        for _ in 0..self.arrived.len() {
            let Some(arrived) = self.arrived.pop_front() else {
                break;
            };
            did = true;
            let node = match arrived.from {
                From::Own => Some(self.own),
                From::Network(rank) => self.by_rank.get(&rank).copied(),
            };
            let Some(node) = node else {
                continue;
            };
            self.nodes[node as usize].expected = false;
            if self.take(node, &arrived.header, arrived.payload).is_err() {
                self.broken.insert(node);
            }
        }
        did
    }

    fn take(&mut self, node: u32, header: &[u8], payload: Vec<u8>) -> Result<(), ProtocolError> {
        match Fragment::decode(header).ok_or(ProtocolError)? {
            Fragment::Buffer {
                sequence,
                credits,
                told,
            } => {
                self.told(node, &told)?;
                self.take_buffer(node, sequence, credits, payload)
            }
            Fragment::Told(told) => self.told(node, &told),
            Fragment::Revoke { end_of_epoch } => self.on_revoke(node, end_of_epoch),
            Fragment::Return {
                credits,
                end_of_epoch,
            } => self.on_return(node, credits, end_of_epoch),
            Fragment::Pull {
                source,
                arrival,
                offset,
                length,
            } => self.on_pull(node, source, arrival, (offset, length)),
            Fragment::Strip { arrival, offset } => {
                self.begin_strip(node, arrival, offset, payload.len())?;
                self.place_strip(arrival, offset, &payload);
                self.end_strip(arrival, payload.len());
                Ok(())
            }
            Fragment::Drop { source, code } => self.on_drop(node, source, code),
            Fragment::PullPart {
                arrival,
                offset,
                length,
            } => self.on_pull_part(node, arrival, (offset, length), payload.into()),
            Fragment::Refuse { arrival } => self.on_refuse(node, arrival),
            Fragment::Settle {
                source,
                arrival,
                length,
            } => self.on_settle(node, source, arrival, length),
            Fragment::Settled { arrival } => self.on_settled(node, arrival),
        }
    }
}

impl<H: Host> FragmentHandler for AgentMachine<H> {
    fn read(&mut self, _: Rank, token: u64, offset: usize, into: &mut [u8]) {
        match self.sending.get(token as usize) {
            Some(Sending::Buffer { bytes, .. }) => {
                into.copy_from_slice(&bytes[offset..][..into.len()]);
            }
            Some(Sending::Strip {
                source,
                offset: start,
                ..
            }) => self.bulk.read(*source, *start + offset as u64, into),
            None => debug_assert!(false, "the transport read a payload that it was not given"),
        }
    }

    fn source(&self, _: Rank, token: u64, offset: usize, length: usize) -> Option<&[u8]> {
        match self.sending.get(token as usize)? {
            Sending::Buffer { bytes, .. } => bytes.get(offset..)?.get(..length),
            Sending::Strip { .. } => None,
        }
    }

    fn sent(&mut self, _: Rank, token: u64) {
        if let Some(sending) = self.sending.try_remove(token as usize) {
            self.is_sent(&sending);
        }
    }

    fn is_awaited(&self, _: Rank, token: u64) -> bool {
        matches!(
            self.sending.get(token as usize),
            Some(Sending::Strip { .. })
        )
    }

    fn fragment(&mut self, peer: Rank, header: &[u8], payload: &[u8]) -> bool {
        self.arrived.push_back(Arrived {
            from: From::Network(peer),
            header: header.to_vec(),
            payload: payload.to_vec(),
        });
        true
    }

    fn begin(&mut self, peer: Rank, header: &[u8], length: usize) -> Option<u64> {
        let landing = match (Fragment::decode(header), self.by_rank.get(&peer)) {
            (Some(Fragment::Strip { arrival, offset }), Some(&node)) => {
                match self.begin_strip(node, arrival, offset, length) {
                    Ok(()) => Landing::Strip {
                        arrival,
                        offset,
                        length,
                    },
                    Err(ProtocolError) => {
                        self.broken.insert(node);
                        Landing::Nothing
                    }
                }
            }
            (Some(_), _) if length <= BUFFER => Landing::Arrived {
                header: header.to_vec(),
                payload: vec![0; length],
            },
            (_, node) => {
                self.broken.extend(node);
                Landing::Nothing
            }
        };
        Some(self.landing.insert((peer, landing)) as u64)
    }

    fn place(&mut self, id: u64, offset: usize, bytes: &[u8]) {
        match self.landing.get_mut(id as usize) {
            Some((_, Landing::Arrived { payload, .. })) => {
                payload[offset..][..bytes.len()].copy_from_slice(bytes);
            }
            Some(&mut (
                _,
                Landing::Strip {
                    arrival,
                    offset: start,
                    ..
                },
            )) => self.place_strip(arrival, start + offset as u64, bytes),
            _ => {}
        }
    }

    fn end(&mut self, id: u64) {
        match self.landing.try_remove(id as usize) {
            Some((from, Landing::Arrived { header, payload })) => self.arrived.push_back(Arrived {
                from: From::Network(from),
                header,
                payload,
            }),
            Some((
                _,
                Landing::Strip {
                    arrival, length, ..
                },
            )) => self.end_strip(arrival, length),
            _ => {}
        }
    }

    fn joined(&mut self, peer: Rank) {
        self.joined.push(peer);
    }

    fn failed(&mut self, peer: Rank, failure: Failure) {
        self.arrived
            .retain(|arrived| arrived.from != From::Network(peer));
        self.landing.retain(|_, (from, _)| *from != peer);
        let Some(&node) = self.by_rank.get(&peer) else {
            return;
        };
        let now = self.now;
        let peer = &mut self.nodes[node as usize];
        let host = peer.host;
        let is_there = matches!(
            failure,
            Failure::Mtu(_) | Failure::Network(_) | Failure::Broken(_)
        );
        if peer.expected && !is_there {
            tracing::debug!(
                host,
                "the agent of a node {failure}; waiting for it to start"
            );
            if let Some(link) = &mut peer.link {
                link.try_later(now);
            }
            return;
        }
        tracing::warn!(host, "the agent of a node {failure}");
        self.lose(node);
    }

    fn room(&self) -> usize {
        // In effect unlimited: credits and this agent's own requests bound what arrives.
        1 << 30
    }
}

/// Returns the length of a message in bytes.
fn length<M: crate::host::Memory>(message: &Message<M>) -> u64 {
    message.memory.length() as u64
}

/// The code of operations that end because their session has ended.
const GONE: Code = Code::FAILURE;
