//! The raw class: one process's end of NA, which takes memory by address and identifies completions
//! by numbers.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use conduit_core::ni::Rank;
use conduit_portals::transport::open::{ConnectError, OpenTransport};

use crate::address::Addr;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::handle::{Handle, Memory};
use crate::machine::memory::{Rights, Segment, Segments};
use crate::machine::operation::{Buffer, OperationId};
use crate::machine::{self, Counters, Limits, MessageHeader, NewTransfer, SELF};
use crate::options::{Options, Protocol};

pub use networks::open::Network;

/// The state that addresses and memory refer to.
pub(crate) struct Shared<N> {
    pub(crate) engine: Engine<N>,
    pub(crate) protocol: Protocol,
    max_contexts: u8,
    busy: bool,
}

/// One process's end of NA. Clones refer to the same class.
pub struct Class<N: OpenTransport = Network>(Arc<Shared<N>>);

/// The source of an unexpected message. The class remembers the source until the `Source` is
/// converted to an [address](Class::source).
#[derive(Debug, PartialEq, Eq)]
pub struct Source(Rank);

/// The result of a successful operation.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A message's buffer can be used again, or a transfer is complete.
    Done,
    /// An expected message of this length was received.
    Received(usize),
    /// An unexpected message was received.
    Unexpected {
        /// The sender.
        source: Source,
        /// The message's tag.
        tag: u32,
        /// The message's offset in the buffer.
        offset: usize,
        /// The message's length in bytes.
        length: usize,
        /// Whether the operation has ended. If not, it receives further messages.
        last: bool,
    },
}

/// The end of an operation, or a message received by an operation that receives several.
#[derive(Debug, PartialEq, Eq)]
pub struct Completion {
    /// The context in which the operation was begun.
    pub context: u8,
    /// The cookie that was passed with the operation.
    pub cookie: u64,
    /// The result.
    pub result: Result<Outcome>,
}

/// The destination of a message.
#[derive(Debug)]
pub struct Target<'a, N: OpenTransport = Network> {
    /// The process's address.
    pub address: &'a Addr<N>,
    /// The context of that process.
    pub context: u8,
}

/// One side of a transfer.
#[derive(Debug, Clone, Copy)]
pub struct Part<M> {
    /// The memory.
    pub memory: M,
    /// The offset of the first byte.
    pub offset: u64,
}

impl<N: OpenTransport> Class<N> {
    /// Creates a class over a network. `window` is the maximum number of each peer's unexpected
    /// messages that may wait here. `sink` is called for every completion, by the thread that
    /// detects it, in the order in which operations ended. `sink` must neither call the class nor
    /// drop objects of the class.
    ///
    /// # Errors
    /// Returns an error if an option is invalid, or the system has no file descriptors left.
    pub fn over(
        network: N,
        protocol: Protocol,
        options: &Options,
        window: u32,
        sink: impl Fn(Completion) + Send + Sync + 'static,
    ) -> Result<Self> {
        let limits = Limits {
            unexpected: Options::size(
                options.max_unexpected_size,
                Options::UNEXPECTED,
                "max_unexpected_size",
            )?,
            expected: Options::size(
                options.max_expected_size,
                Options::EXPECTED,
                "max_expected_size",
            )?,
            window: window.max(2),
            early: 16 << 20,
            contexts: options.max_contexts.max(1),
        };
        let sink = move |completion: machine::Completion| {
            sink(Completion {
                context: completion.context,
                cookie: completion.cookie,
                result: completion.result.map(outcome),
            });
        };
        let engine = Engine::new(network, limits, Box::new(sink))
            .map_err(|error| Error::Exhausted(format!("no descriptors for sleeping: {error}")))?;
        Ok(Self(Arc::new(Shared {
            engine,
            protocol,
            max_contexts: options.max_contexts.max(1),
            busy: options.busy,
        })))
    }

    // ---- addresses ----

    /// Returns the address of this process.
    pub fn own(&self) -> Addr<N> {
        Addr::new(Arc::clone(&self.0), SELF)
    }

    /// Returns the address of a message's source.
    pub fn source(&self, source: Source) -> Addr<N> {
        Addr::new(Arc::clone(&self.0), source.0)
    }

    /// Returns the address of a process. `name` must have the form that [`Addr`] prints, with or
    /// without the prefix `conduit+`. This call does not notice that the process does not exist,
    /// but a later send to it fails.
    ///
    /// # Errors
    /// Returns an error if the address is malformed or of another protocol or host, or if too many
    /// peers are known.
    pub fn lookup(&self, name: &str) -> Result<Addr<N>> {
        let short = name.strip_prefix("conduit+").unwrap_or(name);
        let protocol = self.0.protocol.name();
        let Some((found, text)) = short.split_once("://") else {
            return Err(Error::Refused(format!("{name}: expected \"://\"")));
        };
        if found != protocol {
            return Err(Error::Refused(format!(
                "{name}: this class only supports {protocol}"
            )));
        }
        let in_name = |error: ConnectError| match error {
            ConnectError::Exhausted { .. } => Error::Exhausted(format!("{name}: {error}")),
            error => Error::Refused(format!("{name}: {error}")),
        };
        let bytes = self
            .0
            .engine
            .look(|inner| inner.network.address_of_text(text))
            .map_err(in_name)?;
        self.connect(&bytes).map_err(in_name)
    }

    /// Returns the address encoded by [`Addr::to_bytes`].
    ///
    /// # Errors
    /// Same as [`lookup`](Self::lookup).
    pub fn address_of_bytes(&self, bytes: &[u8]) -> Result<Addr<N>> {
        Ok(self.connect(bytes)?)
    }

    fn connect(&self, bytes: &[u8]) -> Result<Addr<N>, ConnectError> {
        let peer = self.0.engine.look(|inner| {
            if inner.network.address() == bytes {
                return Ok(SELF);
            }
            match inner.connect(bytes) {
                Err(ConnectError::Own) => Ok(SELF),
                Ok(peer) => {
                    inner.machine.look_up(peer);
                    Ok(peer)
                }
                Err(error) => Err(error),
            }
        })?;
        Ok(Addr::new(Arc::clone(&self.0), peer))
    }

    // ---- messages ----

    /// Returns the maximum length of an unexpected message in bytes.
    pub fn max_unexpected_size(&self) -> usize {
        self.0
            .engine
            .look(|inner| inner.machine.limits().unexpected)
    }

    /// Returns the maximum length of an expected message in bytes.
    pub fn max_expected_size(&self) -> usize {
        self.0.engine.look(|inner| inner.machine.limits().expected)
    }

    /// Returns the number of contexts, which are numbered from 0.
    pub fn max_contexts(&self) -> u8 {
        self.0.max_contexts
    }

    /// Sends an unexpected message, which any posted receive for unexpected messages in the
    /// target's context can receive.
    ///
    /// # Errors
    /// Returns an error if the message is too long or the context does not exist. The call then has
    /// no effect.
    ///
    /// # Safety
    /// `[buffer, buffer + length)` must be valid for reads, and must not be written to, until the
    /// operation has ended.
    pub unsafe fn send_unexpected(
        &self,
        context: u8,
        cookie: u64,
        (buffer, length): (*const u8, usize),
        to: &Target<'_, N>,
        tag: u32,
    ) -> Result<OperationId> {
        self.send(context, cookie, (buffer, length), to, tag, false)
    }

    /// Sends an expected message, for which the receiver has posted, or is going to post, a receive
    /// with this source and tag.
    ///
    /// # Errors
    /// Same as [`send_unexpected`](Self::send_unexpected).
    ///
    /// # Safety
    /// Same as [`send_unexpected`](Self::send_unexpected).
    pub unsafe fn send_expected(
        &self,
        context: u8,
        cookie: u64,
        (buffer, length): (*const u8, usize),
        to: &Target<'_, N>,
        tag: u32,
    ) -> Result<OperationId> {
        self.send(context, cookie, (buffer, length), to, tag, true)
    }

    /// Refuses an address of another class, because each class numbers its peers differently.
    fn check(&self, address: &Addr<N>) -> Result<()> {
        match address.is_of(&self.0) {
            true => Ok(()),
            false => Err(Error::Invalid("the address belongs to another class")),
        }
    }

    fn send(
        &self,
        context: u8,
        cookie: u64,
        (buffer, length): (*const u8, usize),
        to: &Target<'_, N>,
        tag: u32,
        is_expected: bool,
    ) -> Result<OperationId> {
        self.check(to.address)?;
        let buffer = Buffer {
            start: buffer.cast_mut(),
            length,
        };
        let header = MessageHeader {
            is_expected,
            context: to.context,
            tag,
        };
        let peer = to.address.peer();
        self.0
            .engine
            .with(|inner| inner.machine.send(context, cookie, buffer, peer, header))
    }

    /// Receives one unexpected message from any source. If `several` is `true`, receives messages
    /// until the buffer has no room for another message of maximum length.
    ///
    /// # Errors
    /// Returns an error if the context does not exist, or if `several` is set and the buffer is
    /// shorter than a message of maximum length. The call then has no effect.
    ///
    /// # Safety
    /// `[buffer, buffer + length)` must be valid for writes, and must not be accessed otherwise,
    /// until the operation has ended.
    pub unsafe fn receive_unexpected(
        &self,
        context: u8,
        cookie: u64,
        (start, length): (*mut u8, usize),
        several: bool,
    ) -> Result<OperationId> {
        let buffer = Buffer { start, length };
        self.0.engine.with(|inner| {
            inner
                .machine
                .receive_unexpected(context, cookie, buffer, several)
        })
    }

    /// Receives one expected message with a given source and tag.
    ///
    /// # Errors
    /// Returns an error if the context does not exist. The call then has no effect.
    ///
    /// # Safety
    /// Same as [`receive_unexpected`](Self::receive_unexpected).
    pub unsafe fn receive_expected(
        &self,
        context: u8,
        cookie: u64,
        (start, length): (*mut u8, usize),
        from: &Target<'_, N>,
        tag: u32,
    ) -> Result<OperationId> {
        self.check(from.address)?;
        let buffer = Buffer { start, length };
        let from = (from.address.peer(), from.context);
        self.0.engine.with(|inner| {
            inner
                .machine
                .receive_expected(context, cookie, buffer, from, tag)
        })
    }

    // ---- transfers ----

    /// Describes memory of this process, whose segments form a single sequence of bytes.
    ///
    /// # Errors
    /// Returns an error if a segment has address 0.
    ///
    /// # Safety
    /// While the [`Memory`] is registered or a transfer with it is under way, the segments must be
    /// valid for the reads and writes that the peers' rights and this process's transfers require.
    pub unsafe fn memory(&self, segments: &[Segment], rights: Rights) -> Result<Memory<N>> {
        let segments = Arc::new(Segments::new(segments)?);
        Ok(Memory::new(Arc::clone(&self.0), segments, rights))
    }

    /// Copies `length` bytes of `local` to memory of a peer. The operation ends when the bytes are
    /// in the peer's memory.
    ///
    /// # Errors
    /// Returns an error if the transfer is out of bounds on either side, or not allowed. The call
    /// then has no effect.
    ///
    /// # Safety
    /// The local bytes must not be written to until the operation has ended.
    pub unsafe fn put(
        &self,
        context: u8,
        cookie: u64,
        local: Part<&Memory<N>>,
        remote: Part<&Handle>,
        length: u64,
        to: &Addr<N>,
    ) -> Result<OperationId> {
        self.transfer(context, cookie, local, remote, length, to, true)
    }

    /// Copies `length` bytes of a peer's memory to `local`.
    ///
    /// # Errors
    /// Same as [`put`](Self::put).
    ///
    /// # Safety
    /// The local bytes must not be accessed otherwise until the operation has ended.
    pub unsafe fn get(
        &self,
        context: u8,
        cookie: u64,
        local: Part<&Memory<N>>,
        remote: Part<&Handle>,
        length: u64,
        from: &Addr<N>,
    ) -> Result<OperationId> {
        self.transfer(context, cookie, local, remote, length, from, false)
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of a transfer")]
    fn transfer(
        &self,
        context: u8,
        cookie: u64,
        local: Part<&Memory<N>>,
        remote: Part<&Handle>,
        length: u64,
        peer: &Addr<N>,
        is_put: bool,
    ) -> Result<OperationId> {
        self.check(peer)?;
        remote.memory.check(is_put, remote.offset, length)?;
        let transfer = NewTransfer {
            is_put,
            local: Arc::clone(local.memory.segments()),
            local_offset: local.offset,
            remote: remote.memory.key,
            remote_offset: remote.offset,
            length,
        };
        let peer = peer.peer();
        self.0
            .engine
            .with(|inner| inner.machine.transfer(context, cookie, peer, transfer))
    }

    /// Cancels an operation. The operation ends with [`Error::Canceled`], either at once or as soon
    /// as its memory is no longer accessed, that is, when the peer has answered or was given up.
    /// Has no effect if the operation has ended.
    pub fn cancel(&self, operation: OperationId) {
        self.0.engine.with(|inner| inner.machine.cancel(operation));
    }

    // ---- progress ----

    /// Receives and sends, passes completions to the sink, and returns the number of completions.
    /// The calling thread must be the one that waits for completions of `context`. Threads that
    /// wait for completions of other contexts are woken.
    pub fn progress(&self, context: u8) -> usize {
        self.0.engine.progress(Some(context))
    }

    /// Sleeps until a context needs progress, for at most `limit`. Returns at once if the class is
    /// busy.
    pub fn sleep(&self, context: u8, limit: Option<Duration>) {
        if !self.0.busy {
            self.0.engine.sleep(context, limit);
        }
    }

    /// Returns a descriptor, for other event loops, that becomes readable when a context needs
    /// progress. The caller must call [`prepare_sleep`](Self::prepare_sleep) before each sleep.
    /// Returns `None` if the class is busy.
    pub fn descriptor(&self, context: u8) -> Option<BorrowedFd<'_>> {
        (!self.0.busy).then(|| self.0.engine.descriptor(context))
    }

    /// Returns whether a thread may sleep now until the context's [descriptor](Self::descriptor) is
    /// readable. If this call returns `false`, [make progress](Self::progress) first.
    pub fn prepare_sleep(&self, context: u8) -> bool {
        !self.0.busy && self.0.engine.prepare_sleep(context)
    }

    /// Returns the event counters since the class was opened.
    pub fn counters(&self) -> Counters {
        self.0.engine.look(|inner| inner.machine.counters())
    }

    /// Returns the number of known peers, and the number of operations that have not ended.
    pub fn counts(&self) -> (usize, usize) {
        self.0.engine.look(|inner| {
            let machine = &inner.machine;
            (machine.peers().count(), machine.operation_count())
        })
    }

    /// Leaves the network: cancels all operations, waits until the peers have received what was
    /// sent to them or a time limit has passed without progress, and notifies the peers.
    pub fn leave(&self) {
        self.0.engine.leave();
    }

    /// Returns whether addresses, memory or other clones of the class exist.
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }
}

fn outcome(outcome: machine::Outcome) -> Outcome {
    match outcome {
        machine::Outcome::Done => Outcome::Done,
        machine::Outcome::Received(length) => Outcome::Received(length),
        machine::Outcome::Unexpected {
            source,
            tag,
            offset,
            length,
            last,
        } => Outcome::Unexpected {
            source: Source(source),
            tag,
            offset,
            length,
            last,
        },
    }
}

impl<N: OpenTransport> Clone for Class<N> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<N: OpenTransport> std::fmt::Debug for Class<N> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Class")
            .field("protocol", &self.0.protocol)
            .finish_non_exhaustive()
    }
}
