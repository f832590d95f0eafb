//! The sessions of an agent's clients, with their unfinished requests.
//!
//! Clients are not trusted: a malformed request ends the session, excess requests wait in the
//! client's ring or are refused with a code, and everything that a client holds is released when
//! its session ends.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use agent::Code;
use agent::driver::now;
use agent::host::{
    Event, Limit, Memory as _, Message, Nanos, NoMemory, Operation, Outcome, ReturnMode,
};
use conduit_core::ni::Rank;
use conduit_portals::transport::Transport;
use conduit_portals::transport::fragment::{
    Failure, Fragment, FragmentHandler, MAX_TINY, Payload, Refused,
};
use conduit_shm::peers::Local;
use slab::Slab;
use zerocopy::IntoBytes;

use crate::channel::{Events, Queue};
use crate::descriptor::Descriptor;
use crate::gateway::GatewayConfig;
use crate::pool::{Memory, Pool, SHORT, Share};
use crate::wire::{FrameKind, Reply, Request};

/// The maximum number of requests to send that wait for the agent to take them.
const MAX_WAITING: usize = 2048;
/// The maximum number of unfinished requests of all clients together.
const MAX_REQUESTS: usize = 1 << 16;
/// The maximum number of one client's requests that are unfinished or whose reply has not been
/// sent.
pub(crate) const MAX_OPEN: usize = 1024;
/// The maximum number of channels of a node.
const MAX_CHANNELS: usize = 1 << 16;
/// The maximum capacity of a channel, in messages.
const MAX_CAPACITY: u64 = 1 << 20;
/// The maximum size of a channel's block, in bytes.
const MAX_BLOCK: u64 = 1 << 20;

/// The maximum length, in bytes, of a message that is sent in the same fragment as its reply.
const INLINE: usize = MAX_TINY - size_of::<Reply>();

/// A connected client.
#[derive(Debug)]
struct Client {
    /// The number of the client's session, unique among all sessions.
    session: u64,
    /// The keys of the client's unfinished requests in [`Sessions::open`], by the client's numbers.
    open: HashMap<u32, u32>,
    /// The replies that the client's rings have no room for yet, each with its message, if any.
    replies: VecDeque<(Reply, Option<Memory>)>,
    /// The number of bytes of long messages from the client and to it, by [`Way`].
    held: [Arc<AtomicUsize>; 2],
    /// The channels that end with the client.
    channels: BTreeSet<u64>,
}

/// An unfinished request.
#[derive(Debug)]
struct Open {
    client: Rank,
    session: u64,
    id: u32,
    is_answered: bool,
}

/// The direction of a message, as seen from a client.
#[derive(Debug, Clone, Copy)]
enum Way {
    From,
    To,
}

/// A long message that is arriving from a client.
#[derive(Debug)]
struct Arriving {
    client: Rank,
    /// The request, with the message's memory or the code with which the request will be refused.
    /// If this is `None`, the message is discarded.
    message: Option<(Request, Result<Memory, Code>)>,
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Sessions {
    pub(crate) node: u64,
    pub(crate) epoch: u64,
    clients: HashMap<Rank, Client>,
    next_session: u64,
    open: Slab<Open>,
    pub(crate) events: Events,
    /// Requests to send that the agent has not taken yet, in order.
    pub(crate) waiting: VecDeque<agent::host::Request<Memory>>,
    /// The earliest deadline of the requests in `waiting`.
    due: Nanos,
    arriving: Slab<Arriving>,
    /// Messages that have not been completely copied to a client's rings, with that client.
    outgoing: Slab<(Rank, Memory)>,
    pub(crate) channels: HashMap<u64, Queue>,
    next_channel: u64,
    /// The number of bytes that the channels reserve for their own messages.
    reserved: u64,
    /// The maximum of `reserved`.
    reserve: u64,
    /// The memory for long messages from clients and to them, by [`Way`].
    pools: [Pool; 2],
    /// Clients that have violated the protocol. `gone` contains the clients whose sessions have
    /// ended.
    broken: Vec<Rank>,
    gone: Vec<Rank>,
    /// Clients with pending replies.
    replying: BTreeSet<Rank>,
}

impl Sessions {
    pub(crate) fn new(config: &GatewayConfig, epoch: u64) -> std::io::Result<Self> {
        let pool = || Pool::new(config.pool, config.huge_pages);
        Ok(Self {
            node: config.node,
            epoch,
            clients: HashMap::new(),
            next_session: 0,
            open: Slab::new(),
            events: VecDeque::new(),
            waiting: VecDeque::new(),
            due: Nanos::MAX,
            arriving: Slab::new(),
            outgoing: Slab::new(),
            channels: HashMap::new(),
            next_channel: 0,
            reserved: 0,
            reserve: config.reserve,
            pools: [pool()?, pool()?],
            broken: Vec::new(),
            gone: Vec::new(),
            replying: BTreeSet::new(),
        })
    }

    /// Receives requests, ends sessions and sends replies.
    pub(crate) fn progress(&mut self, local: &mut Local) {
        use conduit_portals::transport::open::OpenTransport;
        local.receive(self);
        self.expire(now());
        for client in std::mem::take(&mut self.broken) {
            tracing::warn!("a client violated the protocol");
            local.close(client);
            self.part(client);
        }
        for client in std::mem::take(&mut self.gone) {
            // Do not close the connection if the client has connected again.
            if !self.clients.contains_key(&client) {
                local.close(client);
            }
        }
        for client in std::mem::take(&mut self.replying) {
            self.reply(client, local);
        }
        local.transmit(self);
    }

    /// Returns whether there is work to be done at once.
    pub(crate) fn is_busy(&self) -> bool {
        !(self.events.is_empty() && self.broken.is_empty() && self.gone.is_empty())
    }

    // ---- requests ----

    fn client(&mut self, client: Rank) -> &mut Client {
        self.clients.entry(client).or_insert_with(|| {
            self.next_session += 1;
            Client {
                session: self.next_session,
                open: HashMap::new(),
                replies: VecDeque::new(),
                held: Default::default(),
                channels: BTreeSet::new(),
            }
        })
    }

    /// Allocates memory for a message from a client or to it. Each client may use half of each
    /// pool.
    fn allocate(&mut self, client: Rank, bytes: usize, way: Way) -> Result<Memory, NoMemory> {
        let held = Arc::clone(&self.client(client).held[way as usize]);
        let pool = &self.pools[way as usize];
        if bytes <= SHORT || bytes > pool.longest() {
            return Memory::allocate(bytes, pool);
        }
        let share = Share::take(&held, bytes, pool.longest()).ok_or(NoMemory::Now)?;
        Memory::allocate(bytes, pool).map(|memory| memory.shared(share))
    }

    /// Allocates memory for the message of a get.
    pub(crate) fn allocate_reply(
        &mut self,
        request: u64,
        bytes: usize,
    ) -> Result<Memory, NoMemory> {
        // The cast is lossless, because the number is a key of the slab.
        let open = self.open.get(request as usize);
        match open.map(|open| (open.client, open.session)) {
            Some((client, session)) if self.is_there(client, session) => {
                self.allocate(client, bytes, Way::To)
            }
            // The message has no receiver any more.
            _ => Memory::allocate(bytes, &self.pools[Way::To as usize]),
        }
    }

    fn is_there(&self, client: Rank, session: u64) -> bool {
        (self.clients.get(&client)).is_some_and(|client| client.session == session)
    }

    /// Returns whether the limits forbid another request of this kind from a client.
    fn is_full(&mut self, rank: Rank, kind: FrameKind) -> bool {
        let is_send = matches!(kind, FrameKind::Send { .. });
        let all = self.open.len() >= MAX_REQUESTS || (is_send && self.waiting.len() >= MAX_WAITING);
        let client = self.client(rank);
        all || client.open.len() + client.replies.len() >= MAX_OPEN
    }

    /// Returns whether to take a request from the client's ring now, even if only to refuse it. A
    /// request that cannot be refused, because it has no reply, waits in the ring while there is no
    /// room for it.
    fn is_taken(&mut self, client: Rank, kind: FrameKind) -> bool {
        let can_refuse = kind.is_awaited() || kind == FrameKind::Abandon;
        self.client(client).replies.len() < 2 * MAX_OPEN
            && (can_refuse || !self.is_full(client, kind))
    }

    /// Handles a request, with the message that it sends.
    fn take(&mut self, rank: Rank, request: Request, memory: Option<Memory>) {
        let Request {
            id,
            kind,
            limit,
            channel,
        } = request;
        let client = self.client(rank);
        if client.open.contains_key(&id) && kind != FrameKind::Abandon {
            return self.broken.push(rank);
        }
        let session = client.session;
        if kind != FrameKind::Abandon && self.is_full(rank, kind) {
            return self.refuse(rank, &request, Code::GATEWAY_FULL);
        }
        let operation = match kind {
            FrameKind::Abandon => return self.abandon(rank, id),
            FrameKind::Create {
                capacity,
                block,
                outlives,
            } => {
                return self.create(rank, id, (capacity, block), outlives);
            }
            FrameKind::Destroy => return self.destroy(rank, id, channel),
            FrameKind::Get => Operation::Get,
            FrameKind::Poll { mask } => Operation::Poll { mask },
            FrameKind::Send {
                mode,
                handle,
                hints,
            } => {
                let Some(memory) = memory else {
                    return self.broken.push(rank);
                };
                Operation::Send {
                    handle: u128::from(session) << 64 | u128::from(handle),
                    message: Message {
                        memory,
                        hints,
                        client: self.epoch.wrapping_add(session),
                    },
                    mode,
                    destination: None,
                }
            }
        };
        let open = Open {
            client: rank,
            session,
            id,
            is_answered: request.kind.is_awaited(),
        };
        // The cast is lossless, because there are at most `MAX_REQUESTS` requests.
        let key = self.open.insert(open) as u32;
        self.client(rank).open.insert(id, key);
        let request = agent::host::Request {
            id: key.into(),
            node: channel.node,
            channel: channel.to_bytes().into(),
            process: session,
            limit,
            operation,
        };
        match matches!(kind, FrameKind::Send { .. }) {
            true => {
                if let Limit::At(at) = limit {
                    self.due = self.due.min(at);
                }
                self.waiting.push_back(request);
            }
            false => self.events.push_back(Event::Request(request)),
        }
    }

    /// Ends requests to send that have timed out before the agent has taken them. The agent
    /// enforces the time limits of those that it has taken.
    fn expire(&mut self, now: Nanos) {
        if now < self.due {
            return;
        }
        let (mut passed, mut due) = (Vec::new(), Nanos::MAX);
        self.waiting.retain(|request| match request.limit {
            Limit::At(at) if at <= now => {
                passed.push(request.id);
                false
            }
            Limit::At(at) => {
                due = due.min(at);
                true
            }
            Limit::Once | Limit::Never => true,
        });
        self.due = due;
        for request in passed {
            self.complete(request, Outcome::Failed(Code::TIMEOUT));
        }
    }

    fn abandon(&mut self, client: Rank, id: u32) {
        let Some(&key) = self.client(client).open.get(&id) else {
            // The request has ended in the meantime.
            return;
        };
        let before = self.waiting.len();
        self.waiting.retain(|request| request.id != u64::from(key));
        match self.waiting.len() < before {
            true => self.complete(key.into(), Outcome::Failed(Code::TIMEOUT)),
            false => self.events.push_back(Event::Abandoned(key.into())),
        }
    }

    /// Handles the end of a request.
    pub(crate) fn complete(&mut self, request: u64, outcome: Outcome<Memory>) {
        // The cast is lossless, because the number is a key of the slab.
        let Some(open) = self.open.try_remove(request as usize) else {
            return;
        };
        if !self.is_there(open.client, open.session) {
            return;
        }
        self.client(open.client).open.remove(&open.id);
        if !open.is_answered {
            if let Outcome::Failed(code) = outcome {
                tracing::warn!("failed to send a message whose sender does not wait: {code}");
            }
            return;
        }
        let (code, value, second, memory) = match outcome {
            Outcome::Sent => (Code::SUCCESS, 0, 0, None),
            Outcome::Got(message) => {
                let Message {
                    memory,
                    hints,
                    client,
                } = message;
                (Code::SUCCESS, hints, client, Some(memory))
            }
            Outcome::Polled(value, code) => (code, value, 0, None),
            Outcome::Failed(code) => (code, 0, 0, None),
        };
        let reply = Reply {
            id: open.id,
            code: code.0,
            value,
            second,
            node: 0,
        };
        self.post(open.client, reply, memory);
    }

    // ---- replies ----

    fn answer(&mut self, client: Rank, id: u32, code: Code) {
        let reply = Reply {
            id,
            code: code.0,
            value: 0,
            second: 0,
            node: 0,
        };
        self.post(client, reply, None);
    }

    fn post(&mut self, client: Rank, reply: Reply, memory: Option<Memory>) {
        self.client(client).replies.push_back((reply, memory));
        self.replying.insert(client);
    }

    /// Hands a client's pending replies to its rings.
    fn reply(&mut self, rank: Rank, local: &mut Local) {
        let Some(client) = self.clients.get_mut(&rank) else {
            return;
        };
        while let Some((reply, memory)) = client.replies.front_mut() {
            let header = reply.as_bytes();
            let length = memory.as_ref().map_or(0, |memory| memory.length());
            let sent = if length > INLINE {
                let entry = self.outgoing.vacant_entry();
                // The casts are lossless: a key is a `usize`, and no client can send a message of
                // more than `u32::MAX` bytes.
                let (token, length) = (entry.key() as u64, length as u32);
                let payload = Payload::Read { token, length };
                let sent = local.send(rank, &Fragment { header, payload });
                if sent.is_ok()
                    && let Some(memory) = memory.take()
                {
                    entry.insert((rank, memory));
                }
                sent
            } else {
                let mut bytes = [0; INLINE];
                let bytes = &mut bytes[..length];
                if let Some(memory) = memory {
                    memory.read(0, bytes);
                }
                let payload = Payload::Copied(&[&*bytes]);
                local.send(rank, &Fragment { header, payload })
            };
            match sent {
                Ok(()) => drop(client.replies.pop_front()),
                Err(Refused::Full) => {
                    self.replying.insert(rank);
                    return;
                }
                // The session has failed; `failed` will be called soon.
                Err(_) => return client.replies.clear(),
            }
        }
    }

    // ---- channels ----

    fn create(&mut self, rank: Rank, id: u32, (capacity, block): (u64, u64), outlives: bool) {
        if !(1..=MAX_CAPACITY).contains(&capacity) || block > MAX_BLOCK {
            return self.answer(rank, id, Code::INVALID_ARGUMENT);
        }
        // The casts are lossless, because the maxima were just checked.
        let queue = Queue::new(capacity as u32, block as u32);
        let reserved = self.reserved + queue.reserve();
        if reserved > self.reserve || self.channels.len() >= MAX_CHANNELS {
            return self.answer(rank, id, Code::OUT_OF_SPACE);
        }
        self.reserved = reserved;
        self.next_channel += 1;
        let number = self.next_channel;
        self.channels.insert(number, queue);
        if !outlives {
            self.client(rank).channels.insert(number);
        }
        let reply = Reply {
            id,
            code: Code::SUCCESS.0,
            value: number,
            second: self.epoch,
            node: self.node,
        };
        self.post(rank, reply, None);
    }

    fn destroy(&mut self, rank: Rank, id: u32, channel: Descriptor) {
        let code = if channel.node != self.node {
            Code::INVALID_ARGUMENT
        } else if channel.epoch == self.epoch && self.end_channel(channel.number) {
            Code::SUCCESS
        } else {
            Code::OBJECT_DESTROYED
        };
        self.client(rank).channels.remove(&channel.number);
        self.answer(rank, id, code);
    }

    /// Ends a channel. Returns whether it existed.
    fn end_channel(&mut self, number: u64) -> bool {
        let Some(queue) = self.channels.remove(&number) else {
            return false;
        };
        self.reserved -= queue.reserve();
        queue.destroy(&mut self.events);
        true
    }

    // ---- the end of a client ----

    /// Releases everything that a client holds, except messages that were reported to it as sent or
    /// that it sent without waiting.
    fn part(&mut self, rank: Rank) {
        self.outgoing.retain(|_, (client, _)| *client != rank);
        self.arriving.retain(|_, arriving| arriving.client != rank);
        self.replying.remove(&rank);
        let Some(client) = self.clients.remove(&rank) else {
            return;
        };
        let is_sent = |mode| matches!(mode, ReturnMode::None | ReturnMode::Immediately);
        for key in client.open.into_values() {
            let key = u64::from(key);
            let at = self.waiting.iter().position(|request| request.id == key);
            let waiting = at.and_then(|at| self.waiting.get(at));
            match waiting.map(|request| &request.operation) {
                Some(Operation::Send { mode, .. }) if is_sent(*mode) => {}
                Some(_) => {
                    drop(at.and_then(|at| self.waiting.remove(at)));
                    self.complete(key, Outcome::Failed(Code::FAILURE));
                }
                None => self.events.push_back(Event::Abandoned(key)),
            }
        }
        for number in client.channels {
            self.end_channel(number);
        }
    }
}

impl FragmentHandler for Sessions {
    fn read(&mut self, _: Rank, token: u64, offset: usize, into: &mut [u8]) {
        if let Some((_, memory)) = self.outgoing.get(token as usize) {
            memory.read(offset, into);
        }
    }

    fn sent(&mut self, _: Rank, token: u64) {
        self.outgoing.try_remove(token as usize);
    }

    fn fragment(&mut self, peer: Rank, header: &[u8], payload: &[u8]) -> bool {
        let Some(request) = Request::decode(header) else {
            self.broken.push(peer);
            return true;
        };
        if !self.is_taken(peer, request.kind) {
            return false;
        }
        let memory = match request.kind {
            FrameKind::Send { .. } => match self.allocate(peer, payload.len(), Way::From) {
                Ok(mut memory) => {
                    memory.write(0, payload);
                    Some(memory)
                }
                Err(NoMemory::Now) => return false,
                Err(NoMemory::Ever(code)) => {
                    self.refuse(peer, &request, code);
                    return true;
                }
            },
            _ => None,
        };
        self.take(peer, request, memory);
        true
    }

    fn begin(&mut self, peer: Rank, header: &[u8], length: usize) -> Option<u64> {
        let message = match Request::decode(header) {
            Some(request) if matches!(request.kind, FrameKind::Send { .. }) => {
                if !self.is_taken(peer, request.kind) {
                    return None;
                }
                match self.allocate(peer, length, Way::From) {
                    Ok(memory) => Some((request, Ok(memory))),
                    Err(NoMemory::Now) => return None,
                    Err(NoMemory::Ever(code)) => Some((request, Err(code))),
                }
            }
            _ => {
                self.broken.push(peer);
                None
            }
        };
        let client = peer;
        Some(self.arriving.insert(Arriving { client, message }) as u64)
    }

    fn place(&mut self, id: u64, offset: usize, bytes: &[u8]) {
        if let Some(arriving) = self.arriving.get_mut(id as usize)
            && let Some((_, Ok(memory))) = &mut arriving.message
        {
            memory.write(offset, bytes);
        }
    }

    fn end(&mut self, id: u64) {
        if let Some(arriving) = self.arriving.try_remove(id as usize)
            && let Some((request, memory)) = arriving.message
        {
            match memory {
                Ok(memory) => self.take(arriving.client, request, Some(memory)),
                Err(code) => self.refuse(arriving.client, &request, code),
            }
        }
    }

    fn failed(&mut self, peer: Rank, failure: Failure) {
        tracing::debug!("a client {failure}");
        self.part(peer);
        self.gone.push(peer);
    }

    fn room(&self) -> usize {
        // `begin` bounds the data that is arriving.
        1 << 30
    }
}

impl Sessions {
    /// Refuses a request. If the request has no reply, only logs the code.
    fn refuse(&mut self, client: Rank, request: &Request, code: Code) {
        match request.kind.is_awaited() {
            true => self.answer(client, request.id, code),
            false => tracing::warn!("failed to send a message whose sender does not wait: {code}"),
        }
    }

    /// Returns whether nothing of any client is left.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.clients.is_empty() && self.open.is_empty() && self.arriving.is_empty()
    }
}
