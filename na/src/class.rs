//! A class: one process's end of NA, with raw memory and completions that are named by numbers.

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

/// What addresses and memory refer to.
pub(crate) struct Shared<N> {
    pub(crate) engine: Engine<N>,
    pub(crate) protocol: Protocol,
    max_contexts: u8,
    busy: bool,
}

/// One process's end. A clone is the same one.
pub struct Class<N: OpenTransport = Network>(Arc<Shared<N>>);

/// The source of an unexpected message, which stays known until it is made an
/// [address](Class::source).
#[derive(Debug, PartialEq, Eq)]
pub struct Source(Rank);

/// What an operation has done.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A message's buffer can be used again, or a transfer is complete.
    Done,
    /// An expected message of so many bytes was received.
    Received(usize),
    /// An unexpected message was received.
    Unexpected {
        /// Who has sent it.
        source: Source,
        /// Its tag.
        tag: u32,
        /// Where it begins in the buffer.
        offset: usize,
        /// Its bytes.
        length: usize,
        /// The operation has ended. One that receives several messages goes on otherwise.
        last: bool,
    },
}

/// The end of an operation, or a message of one that receives several.
#[derive(Debug, PartialEq, Eq)]
pub struct Completion {
    /// The context that the operation was begun in.
    pub context: u8,
    /// What was given with the operation.
    pub cookie: u64,
    /// What came of it.
    pub result: Result<Outcome>,
}

/// Where a message goes to.
#[derive(Debug)]
pub struct Target<'a, N: OpenTransport = Network> {
    /// The process.
    pub address: &'a Addr<N>,
    /// The context there.
    pub context: u8,
}

/// One side of a transfer.
#[derive(Debug, Clone, Copy)]
pub struct Part<M> {
    /// The memory.
    pub memory: M,
    /// The first byte in it.
    pub offset: u64,
}

impl<N: OpenTransport> Class<N> {
    /// A class over a network. Every completion is given to `sink`, by the thread that found it,
    /// in the order in which operations ended; `sink` must not call the class or drop what is its.
    ///
    /// # Errors
    /// An option that can't be used; no descriptor left.
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
            .map_err(|error| Error::Exhausted(format!("descriptors for sleeping: {error}")))?;
        Ok(Self(Arc::new(Shared {
            engine,
            protocol,
            max_contexts: options.max_contexts.max(1),
            busy: options.busy,
        })))
    }

    // ---- addresses ----

    /// The address of this process.
    pub fn own(&self) -> Addr<N> {
        Addr::new(Arc::clone(&self.0), SELF)
    }

    /// The address of a message's source.
    pub fn source(&self, source: Source) -> Addr<N> {
        Addr::new(Arc::clone(&self.0), source.0)
    }

    /// The process with an address like those that [`Addr`] prints, with `conduit+` before it or
    /// not. Whether there is one shows when something is sent to it.
    ///
    /// # Errors
    /// The address is malformed, of another protocol or host, or too many peers are known.
    pub fn lookup(&self, name: &str) -> Result<Addr<N>> {
        let short = name.strip_prefix("conduit+").unwrap_or(name);
        let protocol = self.0.protocol.name();
        let Some((found, text)) = short.split_once("://") else {
            return Err(Error::Refused(format!("{name}: \"://\" is missing")));
        };
        if found != protocol {
            return Err(Error::Refused(format!(
                "{name}: this process speaks {protocol} only"
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

    /// The process whose [`Addr::to_bytes`] these are.
    ///
    /// # Errors
    /// As for [`lookup`](Self::lookup).
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

    /// Bytes of the longest unexpected message.
    pub fn max_unexpected_size(&self) -> usize {
        self.0
            .engine
            .look(|inner| inner.machine.limits().unexpected)
    }

    /// Bytes of the longest expected message.
    pub fn max_expected_size(&self) -> usize {
        self.0.engine.look(|inner| inner.machine.limits().expected)
    }

    /// Contexts there can be: `0..max_contexts`.
    pub fn max_contexts(&self) -> u8 {
        self.0.max_contexts
    }

    /// Sends an unexpected message: it is received by who posts a receive for any.
    ///
    /// # Errors
    /// It is too long, or there is no such context. Nothing has happened.
    ///
    /// # Safety
    /// `[buffer, buffer + length)` is valid for reads, and not written, until the operation has
    /// ended.
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

    /// Sends an expected message: the receiver has posted, or is going to post, a receive for this
    /// source and tag.
    ///
    /// # Errors
    /// As for [`send_unexpected`](Self::send_unexpected).
    ///
    /// # Safety
    /// As for [`send_unexpected`](Self::send_unexpected).
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

    /// Refuses an address of another class, whose numbers mean other peers.
    fn check(&self, address: &Addr<N>) -> Result<()> {
        match address.is_of(&self.0) {
            true => Ok(()),
            false => Err(Error::Invalid("the address is another class's")),
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

    /// Receives one unexpected message, of anybody; or `several`, until there is no room for
    /// another one of the longest.
    ///
    /// # Errors
    /// There is no such context, or the buffer is too short for `several`. Nothing has happened.
    ///
    /// # Safety
    /// `[buffer, buffer + length)` is valid for writes, and nobody else's, until the operation has
    /// ended.
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

    /// Receives one expected message of a source and tag.
    ///
    /// # Errors
    /// There is no such context. Nothing has happened.
    ///
    /// # Safety
    /// As for [`receive_unexpected`](Self::receive_unexpected).
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

    /// Describes memory, of one segment or several that count as one sequence of bytes.
    ///
    /// # Errors
    /// A segment at address 0.
    ///
    /// # Safety
    /// As long as the [`Memory`] is registered, or a transfer with it is under way, the segments
    /// are valid for reads and writes (for what the rights of peers, and the transfers of this
    /// process, need).
    pub unsafe fn memory(&self, segments: &[Segment], rights: Rights) -> Result<Memory<N>> {
        let segments = Arc::new(Segments::new(segments)?);
        Ok(Memory::new(Arc::clone(&self.0), segments, rights))
    }

    /// Copies `length` bytes of `local` to memory of a peer. It has ended when they are there.
    ///
    /// # Errors
    /// The transfer is out of the bounds of one of them, or not allowed. Nothing has happened.
    ///
    /// # Safety
    /// The local bytes are not written until the operation has ended.
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
    /// As for [`put`](Self::put).
    ///
    /// # Safety
    /// The local bytes are nobody else's until the operation has ended.
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

    #[expect(clippy::too_many_arguments, reason = "what a transfer consists of")]
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

    /// Cancels an operation: it ends with [`Error::Canceled`], now or as soon as nobody touches its
    /// memory any more, which is when the peer answers or is given up. No effect on one that has
    /// ended.
    pub fn cancel(&self, operation: OperationId) {
        self.0.engine.with(|inner| inner.machine.cancel(operation));
    }

    // ---- progress ----

    /// Receives and sends; gives completions to the sink, and says how many. The thread that calls
    /// is the one that waits for those of `context`; threads that wait for others' are woken.
    pub fn progress(&self, context: u8) -> usize {
        self.0.engine.progress(Some(context))
    }

    /// Sleeps until there is something to do for a context, at most for `limit`. Returns at once if
    /// the class is busy.
    pub fn sleep(&self, context: u8, limit: Option<Duration>) {
        if !self.0.busy {
            self.0.engine.sleep(context, limit);
        }
    }

    /// The descriptor that is readable when there is something to do for a context, for other event
    /// loops. To be [prepared](Self::prepare_sleep) before each sleep. `None`: the class is busy.
    pub fn descriptor(&self, context: u8) -> Option<BorrowedFd<'_>> {
        (!self.0.busy).then(|| self.0.engine.descriptor(context))
    }

    /// Whether a thread may sleep now until the context's [descriptor](Self::descriptor) is
    /// readable. If not, [make progress](Self::progress) first.
    pub fn prepare_sleep(&self, context: u8) -> bool {
        !self.0.busy && self.0.engine.prepare_sleep(context)
    }

    /// What was counted since the class was opened.
    pub fn counters(&self) -> Counters {
        self.0.engine.look(|inner| inner.machine.counters())
    }

    /// Peers that are known, and operations that have not ended.
    pub fn counts(&self) -> (usize, usize) {
        self.0.engine.look(|inner| {
            let machine = &inner.machine;
            (machine.peers().count(), machine.operation_count())
        })
    }

    /// Cancels all operations, sees to it that peers get what was sent to them (for a bounded
    /// time), and tells them that this process leaves.
    pub fn leave(&self) {
        self.0.engine.leave();
    }

    /// Whether addresses, memory or other clones of it are still there.
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
