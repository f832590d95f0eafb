//! Receives frames, and handles the completions of all operations.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::num::NonZeroUsize;

use conduit_core::ni::Rank;
use conduit_portals::transport::fragment::{Failure, FragmentHandler};
use libfabric_sys::{
    FI_ADDR_UNSPEC, FI_EAGAIN, FI_EAVAIL, FI_ECANCELED, FI_MULTI_RECV, FI_RECV, fi_addr_t,
    fi_cq_data_entry, fi_cq_err_entry, fi_cq_read, fi_cq_readerr, fi_cq_readfrom, fi_msg, fi_recv,
    fi_recvmsg, iovec,
};
use seal::{Seal, TAG};

use crate::wire::failure;
use crate::wire::frame::{Frame, FrameKind, HEADER, whole_number};
use crate::wire::link::{Arriving, OfiLink};
use crate::wire::objects::Refusal;
use crate::wire::slots::Operation;
use crate::wire::watch::Call;

use super::atomic_ops::result;
use super::scope::Scope;
use super::{BATCH, OfiEndpoint};

/// The maximum number of reads of the queue in one call of `receive`.
const READS: u32 = 8;

const AGAIN: isize = -(FI_EAGAIN as isize);
const FAILED: isize = -(FI_EAVAIL as isize);

impl<S: Scope> OfiEndpoint<S> {
    /// Posts the receive buffers that are not posted.
    #[inline(never)]
    pub(super) fn post_receives(&mut self) -> Result<(), Refusal> {
        while self.broken.is_none()
            && let Some(buffer) = self.unposted.pop()
        {
            let Some((slot, context)) = self.slots.take(Operation::Receive(buffer)) else {
                self.unposted.push(buffer);
                return Ok(());
            };
            self.calls.begin(Call::Queue);
            let result = self.post(buffer, context);
            self.calls.end();
            if result != 0 {
                self.slots.give(slot);
                self.unposted.push(buffer);
                return match result {
                    AGAIN => Ok(()),
                    error => Err(Refusal {
                        operation: "fi_recv",
                        error: error as i64,
                        bytes: 0,
                    }),
                };
            }
        }
        Ok(())
    }

    fn post(&mut self, buffer: u32, context: *mut c_void) -> isize {
        let place: *mut c_void = self.receives.place(buffer).cast();
        let length = self.receives.size();
        let mut descriptor = self.receives.descriptor;
        if !self.multi {
            // SAFETY: the endpoint is open. The library uses the buffer until the completion, and
            // `receives` outlives the endpoint.
            return unsafe {
                fi_recv(
                    self.objects.ep,
                    place,
                    length,
                    descriptor,
                    libfabric_sys::FI_ADDR_UNSPEC,
                    context,
                )
            };
        }
        let piece = iovec {
            iov_base: place,
            iov_len: length,
        };
        let message = fi_msg {
            msg_iov: &piece,
            desc: &mut descriptor,
            iov_count: 1,
            addr: libfabric_sys::FI_ADDR_UNSPEC,
            context,
            data: 0,
        };
        // SAFETY: the endpoint is open. The library uses the buffer until a completion reports that
        // the buffer is full, and `receives` outlives the endpoint.
        unsafe { fi_recvmsg(self.objects.ep, &message, FI_MULTI_RECV) }
    }

    /// Reads and handles completions. Returns whether there were any completions.
    pub(super) fn complete(&mut self, handler: &mut impl FragmentHandler) -> bool {
        let mut some = false;
        if !self.unposted.is_empty()
            && let Err(refusal) = self.post_receives()
        {
            self.fail_all(refusal.operation, refusal.error);
        }
        if self.held > 0 {
            self.take_held(handler);
        }
        for _ in 0..READS {
            let mut entries = [const { MaybeUninit::<fi_cq_data_entry>::uninit() }; BATCH];
            let (queue, place) = (self.objects.cq, entries.as_mut_ptr().cast());
            self.calls.begin(Call::Queue);
            // SAFETY: the queue is open. `entries` has its format, and `entries` and `sources` have
            // room for `BATCH` items.
            let count = unsafe {
                match &mut self.sources {
                    Some(sources) => fi_cq_readfrom(queue, place, BATCH, sources.as_mut_ptr()),
                    None => fi_cq_read(queue, place, BATCH),
                }
            };
            self.calls.end();
            match count {
                AGAIN | 0 => break,
                FAILED => self.complete_failure(handler),
                error if error < 0 => {
                    self.fail_all("fi_cq_read", error as i64);
                    break;
                }
                count => {
                    let count = count.unsigned_abs();
                    for (at, entry) in entries.iter().take(count).enumerate() {
                        // SAFETY: the library has initialised the first `count` entries.
                        let entry = unsafe { entry.assume_init_ref() };
                        let source = match &self.sources {
                            Some(sources) => sources[at],
                            None => FI_ADDR_UNSPEC,
                        };
                        self.completed(entry, source, handler);
                    }
                    some = true;
                    if count < BATCH {
                        break;
                    }
                }
            }
            some = true;
        }
        some
    }

    /// Handles the loss of the device, or an undefined state of the library. Closes the endpoint
    /// and gives up all peers.
    #[cold]
    pub(super) fn fail_all(&mut self, operation: &'static str, error: i64) {
        if self.broken.is_none() {
            let failure =
                failure::of_all(&self.objects.offer, &self.scope.owner(), operation, error);
            self.broken = Some(failure);
            // Closing the endpoint ends all operations in flight that access any memory.
            self.objects.close_endpoint();
            self.links.reopen_all();
            let mut peers: Vec<_> = self.links.all().map(|link| link.peer).collect();
            if peers.is_empty()
                && let Some(peer) = self.scope.any_peer()
            {
                // At least one peer must be reported, because otherwise a rank that waits for puts
                // would never notice the failure.
                peers.push(peer);
                // This cannot fail, because the rank exists.
                let _ = self.add(peer);
            }
            for peer in peers {
                self.fail_peer(peer, failure);
            }
        }
    }

    #[inline(always)]
    fn completed(
        &mut self,
        entry: &fi_cq_data_entry,
        source: fi_addr_t,
        handler: &mut impl FragmentHandler,
    ) {
        match self.slots.find(entry.op_context) {
            Some((slot, &Operation::Receive(buffer))) => {
                if entry.flags & FI_RECV != 0 {
                    self.arrived(buffer, entry, source, handler);
                }
                if !self.multi || entry.flags & FI_MULTI_RECV != 0 {
                    self.received_into(slot, buffer);
                }
            }
            Some((slot, &operation)) => self.ended(slot, operation, true, handler),
            None => debug_assert!(false, "completion without an operation"),
        }
    }

    /// Reposts a buffer that is full or whose receive has ended.
    #[inline(never)]
    fn received_into(&mut self, slot: u32, buffer: u32) {
        self.slots.give(slot);
        self.unposted.push(buffer);
        if let Err(refusal) = self.post_receives() {
            self.fail_all(refusal.operation, refusal.error);
        }
    }

    /// Handles the end of an operation of this rank. `well` says whether the operation ended
    /// without an error.
    #[inline(never)]
    fn ended(
        &mut self,
        slot: u32,
        operation: Operation,
        well: bool,
        handler: &mut impl FragmentHandler,
    ) {
        self.slots.give(slot);
        let mut sent = None;
        // Whether the operation accessed the user's memory.
        let mut reached = false;
        let peer = match operation {
            Operation::Frame {
                peer,
                large,
                buffer,
            } => {
                match large {
                    true => self.large.give(buffer),
                    false => self.small.give(buffer),
                }
                peer
            }
            Operation::Pieces {
                peer,
                token,
                buffer,
            } => {
                self.small.give(buffer);
                sent = Some(token);
                reached = true;
                peer
            }
            Operation::Atomic {
                peer,
                token,
                buffer,
                is_wide,
            } => {
                let value = result(self.small.bytes(buffer), is_wide);
                self.small.give(buffer);
                if well && self.is_well(peer) {
                    handler.done(peer, token, value);
                }
                peer
            }
            Operation::Direct { peer, token, own } => {
                if let Some(own) = own {
                    self.objects.release(own);
                }
                if well && self.is_well(peer) {
                    handler.done(peer, token, 0);
                }
                reached = true;
                peer
            }
            Operation::Receive(_) | Operation::Free => return,
        };
        let Some(link) = self.links.get(peer) else {
            return;
        };
        link.pending = link.pending.saturating_sub(1);
        link.direct = link.direct.saturating_sub(reached.into());
        if let Some(token) = sent
            && well
        {
            self.on_zero_copy_sent(peer, token, handler);
        }
    }

    fn is_well(&self, peer: Rank) -> bool {
        let link = self.links.peek(peer);
        link.is_none_or(|link| link.failure.is_none())
    }

    /// Handles the completion of a frame that was sent from the user's memory.
    fn on_zero_copy_sent(&mut self, peer: Rank, token: u64, handler: &mut impl FragmentHandler) {
        let Some(link) = self.links.get(peer) else {
            return;
        };
        // A fragment whose frames are still being sent is the first one in the queue.
        if let Some(sending) = link.queue.front_mut().filter(|s| s.token == token) {
            sending.in_flight -= 1;
            return;
        }
        let Some(at) = link.in_flight.iter().position(|s| s.token == token) else {
            return;
        };
        let sending = &mut link.in_flight[at];
        sending.in_flight -= 1;
        if sending.in_flight == 0 {
            link.in_flight.swap_remove(at);
            handler.sent(peer, token);
        }
    }

    /// Handles an error completion.
    #[cold]
    fn complete_failure(&mut self, handler: &mut impl FragmentHandler) {
        let mut entry = fi_cq_err_entry::default();
        // SAFETY: the queue is open, and `entry` is valid for writes.
        let count = unsafe { fi_cq_readerr(self.objects.cq, &mut entry, 0) };
        if count == AGAIN {
            return;
        }
        if count < 0 {
            self.fail_all("fi_cq_readerr", count as i64);
            return;
        }
        self.counters.errors += 1;
        let error = i64::from(entry.err);
        let Some((slot, &operation)) = self.slots.find(entry.op_context) else {
            // The operation was an injected frame, whose peer is unknown here. The peer will be
            // found to be silent.
            return;
        };
        match operation {
            Operation::Receive(buffer) => {
                // This rank cancels no receives, so the endpoint was shut down.
                if entry.err == FI_ECANCELED || failure::is_own(error) {
                    self.fail_all("fi_recv", error);
                }
                // A buffer for several messages may still be in use. Over `shm`, this is so after a
                // message that was too long.
                if !self.multi || entry.flags & FI_MULTI_RECV != 0 {
                    self.received_into(slot, buffer);
                }
            }
            Operation::Frame { peer, .. } | Operation::Pieces { peer, .. } => {
                self.ended(slot, operation, false, handler);
                self.refused(peer, "send", error);
            }
            Operation::Atomic { peer, .. } => {
                self.ended(slot, operation, false, handler);
                self.refused(peer, "atomic", error);
            }
            Operation::Direct { peer, .. } => {
                self.ended(slot, operation, false, handler);
                self.refused(peer, "write or read", error);
            }
            Operation::Free => {}
        }
    }

    // ---- frames ---------------------------------------------------------------------------------

    #[inline(always)]
    fn arrived(
        &mut self,
        buffer: u32,
        entry: &fi_cq_data_entry,
        source: fi_addr_t,
        handler: &mut impl FragmentHandler,
    ) {
        self.counters.received += 1;
        let begin = self.receives.place(buffer);
        let from = match self.multi {
            true => entry.buf.cast::<u8>().cast_const(),
            false => begin.cast_const(),
        };
        let offset = from.addr().wrapping_sub(begin.addr());
        let fits = offset.checked_add(entry.len);
        if fits.is_none_or(|end| end > self.receives.size()) {
            self.counters.malformed += 1;
            return;
        }
        // SAFETY: the range is within the buffer, as checked above. The library has written it and
        // does not access it again until the buffer is reposted, which does not happen while this
        // frame is handled. No other reference to these bytes exists.
        let bytes = unsafe { std::slice::from_raw_parts_mut(begin.add(offset), entry.len) };
        if S::OPEN && Frame::read_begin(bytes).is_none() {
            let is_known = self.scope.on_other(bytes);
            self.counters.malformed += u64::from(!is_known);
            return;
        }
        match self.seal {
            None => self.take_frame(bytes, source, handler),
            Some(_) => self.take_sealed(bytes, source, handler),
        }
    }

    /// Handles a frame. There is a fast path for the common case, which is a tiny frame that is the
    /// next one on an open link.
    #[inline(always)]
    fn take_frame(&mut self, bytes: &[u8], source: fi_addr_t, handler: &mut impl FragmentHandler) {
        let accepts_unknown_source = self.accepts_unknown_source;
        if let Some((frame, header, payload)) = Frame::decode_tiny(bytes)
            && self.scope.is_job(frame.job)
            && let Some(link) = self.links.get(frame.rank)
            && S::is_session(&link.session, frame.job)
            && link.is_next(frame.number)
            && link.is_from(source, accepts_unknown_source)
        {
            link.liveness.heard();
            link.next_in += 1;
            self.take_tiny(&frame, header, payload, handler);
            return;
        }
        self.take_any_frame(bytes, source, handler);
    }

    /// Opens a sealed frame. Handles it if its tag is valid and its number is new.
    #[inline(never)]
    fn take_sealed(
        &mut self,
        bytes: &mut [u8],
        source: fi_addr_t,
        handler: &mut impl FragmentHandler,
    ) {
        let frame = Frame::read_begin(bytes);
        let Some(frame) = frame.filter(|frame| self.scope.is_job(frame.job)) else {
            self.counters.malformed += 1;
            return;
        };
        let (Some(next), Some(seal)) = (self.links.next_in(frame.rank), &mut self.seal) else {
            self.counters.malformed += 1;
            return;
        };
        let Some(number) = whole_number(frame.number, next) else {
            self.counters.replayed += 1;
            return;
        };
        if !seal.open(frame.rank, number, bytes, HEADER) {
            self.counters.bad_tag += 1;
            return;
        }
        // The frame was opened successfully, so it ends in a tag.
        self.take_frame(&bytes[..bytes.len() - TAG], source, handler);
    }

    #[inline(never)]
    fn take_any_frame(
        &mut self,
        bytes: &[u8],
        source: fi_addr_t,
        handler: &mut impl FragmentHandler,
    ) {
        let Some((frame, header, payload)) = Frame::decode(bytes) else {
            self.counters.malformed += 1;
            return;
        };
        let peer = frame.rank;
        // The frame belongs to another job.
        if !self.scope.is_job(frame.job) {
            self.counters.malformed += 1;
            return;
        }
        let accepts_unknown_source = self.accepts_unknown_source;
        let Ok(link) = self.open(peer) else {
            // The frame comes from a peer that was given up.
            self.counters.malformed += 1;
            return;
        };
        // The frame belongs to an earlier session.
        if !S::is_session(&link.session, frame.job) {
            self.counters.malformed += 1;
            return;
        }
        if !link.is_from(source, accepts_unknown_source) {
            self.counters.wrong_source += 1;
            return;
        }
        match whole_number(frame.number, link.next_in) {
            Some(number) if number == link.next_in => {}
            Some(number) => {
                self.on_early_frame(peer, number, bytes);
                return;
            }
            None => {
                self.fail_peer(peer, Failure::Broken("frames out of order"));
                return;
            }
        }
        link.liveness.heard();
        link.next_in += 1;
        let has_early = link.early.is_some();
        match frame.kind {
            FrameKind::Tiny => self.take_tiny(&frame, header, payload, handler),
            _ => self.dispatch(&frame, bytes, header, payload, handler),
        }
        if has_early {
            self.take_early(peer, handler);
        }
    }

    /// Keeps a frame until the frames before it have arrived. If the early frames of all peers take
    /// too much room, gives up the peer whose early frames take the most bytes.
    #[cold]
    fn on_early_frame(&mut self, peer: Rank, number: u64, bytes: &[u8]) {
        let Some(link) = self.links.get(peer) else {
            return;
        };
        let Some(taken) = link.early.get_or_insert_default().keep(number, bytes) else {
            self.counters.replayed += 1;
            return;
        };
        link.liveness.heard();
        self.early += taken;
        if self.early > self.early_room {
            let early =
                |link: &OfiLink<S::Session>| link.early.as_ref().map_or(0, |early| early.bytes());
            self.give_up_most(early, "sent more early frames than there is room for");
        }
    }

    /// Gives up the peer whose kept frames take the most bytes.
    #[cold]
    fn give_up_most(&mut self, kept: impl Fn(&OfiLink<S::Session>) -> usize, reason: &'static str) {
        let most = self.links.all().map(|link| (kept(link), link.peer)).max();
        if let Some((_, peer)) = most {
            self.fail_peer(peer, Failure::Broken(reason));
        }
    }

    /// Handles the early frames that have now become the next in order.
    #[cold]
    fn take_early(&mut self, peer: Rank, handler: &mut impl FragmentHandler) {
        while let Some(link) = self.links.get(peer)
            && let Some(early) = &mut link.early
        {
            let Some((bytes, taken)) = early.take(link.next_in) else {
                return;
            };
            if early.is_empty() {
                link.early = None;
            }
            link.next_in += 1;
            self.early -= taken;
            if let Some((frame, header, payload)) = Frame::decode(&bytes) {
                self.dispatch(&frame, &bytes, header, payload, handler);
            }
        }
    }

    #[inline(always)]
    fn take_tiny(
        &mut self,
        frame: &Frame,
        header: &[u8],
        payload: &[u8],
        handler: &mut impl FragmentHandler,
    ) {
        // The peer's window bounds the number of bytes in flight, so the handler must have room.
        if !handler.fragment(frame.rank, header, payload) {
            self.counters.malformed += 1;
        }
    }

    #[inline(never)]
    fn dispatch(
        &mut self,
        frame: &Frame,
        bytes: &[u8],
        header: &[u8],
        payload: &[u8],
        handler: &mut impl FragmentHandler,
    ) {
        let peer = frame.rank;
        let Some(link) = self.links.get(peer) else {
            return;
        };
        match frame.kind {
            FrameKind::Tiny => self.take_tiny(frame, header, payload, handler),
            // The cast is lossless for correct frames, because ping numbers have 32 bits.
            FrameKind::Ping => self.pong(peer, frame.length as u32),
            FrameKind::Pong => {
                let settled = |number: u32| (frame.length as u32).wrapping_sub(number) < 1 << 31;
                link.unsettled = link.unsettled.filter(|number| !settled(*number));
            }
            FrameKind::Bye if S::OPEN => self.fail_peer(peer, Failure::Left),
            FrameKind::Bye => self.fail_peer(peer, Failure::Broken("BYE within a job")),
            FrameKind::Connect | FrameKind::Taken | FrameKind::Ask => {
                self.fail_peer(
                    peer,
                    Failure::Broken("connection frame outside a connection"),
                );
            }
            FrameKind::Whole | FrameKind::First | FrameKind::Chunk => {
                let is_next = link.held.is_none();
                if !is_next || !self.take_data(frame, header, payload, handler) {
                    self.hold(frame, payload.len(), bytes, handler.room());
                }
            }
        }
    }

    /// Holds a frame of the data channel until there is room for it and for the frames before it.
    /// Gives up a peer that sends more bytes of a fragment than it announced. If the held frames
    /// exceed `room`, gives up the peer whose held frames take the most bytes.
    #[cold]
    fn hold(&mut self, frame: &Frame, payload: usize, bytes: &[u8], room: usize) {
        let peer = frame.rank;
        let Some(link) = self.links.get(peer) else {
            return;
        };
        let held = link.held.get_or_insert_default();
        let Some(taken) = held.keep(frame, payload, bytes) else {
            self.fail_peer(peer, Failure::Broken("frames out of order"));
            return;
        };
        self.held += taken;
        if self.held > room {
            let held =
                |link: &OfiLink<S::Session>| link.held.as_ref().map_or(0, |held| held.bytes());
            self.give_up_most(held, "sent more frames than can be delivered or kept");
        }
    }

    /// Delivers a frame of the data channel. Returns `false` if there is no room now.
    fn take_data(
        &mut self,
        frame: &Frame,
        header: &[u8],
        payload: &[u8],
        handler: &mut impl FragmentHandler,
    ) -> bool {
        let peer = frame.rank;
        let Some(link) = self.links.get(peer) else {
            return true;
        };
        match deliver(&mut link.arriving, frame, header, payload, handler) {
            Some(is_taken) => is_taken,
            None => {
                self.fail_peer(peer, Failure::Broken("frames out of order"));
                true
            }
        }
    }

    /// Delivers the frames that were held for lack of room, as far as there is now room for them.
    #[cold]
    fn take_held(&mut self, handler: &mut impl FragmentHandler) {
        let peers: Vec<_> = self
            .links
            .all()
            .filter(|link| link.held.is_some())
            .map(|link| link.peer)
            .collect();
        for peer in peers {
            while let Some(link) = self.links.get(peer)
                && let Some(held) = &mut link.held
            {
                let Some((bytes, taken)) = held.take() else {
                    link.held = None;
                    break;
                };
                self.held -= taken;
                let is_taken = match Frame::decode(&bytes) {
                    Some((frame, header, payload)) => {
                        self.take_data(&frame, header, payload, handler)
                    }
                    None => true,
                };
                if let Some(link) = self.links.get(peer).filter(|_| !is_taken) {
                    self.held += link.held.get_or_insert_default().put_back(bytes);
                    break;
                }
            }
        }
    }
}

/// Delivers a frame of the data channel. Returns `Some(false)` if there is no room now, and `None`
/// if the frame cannot follow the frames before it.
pub(super) fn deliver(
    arriving: &mut Option<Arriving>,
    frame: &Frame,
    header: &[u8],
    payload: &[u8],
    handler: &mut impl FragmentHandler,
) -> Option<bool> {
    let peer = frame.rank;
    // The cast is lossless, because `usize` has 64 bits.
    let length = frame.length as usize;
    match (frame.kind, *arriving) {
        (FrameKind::Whole, None) => Some(handler.fragment(peer, header, payload)),
        (FrameKind::First, None) if payload.len() < length => {
            let Some(place) = handler.begin(peer, header, length) else {
                return Some(false);
            };
            handler.place(place, 0, payload);
            *arriving = NonZeroUsize::new(length - payload.len()).map(|left| Arriving {
                place,
                next: payload.len(),
                left,
            });
            Some(true)
        }
        (FrameKind::Chunk, Some(Arriving { place, next, left })) if payload.len() <= left.get() => {
            handler.place(place, next, payload);
            *arriving = NonZeroUsize::new(left.get() - payload.len()).map(|left| Arriving {
                place,
                next: next + payload.len(),
                left,
            });
            if arriving.is_none() {
                handler.end(place);
            }
            Some(true)
        }
        _ => None,
    }
}
