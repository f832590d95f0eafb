//! The client's side, with access to the channels of this node and of others.

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

/// The environment variable that names the agent.
pub const AGENT: &str = "CONDUIT_AGENT";
/// The agent's default name, if [`AGENT`] is not set.
pub const DEFAULT_AGENT: &str = "conduit-agent";

/// The time for which an operation is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Timeout {
    /// The operation is tried once, at the channel's node.
    Once,
    /// The operation is tried for this time. The call returns up to a round trip later, or a second
    /// later if the agent does not respond.
    After(Duration),
    /// The operation is tried without a time limit.
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

/// A state of a channel that [`Channel::poll`] waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Poll {
    /// The channel has messages. The value is their number.
    In,
    /// The channel has room. The value is the number of further messages that it has room for.
    Out,
    /// The channel has messages or has room. The value is the number of messages.
    InOrOut,
    /// The channel is empty. The value is 0.
    Empty,
    /// The channel is full. The value is the number of messages.
    Full,
    /// Any state. The value is the number of messages.
    Size,
    /// Any state. The value is the capacity in messages.
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

/// The properties of a new channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// The number of messages that the channel has room for, from 1 to 2²⁰.
    pub capacity: u32,
    /// The maximum size, in bytes, of messages for which the channel reserves memory of its own; at
    /// most 1 MiB. Longer messages use memory that all channels of the node share, which may be
    /// exhausted at times.
    pub block: u32,
    /// Whether the channel outlives the client that created it, until it is destroyed or the agent
    /// ends.
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

/// A received message, owned by the receiver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    /// The message's bytes.
    pub bytes: Vec<u8>,
    /// The number that its [sender](Sender::send_with) attached.
    pub hints: u64,
    /// Identifies the sending client.
    pub sender: u64,
}

/// A connection to this node's agent, which any number of threads may share. Clones share the
/// connection, and channels and senders contain clones. Dropping the last clone waits, for at most
/// ten seconds, until the agent has taken the messages that were sent without waiting. Then the
/// connection is closed: its pending requests are given up, and channels that it created without
/// [`Options::outlives`] end.
///
/// When the agent ends, open requests fail with [`Code::FAILURE`]. Later requests go to the next
/// agent of the same name. The channels of the former agent are gone.
///
/// A forked child needs a client of its own: all calls through an inherited client fail with
/// [`Code::FAILURE`].
#[derive(Clone)]
pub struct Client(Arc<Connection>, pub(crate) Arc<AtomicU64>);

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

impl Client {
    /// Connects to the agent that [`AGENT`] names, or to [`DEFAULT_AGENT`].
    ///
    /// # Errors
    /// Returns [`OpenError`].
    pub fn open() -> Result<Self, OpenError> {
        let name = std::env::var_os(AGENT);
        let name = name.filter(|name| !name.is_empty());
        Self::to(&name.map_or(DEFAULT_AGENT.into(), |name| {
            name.to_string_lossy().into_owned()
        }))
    }

    /// Connects to the agent with this name.
    ///
    /// # Errors
    /// Returns [`OpenError`].
    pub fn to(name: &str) -> Result<Self, OpenError> {
        Ok(Self(Arc::new(Connection::open(name)?), Arc::default()))
    }

    /// Waits, for at most ten seconds, until the agent has taken the messages that were sent
    /// without waiting. A process that is about to end without dropping the client should call
    /// this.
    pub fn settle(&self) {
        self.0.settle();
    }

    /// Creates a channel on this node.
    ///
    /// # Errors
    /// Returns [`Code::INVALID_ARGUMENT`] if an option is out of range, [`Code::OUT_OF_SPACE`] if
    /// the node has too many channels or they reserve too much memory, [`Code::GATEWAY_FULL`] if
    /// the agent accepts no more requests, and [`Code::FAILURE`] if the agent is gone.
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

    /// Returns the channel that a descriptor names, on any node. This does not check that the
    /// channel exists; if it does not, its first use fails.
    pub fn attach(&self, descriptor: Descriptor) -> Channel {
        Channel {
            client: self.clone(),
            descriptor,
        }
    }
}

/// A channel, which is a bounded queue of messages on some node. Any client of the job can send to
/// it and receive from it.
#[derive(Debug, Clone)]
pub struct Channel {
    client: Client,
    descriptor: Descriptor,
}

impl Channel {
    /// Returns the descriptor by which others [attach](Client::attach) to the channel.
    pub fn descriptor(&self) -> Descriptor {
        self.descriptor
    }

    /// Returns a handle for sending. Messages that are sent with one handle stay in order.
    pub fn sender(&self) -> Sender {
        Sender {
            handle: self.client.1.fetch_add(1, Ordering::Relaxed),
            channel: self.clone(),
        }
    }

    /// Takes the next message.
    ///
    /// # Errors
    /// Returns [`Code::TIMEOUT`] if the time limit has passed, [`Code::CHANNEL_EMPTY`] if the
    /// channel is empty and the operation is tried once, [`Code::OBJECT_DESTROYED`] if the channel
    /// does not exist any more, [`Code::NOT_FOUND`] if the job has no such node, [`Code::FAILURE`]
    /// if the channel's node or an agent is gone, and [`Code::GATEWAY_FULL`] if this node's agent
    /// accepts no more requests.
    pub fn receive(&self, timeout: Timeout) -> Result<Received, Code> {
        self.start_receive(timeout)?.wait()
    }

    /// Begins to take the next message. One client's receives from one channel complete in order.
    ///
    /// # Errors
    /// Returns [`Code::GATEWAY_FULL`] if this node's agent accepts no more requests, and
    /// [`Code::FAILURE`] if this process is a forked child.
    pub fn start_receive(&self, timeout: Timeout) -> Result<Pending<Received>, Code> {
        self.start(FrameKind::Get, timeout, None, |ended| Received {
            bytes: ended.bytes,
            hints: ended.value,
            sender: ended.second,
        })
    }

    /// Waits for a state and returns its value.
    ///
    /// # Errors
    /// The same as for [`receive`](Self::receive), except that an operation that is tried once
    /// while the state does not hold fails with [`Code::CHANNEL_EMPTY`] if the channel has too few
    /// messages for the state, and with [`Code::CHANNEL_FULL`] if it has too many.
    pub fn poll(&self, state: Poll, timeout: Timeout) -> Result<u64, Code> {
        self.start_poll(state, timeout)?.wait()
    }

    /// Begins to wait for a state.
    ///
    /// # Errors
    /// Returns [`Code::GATEWAY_FULL`] if this node's agent accepts no more requests, and
    /// [`Code::FAILURE`] if this process is a forked child.
    pub fn start_poll(&self, state: Poll, timeout: Timeout) -> Result<Pending<u64>, Code> {
        let kind = FrameKind::Poll { mask: state.mask() };
        self.start(kind, timeout, None, |ended| ended.value)
    }

    /// Destroys the channel and its messages. All pending operations on it end with
    /// [`Code::OBJECT_DESTROYED`].
    ///
    /// # Errors
    /// Returns [`Code::OBJECT_DESTROYED`] if the channel was destroyed before,
    /// [`Code::INVALID_ARGUMENT`] if it is on another node (only clients on its node can destroy
    /// it), [`Code::GATEWAY_FULL`] if the agent accepts no more requests, and [`Code::FAILURE`] if
    /// the agent is gone.
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

/// A handle for sending to a channel. Messages that are sent with it stay in order.
#[derive(Debug)]
pub struct Sender {
    pub(crate) channel: Channel,
    pub(crate) handle: u64,
}

impl Sender {
    /// Sends a message and waits until the send is complete. The mode defines when that is: with
    /// [`Immediately`](ReturnMode::Immediately) when the agent has the message, with
    /// [`Buffered`](ReturnMode::Buffered) when the message is on its way, with
    /// [`Deposited`](ReturnMode::Deposited) when it is in the channel, and with
    /// [`Received`](ReturnMode::Received) when it has been taken from the channel. With
    /// [`None`](ReturnMode::None) the call does not wait for anything.
    ///
    /// # Errors
    /// The same as for [`Channel::receive`], except that a send that is tried once fails with
    /// [`Code::CHANNEL_FULL`] if the channel is full. In addition, returns [`Code::OUT_OF_SPACE`]
    /// if the message exceeds a node's memory, and [`Code::INVALID_ARGUMENT`] if the mode is
    /// [`Buffered`](ReturnMode::Buffered) and the send is tried once, which is not possible. Agents
    /// log failures that occur after completion.
    pub fn send(&self, bytes: &[u8], mode: ReturnMode, timeout: Timeout) -> Result<(), Code> {
        self.send_with(bytes, 0, mode, timeout)
    }

    /// Sends a message as [`send`](Self::send) does, with `hints`, a number for the receiver.
    ///
    /// # Errors
    /// The same as for [`send`](Self::send).
    pub fn send_with(
        &self,
        bytes: &[u8],
        hints: u64,
        mode: ReturnMode,
        timeout: Timeout,
    ) -> Result<(), Code> {
        self.start(bytes, hints, mode, timeout)?.wait()
    }

    /// Begins to send a message. The bytes are copied.
    ///
    /// # Errors
    /// Returns [`Code::GATEWAY_FULL`] if this node's agent accepts no more requests,
    /// [`Code::OUT_OF_SPACE`] if the message has more than [`u32::MAX`] bytes, and
    /// [`Code::FAILURE`] if this process is a forked child.
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

/// A pending operation. Dropping a `Pending` gives the operation up: it may or may not have taken
/// place, and if it has just taken a message, that message is lost.
#[must_use = "dropping it gives the operation up"]
pub struct Pending<T> {
    connection: Arc<Connection>,
    id: u32,
    limit: Limit,
    /// Whether a reply is expected and has not been taken yet.
    is_awaited: bool,
    /// Converts the reply to the result.
    of: fn(Ended) -> T,
}

impl<T> fmt::Debug for Pending<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending").finish_non_exhaustive()
    }
}

impl<T> Pending<T> {
    /// Waits until the operation has ended.
    ///
    /// # Errors
    /// The same as for the corresponding blocking call.
    pub fn wait(mut self) -> Result<T, Code> {
        let ended = match std::mem::take(&mut self.is_awaited) {
            true => self.connection.wait(self.id, self.limit)?,
            false => Ended::default(),
        };
        Ok((self.of)(ended))
    }

    /// Returns whether the operation has ended, so that [`wait`](Self::wait) returns at once.
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
