//! The agent's side, which implements [`agent::host`] for clients of this crate.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use agent::Code;
use agent::host::{Attempt, Event, Host, Message, NoMemory, Outcome, Place};
use conduit_portals::transport::Transport;
use conduit_portals::transport::open::OpenTransport;
use conduit_shm::peers::{Local, LocalConfig, LocalError};

use crate::channel::Queue;
use crate::descriptor::Descriptor;
use crate::pool::{Memory, Pool, SHORT, Share};
use crate::sessions::Sessions;

/// The approximate memory overhead of a message, in bytes.
const OVERHEAD: usize = 128;

/// The configuration of an agent's gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GatewayConfig {
    /// The name by which clients of this user find the agent: 1 to 64 characters of
    /// `[A-Za-z0-9._-]`.
    pub name: String,
    /// The host id of the gateway's node.
    pub node: u64,
    /// The number of bytes of memory for long messages from clients. The same amount each is
    /// available for long messages in channels, for long messages to clients, and for short
    /// messages on their way into channels. One message may use half of this amount.
    pub pool: usize,
    /// The maximum number of bytes of the memory that all channels reserve for their own messages.
    pub reserve: u64,
    /// Whether to use huge pages for the memory for long messages, if the system has any.
    pub huge_pages: bool,
    /// The maximum number of simultaneous clients.
    pub clients: u32,
}

impl GatewayConfig {
    /// Returns a configuration with the defaults: a `pool` of 64 MiB, a `reserve` of 1 GiB,
    /// ordinary pages, and at most 4096 clients.
    pub fn new(name: impl Into<String>, node: u64) -> Self {
        Self {
            name: name.into(),
            node,
            pool: 64 << 20,
            reserve: 1 << 30,
            huge_pages: false,
            clients: 4096,
        }
    }
}

/// The reason why a gateway could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    /// The name is invalid, or the system refuses.
    #[error("cannot open the gateway for clients: {0}")]
    Local(#[from] LocalError),
    /// The system refuses memory or a random number.
    #[error("cannot open the gateway for clients: {0}")]
    System(#[from] std::io::Error),
}

/// A node whose channels and messages are in this process. Clients access it through shared memory.
#[derive(Debug)]
pub struct Gateway {
    local: Local,
    sessions: Sessions,
    in_channels: Pool,
    /// The number of bytes of short messages on their way into channels. The maximum is `transit`.
    in_transit: Arc<AtomicUsize>,
    transit: usize,
    /// Whether `next` has received from the clients since it last returned `None`.
    has_looked: bool,
}

impl Gateway {
    /// Opens the gateway. Clients can connect at once.
    ///
    /// # Errors
    /// Returns [`GatewayError`].
    pub fn open(config: &GatewayConfig) -> Result<Self, GatewayError> {
        let local = Local::start(&LocalConfig {
            name: Some(config.name.clone()),
            max_peers: config.clients,
            copy: false,
            ..LocalConfig::default()
        })?;
        let epoch = getrandom::u64().map_err(std::io::Error::from)?;
        Ok(Self {
            local,
            sessions: Sessions::new(config, epoch)?,
            in_channels: Pool::new(config.pool, config.huge_pages)?,
            in_transit: Arc::default(),
            transit: config.pool,
            has_looked: false,
        })
    }

    fn queue(&mut self, channel: u64) -> Option<&mut Queue> {
        self.sessions.channels.get_mut(&channel)
    }

    #[cfg(test)]
    pub(crate) fn sessions(&self) -> &Sessions {
        &self.sessions
    }
}

impl Host for Gateway {
    type Memory = Memory;
    /// The channel's number.
    type Channel = u64;

    fn next(&mut self, sends: bool) -> Option<Event<Memory>> {
        if !std::mem::replace(&mut self.has_looked, true) {
            self.sessions.progress(&mut self.local);
        }
        if let Some(event) = self.sessions.events.pop_front() {
            return Some(event);
        }
        if sends && let Some(request) = self.sessions.waiting.pop_front() {
            return Some(Event::Request(request));
        }
        self.has_looked = false;
        None
    }

    fn complete(&mut self, request: u64, outcome: Outcome<Memory>) {
        self.sessions.complete(request, outcome);
    }

    fn allocate(&mut self, bytes: usize, place: Place<'_>) -> Result<Memory, NoMemory> {
        match place {
            Place::Channel(None) if bytes <= SHORT => {
                let share = Share::take(&self.in_transit, bytes + OVERHEAD, self.transit);
                let share = share.ok_or(NoMemory::Now)?;
                Memory::allocate(bytes, &self.in_channels).map(|memory| memory.shared(share))
            }
            Place::Channel(None) => Memory::allocate(bytes, &self.in_channels),
            Place::Channel(Some(_)) => Err(NoMemory::Ever(Code::INVALID_ARGUMENT)),
            Place::Get(request) => self.sessions.allocate_reply(request, bytes),
        }
    }

    fn attach(&mut self, descriptor: &[u8]) -> Result<u64, Code> {
        let channel = Descriptor::from_bytes(descriptor).map_err(|_| Code::INVALID_ARGUMENT)?;
        let sessions = &self.sessions;
        match channel.node == sessions.node {
            false => Err(Code::INVALID_ARGUMENT),
            true if channel.epoch == sessions.epoch
                && sessions.channels.contains_key(&channel.number) =>
            {
                Ok(channel.number)
            }
            true => Err(Code::OBJECT_DESTROYED),
        }
    }

    fn send(
        &mut self,
        channel: &mut u64,
        message: &mut Option<Message<Memory>>,
        receipt: Option<u64>,
    ) -> Attempt<()> {
        let sessions = &mut self.sessions;
        match sessions.channels.get_mut(channel) {
            Some(queue) => queue.send(message, receipt, &mut sessions.events),
            None => Attempt::Failed(Code::OBJECT_DESTROYED),
        }
    }

    fn get(&mut self, channel: &mut u64) -> Attempt<Message<Memory>> {
        let sessions = &mut self.sessions;
        match sessions.channels.get_mut(channel) {
            Some(queue) => queue.get(&mut sessions.events),
            None => Attempt::Failed(Code::OBJECT_DESTROYED),
        }
    }

    fn poll(&mut self, channel: &mut u64, mask: u16) -> Attempt<(u64, Code)> {
        match self.queue(*channel) {
            Some(queue) => queue.poll(mask),
            None => Attempt::Failed(Code::OBJECT_DESTROYED),
        }
    }

    fn watch(&mut self, channel: &mut u64, number: u32) -> bool {
        let queue = self.queue(*channel);
        queue.map(|queue| queue.watch(number)).is_some()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        let mut descriptors = Vec::new();
        self.local.descriptors(&mut descriptors);
        descriptors.pop()
    }

    fn prepare_sleep(&mut self) -> Option<bool> {
        if self.sessions.is_busy() {
            return Some(false);
        }
        let may_sleep = self.local.prepare_sleep();
        // The gateway must wake up soon if a client is to be retried, or if a request that the
        // agent has not taken yet may time out.
        let is_due = self.local.timeout().is_some() || !self.sessions.waiting.is_empty();
        (!may_sleep || !is_due).then_some(may_sleep)
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // Send the last replies. Clients whose rings are full do not get theirs; they only notice
        // that the session has ended.
        self.sessions.progress(&mut self.local);
        self.local.leave();
    }
}
