//! The sending side of the machine.

use std::sync::Arc;

use conduit_core::ni::Rank;
use conduit_portals::transport::fragment::{Fragment, MAX_TINY, Payload, Refused};
use conduit_portals::transport::open::OpenTransport;

use super::memory::Segments;
use super::operation::{OperationId, OperationKind};
use super::peers::{Answer, INITIAL_CREDITS, Peer};
use super::wire::{self, Header, MemoryKey, Request, Status};
use super::{MAX_REQUESTS, NaMachine, Outcome};
use crate::error::Error;
use conduit_portals::transport::fragment::Failure;

/// The maximum number of bytes that one request, reply or copy transfers.
pub(super) const PIECE: usize = 1 << 20;
/// The minimum length of a contiguous run of memory, in bytes, that the target copies itself.
/// Shorter runs are sent, because this is faster than the system call of a copy.
const MIN_COPY: usize = 4 << 10;

/// The source of a payload that the network reads.
#[derive(Debug)]
pub(crate) enum Source {
    Message {
        peer: Rank,
        bytes: Box<[u8]>,
    },
    Put {
        peer: Rank,
        operation: OperationId,
        segments: Arc<Segments>,
        start: u64,
    },
    Reply {
        peer: Rank,
        memory: MemoryKey,
        segments: Arc<Segments>,
        start: u64,
    },
}

impl Source {
    pub(crate) fn peer(&self) -> Rank {
        match self {
            Self::Message { peer, .. } | Self::Put { peer, .. } | Self::Reply { peer, .. } => *peer,
        }
    }
}

/// The result of an attempt to send.
enum Sent {
    Yes,
    /// Nothing more can be sent to this peer for now.
    Full,
    /// The peer does not exist.
    Gone,
}

impl From<Refused> for Sent {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Full => Self::Full,
            // `TooLong` does not occur, because lengths are checked before sending.
            Refused::Dead | Refused::NoSuchRank | Refused::TooLong => Self::Gone,
        }
    }
}

impl NaMachine {
    /// Passes as much data to the network as it accepts now.
    pub(crate) fn flush(&mut self, network: &mut impl OpenTransport) {
        let mut listed = std::mem::take(&mut self.peers.listed);
        for number in listed.drain(..) {
            let Some(peer) = self.peers.get(number) else {
                continue;
            };
            peer.listed = false;
            peer.used = true;
            match self.flush_peer(number, network) {
                Sent::Yes => {}
                Sent::Full => self.peers.list(number),
                Sent::Gone => {
                    let error = Error::Unreachable(Failure::Unreachable);
                    self.session_ended(number, &error, false);
                }
            }
        }
        // The old list is kept, so that its memory is reused.
        listed.append(&mut self.peers.listed);
        self.peers.listed = listed;
    }

    /// Returns whether data waits for room in the network.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.peers.listed.is_empty()
    }

    fn flush_peer(&mut self, number: Rank, network: &mut impl OpenTransport) -> Sent {
        if let Some(peer) = self.peers.get(number) {
            // If nothing is queued, the control fragments added below must not begin a session,
            // because the peer may be gone.
            if peer.is_quiet() && !network.has_session(number) {
                return Sent::Yes;
            }
            if !std::mem::replace(&mut peer.granted, true) {
                let rest = self.limits.window - INITIAL_CREDITS;
                peer.control.push_front(Header::Credits(rest));
            }
            if !peer.told && network.can_copy(number) {
                peer.told = true;
                peer.control.push_front(Header::MayCopy);
            }
        }
        let steps: [fn(&mut Self, Rank, &mut _) -> Option<Sent>; 5] = [
            Self::send_control,
            |machine, number, network| machine.send_message(number, network, true),
            |machine, number, network| machine.send_message(number, network, false),
            Self::send_answer,
            Self::send_request,
        ];
        for step in steps {
            // Each step is repeated until it has nothing left to send.
            while let Some(sent) = step(self, number, network) {
                match sent {
                    Sent::Yes => {}
                    Sent::Full | Sent::Gone => return sent,
                }
            }
        }
        Sent::Yes
    }

    fn send_control(&mut self, number: Rank, network: &mut impl OpenTransport) -> Option<Sent> {
        let peer = self.peers.get(number)?;
        let header = peer.control.front()?.encode();
        Some(match send_tiny(network, number, &header, &[]) {
            Ok(()) => {
                peer.control.pop_front();
                Sent::Yes
            }
            Err(refused) => refused.into(),
        })
    }

    fn send_message(
        &mut self,
        number: Rank,
        network: &mut impl OpenTransport,
        is_expected: bool,
    ) -> Option<Sent> {
        fn queue(
            peer: &mut Peer,
            is_expected: bool,
        ) -> &mut std::collections::VecDeque<OperationId> {
            match is_expected {
                true => &mut peer.expected,
                false => &mut peer.unexpected,
            }
        }
        let peer = self.peers.get(number)?;
        if !is_expected && peer.credits == 0 {
            return None;
        }
        let id = *queue(peer, is_expected).front()?;
        let operation = self.operations.peek(id);
        let sends = operation.and_then(|operation| match operation.kind {
            OperationKind::Send { message, buffer } => {
                Some((message.of(operation.context), buffer))
            }
            _ => None,
        });
        let Some((header, buffer)) = sends else {
            queue(peer, is_expected).pop_front();
            return Some(Sent::Yes);
        };
        let header = header.encode();
        // SAFETY: the user guarantees that the buffer is valid until the operation has ended.
        let bytes = unsafe { buffer.bytes() };
        let taken = if header.len() + bytes.len() <= MAX_TINY {
            send_tiny(network, number, &header, bytes)
        } else {
            let source = Source::Message {
                peer: number,
                bytes: bytes.into(),
            };
            self.send_source(network, number, &header, source, bytes.len())
        };
        if let Err(refused) = taken {
            return Some(refused.into());
        }
        let peer = self.peers.get(number)?;
        queue(peer, is_expected).pop_front();
        if !is_expected {
            peer.credits -= 1;
        }
        self.end(id, Ok(Outcome::Done));
        Some(Sent::Yes)
    }

    fn send_source(
        &mut self,
        network: &mut impl OpenTransport,
        number: Rank,
        header: &[u8],
        source: Source,
        length: usize,
    ) -> Result<(), Refused> {
        let token = self.sources.insert(source);
        let sent = network.send(
            number,
            &Fragment {
                header,
                payload: Payload::Read {
                    token: token as u64,
                    // The cast is lossless, because messages and pieces are much shorter than 4
                    // GiB.
                    length: length as u32,
                },
            },
        );
        if sent.is_err() {
            self.sources.remove(token);
        }
        sent
    }

    /// Sends the next piece of an answer to a peer's request.
    fn send_answer(&mut self, number: Rank, network: &mut impl OpenTransport) -> Option<Sent> {
        let peer = self.peers.get(number)?;
        match *peer.answers.front()? {
            Answer::Copy {
                request,
                is_put,
                address,
                length,
            } => {
                peer.answers.pop_front();
                let status = self.copy(network, number, &request, is_put, address, length);
                self.done(number, request.operation, status);
                // The answer was queued as a control fragment, and is sent at once if possible.
                self.send_control(number, network)
            }
            Answer::Reply {
                operation,
                memory,
                offset,
                position,
                left,
            } => {
                let checked = self.memories.check(memory, offset, left.into(), false);
                let segments = match checked {
                    Ok(registered) => Arc::clone(&registered.segments),
                    Err(status) => {
                        peer.answers.pop_front();
                        self.done(number, operation, status);
                        return self.send_control(number, network);
                    }
                };
                let count = segments
                    .piece(offset, (left as usize).min(PIECE))
                    .map_or(0, |(_, count)| count);
                // The cast is lossless, because `count` is at most `left`.
                let rest = left - count as u32;
                let header = Header::Reply {
                    operation,
                    position,
                    last: rest == 0,
                };
                let header = header.encode();
                let taken = if header.len() + count <= MAX_TINY {
                    let mut bytes = [0; MAX_TINY];
                    // SAFETY: the user guarantees that registered memory is valid for reads, and
                    // the range was just checked to be within the memory.
                    unsafe { segments.read(offset, &mut bytes[..count]) };
                    send_tiny(network, number, &header, &bytes[..count])
                } else {
                    let source = Source::Reply {
                        peer: number,
                        memory,
                        segments,
                        start: offset,
                    };
                    let taken = self.send_source(network, number, &header, source, count);
                    if taken.is_ok()
                        && let Some(registered) = self.memories.get(memory)
                    {
                        registered.replies += 1;
                    }
                    taken
                };
                if let Err(refused) = taken {
                    return Some(refused.into());
                }
                let peer = self.peers.get(number)?;
                match (rest, peer.answers.front_mut()) {
                    (
                        1..,
                        Some(Answer::Reply {
                            offset,
                            position,
                            left,
                            ..
                        }),
                    ) => {
                        *offset += count as u64;
                        // The peer chose the position and checks it, so any value is fine.
                        *position = position.wrapping_add(count as u64);
                        *left = rest;
                    }
                    _ => {
                        peer.answers.pop_front();
                    }
                }
                Some(Sent::Yes)
            }
        }
    }

    /// Copies between a peer's memory and local memory, as the peer has requested.
    fn copy(
        &mut self,
        network: &mut impl OpenTransport,
        number: Rank,
        request: &Request,
        is_put: bool,
        address: u64,
        length: u32,
    ) -> Status {
        let checked = self
            .memories
            .check(request.memory, request.offset, length.into(), is_put);
        let segments = match checked {
            Ok(registered) => Arc::clone(&registered.segments),
            Err(status) => return status,
        };
        let mut result = Ok(());
        segments.each_piece(request.offset, length as usize, |before, at, count| {
            if result.is_err() {
                return;
            }
            let remote = address.wrapping_add(before as u64);
            // SAFETY: the user guarantees that registered memory is valid for reads and writes
            // until it is deregistered.
            result = unsafe {
                match is_put {
                    true => network.copy_from(number, remote, at, count),
                    false => network.copy_to(number, remote, at, count),
                }
            };
        });
        match result {
            Ok(()) => Status::Done,
            Err(error) => {
                let peer = network.describe(number);
                tracing::warn!(%error, "cannot copy between local memory and that of peer {peer}");
                Status::Fault
            }
        }
    }

    /// Sends the next request of the first transfer in a peer's queue. The transfers of the queue
    /// take turns.
    fn send_request(&mut self, number: Rank, network: &mut impl OpenTransport) -> Option<Sent> {
        let peer = self.peers.get(number)?;
        if peer.requests >= MAX_REQUESTS {
            return None;
        }
        let id = *peer.transfers.front()?;
        let kind = self.operations.peek(id).map(|operation| &operation.kind);
        let Some(OperationKind::Transfer(transfer)) = kind.filter(|kind| !kind.has_failed()) else {
            peer.transfers.pop_front();
            if let Some(operation) = self.operations.get(id)
                && let OperationKind::Transfer(transfer) = &mut operation.kind
            {
                transfer.queued = false;
            }
            return Some(Sent::Yes);
        };
        let left = transfer.length - transfer.requested;
        let from = transfer.local_offset + transfer.requested;
        let length = usize::try_from(left).unwrap_or(PIECE).min(PIECE);
        let request = Request {
            operation: id.to_u64(),
            memory: transfer.remote,
            offset: transfer.remote_offset.saturating_add(transfer.requested),
        };
        let is_put = transfer.is_put;
        let run = transfer.local.piece(from, length);
        let (mut count, mut is_copy, mut is_read) = (length, false, false);
        let taken = match run {
            Some((address, run)) if run >= MIN_COPY && peer.copies => {
                (count, is_copy) = (run, true);
                // The address is exposed, because the peer accesses the memory at this address.
                let (address, length) = (address.expose_provenance() as u64, run as u32);
                let header = match is_put {
                    true => Header::PutCopy {
                        request,
                        address,
                        length,
                    },
                    false => Header::GetCopy {
                        request,
                        address,
                        length,
                    },
                };
                send_tiny(network, number, &header.encode(), &[])
            }
            _ if is_put => {
                let header = Header::Put(request).encode();
                if header.len() + length <= MAX_TINY {
                    let mut bytes = [0; MAX_TINY];
                    // SAFETY: the operation has not ended, so the user guarantees that its local
                    // memory is valid for reads.
                    unsafe { transfer.local.read(from, &mut bytes[..length]) };
                    send_tiny(network, number, &header, &bytes[..length])
                } else {
                    is_read = true;
                    let source = Source::Put {
                        peer: number,
                        operation: id,
                        segments: Arc::clone(&transfer.local),
                        start: from,
                    };
                    self.send_source(network, number, &header, source, length)
                }
            }
            _ => {
                let header = Header::Get {
                    request,
                    position: transfer.requested,
                    // The cast is lossless, because `length` is at most `PIECE`.
                    length: length as u32,
                };
                send_tiny(network, number, &header.encode(), &[])
            }
        };
        if let Err(refused) = taken {
            return Some(refused.into());
        }
        let peer = self.peers.get(number)?;
        peer.requests += 1;
        peer.transfers.pop_front();
        if let Some(operation) = self.operations.get(id)
            && let OperationKind::Transfer(transfer) = &mut operation.kind
        {
            transfer.requested += count as u64;
            transfer.requests += 1;
            transfer.copies += u32::from(is_copy);
            transfer.reading += u32::from(is_read);
            if !is_put && !is_copy {
                transfer.missing += count as u64;
            }
            transfer.queued = transfer.requested < transfer.length;
            if transfer.queued {
                peer.transfers.push_back(id);
            }
        }
        Some(Sent::Yes)
    }
}

fn send_tiny(
    network: &mut impl OpenTransport,
    to: Rank,
    header: &wire::Encoded,
    bytes: &[u8],
) -> Result<(), Refused> {
    network.send(
        to,
        &Fragment {
            header,
            payload: Payload::Copied(&[bytes]),
        },
    )
}
