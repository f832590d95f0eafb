//! The client's side: channels of this node and others.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use agent::Code;
use agent::driver::now;
use agent::host::{Limit, ReturnMode};

use crate::channel::{DEFAULT_BLOCK, DEFAULT_CAPACITY, mask};
use crate::connection::{Connection, Ended, OpenError};
use crate::descriptor::Descriptor;
use crate::wire::FrameKind;

/// The variable that names the agent.
pub const AGENT: &str = "CONDUIT_AGENT";
/// The agent's name where [`AGENT`] is not set.
pub const DEFAULT_AGENT: &str = "conduit-agent";

/// How long an operation is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Timeout {
    /// Once, at the channel's node.
    Once,
    /// For so long; it ends a round trip later, or a second if the agent does not answer.
    After(Duration),
    /// For ever.
    Never,
}

impl Timeout {
    fn limit(self) -> Limit {
        match self {
            Self::Once => Limit::Once,
            Self::After(time) => {
                let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
                Limit::At(now().saturating_add(time))
            }
            Self::Never => Limit::Never,
        }
    }
}

/// A state of a channel, that [`Channel::poll`] waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Poll {
    /// There are messages: how many.
    In,
    /// There is room for messages: for how many.
    Out,
    /// Either: how many messages there are.
    InOrOut,
    /// There are none.
    Empty,
    /// There is no room: how many messages there are.
    Full,
    /// Any: how many messages there are.
    Size,
    /// Any: for how many messages there is room when it is empty.
    Capacity,
}

impl Poll {
    fn mask(self) -> u16 {
        match self {
            Self::In => mask::IN,
            Self::Out => mask::OUT,
            Self::InOrOut => mask::IN_OR_OUT,
            Self::Empty => mask::EMPTY,
            Self::Full => mask::FULL,
            Self::Size => mask::SIZE,
            Self::Capacity => mask::CAPACITY,
        }
    }
}

/// What a channel is made like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Messages that it has room for, from 1 to 2²⁰.
    pub capacity: u32,
    /// Bytes of a message that it has room for by itself, up to 1 MiB. Longer ones share memory with those of all
    /// other channels of the node, of which there may be none just now.
    pub block: u32,
    /// It stays when the client that has made it ends: until it is destroyed, or the agent ends.
    pub outlives: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            capacity: DEFAULT_CAPACITY,
            block: DEFAULT_BLOCK,
            outlives: false,
        }
    }
}

/// A message that was received. It is the receiver's alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// What its [sender](Sender::send_with) has put beside them.
    pub hints: u64,
    /// Tells clients apart that send.
    pub sender: u64,
}

/// A connection to this node's agent, for any number of threads. A clone is the same one. When the last one is gone,
/// among them those in channels and senders, what it has asked for is given up, and its channels end; it waits, up to
/// ten seconds, until the agent has taken what was sent without waiting.
///
/// After the agent has ended, what was asked of it fails with [`Code::FAILURE`]. What is asked then goes to the next
/// agent of that name; channels of the former one are gone.
///
/// A child that `fork` makes needs a client of its own: all calls of this one fail with [`Code::FAILURE`] there.
#[derive(Clone)]
pub struct Client(Arc<Connection>, pub(crate) Arc<AtomicU64>);

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

impl Client {
    /// To the agent that [`AGENT`] names, or [`DEFAULT_AGENT`].
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open() -> Result<Self, OpenError> {
        let name = std::env::var_os(AGENT);
        let name = name.filter(|name| !name.is_empty());
        Self::to(&name.map_or(DEFAULT_AGENT.into(), |name| {
            name.to_string_lossy().into_owned()
        }))
    }

    /// To the agent with this name.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn to(name: &str) -> Result<Self, OpenError> {
        Ok(Self(Arc::new(Connection::open(name)?), Arc::default()))
    }

    /// Waits, up to ten seconds, until the agent has taken what was sent without waiting: for a process that is about to
    /// end, without dropping this.
    pub fn settle(&self) {
        self.0.settle();
    }

    /// Makes a channel on this node.
    ///
    /// # Errors
    /// [`Code::INVALID_ARGUMENT`]: a number beyond its limits. [`Code::OUT_OF_SPACE`]: too many channels, or too much
    /// memory for all of them.
    pub fn create(&self, options: &Options) -> Result<Channel, Code> {
        let kind = FrameKind::Create {
            capacity: options.capacity.into(),
            block: options.block.into(),
            outlives: options.outlives,
        };
        let nothing = Descriptor {
            node: 0,
            epoch: 0,
            number: 0,
        };
        let id = self.0.ask(kind, Limit::Never, nothing, None)?;
        let made = self.0.wait(id, Limit::Never)?;
        Ok(self.attach(Descriptor {
            node: made.node,
            epoch: made.second,
            number: made.value,
        }))
    }

    /// The channel that a descriptor names, on any node. Whether there is one shows when it is used.
    pub fn attach(&self, descriptor: Descriptor) -> Channel {
        Channel {
            client: self.clone(),
            descriptor,
        }
    }
}

/// A channel: a bounded queue of messages on some node, that any client of the job can send to and receive from.
#[derive(Debug, Clone)]
pub struct Channel {
    client: Client,
    descriptor: Descriptor,
}

impl Channel {
    /// What others [attach](Client::attach) to it by.
    pub fn descriptor(&self) -> Descriptor {
        self.descriptor
    }

    /// A handle for sending: messages of one handle stay in order.
    pub fn sender(&self) -> Sender {
        Sender {
            handle: self.client.1.fetch_add(1, Ordering::Relaxed),
            channel: self.clone(),
        }
    }

    /// Takes the next message.
    ///
    /// # Errors
    /// [`Code::TIMEOUT`]; [`Code::CHANNEL_EMPTY`], if it was tried once; [`Code::OBJECT_DESTROYED`];
    /// [`Code::NOT_FOUND`]: the job has no such node; [`Code::FAILURE`]: the channel's node is gone, or an agent;
    /// [`Code::GATEWAY_FULL`].
    pub fn receive(&self, timeout: Timeout) -> Result<Received, Code> {
        self.start_receive(timeout)?.wait()
    }

    /// Begins to take the next message. Receives of one client from one channel end in their order.
    ///
    /// # Errors
    /// [`Code::GATEWAY_FULL`], [`Code::FAILURE`].
    pub fn start_receive(&self, timeout: Timeout) -> Result<Pending<Received>, Code> {
        self.start(FrameKind::Get, timeout, None, |ended| Received {
            bytes: ended.bytes,
            hints: ended.value,
            sender: ended.second,
        })
    }

    /// Waits for a state, and says its number.
    ///
    /// # Errors
    /// As for [`receive`](Self::receive). What is tried once and does not hold is [`Code::CHANNEL_EMPTY`] if there is
    /// too little in the channel for it, and [`Code::CHANNEL_FULL`] if there is too much.
    pub fn poll(&self, state: Poll, timeout: Timeout) -> Result<u64, Code> {
        self.start_poll(state, timeout)?.wait()
    }

    /// Begins to wait for a state.
    ///
    /// # Errors
    /// [`Code::GATEWAY_FULL`], [`Code::FAILURE`].
    pub fn start_poll(&self, state: Poll, timeout: Timeout) -> Result<Pending<u64>, Code> {
        let kind = FrameKind::Poll { mask: state.mask() };
        self.start(kind, timeout, None, |ended| ended.value)
    }

    /// Destroys it with what is in it. All operations on it that are under way end with [`Code::OBJECT_DESTROYED`].
    ///
    /// # Errors
    /// [`Code::OBJECT_DESTROYED`]: it was before. [`Code::INVALID_ARGUMENT`]: it is on another node, where a client has
    /// to do that. [`Code::FAILURE`].
    pub fn destroy(&self) -> Result<(), Code> {
        let pending = self.start(FrameKind::Destroy, Timeout::Never, None, drop)?;
        pending.wait()
    }

    pub(crate) fn start<T>(
        &self,
        kind: FrameKind,
        timeout: Timeout,
        bytes: Option<Box<[u8]>>,
        of: fn(Ended) -> T,
    ) -> Result<Pending<T>, Code> {
        let (connection, limit) = (&self.client.0, timeout.limit());
        let id = connection.ask(kind, limit, self.descriptor, bytes)?;
        Ok(Pending {
            connection: Arc::clone(connection),
            id,
            limit,
            is_awaited: kind.is_awaited(),
            of,
        })
    }
}

/// Sends to a channel, in order.
#[derive(Debug)]
pub struct Sender {
    pub(crate) channel: Channel,
    pub(crate) handle: u64,
}

impl Sender {
    /// Sends a message, and waits until it is complete in the sense of its mode:
    /// [`Immediately`](ReturnMode::Immediately), the agent has it; [`Buffered`](ReturnMode::Buffered), it is on its way;
    /// [`Deposited`](ReturnMode::Deposited), it is in the channel; [`Received`](ReturnMode::Received), somebody has
    /// taken it from there; [`None`](ReturnMode::None): nobody waits, not even for the agent.
    ///
    /// # Errors
    /// [`Code::TIMEOUT`], [`Code::CHANNEL_FULL`] (tried once), [`Code::OBJECT_DESTROYED`], [`Code::NOT_FOUND`],
    /// [`Code::FAILURE`] as for [`Channel::receive`]; [`Code::OUT_OF_SPACE`]: it is longer than a node has memory for;
    /// [`Code::GATEWAY_FULL`]: this node's agent has as many requests as it takes; [`Code::INVALID_ARGUMENT`]: a message
    /// that returns when buffered can't be tried once. Failures after it is complete in its mode are logged by agents.
    pub fn send(&self, bytes: &[u8], mode: ReturnMode, timeout: Timeout) -> Result<(), Code> {
        self.send_with(bytes, 0, mode, timeout)
    }

    /// Likewise, with a number for the receiver.
    ///
    /// # Errors
    /// As for [`send`](Self::send).
    pub fn send_with(
        &self,
        bytes: &[u8],
        hints: u64,
        mode: ReturnMode,
        timeout: Timeout,
    ) -> Result<(), Code> {
        self.start(bytes, hints, mode, timeout)?.wait()
    }

    /// Begins to send. The bytes are copied.
    ///
    /// # Errors
    /// [`Code::GATEWAY_FULL`], [`Code::FAILURE`].
    pub fn start(
        &self,
        bytes: &[u8],
        hints: u64,
        mode: ReturnMode,
        timeout: Timeout,
    ) -> Result<Pending<()>, Code> {
        let kind = FrameKind::Send {
            mode,
            handle: self.handle,
            hints,
        };
        self.channel.start(kind, timeout, Some(bytes.into()), drop)
    }
}

/// An operation that has begun. Dropped, it is given up: it may have been done, or not; a message that was taken just
/// then is lost.
#[must_use = "dropped, it is given up"]
pub struct Pending<T> {
    connection: Arc<Connection>,
    id: u32,
    limit: Limit,
    /// There is a reply, and nobody has it yet.
    is_awaited: bool,
    /// What a reply says.
    of: fn(Ended) -> T,
}

impl<T> fmt::Debug for Pending<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending").finish_non_exhaustive()
    }
}

impl<T> Pending<T> {
    /// Waits until it has ended.
    ///
    /// # Errors
    /// As for the call that waits.
    pub fn wait(mut self) -> Result<T, Code> {
        let ended = match std::mem::take(&mut self.is_awaited) {
            true => self.connection.wait(self.id, self.limit)?,
            false => Ended::default(),
        };
        Ok((self.of)(ended))
    }

    /// Whether it has ended, so that [`wait`](Self::wait) does not wait.
    pub fn has_ended(&self) -> bool {
        !self.is_awaited || self.connection.has_ended(self.id)
    }
}

impl<T> Drop for Pending<T> {
    fn drop(&mut self) {
        if self.is_awaited {
            self.connection.abandon(self.id);
        }
    }
}
