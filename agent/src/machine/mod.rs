//! An agent's protocol, over any [open network](OpenTransport) and for any [host](Host): a state machine without I/O,
//! clock or lock.
//!
//! ```text
//! processes  ── requests ──▶ [client] ── entries ──▶ [link] ── eager buffers ──▶ network
//! channels   ◀─ attempts ── [service] ◀── entries ── [link] ◀─ eager buffers ──
//! messages that are not eager:  [bulk]  ◀── pulls, strips ──▶
//! siblings   ◀── parts of them ──▶ [stealing]
//! ```
//!
//! - An operation becomes an entry in an eager buffer to the channel's node. The agent there puts it into the queue of
//!   its port, and tries the first one of each queue without waiting. What became of it goes back as another entry, if
//!   somebody waits.
//! - A message that is too long for a buffer, or for what the other agent may have to hold, stays with its sender's agent,
//!   which tells that there is one; the other one pulls it when it has memory for it and budget.
//! - Buffers need credits, which move to the nodes that need them; every other memory has a [limit](Limits).

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

/// Eager buffers that an agent has for what arrives, at most, unless there are more nodes.
const MAX_RECEIVE: u32 = 128;

/// A node of the job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its host id.
    pub host: u64,
    /// Its agent's address in the network.
    pub address: Vec<u8>,
}

/// How long messages travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transfer {
    /// The receiver gets strip by strip.
    Rma,
    /// The receiver tells how much it has room for, and the sender sends that in strips.
    PointToPoint,
}

/// What an agent uses at most.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of long messages that were asked for and have not arrived, unless one strip is longer.
    pub ejection: u64,
    /// Bytes of messages taken from channels here that were not sent yet; one message more if it is longer than what is
    /// left.
    pub getmsg: u64,
    /// Bytes of long messages that are under way from here, unless one strip is longer.
    pub injection: u64,
    /// Bytes of eager messages from other nodes that wait for their channels; each node has its share, and one buffer at
    /// least. Beyond that messages stay with their senders.
    pub eager: u64,
    /// Bytes of a part of a long message.
    pub strip: u32,
    /// How long messages travel.
    pub transfer: Transfer,
    /// Requests that were taken from processes and have not ended; no more to send are taken then.
    pub requests: u32,
    /// Ports that are kept for operations to come.
    pub ports: u32,
    /// How long an entry waits for others to go with.
    pub age: Nanos,
    /// Bytes of long messages that can't be asked for yet, from which on other agents of the node may take a part of
    /// them, until it is half as much.
    pub backlog: u64,
    /// A buffer goes earlier when no other one is under way to its node.
    pub idle: bool,
    /// How long what goes to a node waits for an agent that was never heard of: all agents of a job don't start at the
    /// same time.
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

/// What an agent has counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Buffers sent, and entries and bytes in them.
    pub buffers: u64,
    /// Entries in them.
    pub entries: u64,
    /// Bytes in them.
    pub bytes: u64,
    /// Strips sent.
    pub strips: u64,
    /// Parts of messages that were got for other agents of the node.
    pub stolen: u64,
    /// Likewise, but given back undone.
    pub given_back: u64,
    /// Sends that failed after their users were told that they are complete.
    pub lost: u64,
    /// Nodes that have broken the protocol.
    pub protocol_errors: u64,
    /// Sessions with nodes that have ended.
    pub failures: u64,
}

/// What an agent holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Held {
    /// Requests that have not ended.
    pub requests: usize,
    /// Operations of other agents, or of this one for its own node, that have not ended.
    pub operations: usize,
    /// Messages of either that are not eager.
    pub bulk: usize,
    /// Bytes against [`Limits::ejection`].
    pub ejection: u64,
    /// Bytes against [`Limits::getmsg`].
    pub getmsg: u64,
    /// Bytes against [`Limits::injection`].
    pub injection: u64,
    /// Bytes against [`Limits::eager`].
    pub eager: u64,
    /// Bytes of this node's eager messages that other agents have not said they hold no more.
    pub left: u64,
}

#[derive(Clone, Hash)]
struct Peer {
    host: u64,
    address: Box<[u8]>,
    rank: Option<Rank>,
    link: Option<Box<NodeLink>>,
    /// Its agent was never heard of, and may not have started yet.
    expected: bool,
}

/// What has arrived, but strips.
#[derive(Clone, Hash)]
struct Arrived {
    from: From,
    header: Vec<u8>,
    payload: Vec<u8>,
}

/// Who has sent it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum From {
    Network(Rank),
    Own,
}

/// The protocol of one agent: a state machine that is given what comes and the time. It can be copied and hashed if
/// what its host gives it can, for model checkers.
#[derive(Clone)]
pub struct AgentMachine<H: Host> {
    own: u32,
    limits: Limits,
    now: Nanos,
    nodes: Vec<Peer>,
    by_host: HashMap<u64, u32>,
    by_rank: HashMap<Rank, u32>,
    /// With something to go out.
    listed: Vec<u32>,
    /// Until when what goes to nodes waits for their agents to start, in the order of time.
    expecting: VecDeque<(Nanos, u32)>,
    credits: Dynamic,
    scale: Scale,
    /// Bytes of eager messages that each node may leave here.
    share: u64,
    client: Client<H::Memory>,
    service: Service<H::Memory, H::Channel>,
    bulk: Bulk<H::Memory>,
    stealing: Stealing,
    /// What the network reads.
    sending: slab::Slab<Sending>,
    /// Long fragments that are arriving, and from whom.
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

/// A node has broken the protocol.
#[derive(Debug)]
struct ProtocolError;

impl<H: Host> AgentMachine<H> {
    /// The agent of the node that has the number `own` among all of the job, which all agents know in the same order.
    pub fn new(own: u32, nodes: Vec<Node>, limits: Limits, seed: u64) -> Self {
        // Fits: nodes are counted so.
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
            // Fits: what one buffer costs, at most 8.
            minimum: cost as u16,
            max_per_peer: (4 * cost) as u16,
            ..Tuning::default()
        };
        // Each begins with one buffer, the rest goes where it is needed; so one that is restarted gets one again.
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

    /// What was counted so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// What is held now.
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

    /// Receives, sends, and does what is due; whether anything was done. No call of it waits.
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
        // Before what goes out, as what is said to end a session does, too.
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

    /// When [`progress`](Self::progress) has to be called even if nothing arrives, besides the network's own time-out.
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

    /// All operations that are under way to this node end with an error, as they do when its agent is gone; and what it
    /// asked for is forgotten. For the node's own end.
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

    /// Something is to go out to a node.
    fn list(&mut self, node: u32) {
        if !std::mem::replace(&mut self.link(node).listed, true) {
            self.listed.push(node);
        }
    }

    /// The network's number of a node.
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
                    tracing::error!(host, %error, "the address of a node's agent");
                    self.broken.insert(node);
                }
                Err(ConnectError::Exhausted { .. }) => {}
            }
        }
        self.nodes[node as usize].rank
    }

    /// Finds out who has reached this process.
    fn meet(&mut self, network: &mut impl OpenTransport) {
        for rank in std::mem::take(&mut self.joined) {
            let address = network.peer_address(rank).unwrap_or_default();
            let known = self.nodes.iter().position(|node| *node.address == *address);
            match known {
                Some(node) => {
                    self.nodes[node].rank = Some(rank);
                    self.nodes[node].expected = false;
                    // Fits: an index of nodes.
                    self.by_rank.insert(rank, node as u32);
                }
                None => {
                    tracing::warn!("a process that is no agent of the job was turned away");
                    network.close(rank);
                }
            }
        }
    }

    /// Ends sessions with nodes that have broken the protocol.
    fn part(&mut self, network: &mut impl OpenTransport) {
        for node in std::mem::take(&mut self.broken) {
            self.counters.protocol_errors += 1;
            if let Some(rank) = self.nodes[node as usize].rank {
                network.end_session(rank);
            }
            self.lose(node);
        }
    }

    /// What waits for an agent that hasn't started in time ends.
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
                    "the agent of a node was never heard of (CONDUIT_HSTA_CONNECT_TIME)"
                );
                if let Some(rank) = peer.rank {
                    network.end_session(rank);
                }
                self.lose(node);
            }
        }
    }

    /// The session with a node has ended: nothing of it is left.
    fn lose(&mut self, node: u32) {
        self.counters.failures += 1;
        let rank = self.nodes[node as usize].rank;
        self.nodes[node as usize].link = None;
        self.nodes[node as usize].expected = false;
        self.listed.retain(|listed| *listed != node);
        // They are not mentioned again.
        self.landing.retain(|_, (from, _)| Some(*from) != rank);
        self.lose_parts(node);
        self.lose_bulk(node);
        self.lose_operations(node);
        self.lose_requests(node);
        if node != self.own {
            self.credits.restart(node);
        }
    }

    // ---- what comes ----

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
        // What this sends to its own node comes next time.
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
            None => debug_assert!(false, "the transport reads what it was given"),
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
            tracing::debug!(host, "the agent of a node {failure}, and is waited for");
            if let Some(link) = &mut peer.link {
                link.try_later(now);
            }
            return;
        }
        tracing::warn!(host, "the agent of a node {failure}");
        self.lose(node);
    }

    fn room(&self) -> usize {
        // What comes is bounded by credits and by what was asked for.
        1 << 30
    }
}

/// Bytes of a message.
fn length<M: crate::host::Memory>(message: &Message<M>) -> u64 {
    message.memory.length() as u64
}

/// The code of a session's end, for those who wait for something of it.
const GONE: Code = Code::FAILURE;
