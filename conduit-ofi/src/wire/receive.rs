//! Completions and frames in.

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

use crate::failure;
use crate::frame::{Frame, HEADER, Kind, whole_number};
use crate::link::{Arriving, Link};
use crate::objects::Refusal;
use crate::slots::Operation;

use super::Wire;
use super::atomic::result;

/// Completions read at once.
pub(super) const BATCH: usize = 32;
/// Reads of the queue in a row.
const READS: u32 = 8;

const AGAIN: isize = -(FI_EAGAIN as isize);
const FAILED: isize = -(FI_EAVAIL as isize);

impl Wire {
    /// Posts the receives that are not posted.
    #[inline(never)]
    pub(super) fn post_receives(&mut self) -> Result<(), Refusal> {
        while self.broken.is_none()
            && let Some(buffer) = self.unposted.pop()
        {
            let Some((slot, context)) = self.slots.take(Operation::Receive(buffer)) else {
                self.unposted.push(buffer);
                return Ok(());
            };
            let result = self.post(buffer, context);
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
            // SAFETY: the endpoint is open; the buffer is lent until the completion.
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
        // SAFETY: as above; the buffer is lent until a completion says that it is full.
        unsafe { fi_recvmsg(self.objects.ep, &message, FI_MULTI_RECV) }
    }

    /// Reads completions and does what follows from them. Says whether there were any.
    pub(super) fn complete(&mut self, handler: &mut impl FragmentHandler) -> bool {
        let mut some = false;
        if !self.unposted.is_empty()
            && let Err(refusal) = self.post_receives()
        {
            self.breaks(refusal.operation, refusal.error);
        }
        if self.held > 0 {
            self.take_held(handler);
        }
        for _ in 0..READS {
            let mut entries = [const { MaybeUninit::<fi_cq_data_entry>::uninit() }; BATCH];
            let (queue, place) = (self.objects.cq, entries.as_mut_ptr().cast());
            // SAFETY: the queue is open, of this format, and there is room for so many, and for as many sources.
            let count = unsafe {
                match &mut self.sources {
                    Some(sources) => fi_cq_readfrom(queue, place, BATCH, sources.as_mut_ptr()),
                    None => fi_cq_read(queue, place, BATCH),
                }
            };
            match count {
                AGAIN | 0 => break,
                FAILED => self.complete_failure(handler),
                error if error < 0 => {
                    self.breaks("fi_cq_read", error as i64);
                    break;
                }
                count => {
                    let count = count.unsigned_abs();
                    for (at, entry) in entries.iter().take(count).enumerate() {
                        // SAFETY: the library has written so many.
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

    /// The device is gone, or the library in disorder: nobody can be reached any more.
    #[cold]
    pub(super) fn breaks(&mut self, operation: &'static str, error: i64) {
        if self.broken.is_none() {
            let failure = failure::of_all(&self.objects.offer, self.rank, operation, error);
            self.broken = Some(failure);
            // Nothing of what is under way may touch anybody's memory from here on.
            self.objects.close_endpoint();
            self.links.wake_all();
            let mut peers: Vec<_> = self.links.all().map(|link| link.peer).collect();
            if peers.is_empty() {
                // Someone has to be named, or a rank that waits to be written to would never hear of it.
                let size = self.hosts.of.len().max(1) as Rank;
                peers.push((self.rank + 1) % size);
                // There is such a rank.
                let _ = self.add(peers[0]);
            }
            for peer in peers {
                self.fails(peer, failure);
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
            None => debug_assert!(false, "a completion of nothing"),
        }
    }

    /// Nothing more comes into a buffer: it is posted again.
    #[inline(never)]
    fn received_into(&mut self, slot: u32, buffer: u32) {
        self.slots.give(slot);
        self.unposted.push(buffer);
        if let Err(refusal) = self.post_receives() {
            self.breaks(refusal.operation, refusal.error);
        }
    }

    /// An operation of this rank's has ended, well or not.
    #[inline(never)]
    fn ended(
        &mut self,
        slot: u32,
        operation: Operation,
        well: bool,
        handler: &mut impl FragmentHandler,
    ) {
        self.slots.give(slot);
        let mut told = None;
        // It has reached the user's own memory.
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
                told = Some(token);
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
        if let Some(token) = told
            && well
        {
            self.lent_back(peer, token, handler);
        }
    }

    fn is_well(&self, peer: Rank) -> bool {
        let link = self.links.look(peer);
        link.is_none_or(|link| link.failure.is_none())
    }

    /// A frame with bytes of the user's is out.
    fn lent_back(&mut self, peer: Rank, token: u64, handler: &mut impl FragmentHandler) {
        let Some(link) = self.links.get(peer) else {
            return;
        };
        // The one whose frames still go out is the first of the queue.
        if let Some(sending) = link.queue.front_mut().filter(|s| s.token == token) {
            sending.lent -= 1;
            return;
        }
        let Some(at) = link.lent.iter().position(|s| s.token == token) else {
            return;
        };
        let sending = &mut link.lent[at];
        sending.lent -= 1;
        if sending.lent == 0 {
            link.lent.swap_remove(at);
            handler.sent(peer, token);
        }
    }

    /// A completion that is an error.
    #[cold]
    fn complete_failure(&mut self, handler: &mut impl FragmentHandler) {
        let mut entry = fi_cq_err_entry::default();
        // SAFETY: the queue is open.
        let count = unsafe { fi_cq_readerr(self.objects.cq, &mut entry, 0) };
        if count == AGAIN {
            return;
        }
        if count < 0 {
            self.breaks("fi_cq_readerr", count as i64);
            return;
        }
        self.counters.errors += 1;
        let error = i64::from(entry.err);
        let Some((slot, &operation)) = self.slots.find(entry.op_context) else {
            // Of a frame that was injected, to nobody knows whom: its peer is found to be silent.
            return;
        };
        match operation {
            Operation::Receive(buffer) => {
                // Nobody has cancelled it: the endpoint has been shut down.
                if entry.err == FI_ECANCELED || failure::is_own(error) {
                    self.breaks("fi_recv", error);
                }
                // A buffer for several messages may take others still: of `shm` one that a message was too long for does.
                if !self.multi || entry.flags & FI_MULTI_RECV != 0 {
                    self.received_into(slot, buffer);
                }
            }
            Operation::Frame { peer, .. } | Operation::Pieces { peer, .. } => {
                self.ended(slot, operation, false, handler);
                self.refused(peer, "a send", error);
            }
            Operation::Atomic { peer, .. } => {
                self.ended(slot, operation, false, handler);
                self.refused(peer, "an atomic", error);
            }
            Operation::Direct { peer, .. } => {
                self.ended(slot, operation, false, handler);
                self.refused(peer, "a write or a read", error);
            }
            Operation::Free => {}
        }
    }

    // ---- frames ----------------------------------------------------------------------------------------------------

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
            self.counters.nonsense += 1;
            return;
        }
        // SAFETY: within the buffer (just checked), written by the library, which does not touch these bytes again before the buffer
        // is posted again; that does not happen while this frame is looked at. Nobody else has a reference to them.
        let bytes = unsafe { std::slice::from_raw_parts_mut(begin.add(offset), entry.len) };
        match self.seal {
            None => self.take_frame(bytes, source, handler),
            Some(_) => self.take_sealed(bytes, source, handler),
        }
    }

    /// Nearly all frames are tiny, and the next of a peer that this rank has had to do with of late.
    #[inline(always)]
    fn take_frame(&mut self, bytes: &[u8], source: fi_addr_t, handler: &mut impl FragmentHandler) {
        let takes_unknown = self.takes_unknown;
        if let Some((frame, header, payload)) = Frame::decode_tiny(bytes)
            && frame.job == self.job
            && let Some(link) = self.links.get(frame.rank)
            && link.is_next(frame.number)
            && link.is_from(source, takes_unknown)
        {
            link.liveness.heard();
            link.next_in += 1;
            self.take_tiny(&frame, header, payload, handler);
            return;
        }
        self.take_any_frame(bytes, source, handler);
    }

    /// Takes a frame that has a tag, if it is the right one, and no frame has come with this number.
    #[inline(never)]
    fn take_sealed(
        &mut self,
        bytes: &mut [u8],
        source: fi_addr_t,
        handler: &mut impl FragmentHandler,
    ) {
        let Some(frame) = Frame::read_begin(bytes).filter(|frame| frame.job == self.job) else {
            self.counters.nonsense += 1;
            return;
        };
        let (Some(next), Some(seal)) = (self.links.next_in(frame.rank), &mut self.seal) else {
            self.counters.nonsense += 1;
            return;
        };
        let Some(number) = whole_number(frame.number, next) else {
            self.counters.repeated += 1;
            return;
        };
        if !seal.open(frame.rank, number, bytes, HEADER) {
            self.counters.forged += 1;
            return;
        }
        // It has opened: there is a tag.
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
            self.counters.nonsense += 1;
            return;
        };
        let peer = frame.rank;
        // Another job's.
        if frame.job != self.job {
            self.counters.nonsense += 1;
            return;
        }
        let takes_unknown = self.takes_unknown;
        let Ok(link) = self.open(peer) else {
            // Of a peer that was given up.
            self.counters.nonsense += 1;
            return;
        };
        if !link.is_from(source, takes_unknown) {
            self.counters.strangers += 1;
            return;
        }
        match whole_number(frame.number, link.next_in) {
            Some(number) if number == link.next_in => {}
            Some(number) => {
                self.comes_early(peer, number, bytes);
                return;
            }
            None => {
                self.fails(peer, Failure::Broken("frames out of order"));
                return;
            }
        }
        link.liveness.heard();
        link.next_in += 1;
        let has_early = link.early.is_some();
        match frame.kind {
            Kind::Tiny => self.take_tiny(&frame, header, payload, handler),
            _ => self.look_at(&frame, bytes, header, payload, handler),
        }
        if has_early {
            self.take_early(peer, handler);
        }
    }

    /// Keeps a frame until those before it are there. Of those that take too much room together the peer is given up that has sent most.
    #[cold]
    fn comes_early(&mut self, peer: Rank, number: u64, bytes: &[u8]) {
        let Some(link) = self.links.get(peer) else {
            return;
        };
        let Some(taken) = link.early.get_or_insert_default().keep(number, bytes) else {
            self.counters.repeated += 1;
            return;
        };
        link.liveness.heard();
        self.early += taken;
        if self.early > self.early_room {
            let early = |link: &Link| link.early.as_ref().map_or(0, |early| early.bytes());
            self.give_up_most(
                early,
                "more frames before their time than there is room for",
            );
        }
    }

    /// Gives up the peer of whose frames most is kept.
    #[cold]
    fn give_up_most(&mut self, kept: impl Fn(&Link) -> usize, reason: &'static str) {
        let most = self.links.all().map(|link| (kept(link), link.peer)).max();
        if let Some((_, peer)) = most {
            self.fails(peer, Failure::Broken(reason));
        }
    }

    /// Takes those that had come before their time, as far as it is their turn.
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
                self.look_at(&frame, &bytes, header, payload, handler);
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
        // Its bytes are bounded by the peer's window, so there is room.
        if !handler.fragment(frame.rank, header, payload) {
            self.counters.nonsense += 1;
        }
    }

    #[inline(never)]
    fn look_at(
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
            Kind::Tiny => self.take_tiny(frame, header, payload, handler),
            // The numbers of pings have 32 bits.
            Kind::Ping => self.pong(peer, frame.length as u32),
            Kind::Pong => {
                let settled = |number: u32| (frame.length as u32).wrapping_sub(number) < 1 << 31;
                link.unsettled = link.unsettled.filter(|number| !settled(*number));
            }
            Kind::Whole | Kind::First | Kind::Chunk => {
                let is_next = link.held.is_none();
                if !is_next || !self.take_data(frame, header, payload, handler) {
                    self.hold(frame, payload.len(), bytes, handler.room());
                }
            }
        }
    }

    /// Keeps a frame of the data channel until there is room for it and those before it. A peer that sends more of a fragment than it
    /// has promised is given up, and of those whose frames are more than `room` the one that has sent most.
    #[cold]
    fn hold(&mut self, frame: &Frame, payload: usize, bytes: &[u8], room: usize) {
        let peer = frame.rank;
        let Some(link) = self.links.get(peer) else {
            return;
        };
        let held = link.held.get_or_insert_default();
        let Some(taken) = held.keep(frame, payload, bytes) else {
            self.fails(peer, Failure::Broken("frames out of order"));
            return;
        };
        self.held += taken;
        if self.held > room {
            let held = |link: &Link| link.held.as_ref().map_or(0, |held| held.bytes());
            self.give_up_most(held, "more frames than can be delivered or kept");
        }
    }

    /// Takes a frame of the data channel; false if there is no room now.
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
        // Fits: 64 bits.
        let length = frame.length as usize;
        match (frame.kind, link.arriving) {
            (Kind::Whole, None) => handler.fragment(peer, header, payload),
            (Kind::First, None) if payload.len() < length => {
                let Some(place) = handler.begin(peer, header, length) else {
                    return false;
                };
                handler.place(place, 0, payload);
                link.arriving = NonZeroUsize::new(length - payload.len()).map(|left| Arriving {
                    place,
                    next: payload.len(),
                    left,
                });
                true
            }
            (Kind::Chunk, Some(arriving)) if payload.len() <= arriving.left.get() => {
                let Arriving { place, next, left } = arriving;
                handler.place(place, next, payload);
                link.arriving =
                    NonZeroUsize::new(left.get() - payload.len()).map(|left| Arriving {
                        place,
                        next: next + payload.len(),
                        left,
                    });
                if link.arriving.is_none() {
                    handler.end(place);
                }
                true
            }
            _ => {
                self.fails(peer, Failure::Broken("frames out of order"));
                true
            }
        }
    }

    /// Takes what was held for want of room.
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
