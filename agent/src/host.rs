//! The node as an agent sees it: the requests of the node's processes, the channels and the memory.
//! [`Host`] is implemented by the gateways to processes and by the simulator.

use std::os::fd::BorrowedFd;

use crate::code::Code;

/// A time in nanoseconds of a clock that all processes of the node share (`CLOCK_MONOTONIC`).
pub type Nanos = u64;

/// Memory that holds messages and that the node's processes and its agent share ("managed memory").
/// Dropping a `Memory` frees the memory unless a process or another agent owns it.
///
/// Other processes may write to the memory at any time, so no method hands out references to its
/// bytes.
pub trait Memory: Send {
    /// Returns the length in bytes.
    fn length(&self) -> usize;
    /// Copies bytes out of the memory.
    ///
    /// # Panics
    /// Panics if the range exceeds the memory.
    fn read(&self, offset: usize, into: &mut [u8]);
    /// Copies bytes into the memory.
    ///
    /// # Panics
    /// Panics if the range exceeds the memory.
    fn write(&mut self, offset: usize, bytes: &[u8]);
    /// Returns a name, of at most [`MAX_DESCRIPTOR`] bytes, by which the node's other agents can
    /// [import](Host::import) the memory, or `None` if they cannot.
    fn export(&self) -> Option<Box<[u8]>> {
        None
    }
    /// Returns whether the agent alone decides when this memory is freed or reused, so that it may
    /// keep the memory even after the receiver has stopped waiting.
    fn is_own(&self) -> bool {
        false
    }
}

/// A message in memory, with the metadata that travels beside its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Message<M> {
    /// The memory that holds the message. The message is exactly as long as the memory.
    pub memory: M,
    /// Hints, which agents pass from the sender to the receiver and do not interpret.
    pub hints: u64,
    /// The client that sent the message. Agents do not interpret the number.
    pub client: u64,
}

/// How long an operation is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Limit {
    /// The operation is tried only once, at the target.
    Once,
    /// The operation is tried until this time.
    At(Nanos),
    /// The operation is tried without limit.
    Never,
}

/// When a send is complete for its user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReturnMode {
    /// The send is complete as soon as the agent has the request.
    Immediately,
    /// The send is complete when the agent no longer uses the user's memory.
    Buffered,
    /// The send is complete when the message is in the channel.
    Deposited,
    /// The send is complete when a receiver has taken the message from the channel.
    Received,
    /// No user waits for the send to complete.
    None,
}

/// The operation that a process requests.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Operation<M> {
    /// Sends a message to the channel (SENDMSG).
    Send {
        /// The sender's handle, unique in the job. Messages of one handle to one channel stay in
        /// order.
        handle: u128,
        /// The message. The agent drops its memory when it no longer needs it.
        message: Message<M>,
        /// When the send is complete.
        mode: ReturnMode,
        /// Where the message is to be placed at the target, in a form that the target's host
        /// understands.
        destination: Option<Box<[u8]>>,
    },
    /// Receives the channel's next message (GETMSG).
    Get,
    /// Waits for a state of the channel (POLL).
    Poll {
        /// The states to wait for, as channels define them.
        mask: u16,
    },
}

/// A request that a process of this node makes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Request<M> {
    /// The number by which the host identifies the request. [`Host::complete`] is called exactly
    /// once for each request.
    pub id: u64,
    /// The host id of the channel's node, which may be this node.
    pub node: u64,
    /// The channel's descriptor, which has at most [`MAX_DESCRIPTOR`] bytes.
    pub channel: Box<[u8]>,
    /// The requesting process. Its gets from one channel complete in order, and so do its polls.
    pub process: u64,
    /// How long the operation is tried.
    pub limit: Limit,
    /// The requested operation.
    pub operation: Operation<M>,
}

/// The maximum length of a descriptor in bytes.
pub const MAX_DESCRIPTOR: usize = 512;

/// An event from the node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Event<M> {
    /// A process has made a request.
    Request(Request<M>),
    /// The requester of the request with this id has exited or has given up the request. The agent
    /// completes the request soon, with any outcome.
    Abandoned(u64),
    /// A message [sent](Host::send) with this receipt was taken from its channel.
    Received(u64),
    /// A message sent with this receipt will never be taken, because its channel was destroyed.
    Discarded(u64),
    /// A channel [watched](Host::watch) under this number has changed.
    Changed(u32),
}

/// How a request has ended.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Outcome<M> {
    /// A send completed, as defined by its return mode.
    Sent,
    /// A get has received this message.
    Got(Message<M>),
    /// A poll has returned the channel's value and code. The code may differ from
    /// [`Code::SUCCESS`].
    Polled(u64, Code),
    /// The operation failed with this code, which is never [`Code::SUCCESS`].
    Failed(Code),
}

/// The result of an attempt at a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attempt<T> {
    /// The attempt succeeded.
    Done(T),
    /// The operation cannot be done now. A request that does not wait fails with this code.
    Blocked(Code),
    /// The operation can never be done.
    Failed(Code),
}

/// Why memory could not be allocated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoMemory {
    /// Too much memory is in use now.
    Now,
    /// The memory can never be allocated: the host does not have that much, or the destination is
    /// invalid.
    Ever(Code),
}

/// A node as its agent sees it. No call blocks.
pub trait Host {
    /// The memory that holds messages.
    type Memory: Memory;
    /// An attachment of the agent to a channel of this node. Dropping it detaches from the channel.
    type Channel: Send;

    /// Returns the next event. If `sends` is `false`, the host leaves requests to send where they
    /// are, so that the processes notice that the agent does not take them.
    fn next(&mut self, sends: bool) -> Option<Event<Self::Memory>>;

    /// Completes a request. Its user gets the outcome, unless the user is gone.
    fn complete(&mut self, request: u64, outcome: Outcome<Self::Memory>);

    /// Allocates memory for a message of `bytes` bytes, which is either for a channel of this node
    /// or the result of a get of this node. The memory of a get's message is where the request
    /// wants it.
    ///
    /// # Errors
    /// Returns [`NoMemory`] if there is not enough memory now, or if the allocation can never
    /// succeed.
    fn allocate(&mut self, bytes: usize, place: Place<'_>) -> Result<Self::Memory, NoMemory>;

    /// Imports memory of this node that another of the node's agents has
    /// [exported](Memory::export). The exporting agent frees the memory.
    ///
    /// # Errors
    /// Returns an error if no memory has this name.
    fn import(&mut self, _name: &[u8]) -> Result<Self::Memory, Code> {
        Err(Code::INVALID_ARGUMENT)
    }

    /// Returns the node's other agents, if the host supports several.
    fn siblings(&mut self) -> Option<&mut dyn Siblings> {
        None
    }

    /// Attaches to a channel.
    ///
    /// # Errors
    /// Returns an error if the descriptor is malformed or names no channel of this node.
    fn attach(&mut self, descriptor: &[u8]) -> Result<Self::Channel, Code>;

    /// Puts a message into a channel if there is room, and takes it out of `message` on success. If
    /// there is a `receipt`, [`Event::Received`] reports this number when a receiver has taken the
    /// message, or [`Event::Discarded`] if none ever will. A host that cannot determine this
    /// reports [`Event::Received`] at once.
    fn send(
        &mut self,
        channel: &mut Self::Channel,
        message: &mut Option<Message<Self::Memory>>,
        receipt: Option<u64>,
    ) -> Attempt<()>;

    /// Takes the next message from a channel, if there is one.
    fn get(&mut self, channel: &mut Self::Channel) -> Attempt<Message<Self::Memory>>;

    /// Checks whether a channel is in one of the states of `mask`. The value and the code are those
    /// of [`Outcome::Polled`].
    fn poll(&mut self, channel: &mut Self::Channel, mask: u16) -> Attempt<(u64, Code)>;

    /// Asks the host to watch a channel after a blocked attempt. Returns `true` if the host will
    /// report, by a single [`Event::Changed`] with this number, that another attempt may succeed.
    /// Returns `false` if the agent has to try again now and then.
    fn watch(&mut self, _channel: &mut Self::Channel, _number: u32) -> bool {
        false
    }

    /// Returns a file descriptor that becomes readable when this node needs the agent. That is
    /// guaranteed only after a call of [`prepare_sleep`](Self::prepare_sleep).
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Returns whether the agent may sleep until the [descriptor](Self::descriptor) is readable, or
    /// `None` if the host has no descriptor and the agent has to poll now and then.
    fn prepare_sleep(&mut self) -> Option<bool> {
        None
    }
}

/// The other agents of a node on which each network interface has its own agent. The messages
/// between two agents are short, and they are reliable and ordered as long as the two live. No call
/// blocks.
pub trait Siblings {
    /// Returns the next event and the sibling it came from.
    fn next(&mut self) -> Option<(u32, SiblingEvent)>;
    /// Sends at most [`MAX_SIBLING_MESSAGE`] bytes. Returns `false` if the message cannot be sent
    /// now. Messages to a sibling that has ended are dropped.
    fn send(&mut self, sibling: u32, message: &[u8]) -> bool;
    /// Ends the exchange with a sibling: this agent sends it nothing more, and the sibling gets
    /// [`SiblingEvent::Ended`]. The sibling responds by ending the exchange too, unless it has done
    /// so already, and this agent then gets the same event.
    fn end(&mut self, sibling: u32);
}

/// The maximum length in bytes of a message between agents of a node.
pub const MAX_SIBLING_MESSAGE: usize = 2 * MAX_DESCRIPTOR + 64;

/// An event from another agent of the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SiblingEvent {
    /// The sibling has joined.
    Joined,
    /// The sibling has sent this message.
    Message(Vec<u8>),
    /// The sibling has ended the exchange or died, and its memory is gone. No event of the sibling
    /// follows until it joins again.
    Ended,
}

/// The use of allocated memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place<'a> {
    /// A message to a channel of this node, with the destination that its sender requested.
    Channel(Option<&'a [u8]>),
    /// The message that a get of this node waits for. The number is the request's id.
    Get(u64),
}
