//! The state machine of NA's protocol, without I/O, clocks or locks. It works over any [open
//! network](OpenTransport).
//!
//! A message is copied when the network accepts it, and its send ends at that time. An unexpected
//! message needs a credit: each process grants each peer a window of credits, and returns a credit
//! when a message has been received. This bounds the number of early messages. Expected messages
//! need no credits; see [`matching`].
//!
//! A put or get is a sequence of requests. The target serves a request only after it has checked
//! that the memory is registered and that its rights and bounds allow the request, so no peer
//! accesses deregistered memory. The target transfers bytes in fragments, or copies them itself if
//! it has access to the memory of the initiator's process.

mod matching;
pub(crate) mod memory;
pub(crate) mod operation;
mod peers;
mod receive;
mod send;
#[cfg(test)]
mod tests;
mod wire;

use std::sync::Arc;

use conduit_core::ni::Rank;
use conduit_portals::transport::fragment::Failure;
use conduit_portals::transport::open::OpenTransport;
use slab::Slab;

use crate::error::{Error, Result};

use matching::{Early, Expected, Unexpected};
use memory::{Memories, Rights, Segments};
use operation::{Buffer, Match, OperationId, OperationKind, Operations, Transfer};
use peers::Peers;
use receive::Arrival;
use send::Source;
pub(crate) use wire::MemoryKey;
use wire::{Header, Status};

/// The peer number by which a process refers to itself.
pub(crate) const SELF: Rank = Rank::MAX;
/// The maximum number of unanswered requests from a process to a peer.
pub(crate) const MAX_REQUESTS: u32 = 64;

/// The limits of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Limits {
    /// The maximum length of an unexpected message in bytes.
    pub(crate) unexpected: usize,
    /// The maximum length of an expected message in bytes.
    pub(crate) expected: usize,
    /// The number of a peer's unexpected messages that may wait for a receive here.
    pub(crate) window: u32,
    /// The number of bytes of expected messages that may wait for a receive.
    pub(crate) early: usize,
    /// The number of contexts.
    pub(crate) contexts: u8,
}

/// The result of a successful operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The network has taken a message, or a transfer is complete.
    Done,
    /// An expected message of this length was received.
    Received(usize),
    /// An unexpected message was received. The machine has counted a reference to the source, which
    /// the receiver of this outcome must release.
    Unexpected {
        source: Rank,
        tag: u32,
        /// The message's offset in the buffer.
        offset: usize,
        /// The message's length in bytes.
        length: usize,
        /// Whether the receive has ended. Only a receive of several messages can continue.
        last: bool,
    },
}

/// The end of an operation, or a message received by an operation that receives several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Completion {
    pub(crate) context: u8,
    /// The cookie that the user passed with the operation.
    pub(crate) cookie: u64,
    pub(crate) result: Result<Outcome>,
}

/// The event counters of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// The number of malformed or forbidden fragments, whose senders were given up.
    pub protocol_errors: u64,
    /// The number of messages that were rejected because their context does not exist.
    pub refused: u64,
    /// The number of expected messages that were dropped because too many waited for a receive.
    pub dropped: u64,
    /// The number of peers' requests that were refused because of their rights or bounds, or
    /// because the memory is unknown.
    pub denied: u64,
}

/// The protocol's state in one process. See the [module](self).
#[derive(Debug)]
pub(crate) struct NaMachine {
    limits: Limits,
    peers: Peers,
    operations: Operations,
    memories: Memories,
    /// The unexpected messages, by context.
    unexpected: Box<[Unexpected]>,
    expected: Expected,
    /// The long fragments that are arriving, by the ids that the network uses.
    arrivals: Slab<Arrival>,
    /// The payloads that the network is reading, by the tokens that the network uses.
    sources: Slab<Source>,
    completions: Vec<Completion>,
    counters: Counters,
    /// Whether this process has left, so that no more operations can begin.
    has_left: bool,
}

impl NaMachine {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            peers: Peers::default(),
            operations: Operations::default(),
            memories: Memories::default(),
            unexpected: (0..limits.contexts)
                .map(|_| Unexpected::default())
                .collect(),
            expected: Expected::default(),
            arrivals: Slab::new(),
            sources: Slab::new(),
            completions: Vec::new(),
            counters: Counters::default(),
            has_left: false,
            limits,
        }
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    pub(crate) fn counters(&self) -> Counters {
        Counters {
            dropped: self.expected.dropped,
            ..self.counters
        }
    }

    /// Returns the list of completions, in order. The caller must remove them.
    pub(crate) fn completions(&mut self) -> &mut Vec<Completion> {
        &mut self.completions
    }

    /// Returns the numbers of the peers.
    pub(crate) fn peers(&self) -> impl Iterator<Item = Rank> + '_ {
        self.peers.numbers()
    }

    pub(crate) fn operation_count(&self) -> usize {
        self.operations.len()
    }

    // ---- peers ----

    /// Counts one more reference to a peer.
    pub(crate) fn hold(&mut self, peer: Rank) {
        if peer != SELF {
            self.peers.add(peer).references += 1;
        }
    }

    /// Counts a reference to a peer for an address that the user has looked up.
    pub(crate) fn look_up(&mut self, peer: Rank) {
        self.hold(peer);
        if let Some(peer) = self.peers.get(peer) {
            peer.looked_up = true;
        }
    }

    /// Counts one reference to a peer less.
    pub(crate) fn release(&mut self, peer: Rank) {
        if peer != SELF {
            self.peers.release(peer);
        }
    }

    // ---- operations ----

    fn check_context(&self, context: u8) -> Result<()> {
        match context < self.limits.contexts {
            true if self.has_left => Err(Error::Left),
            true => Ok(()),
            false => Err(Error::Invalid("no such context")),
        }
    }

    fn complete(&mut self, context: u8, cookie: u64, result: Result<Outcome>) {
        self.completions.push(Completion {
            context,
            cookie,
            result,
        });
    }

    /// Removes an operation and reports its result, but does not remove it from any queue.
    fn end(&mut self, id: OperationId, result: Result<Outcome>) {
        if let Some(operation) = self.operations.remove(id) {
            if let Some(peer) = operation.peer {
                self.peers.release(peer);
            }
            self.complete(operation.context, operation.cookie, result);
        }
    }

    fn begin(
        &mut self,
        context: u8,
        cookie: u64,
        peer: Option<Rank>,
        kind: OperationKind,
    ) -> OperationId {
        if let Some(peer) = peer {
            self.peers.hold(peer);
        }
        self.operations.insert(context, cookie, peer, kind)
    }

    /// Sends an unexpected or expected message. The buffer must not change until the operation has
    /// ended.
    pub(crate) fn send(
        &mut self,
        context: u8,
        cookie: u64,
        buffer: Buffer,
        to: Rank,
        message: MessageHeader,
    ) -> Result<OperationId> {
        self.check_context(context)?;
        let (what, limit, option) = match message.is_expected {
            true => (
                "an expected message",
                self.limits.expected,
                "max_expected_size",
            ),
            false => (
                "an unexpected message",
                self.limits.unexpected,
                "max_unexpected_size",
            ),
        };
        if buffer.length > limit {
            return Err(Error::TooLong {
                what,
                length: buffer.length,
                limit,
                option,
            });
        }
        let kind = OperationKind::Send { message, buffer };
        if to == SELF {
            self.check_context(message.context)?;
            // SAFETY: the caller guarantees that the buffer is valid for reads until the operation
            // has ended.
            let bytes = unsafe { buffer.bytes() };
            let id = self.operations.insert(context, cookie, None, kind);
            self.end(id, Ok(Outcome::Done));
            self.message(SELF, &message.of(context), bytes);
            return Ok(id);
        }
        let id = self.begin(context, cookie, Some(to), kind);
        if let Some(peer) = self.peers.get(to) {
            match message.is_expected {
                true => peer.expected.push_back(id),
                false => peer.unexpected.push_back(id),
            }
            self.peers.list(to);
        }
        Ok(id)
    }

    /// Receives the next unexpected message, or several. The operation owns the buffer until it has
    /// ended.
    pub(crate) fn receive_unexpected(
        &mut self,
        context: u8,
        cookie: u64,
        buffer: Buffer,
        several: bool,
    ) -> Result<OperationId> {
        self.check_context(context)?;
        if several && buffer.length < self.limits.unexpected {
            return Err(Error::Invalid(
                "the buffer for several unexpected messages is shorter than max_unexpected_size",
            ));
        }
        let kind = OperationKind::ReceiveUnexpected {
            buffer,
            several: several.then_some(0),
        };
        let id = self.begin(context, cookie, None, kind);
        let place = &mut self.unexpected[usize::from(context)];
        place.receives.push_back(id);
        while !place_is_idle(&self.unexpected[usize::from(context)]) {
            let Some(early) = self.unexpected[usize::from(context)].early.pop_front() else {
                break;
            };
            self.deliver_unexpected(context, early.peer, early.tag, &early.bytes);
            self.consumed(early.peer, early.session);
            self.release(early.peer);
        }
        Ok(id)
    }

    /// Receives the next expected message that has a given tag and comes from a given context of a
    /// peer. The operation owns the buffer until it has ended.
    pub(crate) fn receive_expected(
        &mut self,
        context: u8,
        cookie: u64,
        buffer: Buffer,
        from: (Rank, u8),
        tag: u32,
    ) -> Result<OperationId> {
        self.check_context(context)?;
        let of = Match {
            peer: from.0,
            from: from.1,
            context,
            tag,
        };
        let peer = Some(from.0).filter(|peer| *peer != SELF);
        let id = self.begin(
            context,
            cookie,
            peer,
            OperationKind::ReceiveExpected { of, buffer },
        );
        match self.expected.take_early(of) {
            Some(bytes) => self.deliver_expected(id, buffer, &bytes),
            None => self.expected.post(of, id),
        }
        Ok(id)
    }

    /// Puts or gets between memory of this process and memory of a peer. The local memory must
    /// remain valid until the operation has ended.
    pub(crate) fn transfer(
        &mut self,
        context: u8,
        cookie: u64,
        to: Rank,
        transfer: NewTransfer,
    ) -> Result<OperationId> {
        self.check_context(context)?;
        let NewTransfer {
            is_put,
            local,
            local_offset,
            remote,
            remote_offset,
            length,
        } = transfer;
        if !local.holds(local_offset, length) {
            return Err(Error::OutOfBounds {
                offset: local_offset,
                end: local_offset.saturating_add(length),
                length: local.length(),
            });
        }
        if to == SELF {
            let result = self.transfer_to_self(&NewTransfer { local, ..transfer });
            let id = self.operations.insert(
                context,
                cookie,
                None,
                OperationKind::ReceiveUnexpected {
                    buffer: Buffer::NONE,
                    several: None,
                },
            );
            self.end(id, result.map(|()| Outcome::Done));
            return Ok(id);
        }
        let kind = OperationKind::Transfer(Box::new(Transfer {
            is_put,
            local,
            local_offset,
            remote,
            remote_offset,
            length,
            requested: 0,
            requests: 0,
            copies: 0,
            missing: 0,
            reading: 0,
            error: None,
            queued: true,
        }));
        let id = self.begin(context, cookie, Some(to), kind);
        if let Some(peer) = self.peers.get(to) {
            peer.transfers.push_back(id);
            self.peers.list(to);
        }
        Ok(id)
    }

    fn transfer_to_self(&mut self, transfer: &NewTransfer) -> Result<()> {
        let NewTransfer {
            is_put,
            local,
            local_offset,
            remote,
            remote_offset,
            length,
        } = transfer;
        let target = self
            .memories
            .check(*remote, *remote_offset, *length, *is_put)
            .map_err(error_of)?;
        let target = Arc::clone(&target.segments);
        let (from, from_offset, to, to_offset) = match is_put {
            true => (local, *local_offset, &target, *remote_offset),
            false => (&target, *remote_offset, local, *local_offset),
        };
        let mut done = 0;
        while let Some((at, count)) = from.piece(
            from_offset + done,
            usize::try_from(length - done).unwrap_or(usize::MAX),
        ) {
            // SAFETY: the users guarantee that registered memory and the local memory of a transfer
            // are valid for the reads and writes of the transfer.
            unsafe { to.write_from(to_offset + done, at, count) };
            done += count as u64;
            if done == *length {
                break;
            }
        }
        Ok(())
    }

    /// Cancels an operation. The operation ends with [`Error::Canceled`], either at once or when
    /// its memory is no longer accessed. Has no effect if the operation has ended.
    pub(crate) fn cancel(&mut self, id: OperationId) {
        let Some(operation) = self.operations.get(id) else {
            return;
        };
        let peer = operation.peer;
        match &mut operation.kind {
            OperationKind::Send { .. } => {
                if let Some(peer) = peer.and_then(|peer| self.peers.get(peer)) {
                    peer.expected.retain(|other| *other != id);
                    peer.unexpected.retain(|other| *other != id);
                }
                self.end(id, Err(Error::Canceled));
            }
            OperationKind::ReceiveUnexpected { .. } => {
                let context = usize::from(operation.context);
                self.unexpected[context]
                    .receives
                    .retain(|other| *other != id);
                self.end(id, Err(Error::Canceled));
            }
            OperationKind::ReceiveExpected { of, .. } => {
                let of = *of;
                self.expected.cancel(of, id);
                self.end(id, Err(Error::Canceled));
            }
            OperationKind::Transfer(transfer) => {
                transfer.error.get_or_insert(Error::Canceled);
                self.end_transfer_if_over(id);
            }
        }
    }

    /// Ends a transfer if it is complete, or if it has failed and its memory is no longer accessed.
    fn end_transfer_if_over(&mut self, id: OperationId) {
        let Some(operation) = self.operations.get(id) else {
            return;
        };
        let OperationKind::Transfer(transfer) = &mut operation.kind else {
            return;
        };
        let result = match &transfer.error {
            // Replies that arrive later find no operation and are ignored.
            Some(error) if transfer.copies == 0 && transfer.reading == 0 => Err(error.clone()),
            None if transfer.requested == transfer.length
                && transfer.requests == 0
                && transfer.missing == 0
                && transfer.reading == 0 =>
            {
                Ok(Outcome::Done)
            }
            _ => return,
        };
        if transfer.queued
            && let Some(peer) = operation.peer.and_then(|peer| self.peers.get(peer))
        {
            peer.transfers.retain(|other| *other != id);
        }
        self.end(id, result);
    }

    // ---- memory ----

    pub(crate) fn register(
        &mut self,
        key: u64,
        rights: Rights,
        segments: Arc<Segments>,
    ) -> Result<MemoryKey> {
        self.memories.register(key, rights, segments)
    }

    /// Returns whether the network still reads from this memory.
    pub(crate) fn is_read(&mut self, memory: MemoryKey) -> bool {
        self.memories
            .get(memory)
            .is_some_and(|registered| registered.replies > 0)
    }

    /// Stops the network from reading this memory, by giving up the peers that receive the data.
    pub(crate) fn give_up_readers(&mut self, memory: MemoryKey) {
        let readers = self.sources.iter().filter_map(|(_, source)| match source {
            Source::Reply {
                peer, memory: of, ..
            } if *of == memory => Some(*peer),
            _ => None,
        });
        self.peers.broken.extend(readers);
    }

    /// Begins to deregister memory. Requests of peers for this memory are refused from now on.
    pub(crate) fn close_memory(&mut self, memory: MemoryKey) {
        if let Some(registered) = self.memories.get(memory) {
            registered.is_closing = true;
        }
    }

    /// Deregisters memory, which must be [closed](Self::close_memory) and no longer
    /// [read](Self::is_read).
    pub(crate) fn deregister(&mut self, memory: MemoryKey) {
        self.memories.deregister(memory);
    }

    // ---- the end of sessions ----

    /// Ends a peer's session and the operations with this peer. If the session was ended on this
    /// side (`here`), the peer may be copying at this moment, so an operation whose local memory
    /// the peer may access ends with [`Error::GivenUp`].
    fn session_ended(&mut self, peer: Rank, error: &Error, here: bool) {
        let gone: Vec<_> = self
            .sources
            .iter()
            .filter(|(_, source)| source.peer() == peer)
            .map(|(token, _)| token)
            .collect();
        for token in gone {
            if let Source::Reply { memory, .. } = self.sources.remove(token)
                && let Some(registered) = self.memories.get(memory)
            {
                registered.replies -= 1;
            }
        }
        self.arrivals.retain(|_, arrival| arrival.peer() != peer);
        // The early messages are dropped, because the next session may be with another process that
        // uses the same tags.
        self.expected.forget(peer);
        for id in self.operations.of(Some(peer)) {
            let operation = self.operations.peek(id);
            let end = match operation.map(|operation| &operation.kind) {
                Some(OperationKind::ReceiveExpected { of, .. }) => {
                    let of = *of;
                    self.expected.cancel(of, id);
                    error.clone()
                }
                Some(OperationKind::Transfer(transfer)) if here && transfer.copies > 0 => {
                    Error::GivenUp
                }
                // A transfer that was canceled or has failed ends with the error that it already
                // has.
                Some(OperationKind::Transfer(transfer)) => {
                    transfer.error.as_ref().unwrap_or(error).clone()
                }
                _ => error.clone(),
            };
            self.end(id, Err(end));
        }
        if let Some(known) = self.peers.get(peer) {
            let session = known.session;
            known.end_session();
            self.drop_stale(peer, session);
        }
        self.peers.unused.push(peer);
    }

    /// Drops a peer's unreceived unexpected messages, except those of `session`, its last session.
    fn drop_stale(&mut self, from: Rank, session: u32) {
        let mut dropped = 0;
        for place in &mut self.unexpected {
            let before = place.early.len();
            place
                .early
                .retain(|early| early.peer != from || early.session == session);
            dropped += before - place.early.len();
        }
        for _ in 0..dropped {
            self.peers.release(from);
        }
    }

    /// Ends the sessions with peers that are to be given up, and frees the numbers of peers without
    /// references and sessions.
    pub(crate) fn tidy(&mut self, network: &mut impl OpenTransport) {
        for peer in std::mem::take(&mut self.peers.broken) {
            if self.peers.get(peer).is_some() {
                tracing::warn!("gave up the peer {}", network.describe(peer));
                network.end_session(peer);
                self.session_ended(peer, &Error::GivenUp, true);
            }
        }
        for number in std::mem::take(&mut self.peers.unused) {
            let unused = self
                .peers
                .get(number)
                .is_some_and(|peer| peer.references == 0 && peer.is_quiet() && peer.early == 0);
            if unused && !network.has_session(number) {
                network.close(number);
                self.peers.remove(number);
            }
        }
    }

    /// Closes the sessions that this process began, if their peers have no references and were not
    /// used since the last sweep. If `all` is `true`, also closes sessions that were used recently.
    pub(crate) fn sweep(&mut self, network: &mut impl OpenTransport, all: bool) {
        let numbers: Vec<_> = self.peers.numbers().collect();
        for number in numbers {
            let Some(peer) = self.peers.get(number) else {
                continue;
            };
            let used = std::mem::replace(&mut peer.used, false);
            let is_unused = peer.looked_up && peer.references == 0 && peer.is_quiet();
            if is_unused && (all || !used) && network.outstanding(number) == 0 {
                network.close(number);
                self.session_ended(number, &Error::Unreachable(Failure::Left), true);
                self.peers.remove(number);
            }
        }
    }

    /// Leaves the network by ending all sessions. No operations can begin afterwards.
    pub(crate) fn leave(&mut self) {
        self.has_left = true;
        for peer in self.peers.numbers().collect::<Vec<_>>() {
            self.session_ended(peer, &Error::Left, true);
        }
    }

    /// Returns the number of transfers whose local memory a peer may be copying.
    pub(crate) fn copies(&self) -> usize {
        let all = self.operations.of(None).into_iter();
        let is_copied = |id: &OperationId| {
            let kind = self.operations.peek(*id).map(|operation| &operation.kind);
            matches!(kind, Some(OperationKind::Transfer(transfer)) if transfer.copies > 0)
        };
        all.filter(is_copied).count()
    }

    /// Cancels all operations.
    pub(crate) fn cancel_all(&mut self) {
        for id in self.operations.of(None) {
            self.cancel(id);
        }
    }
}

/// Returns whether no message of a context can be delivered: it has no early messages or no
/// receives.
fn place_is_idle(place: &Unexpected) -> bool {
    place.receives.is_empty() || place.early.is_empty()
}

/// The kind and destination of a message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MessageHeader {
    pub(crate) is_expected: bool,
    /// The receiver's context.
    pub(crate) context: u8,
    pub(crate) tag: u32,
}

impl MessageHeader {
    /// Returns the fragment header of the message if it is sent from the context `from` of this
    /// process.
    fn of(self, from: u8) -> Header {
        let Self { context, tag, .. } = self;
        match self.is_expected {
            true => Header::Expected { context, from, tag },
            false => Header::Unexpected { context, tag },
        }
    }
}

/// A put or get to begin.
#[derive(Debug, Clone)]
pub(crate) struct NewTransfer {
    pub(crate) is_put: bool,
    pub(crate) local: Arc<Segments>,
    pub(crate) local_offset: u64,
    pub(crate) remote: MemoryKey,
    pub(crate) remote_offset: u64,
    pub(crate) length: u64,
}

fn error_of(status: Status) -> Error {
    match status {
        Status::NotReadable => Error::Rights("read"),
        Status::NotWritable => Error::Rights("written"),
        Status::OutOfBounds => Error::Invalid("the transfer exceeds the peer's memory"),
        Status::Fault => Error::Fault,
        Status::NoSuchMemory | Status::Done => Error::NoSuchMemory,
    }
}
