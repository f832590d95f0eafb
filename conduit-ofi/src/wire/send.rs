//! Sends frames.

use std::mem::MaybeUninit;
use std::ptr;

use conduit_core::ni::Rank;
use conduit_portals::transport::fragment::{FragmentHandler, Refused};
use libfabric_sys::{FI_EAGAIN, FI_ENOMEM, fi_inject, fi_send, fi_sendv, iovec};
use seal::{Seal, TAG};

use crate::wire::frame::{Frame, FrameKind, HEADER, LONG_HEADER};
use crate::wire::link::{OfiLink, Sending};
use crate::wire::objects::Objects;
use crate::wire::slots::Operation;
use crate::wire::watch::Call;

use super::scope::Scope;
use super::{OfiEndpoint, SMALL, elapsed};

/// The reason why a frame was not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NotSent {
    /// There is no room now, but the frame can be sent later.
    Again,
    /// The library refused the frame for good, in the call with this name and with this error
    /// number.
    Failed(&'static str, i64),
}

/// Interprets the result of a submission.
#[inline(always)]
pub(super) fn result_of(operation: &'static str, result: isize) -> Result<(), NotSent> {
    const AGAIN: isize = -(FI_EAGAIN as isize);
    // `shm` 1.17 occasionally returns this error, and accepts the same message later.
    const NO_MEMORY: isize = -(FI_ENOMEM as isize);
    if result == 0 {
        return Ok(());
    }
    match result {
        AGAIN | NO_MEMORY => Err(NotSent::Again),
        error => Err(NotSent::Failed(operation, error as i64)),
    }
}

/// Injects bytes. The library copies them before the call returns, and reports no completion.
#[inline(always)]
fn inject(objects: &Objects, address: u64, bytes: &[u8]) -> Result<(), NotSent> {
    // SAFETY: the endpoint is open, and the library copies the bytes during the call.
    let result = unsafe { fi_inject(objects.ep, bytes.as_ptr().cast(), bytes.len(), address) };
    result_of("fi_inject", result)
}

/// Space in which a small frame is assembled. It is not zeroed, because most frames have only a few
/// dozen bytes.
struct Copy([MaybeUninit<u8>; SMALL]);

impl Copy {
    #[inline(always)]
    fn new() -> Self {
        Self([const { MaybeUninit::uninit() }; SMALL])
    }

    /// Writes a piece at `place`, and returns the place of the next piece. The length is passed on
    /// rather than stored in a field, because the library gets the address of this structure, so a
    /// field could not be kept in a register.
    ///
    /// # Safety
    /// There must be room for `piece` at `place`.
    #[inline(always)]
    unsafe fn put(&mut self, place: usize, piece: &[u8]) -> usize {
        /// The longest piece that the loop below copies. Pieces are headers and arguments, which
        /// are short and have multiples of four bytes. For such pieces, a call of `memcpy` would
        /// take longer, and wide loads would stall on data that have just been written in parts.
        const SHORT: usize = 64;
        // SAFETY: the caller guarantees enough room for the piece, and `piece` is valid for reads
        // of its length.
        unsafe {
            let to = self.0.as_mut_ptr().add(place).cast::<u8>();
            let (mut from, mut to) = (piece.as_ptr(), to);
            let mut left = piece.len();
            if left <= SHORT {
                while left >= 8 {
                    to.cast::<u64>()
                        .write_unaligned(from.cast::<u64>().read_unaligned());
                    (from, to, left) = (from.add(8), to.add(8), left - 8);
                }
                if left >= 4 {
                    to.cast::<u32>()
                        .write_unaligned(from.cast::<u32>().read_unaligned());
                    (from, to, left) = (from.add(4), to.add(4), left - 4);
                }
            }
            if left > 0 {
                to.copy_from_nonoverlapping(from, left);
            }
        }
        place + piece.len()
    }

    /// # Safety
    /// The first `length` bytes must have been written.
    #[inline(always)]
    unsafe fn bytes(&mut self, length: usize) -> &mut [u8] {
        // SAFETY: the caller guarantees that the first `length` bytes have been written, so they
        // are initialised and within the array.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), length) }
    }
}

/// Seals a frame to a peer. Writes the frame's tag into the last bytes, and encrypts the frame if
/// the job is configured for encryption. A number may be reused if no frame with this number has
/// been passed to the library.
#[inline(never)]
pub(super) fn seal_frame(seal: &mut impl Seal, peer: Rank, number: u64, frame: &mut [u8]) {
    seal.seal(peer, number, frame, HEADER);
}

impl<S: Scope> OfiEndpoint<S> {
    #[inline]
    pub(super) fn frame(
        &self,
        session: &S::Session,
        number: u64,
        kind: FrameKind,
        header: &[u8],
        length: u64,
    ) -> Frame {
        let (rank, job) = self.scope.names(session);
        Frame {
            kind,
            // The cast keeps the lower bits, which are the ones transmitted.
            number: number as u16,
            // The cast is lossless, because a header has at most `MAX_HEADER` bytes.
            header: header.len() as u8,
            rank,
            job,
            length,
        }
    }

    /// Sends a fragment whose bytes are copied before the call returns. This function is inlined so
    /// that the header's length is a constant.
    #[inline(always)]
    pub(super) fn send_tiny(
        &mut self,
        peer: Rank,
        header: &[u8],
        pieces: &[&[u8]],
    ) -> Result<(), Refused> {
        let place = self.place(peer)?;
        let Self {
            links,
            objects,
            counters,
            seal,
            scope,
            calls,
            ..
        } = self;
        let link = links.alive(place)?;
        link.liveness.sent();
        let (rank, job) = scope.names(&link.session);
        let own = Frame {
            kind: FrameKind::Tiny,
            // The cast keeps the lower bits, which are the ones transmitted.
            number: link.next_out as u16,
            // The cast is lossless, because a header has at most `MAX_HEADER` bytes.
            header: header.len() as u8,
            rank,
            job,
            length: 0,
        };
        let bytes: usize = pieces.iter().map(|piece| piece.len()).sum();
        if header.len() + bytes > SMALL - HEADER - TAG {
            return Err(Refused::TooLong);
        }
        let mut copy = Copy::new();
        // SAFETY: the check above ensures that all pieces fit, and they are written one after
        // another.
        let copy = unsafe {
            let mut length = copy.put(0, &own.begin());
            length = copy.put(length, header);
            // Two pieces are the common case, which is handled without a loop.
            match pieces {
                [head, body] => {
                    length = copy.put(length, head);
                    length = copy.put(length, body);
                }
                pieces => {
                    for piece in pieces {
                        length = copy.put(length, piece);
                    }
                }
            }
            if let Some(seal) = seal {
                length = copy.put(length, &[0; TAG]);
                seal_frame(&mut **seal, peer, link.next_out, copy.bytes(length));
            }
            copy.bytes(length)
        };
        let address = link.address;
        if copy.len() > self.inject || !link.backlog.is_empty() {
            return self.post_small(peer, address, copy);
        }
        match calls.make(Call::Peer(peer), || inject(objects, address, copy)) {
            Ok(()) => {
                link.next_out += 1;
                counters.frames += 1;
                counters.injected += 1;
                Ok(())
            }
            Err(not) => self.not_sent(peer, not, copy),
        }
    }

    /// Handles a small frame that the library did not accept.
    #[cold]
    fn not_sent(&mut self, peer: Rank, not: NotSent, frame: &[u8]) -> Result<(), Refused> {
        match self.submit(peer, |_| Err(not)) {
            Err(Refused::Full) => self.keep(peer, frame),
            answer => answer,
        }
    }

    /// Counts a frame that was sent, so that its number is used up.
    #[inline]
    fn numbered(&mut self, peer: Rank) {
        if let Some(link) = self.links.get(peer) {
            link.next_out += 1;
        }
    }

    /// Sends a small frame, or appends it to the backlog. The backlog is needed because the first
    /// frame to a peer opens a connection, for which the peer must make progress.
    #[inline]
    pub(super) fn post_small(
        &mut self,
        peer: Rank,
        address: u64,
        frame: &[u8],
    ) -> Result<(), Refused> {
        let waits = self
            .links
            .peek(peer)
            .is_some_and(|link| !link.backlog.is_empty());
        if !waits {
            match self.submit(peer, |wire| wire.post_frame(peer, address, frame)) {
                Err(Refused::Full) => {}
                answer => return answer.inspect(|()| self.numbered(peer)),
            }
        }
        self.keep(peer, frame)
    }

    #[cold]
    fn keep(&mut self, peer: Rank, frame: &[u8]) -> Result<(), Refused> {
        /// The maximum number of frames in a peer's backlog.
        const BACKLOG: usize = 256;
        let link = self.links.get(peer).ok_or(Refused::NoSuchRank)?;
        if link.backlog.len() >= BACKLOG {
            return Err(Refused::Full);
        }
        link.backlog.push_back(frame.into());
        list(&mut self.outgoing, link);
        self.numbered(peer);
        Ok(())
    }

    /// Sends the frames of the backlog. Returns `true` if there is no more room, and `false` if the
    /// backlog is empty.
    fn send_backlog(&mut self, peer: Rank) -> bool {
        while let Some((frame, address)) = self.links.get(peer).and_then(|link| {
            let frame = link.backlog.pop_front()?;
            Some((frame, link.address))
        }) {
            if self.submit(peer, |wire| wire.post_frame(peer, address, &frame))
                == Err(Refused::Full)
            {
                if let Some(link) = self.links.get(peer) {
                    link.backlog.push_front(frame);
                }
                return true;
            }
        }
        false
    }

    /// Sends a small frame. The frame is injected if it is short enough, and otherwise sent from a
    /// buffer.
    #[inline]
    pub(super) fn post_frame(
        &mut self,
        peer: Rank,
        address: u64,
        bytes: &[u8],
    ) -> Result<(), NotSent> {
        if bytes.len() <= self.inject {
            inject(&self.objects, address, bytes)?;
            self.counters.injected += 1;
            return Ok(());
        }
        let buffer = self.small.take().ok_or(NotSent::Again)?;
        self.small.bytes(buffer)[..bytes.len()].copy_from_slice(bytes);
        self.send_buffer(peer, address, false, buffer, bytes.len())
    }

    /// Injects a buffer, and frees it.
    fn inject_buffer(
        &mut self,
        address: u64,
        large: bool,
        buffer: u32,
        length: usize,
    ) -> Result<(), NotSent> {
        let buffers = if large {
            &mut self.large
        } else {
            &mut self.small
        };
        // SAFETY: the endpoint is open. The first `length` bytes of the buffer have been written,
        // and the library copies them during the call.
        let result = unsafe {
            fi_inject(
                self.objects.ep,
                buffers.place(buffer).cast(),
                length,
                address,
            )
        };
        buffers.give(buffer);
        result_of("fi_inject", result)?;
        self.counters.injected += 1;
        Ok(())
    }

    /// Sends a buffer, which is freed when the library completes it, or at once if the library
    /// refuses it.
    fn send_buffer(
        &mut self,
        peer: Rank,
        address: u64,
        large: bool,
        buffer: u32,
        length: usize,
    ) -> Result<(), NotSent> {
        let operation = Operation::Frame {
            peer,
            large,
            buffer,
        };
        let taken = self.slots.take(operation);
        let buffers = if large { &self.large } else { &self.small };
        let sent = match taken {
            None => Err(NotSent::Again),
            Some((slot, context)) => {
                // SAFETY: the endpoint is open. The library uses the buffer until the completion,
                // and the pool outlives the endpoint.
                let result = unsafe {
                    fi_send(
                        self.objects.ep,
                        buffers.place(buffer).cast(),
                        length,
                        buffers.descriptor,
                        address,
                        context,
                    )
                };
                result_of("fi_send", result).inspect_err(|_| self.slots.give(slot))
            }
        };
        match sent {
            Ok(()) => {
                if let Some(link) = self.links.get(peer) {
                    link.pending += 1;
                }
            }
            Err(_) if large => self.large.give(buffer),
            Err(_) => self.small.give(buffer),
        }
        sent
    }

    /// Makes a call of the library, and translates a refusal for the user.
    #[inline]
    pub(super) fn submit(
        &mut self,
        peer: Rank,
        what: impl FnOnce(&mut Self) -> Result<(), NotSent>,
    ) -> Result<(), Refused> {
        self.calls.begin(Call::Peer(peer));
        let result = what(self);
        self.calls.end();
        match result {
            Ok(()) => {
                self.counters.frames += 1;
                Ok(())
            }
            Err(NotSent::Again) => {
                self.counters.again += 1;
                Err(Refused::Full)
            }
            Err(NotSent::Failed(operation, error)) => {
                self.counters.errors += 1;
                self.refused(peer, operation, error);
                Err(Refused::Dead)
            }
        }
    }

    // ---- pings ----------------------------------------------------------------------------------

    fn send_ping(&mut self, peer: Rank, kind: FrameKind, number: u32) -> Result<(), Refused> {
        let link = self.open(peer)?;
        let (address, next, session) = (link.address, link.next_out, link.session);
        let own = self.frame(&session, next, kind, &[], number.into());
        let mut frame = [0; LONG_HEADER + TAG];
        own.write(&mut frame);
        if let Some(seal) = &mut self.seal {
            seal_frame(&mut **seal, peer, next, &mut frame);
        }
        self.post_small(peer, address, &frame[..LONG_HEADER + self.tag])
    }

    /// Pings a peer.
    pub(super) fn ping(&mut self, peer: Rank) {
        let Some(link) = self.links.get(peer) else {
            return;
        };
        link.liveness.sent();
        let number = self.pings.wrapping_add(1);
        if self.send_ping(peer, FrameKind::Ping, number).is_ok() {
            self.pings = number;
        }
    }

    /// Marks the peer as unsettled until it answers a ping that is sent now. The answer proves that
    /// the peer has received everything sent before the ping.
    pub(super) fn settle_by_ping(&mut self, peer: Rank) {
        // The number is that of the next ping. If there is no room for the ping now, the next check
        // of the peer sends it.
        let number = self.pings.wrapping_add(1);
        self.ping(peer);
        // The peer of an idle link has received everything.
        if let Some(link) = self.links.get(peer)
            && link.failure.is_none()
        {
            link.unsettled = Some(number);
        }
    }

    /// Answers a ping. If there is no room, the answer is sent later.
    pub(super) fn pong(&mut self, peer: Rank, number: u32) {
        if self.send_ping(peer, FrameKind::Pong, number) == Err(Refused::Full)
            && let Some(link) = self.links.get(peer)
        {
            link.pong = Some(number);
            list(&mut self.outgoing, link);
        }
    }

    // ---- longer fragments -----------------------------------------------------------------------

    /// Queues a fragment whose bytes are kept in the user's memory until `FragmentHandler::sent` is
    /// called.
    pub(super) fn send_later(
        &mut self,
        peer: Rank,
        header: &[u8],
        token: u64,
        length: usize,
    ) -> Result<(), Refused> {
        /// The maximum number of fragments queued for one peer.
        const QUEUED: usize = 256;
        self.open(peer)?;
        let sending = Sending::new(token, length, header).ok_or(Refused::TooLong)?;
        let Some(link) = self.links.get(peer) else {
            return Err(Refused::NoSuchRank);
        };
        if link.abandoned || link.queue.len() >= QUEUED {
            return Err(Refused::Full);
        }
        link.liveness.sent();
        link.queue.push_back(sending);
        list(&mut self.outgoing, link);
        Ok(())
    }

    /// Sends the queued frames, as far as there is room.
    pub(super) fn send_queued(&mut self, handler: &mut impl FragmentHandler) {
        let mut peers = std::mem::take(&mut self.outgoing);
        peers.retain(|peer| {
            let peer = *peer;
            if S::OPEN && !self.may_retry(peer) {
                return true;
            }
            let frames = self.counters.frames;
            if let Some(number) = self.links.get(peer).and_then(|link| link.pong.take()) {
                if let Some(link) = self.links.get(peer) {
                    link.listed = false;
                }
                self.pong(peer, number);
            }
            let waits = self.send_backlog(peer) || self.send_to(peer, handler);
            if let Some(link) = self.links.get(peer) {
                // If there was no room for a pong, the link may have been listed again. One entry
                // is enough.
                link.listed = waits;
                let is_stuck = waits && link.pending == 0 && self.counters.frames == frames;
                let start = self.start;
                S::on_retried(&mut link.session, is_stuck, || elapsed(start));
            }
            waits
        });
        self.outgoing.retain(|peer| !peers.contains(peer));
        for peer in &self.outgoing {
            if let Some(link) = self.links.get(*peer) {
                link.listed = true;
            }
        }
        self.outgoing.append(&mut peers);
    }

    fn may_retry(&self, peer: Rank) -> bool {
        let link = self.links.peek(peer);
        link.is_none_or(|link| S::may_retry(&link.session, || self.now()))
    }

    /// Sends frames of a link's queue. Returns `true` if there is no more room, and `false` if the
    /// queue is empty.
    fn send_to(&mut self, peer: Rank, handler: &mut impl FragmentHandler) -> bool {
        loop {
            let Some(link) = self.links.get(peer) else {
                return false;
            };
            let Some(sending) = link.queue.front() else {
                return false;
            };
            if link.failure.is_some() {
                return false;
            }
            let token = sending.token;
            let frames = self.submit(peer, |wire| wire.send_frame(peer, handler));
            match frames {
                Ok(()) => {}
                Err(Refused::Full) => return true,
                Err(_) => return false,
            }
            let Some(link) = self.links.get(peer) else {
                return false;
            };
            link.liveness.sent();
            let Some(first) = link.queue.front() else {
                return false;
            };
            let (is_whole, is_in_flight) = (first.next == first.length, first.in_flight > 0);
            if is_whole && let Some(sending) = link.queue.pop_front() {
                if is_in_flight {
                    link.in_flight.push(sending);
                } else {
                    handler.sent(peer, token);
                }
            }
        }
    }

    /// Sends the next frame of the first fragment in a link's queue.
    fn send_frame(
        &mut self,
        peer: Rank,
        handler: &mut impl FragmentHandler,
    ) -> Result<(), NotSent> {
        let Some(link) = self.links.peek(peer) else {
            return Ok(());
        };
        let Some(sending) = link.queue.front() else {
            return Ok(());
        };
        let (address, number) = (link.address, link.next_out);
        let (token, next, length) = (sending.token, sending.next, sending.length);
        let left = length - next;
        let header = match next {
            0 => sending.header(),
            _ => &[],
        };
        // The length of a frame that contains all remaining bytes.
        let whole = HEADER + header.len() + left + self.tag;
        // Two injected frames cost less than one regular frame. Over `shm`, the receiver fetches a
        // regular frame by a system call.
        let inject = self.inject.min(self.frame);
        let in_two =
            inject >= 2 * SMALL && whole > inject && whole + LONG_HEADER + self.tag <= 2 * inject;
        let frame = if in_two { inject } else { self.frame };
        let kind = match next {
            0 if whole <= frame => FrameKind::Whole,
            0 => FrameKind::First,
            _ => FrameKind::Chunk,
        };
        let begin = kind.header() + header.len();
        let bytes = left.min(frame - begin - self.tag);
        let end = begin + bytes + self.tag;
        let own = self.frame(&link.session, number, kind, header, length as u64);
        // An injected frame has no completion to wait for.
        let is_injected = end <= self.inject;
        // The frame is sent from the user's memory if the library can do that.
        let may_zero_copy =
            self.pieces && !self.objects.wants_local() && bytes >= SMALL && !is_injected;
        let zero_copy = if may_zero_copy {
            handler.source(peer, token, next, bytes).map(<[u8]>::as_ptr)
        } else {
            None
        };
        let pool = if zero_copy.is_some() || end <= SMALL {
            &mut self.small
        } else {
            &mut self.large
        };
        let large = pool.size() > SMALL;
        let buffer = pool.take().ok_or(NotSent::Again)?;
        let place = pool.bytes(buffer);
        own.write(place);
        place[kind.header()..begin].copy_from_slice(header);
        match zero_copy {
            Some(source) => self.send_pieces(peer, address, token, buffer, begin, source, bytes)?,
            None => {
                handler.read(peer, token, next, &mut place[begin..begin + bytes]);
                if let Some(seal) = &mut self.seal {
                    seal_frame(&mut **seal, peer, number, &mut place[..end]);
                }
                if is_injected {
                    self.inject_buffer(address, large, buffer, end)?;
                } else {
                    self.send_buffer(peer, address, large, buffer, end)?;
                }
            }
        }
        self.numbered(peer);
        if let Some(sending) = self.links.get(peer).and_then(|link| link.queue.front_mut()) {
            sending.next += bytes;
            sending.in_flight += u32::from(zero_copy.is_some());
        }
        Ok(())
    }

    /// Sends a frame whose header is in a small buffer and whose payload is in the user's memory.
    #[expect(clippy::too_many_arguments, reason = "all of a frame")]
    fn send_pieces(
        &mut self,
        peer: Rank,
        address: u64,
        token: u64,
        buffer: u32,
        begin: usize,
        source: *const u8,
        bytes: usize,
    ) -> Result<(), NotSent> {
        let operation = Operation::Pieces {
            peer,
            token,
            buffer,
        };
        let Some((slot, context)) = self.slots.take(operation) else {
            self.small.give(buffer);
            return Err(NotSent::Again);
        };
        let pieces = [
            iovec {
                iov_base: self.small.place(buffer).cast(),
                iov_len: begin,
            },
            iovec {
                iov_base: source.cast_mut().cast(),
                iov_len: bytes,
            },
        ];
        // SAFETY: the endpoint is open, and the buffer and the source are valid until the
        // completion. For the source, the contract of `Payload::Read` guarantees that, because
        // `FragmentHandler::sent` is called only after the completion.
        let result = unsafe {
            fi_sendv(
                self.objects.ep,
                pieces.as_ptr(),
                ptr::null_mut(),
                pieces.len(),
                address,
                context,
            )
        };
        match result_of("fi_sendv", result) {
            Ok(()) => {
                self.counters.zero_copy += 1;
                if let Some(link) = self.links.get(peer) {
                    link.pending += 1;
                    link.direct += 1;
                }
                Ok(())
            }
            Err(not) => {
                self.slots.give(slot);
                self.small.give(buffer);
                Err(not)
            }
        }
    }
}

/// Records that a link has something to send.
pub(super) fn list<T>(outgoing: &mut Vec<Rank>, link: &mut OfiLink<T>) {
    if !link.listed {
        link.listed = true;
        outgoing.push(link.peer);
    }
}
