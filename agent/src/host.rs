//! What an agent needs of its node: the requests of the processes there, their channels, and memory. A gateway to
//! processes implements it; the simulator does too.

use std::os::fd::BorrowedFd;

use crate::code::Code;

/// Nanoseconds of a clock that all processes of the node share (`CLOCK_MONOTONIC`).
pub type Nanos = u64;

/// Memory that processes of the node and its agent share ("managed memory"), in which messages are. It is given back
/// when this is dropped.
///
/// Other processes may write to it at any time, so nobody gets references to its bytes.
pub trait Memory: Send {
    /// Bytes.
    fn length(&self) -> usize;
    /// Copies bytes from it.
    ///
    /// # Panics
    /// They are not all within it.
    fn read(&self, offset: usize, into: &mut [u8]);
    /// Copies bytes to it.
    ///
    /// # Panics
    /// They are not all within it.
    fn write(&mut self, offset: usize, bytes: &[u8]);
    /// A name, of at most [`MAX_DESCRIPTOR`] bytes, by which the node's other agents can [import](Host::import) it.
    /// `None`: they can't.
    fn export(&self) -> Option<Box<[u8]>> {
        None
    }
    /// Whether the agent has allocated it and nobody else is to write to it, so that the agent may keep it for longer
    /// than who waits for it waits.
    fn is_own(&self) -> bool {
        false
    }
}

/// A message, in memory, with what travels beside its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Message<M> {
    /// Its bytes: all of the memory.
    pub memory: M,
    /// For the receiver, from the sender: meaningless to agents.
    pub hints: u64,
    /// Which client has sent it: meaningless to agents.
    pub client: u64,
}

/// How long an operation is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Limit {
    /// Once, at the target.
    Once,
    /// Until then.
    At(Nanos),
    /// For ever.
    Never,
}

/// When a send is complete for its user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReturnMode {
    /// As soon as the agent has the request.
    Immediately,
    /// When the user's memory is used no more.
    Buffered,
    /// When the message is in the channel.
    Deposited,
    /// When somebody has taken it from there.
    Received,
    /// Nobody waits.
    None,
}

/// What a process asks for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Operation<M> {
    /// Send a message to the channel (SENDMSG).
    Send {
        /// Names the sender's handle, in the job: messages of one handle to one channel stay in order.
        handle: u128,
        /// The message. Its memory is given back when it is not needed any more.
        message: Message<M>,
        /// When it is complete.
        mode: ReturnMode,
        /// Where at the target the message is to be placed, as the target's host understands it.
        destination: Option<Box<[u8]>>,
    },
    /// Receive the channel's next message (GETMSG).
    Get,
    /// Wait for a state of the channel (POLL).
    Poll {
        /// Which, as channels understand it.
        mask: u16,
    },
}

/// A request of a process of this node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Request<M> {
    /// Names it towards the host. [`Host::complete`] is called once for each, whatever happens.
    pub id: u64,
    /// The host id of the channel's node; it may be this one.
    pub node: u64,
    /// The channel's descriptor, at most [`MAX_DESCRIPTOR`] bytes.
    pub channel: Box<[u8]>,
    /// The process: its gets complete in order, and so do its polls of one channel.
    pub process: u64,
    /// How long it is tried.
    pub limit: Limit,
    /// What it asks for.
    pub operation: Operation<M>,
}

/// The most bytes of a descriptor.
pub const MAX_DESCRIPTOR: usize = 512;

/// What comes from the node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Event<M> {
    /// A process asks for something.
    Request(Request<M>),
    /// Who has made this request is gone, or has given it up: it is to be completed soon, by whatever code.
    Abandoned(u64),
    /// A message was taken from its channel that [was sent](Host::send) with this number as its receipt.
    Received(u64),
    /// Such a message will never be taken: its channel was destroyed.
    Discarded(u64),
    /// A channel that is [watched](Host::watch) by this number has changed.
    Changed(u32),
}

/// How a request has ended.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Outcome<M> {
    /// A send, in the sense of its mode.
    Sent,
    /// A get's message.
    Got(Message<M>),
    /// A poll's answer: the channel's value, and its code, which may be none of success.
    Polled(u64, Code),
    /// It was not done; never [`Code::SUCCESS`].
    Failed(Code),
}

/// What became of an attempt at a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attempt<T> {
    /// It was done.
    Done(T),
    /// Not now; the code for one who does not wait.
    Blocked(Code),
    /// Never.
    Failed(Code),
}

/// Why there is no memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoMemory {
    /// Not now: too much of it is in use.
    Now,
    /// There is not as much at all, or the destination makes no sense.
    Ever(Code),
}

/// A node, as its agent sees it. No call waits.
pub trait Host {
    /// What messages are in.
    type Memory: Memory;
    /// A channel of this node that was attached to, by one port; dropped, it is detached.
    type Channel: Send;

    /// What comes next. Unless `sends`, no request to send is taken: they stay where processes notice that nobody takes
    /// them.
    fn next(&mut self, sends: bool) -> Option<Event<Self::Memory>>;

    /// A request has ended. Its user gets the outcome; who is gone gets none.
    fn complete(&mut self, request: u64, outcome: Outcome<Self::Memory>);

    /// Memory for a message of so many bytes that comes for a channel of this node, or, with `request`, as the message
    /// of a get of this node, in the place that the request wants it.
    ///
    /// # Errors
    /// [`NoMemory`].
    fn allocate(&mut self, bytes: usize, place: Place<'_>) -> Result<Self::Memory, NoMemory>;

    /// Memory of this node that another agent of it has [exported](Memory::export). That one gives it back.
    ///
    /// # Errors
    /// There is none of this name.
    fn import(&mut self, _name: &[u8]) -> Result<Self::Memory, Code> {
        Err(Code::INVALID_ARGUMENT)
    }

    /// The node's other agents, if there can be any.
    fn siblings(&mut self) -> Option<&mut dyn Siblings> {
        None
    }

    /// Attaches to a channel.
    ///
    /// # Errors
    /// It isn't a descriptor, or that of no channel here.
    fn attach(&mut self, descriptor: &[u8]) -> Result<Self::Channel, Code>;

    /// Puts a message into a channel, if there is room. It is taken out of `message` when it was done. `receipt`: this
    /// number is to come back by [`Event::Received`] when the message is taken, or [`Event::Discarded`]; where that can't
    /// be known, as received, at once.
    fn send(
        &mut self,
        channel: &mut Self::Channel,
        message: &mut Option<Message<Self::Memory>>,
        receipt: Option<u64>,
    ) -> Attempt<()>;

    /// Takes the next message from a channel, if there is one.
    fn get(&mut self, channel: &mut Self::Channel) -> Attempt<Message<Self::Memory>>;

    /// Whether a channel is in a state. Answers as [`Outcome::Polled`].
    fn poll(&mut self, channel: &mut Self::Channel, mask: u16) -> Attempt<(u64, Code)>;

    /// An attempt at a channel was blocked. Whether the host tells when another one may end otherwise, once, by
    /// [`Event::Changed`] with this number; else it is repeated now and then.
    fn watch(&mut self, _channel: &mut Self::Channel, _number: u32) -> bool {
        false
    }

    /// Readable when there is something to do for this node, once [prepared](Self::prepare_sleep).
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Whether the agent may sleep until the [descriptor](Self::descriptor) is readable; `None`: there is none, and it
    /// has to look now and then.
    fn prepare_sleep(&mut self) -> Option<bool> {
        None
    }
}

/// The other agents of a node, where each has a network interface of its own, and short messages between them, which are
/// not lost and stay in order as long as both live. No call waits.
pub trait Siblings {
    /// What comes next, and from which of them.
    fn next(&mut self) -> Option<(u32, SiblingEvent)>;
    /// Sends at most [`MAX_SIBLING_MESSAGE`] bytes. `false`: not now. Nothing comes of it once the sibling has ended.
    fn send(&mut self, sibling: u32, message: &[u8]) -> bool;
    /// Nothing more is sent to this one. It hears [`SiblingEvent::Ended`]; so does this agent, once the other one has
    /// said the same, and then says it if it has not yet.
    fn end(&mut self, sibling: u32);
}

/// The most bytes of a message between agents of a node.
pub const MAX_SIBLING_MESSAGE: usize = 2 * MAX_DESCRIPTOR + 64;

/// What comes from another agent of the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SiblingEvent {
    /// It is there.
    Joined,
    /// A message.
    Message(Vec<u8>),
    /// It has said its end, or is dead, and its memory is gone. Nothing more comes until it has joined again.
    Ended,
}

/// What memory is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place<'a> {
    /// A message to a channel here, with its sender's wish.
    Channel(Option<&'a [u8]>),
    /// The message that a get of this node waits for, by the number of its request.
    Get(u64),
}
