//! The receiving side of the machine: its [`FragmentHandler`].

use conduit_core::ni::Rank;
use conduit_portals::transport::fragment::{Failure, FragmentHandler};

use super::operation::{Buffer, Match, OperationId, OperationKind};
use super::peers::Answer;
use super::send::Source;
use super::wire::{Header, Request, Status};
use super::{Early, NaMachine, Outcome, SELF, error_of};
use crate::error::Error;

/// The room for arriving fragments, in bytes, that is advertised to the network. It is practically
/// unlimited, because arriving data is placed directly or bounded by windows.
const ROOM: usize = 1 << 30;
/// The maximum number of a peer's requests here: those that are unanswered, and the same number of
/// requests whose answers the peer may have received without this process knowing it yet.
const MAX_ANSWERS: usize = 2 * super::MAX_REQUESTS as usize;

/// A long fragment that is arriving in chunks.
#[derive(Debug)]
pub(crate) enum Arrival {
    Message {
        peer: Rank,
        header: Header,
        bytes: Box<[u8]>,
    },
    Put {
        peer: Rank,
        request: Request,
        status: Status,
    },
    Reply {
        peer: Rank,
        operation: u64,
        position: u64,
        last: bool,
    },
    Discarded {
        peer: Rank,
    },
}

impl Arrival {
    pub(crate) fn peer(&self) -> Rank {
        match self {
            Self::Message { peer, .. }
            | Self::Put { peer, .. }
            | Self::Reply { peer, .. }
            | Self::Discarded { peer } => *peer,
        }
    }
}

/// The error that the peer violated the protocol.
struct ProtocolError;

impl NaMachine {
    // ---- messages ----

    /// Handles an arrived message.
    pub(super) fn message(&mut self, from: Rank, header: &Header, bytes: &[u8]) {
        match *header {
            Header::Unexpected { context, tag } => {
                let Some(place) = self.unexpected.get(usize::from(context)) else {
                    tracing::warn!(
                        context,
                        "rejected a message for a context that does not exist"
                    );
                    self.counters.refused += 1;
                    self.consumed_now(from);
                    return;
                };
                if !place.receives.is_empty() {
                    self.deliver_unexpected(context, from, tag, bytes);
                    self.consumed_now(from);
                    return;
                }
                let mut session = 0;
                if let Some(peer) = self.peers.get(from) {
                    peer.early += 1;
                    peer.references += 1;
                    session = peer.session;
                }
                self.unexpected[usize::from(context)]
                    .early
                    .push_back(Early {
                        peer: from,
                        session,
                        tag,
                        bytes: bytes.into(),
                    });
            }
            Header::Expected {
                context,
                from: sender,
                tag,
            } => {
                let of = Match {
                    peer: from,
                    from: sender,
                    context,
                    tag,
                };
                match self.expected.take_receive(of) {
                    Some(id) => {
                        let kind = self.operations.peek(id).map(|operation| &operation.kind);
                        if let Some(OperationKind::ReceiveExpected { buffer, .. }) = kind {
                            let buffer = *buffer;
                            self.deliver_expected(id, buffer, bytes);
                        }
                    }
                    None => self.expected.keep(of, bytes, self.limits.early),
                }
            }
            _ => {}
        }
    }

    pub(super) fn deliver_expected(&mut self, id: OperationId, buffer: Buffer, bytes: &[u8]) {
        let result = match buffer.fill(0, bytes) {
            true => Ok(Outcome::Received(bytes.len())),
            false => Err(Error::Truncated {
                length: bytes.len(),
                room: buffer.length,
            }),
        };
        self.end(id, result);
    }

    /// Delivers an unexpected message to the first receive of its context. The context must exist.
    pub(super) fn deliver_unexpected(&mut self, context: u8, source: Rank, tag: u32, bytes: &[u8]) {
        let place = &mut self.unexpected[usize::from(context)];
        let Some(&id) = place.receives.front() else {
            return;
        };
        let longest = self.limits.unexpected;
        let Some(operation) = self.operations.get(id) else {
            place.receives.pop_front();
            return;
        };
        let cookie = operation.cookie;
        let OperationKind::ReceiveUnexpected { buffer, several } = &mut operation.kind else {
            return;
        };
        let offset = several.unwrap_or(0);
        let filled = buffer.fill(offset, bytes);
        let mut last = true;
        if let Some(used) = several {
            // The next message starts at a multiple of 8 bytes, so it is aligned like the first
            // message.
            *used = (offset + bytes.len()).next_multiple_of(8);
            last = buffer.length.saturating_sub(*used) < longest;
        }
        let result = match filled {
            true => Ok(Outcome::Unexpected {
                source,
                tag,
                offset,
                length: bytes.len(),
                last,
            }),
            false => Err(Error::Truncated {
                length: bytes.len(),
                room: buffer.length.saturating_sub(offset),
            }),
        };
        if filled {
            // The reference is for the receiver of the outcome.
            self.hold(source);
        }
        if last {
            self.unexpected[usize::from(context)].receives.pop_front();
            self.end(id, result);
        } else {
            self.complete(context, cookie, result);
        }
    }

    /// Counts as consumed an unexpected message that was received as soon as it arrived.
    fn consumed_now(&mut self, from: Rank) {
        if let Some(peer) = self.peers.get(from) {
            peer.owed += 1;
            self.return_credits(from);
        }
    }

    /// Counts as consumed an unexpected message that had arrived before its receive.
    pub(super) fn consumed(&mut self, from: Rank, session: u32) {
        if let Some(peer) = self.peers.get(from)
            && peer.session == session
        {
            peer.early = peer.early.saturating_sub(1);
            peer.owed += 1;
            self.return_credits(from);
        }
    }

    /// Returns the owed credits once they make up half of the window.
    fn return_credits(&mut self, from: Rank) {
        if let Some(peer) = self.peers.get(from)
            && peer.owed * 2 >= self.limits.window
        {
            let owed = std::mem::take(&mut peer.owed);
            self.peers.control(from, Header::Credits(owed));
        }
    }

    // ---- fragments ----

    /// Handles a whole fragment.
    fn handle(&mut self, from: Rank, header: &[u8], payload: &[u8]) -> Result<(), ProtocolError> {
        let header = Header::decode(header).ok_or(ProtocolError)?;
        self.arrives(from, &header, payload.len())?;
        match header {
            Header::Unexpected { .. } | Header::Expected { .. } => {
                self.message(from, &header, payload);
            }
            Header::Put(request) => {
                let status = self.check_put(&request, payload.len());
                if status == Status::Done
                    && let Some(registered) = self.memories.get(request.memory)
                {
                    // SAFETY: the user guarantees that registered memory is valid for writes, and
                    // the range was just checked to be within the memory.
                    unsafe { registered.segments.write(request.offset, payload) };
                }
                self.done(from, request.operation, status);
            }
            Header::PutCopy {
                request,
                address,
                length,
            }
            | Header::GetCopy {
                request,
                address,
                length,
            } => {
                if length as usize > super::send::PIECE {
                    return Err(ProtocolError);
                }
                let is_put = matches!(header, Header::PutCopy { .. });
                self.answer(
                    from,
                    Answer::Copy {
                        request,
                        is_put,
                        address,
                        length,
                    },
                )?;
            }
            Header::Get {
                request,
                position,
                length,
            } => {
                self.answer(
                    from,
                    Answer::Reply {
                        operation: request.operation,
                        memory: request.memory,
                        offset: request.offset,
                        position,
                        left: length,
                    },
                )?;
            }
            Header::Credits(count) => {
                let window = self.limits.window;
                let peer = self.peers.get(from).ok_or(ProtocolError)?;
                // The peer's window may be larger than this process's window, so more credits than
                // the latter are accepted.
                peer.credits = peer.credits.saturating_add(count).min(window.max(1 << 16));
                if !peer.unexpected.is_empty() {
                    self.peers.list(from);
                }
            }
            Header::Reply {
                operation,
                position,
                last,
            } => {
                self.place_reply(from, operation, position, payload);
                if last {
                    self.answered(from, operation, Status::Done);
                }
            }
            Header::Done { operation, status } => self.answered(from, operation, status),
            Header::MayCopy => self.peers.get(from).ok_or(ProtocolError)?.copies = true,
        }
        Ok(())
    }

    /// Performs the checks that apply to all fragments.
    fn arrives(&mut self, from: Rank, header: &Header, length: usize) -> Result<(), ProtocolError> {
        let window = self.limits.window;
        // The sender may have larger limits. It believes that the message was delivered, so the
        // message must not be dropped silently. The peer is given up instead.
        let limit = match header {
            Header::Unexpected { .. } => Some((self.limits.unexpected, "max_unexpected_size")),
            Header::Expected { .. } => Some((self.limits.expected, "max_expected_size")),
            _ => None,
        };
        if let Some((limit, option)) = limit.filter(|(limit, _)| length > *limit) {
            tracing::warn!(
                length,
                limit,
                option,
                "the message exceeds the limit of its kind"
            );
            return Err(ProtocolError);
        }
        let peer = self.peers.add(from);
        peer.used = true;
        // The requests that a peer may make cannot cause more answers than this.
        if peer.control.len() > MAX_ANSWERS + 8 {
            return Err(ProtocolError);
        }
        if !peer.granted {
            self.peers.list(from);
        }
        let peer = self.peers.add(from);
        match header {
            Header::Unexpected { .. } if peer.early >= window => Err(ProtocolError),
            Header::Unexpected { .. }
            | Header::Expected { .. }
            | Header::Put(_)
            | Header::Reply { .. } => Ok(()),
            _ if length > 0 => Err(ProtocolError),
            _ => Ok(()),
        }
    }

    fn check_put(&mut self, request: &Request, length: usize) -> Status {
        let checked = self
            .memories
            .check(request.memory, request.offset, length as u64, true);
        checked.map_or_else(|status| status, |_| Status::Done)
    }

    /// Queues the answer that ends a request.
    pub(super) fn done(&mut self, to: Rank, operation: u64, status: Status) {
        if status != Status::Done {
            self.counters.denied += 1;
        }
        self.peers.control(to, Header::Done { operation, status });
    }

    fn answer(&mut self, to: Rank, answer: Answer) -> Result<(), ProtocolError> {
        let peer = self.peers.get(to).ok_or(ProtocolError)?;
        if peer.answers.len() >= MAX_ANSWERS {
            return Err(ProtocolError);
        }
        peer.answers.push_back(answer);
        self.peers.list(to);
        Ok(())
    }

    /// Writes the bytes of a reply to local memory, unless the get has ended.
    fn place_reply(&mut self, from: Rank, operation: u64, position: u64, bytes: &[u8]) {
        let id = OperationId::of_u64(operation);
        let Some(operation) = self.operations.get(id) else {
            return;
        };
        let OperationKind::Transfer(transfer) = &mut operation.kind else {
            return;
        };
        let end = position.checked_add(bytes.len() as u64);
        let is_asked_for = !transfer.is_put && end.is_some_and(|end| end <= transfer.requested);
        if operation.peer == Some(from) && transfer.error.is_none() && is_asked_for {
            let offset = transfer.local_offset + position;
            // SAFETY: the range is within the local memory of the operation, which owns the memory
            // until it ends.
            unsafe { transfer.local.write(offset, bytes) };
            transfer.missing = transfer.missing.saturating_sub(bytes.len() as u64);
            if transfer.missing == 0 {
                self.end_transfer_if_over(id);
            }
        }
    }

    /// Handles the answer to a request.
    fn answered(&mut self, from: Rank, operation: u64, status: Status) {
        if let Some(peer) = self.peers.get(from) {
            peer.requests = peer.requests.saturating_sub(1);
            if !peer.transfers.is_empty() {
                self.peers.list(from);
            }
        }
        let id = OperationId::of_u64(operation);
        let Some(operation) = self.operations.get(id) else {
            return;
        };
        if operation.peer != Some(from) {
            return;
        }
        if let OperationKind::Transfer(transfer) = &mut operation.kind {
            transfer.requests = transfer.requests.saturating_sub(1);
            // Answers to an operation's requests arrive in any order and do not contain the kind of
            // request. Copies are therefore assumed to be unanswered as long as there are
            // unanswered requests.
            transfer.copies = transfer.copies.min(transfer.requests);
            if status != Status::Done {
                transfer.error.get_or_insert(error_of(status));
            }
            self.end_transfer_if_over(id);
        }
    }

    fn begin_arrival(
        &mut self,
        from: Rank,
        header: &[u8],
        length: usize,
    ) -> Result<Arrival, ProtocolError> {
        let header = Header::decode(header).ok_or(ProtocolError)?;
        self.arrives(from, &header, length)?;
        Ok(match header {
            Header::Unexpected { .. } | Header::Expected { .. } => Arrival::Message {
                peer: from,
                header,
                bytes: vec![0; length].into(),
            },
            Header::Put(request) => Arrival::Put {
                peer: from,
                status: self.check_put(&request, length),
                request,
            },
            Header::Reply {
                operation,
                position,
                last,
            } => Arrival::Reply {
                peer: from,
                operation,
                position,
                last,
            },
            _ => return Err(ProtocolError),
        })
    }

    fn protocol_error(&mut self, peer: Rank) {
        self.counters.protocol_errors += 1;
        self.peers.broken.push(peer);
    }
}

impl Buffer {
    /// A buffer without memory.
    pub(crate) const NONE: Self = Self {
        start: std::ptr::NonNull::dangling().as_ptr(),
        length: 0,
    };

    /// Returns the buffer's bytes.
    ///
    /// # Safety
    /// The bytes must be valid for reads, and must not be written to while the result is used.
    pub(crate) unsafe fn bytes<'a>(&self) -> &'a [u8] {
        match self.length {
            0 => &[],
            // SAFETY: the caller guarantees that the bytes are valid for reads and not written to.
            length => unsafe { std::slice::from_raw_parts(self.start, length) },
        }
    }

    /// Copies bytes to the buffer, starting at `offset`. Returns `false` if they do not fit.
    fn fill(&self, offset: usize, bytes: &[u8]) -> bool {
        let fits = offset
            .checked_add(bytes.len())
            .is_some_and(|end| end <= self.length);
        if fits && !bytes.is_empty() {
            // SAFETY: the range is within the buffer. The caller that began the operation
            // guarantees that the operation owns the buffer until it has ended.
            unsafe {
                std::ptr::copy(bytes.as_ptr(), self.start.add(offset), bytes.len());
            }
        }
        fits
    }
}

impl FragmentHandler for NaMachine {
    fn read(&mut self, _: Rank, token: u64, offset: usize, into: &mut [u8]) {
        let Some(source) = self.sources.get(token as usize) else {
            debug_assert!(false, "the transport reads what it was given");
            return;
        };
        match source {
            Source::Message { bytes, .. } => {
                if let Some(bytes) = bytes.get(offset..).and_then(|b| b.get(..into.len())) {
                    into.copy_from_slice(bytes);
                }
            }
            Source::Put {
                segments, start, ..
            }
            | Source::Reply {
                segments, start, ..
            } => {
                // SAFETY: `segments` are memory of an operation, which does not end while its
                // memory is read, or registered memory, which is not deregistered while it is read.
                unsafe { segments.read(start + offset as u64, into) };
            }
        }
    }

    fn source(&self, _: Rank, token: u64, offset: usize, length: usize) -> Option<&[u8]> {
        match self.sources.get(token as usize)? {
            Source::Message { bytes, .. } => bytes.get(offset..)?.get(..length),
            Source::Put {
                segments, start, ..
            } => {
                let (at, count) = segments.piece(start + offset as u64, length)?;
                // SAFETY: `segments` are memory of an operation, which does not end while its
                // memory is read. The initiator of a put guarantees not to write to the memory
                // meanwhile.
                (count == length).then(|| unsafe { std::slice::from_raw_parts(at, length) })
            }
            // Registered memory is not lent as a slice, because other peers may put to it
            // meanwhile.
            Source::Reply { .. } => None,
        }
    }

    fn sent(&mut self, _: Rank, token: u64) {
        let Some(source) = self.sources.try_remove(token as usize) else {
            return;
        };
        match source {
            Source::Message { .. } => {}
            Source::Put { operation, .. } => {
                if let Some(found) = self.operations.get(operation)
                    && let OperationKind::Transfer(transfer) = &mut found.kind
                {
                    transfer.reading -= 1;
                    self.end_transfer_if_over(operation);
                }
            }
            Source::Reply { memory, .. } => {
                if let Some(registered) = self.memories.get(memory) {
                    registered.replies -= 1;
                }
            }
        }
    }

    fn is_awaited(&self, _: Rank, token: u64) -> bool {
        let source = self.sources.get(token as usize);
        !matches!(source, Some(Source::Message { .. }))
    }

    fn fragment(&mut self, peer: Rank, header: &[u8], payload: &[u8]) -> bool {
        if self.handle(peer, header, payload).is_err() {
            self.protocol_error(peer);
        }
        true
    }

    fn begin(&mut self, peer: Rank, header: &[u8], length: usize) -> Option<u64> {
        let arrival = self
            .begin_arrival(peer, header, length)
            .unwrap_or_else(|_| {
                self.protocol_error(peer);
                Arrival::Discarded { peer }
            });
        Some(self.arrivals.insert(arrival) as u64)
    }

    fn place(&mut self, id: u64, offset: usize, piece: &[u8]) {
        match self.arrivals.get_mut(id as usize) {
            Some(Arrival::Message { bytes, .. }) => {
                if let Some(place) = bytes
                    .get_mut(offset..)
                    .and_then(|b| b.get_mut(..piece.len()))
                {
                    place.copy_from_slice(piece);
                }
            }
            Some(Arrival::Put {
                request, status, ..
            }) if *status == Status::Done => {
                let at = request.offset + offset as u64;
                // The memory may have been deregistered since the fragment began.
                match self
                    .memories
                    .check(request.memory, at, piece.len() as u64, true)
                {
                    // SAFETY: the user guarantees that registered memory is valid for writes, and
                    // the range was just checked to be within the memory.
                    Ok(registered) => unsafe { registered.segments.write(at, piece) },
                    Err(refused) => *status = refused,
                }
            }
            Some(&mut Arrival::Reply {
                peer,
                operation,
                position,
                ..
            }) => {
                self.place_reply(peer, operation, position.wrapping_add(offset as u64), piece);
            }
            _ => {}
        }
    }

    fn end(&mut self, id: u64) {
        match self.arrivals.try_remove(id as usize) {
            Some(Arrival::Message {
                peer,
                header,
                bytes,
            }) => self.message(peer, &header, &bytes),
            Some(Arrival::Put {
                peer,
                request,
                status,
            }) => {
                self.done(peer, request.operation, status);
            }
            Some(Arrival::Reply {
                peer,
                operation,
                last,
                ..
            }) if last => {
                self.answered(peer, operation, Status::Done);
            }
            _ => {}
        }
    }

    fn joined(&mut self, peer: Rank) {
        debug_assert!(peer != SELF);
        self.peers.add(peer);
    }

    fn failed(&mut self, peer: Rank, failure: Failure) {
        tracing::debug!(peer, %failure, "a session has ended");
        match failure {
            // In the cases `Broken` and `Lost` the network has ended the session on this side, and
            // the peer may be alive.
            Failure::Broken(_) => self.session_ended(peer, &Error::GivenUp, true),
            Failure::Lost(_) => self.session_ended(peer, &Error::Unreachable(failure), true),
            _ => self.session_ended(peer, &Error::Unreachable(failure), false),
        }
    }

    fn room(&self) -> usize {
        ROOM
    }
}
