//! Connections over libfabric's connected endpoints (`FI_EP_MSG`), which a rank has beside an
//! [`OfiEndpoint`]. `conduit-portals` uses them as lanes ([`Connect`]).
//!
//! A rank has a passive endpoint, whose address all ranks learn at job start. The initiator of a
//! connection sends a CONNECT frame with its request, and receives a CONNECT frame with the answer.
//! The frame contains the rank, the job, the connection's number, and the number of the first
//! frame. Requests without a correct CONNECT frame are refused. If the job seals frames, CONNECT
//! frames and all frames of the connection are sealed, too.
//!
//! Frames have the wire's format and arrive in the order in which they were sent. They are kept in
//! the receive buffers until the layer above takes them, so a sender has one credit per buffer. The
//! receiver reports taken frames when half of the credits are used. If a peer asks for reports,
//! because it wants to leave or to end the connection, it gets them without delay.
//!
//! If a connection ends before the peer has reported all frames as taken, data are lost, and this
//! rank gives up the peer. A silent peer is detected by the wire, whose pings the peer must answer.

mod end;
mod endpoints;
mod send;
#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::time::Duration;

use conduit_core::ni::Rank;
use conduit_portals::forward_transport;
use conduit_portals::transport::fragment::{Failure, Fragment, FragmentHandler, Refused};
use conduit_portals::transport::{CHANNELS, Connect, PortalsCounters, Transport, Wait};
use libfabric_sys::{
    FI_ADDR_UNSPEC, FI_EAGAIN, FI_EAVAIL, FI_RECV, FI_SEND, fi_cq_data_entry, fi_cq_err_entry,
    fi_cq_read, fi_cq_readerr, fi_recv, fid_ep,
};
use seal::{Seal, TAG};

use crate::provider::Offer;
use crate::wire::buffers::Buffers;
use crate::wire::frame::{Frame, FrameKind, HEADER, LONG_HEADER};
use crate::wire::objects::Refusal;
use crate::wire::slots::{Operation, Slots};
use crate::wire::wait::Waiter;

use super::BATCH;
use super::receive::deliver;
use super::scope::Scope;
use super::send::seal_frame;
use super::{Addresses, OfiEndpoint, SMALL};
use end::{CREDITS, End, RECEIVES, Stage};
use endpoints::{Data, Endpoints, Event, MOST_DATA, Request};

/// The bit that marks the numbers with which frames of a connection are sealed. Numbers with
/// neither this bit nor `CONNECT` are the wire's.
const CONNECTED: u64 = 1 << 63;
/// The bit that marks the numbers with which CONNECT frames are sealed.
const CONNECT: u64 = 1 << 62;
/// The length of a CONNECT frame without its tag. The number of the first frame follows the header.
const GREETING: usize = LONG_HEADER + 8;
const _: () = assert!(GREETING + TAG <= MOST_DATA);
/// The number of small send buffers.
const SMALL_BUFFERS: u32 = 128;
/// The number of large send buffers.
const LARGE_BUFFERS: u32 = 32;
/// The number of receives between checks for events if no events are expected.
const EVENTS: u32 = 64;
/// The longest sleep while a frame or a receive waits for room in the library, or while the library
/// has no means to wake this rank.
const RETRY: Duration = Duration::from_millis(1);

/// The listening side of a rank, before the rank knows the other ranks.
pub struct Listening {
    endpoints: Endpoints,
    connections: u16,
}

impl Listening {
    /// Starts to listen on the device of this offer.
    pub(crate) fn open(offer: &Offer, connections: u16) -> Result<Self, Refusal> {
        let refused = |error: i32| Refusal {
            operation: "connected endpoints (setting CONDUIT_OFI_CONNECTIONS)",
            error: -i64::from(error),
            bytes: 0,
        };
        let connected = offer.connected();
        let connected = connected.ok_or(refused(libfabric_sys::FI_EOPNOTSUPP))?;
        let endpoints = Endpoints::open(connected)?;
        if endpoints.data_size().is_some_and(|size| size < MOST_DATA) {
            return Err(refused(libfabric_sys::FI_ETOOSMALL));
        }
        Ok(Self {
            endpoints,
            connections,
        })
    }

    /// Returns the address at which peers request connections.
    pub(crate) fn address(&self) -> Result<Vec<u8>, Refusal> {
        self.endpoints.address()
    }
}

/// Counters of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ConnectionCounters {
    /// The number of connections that were established.
    pub made: u64,
    /// The number of connections requested by this rank that were not established.
    pub failed: u64,
    /// The number of requests refused because they did not come from an expected peer.
    pub strangers: u64,
    /// The number of frames sent.
    pub frames: u64,
    /// The number of frames received.
    pub received: u64,
    /// The number of frames that were malformed, of another job or without a valid tag. Each such
    /// frame ends its connection.
    pub malformed: u64,
}

/// An [`OfiEndpoint`] with connections. See the [module](self).
pub struct Connected {
    // The endpoints are declared before the buffers, so that they are closed first. Until then,
    // they may access the buffers.
    endpoints: Endpoints,
    receives: Buffers,
    small: Buffers,
    large: Buffers,
    slots: Slots,
    wire: OfiEndpoint,
    /// The addresses of the passive endpoints.
    addresses: Addresses,
    ends: Box<[Option<End>]>,
    /// The number of the next frame to each peer with which there was a connection.
    numbers: BTreeMap<Rank, u64>,
    /// The maximum length of a frame with its tag.
    frame: usize,
    /// The maximum length of an injected frame.
    inject: usize,
    /// The number of receives until the next check for events.
    until_events: Cell<u32>,
    /// Whether the library's queues have failed. After that, there are no connections.
    is_broken: bool,
    waiter: Arc<Waiter>,
    can_wake: bool,
    counters: ConnectionCounters,
}

impl Connected {
    pub(crate) fn new(
        wire: OfiEndpoint,
        listening: Listening,
        addresses: Addresses,
    ) -> Result<Self, Refusal> {
        let Listening {
            mut endpoints,
            connections,
        } = listening;
        let objects = &mut endpoints.objects;
        let limits = objects.offer.limits();
        let frame = wire.frame.min(limits.max_message) & !63;
        let count = u32::from(connections) * RECEIVES;
        let receives = Buffers::new(objects, count, frame, FI_RECV)?;
        let small = Buffers::new(objects, SMALL_BUFFERS, SMALL.min(frame), FI_SEND)?;
        let large = Buffers::new(objects, LARGE_BUFFERS, frame, FI_SEND)?;
        let found = [&wire.objects.descriptors[..], &objects.descriptors[..]];
        let mut descriptors = found.concat();
        let can_wake = !objects.descriptors.is_empty() && endpoints.descriptor.is_some();
        descriptors.extend(endpoints.descriptor);
        if wire.objects.descriptors.is_empty() {
            // The wire must be polled, so sleeping on descriptors is not possible.
            descriptors.clear();
        }
        Ok(Self {
            endpoints,
            receives,
            small,
            large,
            slots: Slots::new(count + SMALL_BUFFERS + LARGE_BUFFERS),
            wire,
            addresses,
            ends: (0..connections).map(|_| None).collect(),
            numbers: BTreeMap::new(),
            frame,
            inject: limits.inject,
            until_events: Cell::new(0),
            is_broken: false,
            waiter: Arc::new(Waiter::new(&descriptors)),
            can_wake,
            counters: ConnectionCounters::default(),
        })
    }

    /// Returns the current counters.
    pub fn counters(&self) -> ConnectionCounters {
        self.counters
    }

    /// Returns the wire.
    pub fn wire(&self) -> &OfiEndpoint {
        &self.wire
    }

    /// Returns [`OfiEndpoint::report`] with an additional line for connections.
    pub fn report(&self, portals: &PortalsCounters, rank: Rank) -> String {
        let mut text = self.wire.report(portals, rank);
        let ConnectionCounters {
            made,
            failed,
            strangers,
            frames,
            received,
            malformed,
        } = self.counters;
        let _ = writeln!(
            text,
            "rank {rank}: connections: made {made} failed {failed} strangers {strangers} frames {frames} received {received} malformed {malformed}"
        );
        text
    }

    fn place(&self, peer: Rank) -> Option<usize> {
        let mut ends = self.ends.iter();
        ends.position(|end| end.as_ref().is_some_and(|end| end.peer == peer))
    }

    fn of(&mut self, ep: *mut fid_ep) -> Option<usize> {
        let mut ends = self.ends.iter();
        ends.position(|end| end.as_ref().is_some_and(|end| end.ep == Some(ep)))
    }

    fn add(&mut self, peer: Rank, number: u32, stage: Stage) -> Option<usize> {
        let place = self.ends.iter().position(Option::is_none)?;
        let next = self.numbers.get(&peer).copied().unwrap_or(0);
        self.ends[place] = Some(End::new(peer, number, stage, next));
        Some(place)
    }

    // ---- start of a connection ------------------------------------------------------------------

    /// Returns the CONNECT frame to a peer, and its length.
    fn greeting(&mut self, peer: Rank, number: u32, first: u64) -> (Data, usize) {
        let (rank, job) = self.wire.scope.names(&());
        let frame = Frame {
            kind: FrameKind::Connect,
            header: 0,
            // The cast keeps the lower bits, which suffice here because `length` holds the whole
            // number.
            number: number as u16,
            rank,
            job,
            length: number.into(),
        };
        let mut bytes = [0; MOST_DATA];
        frame.write(&mut bytes);
        bytes[LONG_HEADER..GREETING].copy_from_slice(&first.to_le_bytes());
        let length = GREETING + self.wire.tag;
        if let Some(seal) = &mut self.wire.seal {
            let number = CONNECT | u64::from(number);
            seal_frame(&mut **seal, peer, number, &mut bytes[..length]);
        }
        (bytes, length)
    }

    /// Returns the number of the peer's first frame, if `bytes` begins with the peer's CONNECT
    /// frame for this connection. Providers may append zeros to the frame.
    fn greeted(&mut self, peer: Rank, number: u32, bytes: &mut [u8]) -> Option<u64> {
        let bytes = bytes.get_mut(..GREETING + self.wire.tag)?;
        if let Some(seal) = &mut self.wire.seal
            && !seal.open(peer, CONNECT | u64::from(number), bytes, HEADER)
        {
            return None;
        }
        let (frame, _, first) = Frame::decode(&bytes[..GREETING])?;
        let is_right = frame.kind == FrameKind::Connect
            && frame.header == 0
            && frame.rank == peer
            && self.wire.scope.is_job(frame.job)
            // The cast keeps the lower bits, as in `greeting`.
            && frame.number == number as u16
            && frame.length == u64::from(number);
        let first = u64::from_le_bytes(first.try_into().ok()?);
        (is_right && first < CONNECT).then_some(first)
    }

    /// Posts all receives of an end whose endpoint is open.
    fn post_all(&mut self, place: usize) {
        // The cast is lossless, because there are few places.
        let first = place as u32 * RECEIVES;
        for buffer in first..first + RECEIVES {
            self.post(place, buffer);
        }
    }

    fn post(&mut self, place: usize, buffer: u32) {
        let Some(end) = &mut self.ends[place] else {
            return;
        };
        let Some(ep) = end.ep else {
            return;
        };
        let Some((slot, context)) = self.slots.take(Operation::Receive(buffer)) else {
            return end.unposted.push(buffer);
        };
        // SAFETY: the endpoint is open. The library uses the buffer until the completion, or until
        // the endpoint is closed, and `receives` outlives the endpoint.
        let result = unsafe {
            fi_recv(
                ep,
                self.receives.place(buffer).cast(),
                self.receives.size(),
                self.receives.descriptor,
                FI_ADDR_UNSPEC,
                context,
            )
        };
        if result != 0 {
            self.slots.give(slot);
            end.unposted.push(buffer);
        }
    }

    /// Requests a connection from the peer of this end.
    fn ask(&mut self, place: usize) -> Result<(), Refusal> {
        let Some((peer, number, next)) = self.ends[place]
            .as_ref()
            .map(|end| (end.peer, end.number, end.next_out))
        else {
            return Ok(());
        };
        let unknown = Refusal {
            operation: "an address",
            error: -i64::from(libfabric_sys::FI_EINVAL),
            bytes: 0,
        };
        let address = self.addresses.of(peer).ok_or(unknown)?;
        let ep = self.endpoints.towards(address)?;
        if let Some(end) = &mut self.ends[place] {
            end.ep = Some(ep);
        }
        self.post_all(place);
        let (greeting, length) = self.greeting(peer, number, next);
        let address = self.addresses.of(peer).ok_or(unknown)?;
        self.endpoints.connect(ep, address, &greeting[..length])
    }

    /// Handles a request for a connection. Grants the request only to an expected peer that proves
    /// its identity.
    fn on_request(&mut self, request: Request, bytes: &mut [u8]) {
        let frame = Frame::read_begin(bytes);
        let expected = frame.and_then(|frame| {
            let place = self.place(frame.rank)?;
            let end = self.ends[place].as_ref()?;
            (end.stage == Stage::Expected).then_some((place, end.peer, end.number, end.next_out))
        });
        let greeted = expected.and_then(|(place, peer, number, next)| {
            let first = self.greeted(peer, number, bytes)?;
            Some((place, peer, number, next, first))
        });
        let Some((place, peer, number, next, first)) = greeted else {
            self.counters.strangers += 1;
            return self.endpoints.refuse(request);
        };
        let Ok(ep) = self.endpoints.grant(request) else {
            return self.over(place);
        };
        if let Some(end) = &mut self.ends[place] {
            end.ep = Some(ep);
            end.next_in = first;
            end.stage = Stage::Accepted;
        }
        self.post_all(place);
        let (greeting, length) = self.greeting(peer, number, next);
        if self.endpoints.accept(ep, &greeting[..length]).is_err() {
            self.over(place);
        }
    }

    fn on_connected(&mut self, ep: *mut fid_ep, bytes: &mut [u8]) {
        let Some(place) = self.of(ep) else {
            return;
        };
        let Some((peer, number, stage)) = self.ends[place]
            .as_ref()
            .map(|end| (end.peer, end.number, end.stage))
        else {
            return;
        };
        let first = match stage {
            Stage::Asked(_) => self.greeted(peer, number, bytes),
            _ => None,
        };
        let Some(end) = &mut self.ends[place] else {
            return;
        };
        match (stage, first) {
            (Stage::Accepted, _) => end.stage = Stage::Up,
            (Stage::Asked(_), Some(first)) => {
                end.stage = Stage::Up;
                end.next_in = first;
            }
            // The answer did not come from the peer to which the request was sent.
            (Stage::Asked(_), None) => return self.over(place),
            _ => return,
        }
        self.counters.made += 1;
    }

    /// Marks a connection as over, so that no more frames are sent on it.
    fn over(&mut self, place: usize) {
        if let Some(end) = &mut self.ends[place] {
            end.stage = match end.stage {
                Stage::Up | Stage::Gone => Stage::Gone,
                _ => Stage::Failed,
            };
        }
    }

    /// Handles the events of connections.
    #[cold]
    fn look(&mut self) {
        self.until_events.set(EVENTS);
        // The loop is bounded, because attackers may cause any number of events.
        for _ in 0..EVENTS {
            if self.is_broken {
                return;
            }
            match self.endpoints.event() {
                Ok(None) => return,
                Ok(Some(Event::Request(request, mut bytes, length))) => {
                    self.on_request(request, &mut bytes[..length]);
                }
                Ok(Some(Event::Connected(ep, mut bytes, length))) => {
                    self.on_connected(ep, &mut bytes[..length]);
                }
                Ok(Some(Event::Ended(ep))) => {
                    // Frames that arrived before the end are still handled, because a leaving rank
                    // announces its exit in its last frame.
                    while self.poll() {}
                    if let Some(place) = self.of(ep) {
                        self.over(place);
                    }
                }
                Err(_) => self.break_all(),
            }
        }
    }

    #[cold]
    fn break_all(&mut self) {
        self.is_broken = true;
        (0..self.ends.len()).for_each(|place| self.over(place));
    }

    /// Closes the endpoint of an end, and frees the resources of its operations in flight.
    fn close(&mut self, place: usize) {
        let Some(ep) = self.ends[place].as_mut().and_then(|end| end.ep.take()) else {
            return;
        };
        self.endpoints.close(ep);
        // Collect the remaining completions.
        while self.poll() {}
        let Self {
            slots,
            small,
            large,
            ends,
            ..
        } = self;
        slots.reclaim(|operation| match *operation {
            Operation::Receive(buffer) => (buffer / RECEIVES) as usize == place,
            Operation::Frame {
                peer,
                large: is_large,
                buffer,
            } if peer as usize == place => {
                match is_large {
                    true => large.give(buffer),
                    false => small.give(buffer),
                }
                true
            }
            _ => false,
        });
        if let Some(end) = &mut ends[place] {
            end.pending = 0;
        }
    }

    // ---- arrivals -------------------------------------------------------------------------------

    /// Reads completions. Returns whether there were any completions.
    fn poll(&mut self) -> bool {
        const AGAIN: isize = -(FI_EAGAIN as isize);
        const FAILED: isize = -(FI_EAVAIL as isize);
        if self.is_broken {
            return false;
        }
        let mut entries = [const { MaybeUninit::<fi_cq_data_entry>::uninit() }; BATCH];
        // SAFETY: the queue is open, and `entries` has its format and room for `BATCH` entries.
        let count = unsafe {
            fi_cq_read(
                self.endpoints.objects.cq,
                entries.as_mut_ptr().cast(),
                BATCH,
            )
        };
        match count {
            0 | AGAIN => return false,
            FAILED => {
                let mut entry = fi_cq_err_entry::default();
                // SAFETY: the queue is open, and `entry` is valid for writes.
                let count = unsafe { fi_cq_readerr(self.endpoints.objects.cq, &mut entry, 0) };
                if count > 0 {
                    self.completed(entry.op_context, None);
                }
                return count > 0;
            }
            error if error < 0 => {
                self.break_all();
                return false;
            }
            _ => {}
        }
        for entry in entries.iter().take(count.unsigned_abs()) {
            // SAFETY: the library has initialised the first `count` entries.
            let entry = unsafe { entry.assume_init_ref() };
            self.completed(entry.op_context, Some(entry));
        }
        true
    }

    /// Handles the end of an operation. If `entry` is `None`, the operation failed.
    fn completed(&mut self, context: *mut std::ffi::c_void, entry: Option<&fi_cq_data_entry>) {
        let Some((slot, &operation)) = self.slots.find(context) else {
            return;
        };
        self.slots.give(slot);
        match operation {
            Operation::Receive(buffer) => {
                let place = (buffer / RECEIVES) as usize;
                match entry {
                    Some(entry) => self.arrived(place, buffer, entry.len),
                    None => self.over(place),
                }
            }
            Operation::Frame {
                peer,
                large,
                buffer,
            } => {
                match large {
                    true => self.large.give(buffer),
                    false => self.small.give(buffer),
                }
                let place = peer as usize;
                if let Some(end) = &mut self.ends[place] {
                    end.pending = end.pending.saturating_sub(1);
                }
                if entry.is_none() {
                    self.over(place);
                }
            }
            _ => {}
        }
    }

    /// Handles a frame that has arrived.
    fn arrived(&mut self, place: usize, buffer: u32, length: usize) {
        let is_well = self.sort(place, buffer, length);
        match is_well {
            Some(true) => self.post(place, buffer),
            Some(false) => {}
            None => {
                self.counters.malformed += 1;
                self.over(place);
            }
        }
    }

    /// Sorts a frame by its kind. Returns `Some(true)` if the frame's buffer is free again, and
    /// `None` if the peer must not send this frame.
    fn sort(&mut self, place: usize, buffer: u32, length: usize) -> Option<bool> {
        let end = self.ends[place].as_mut()?;
        if !matches!(end.stage, Stage::Up | Stage::Accepted) {
            return Some(false);
        }
        self.counters.received += 1;
        let bytes = self.receives.bytes(buffer).get_mut(..length)?;
        let frame = Frame::read_begin(bytes)?;
        let is_next = frame.rank == end.peer
            && self.wire.scope.is_job(frame.job)
            // The cast keeps the lower bits, which are the ones transmitted.
            && frame.number == end.next_in as u16;
        if !is_next {
            return None;
        }
        let mut length = length;
        if let Some(seal) = &mut self.wire.seal {
            if !seal.open(end.peer, CONNECTED | end.next_in, bytes, HEADER) {
                return None;
            }
            length -= TAG;
        }
        let (frame, _, _) = Frame::decode(&bytes[..length])?;
        end.next_in += 1;
        let channel = match frame.kind {
            FrameKind::Tiny => 0,
            FrameKind::Whole | FrameKind::First | FrameKind::Chunk => 1,
            FrameKind::Taken => {
                let taken = end::Taken::decode(frame.length)?;
                return end.on_taken(taken).then_some(true);
            }
            FrameKind::Ask => {
                end.is_asked = true;
                return Some(true);
            }
            FrameKind::Ping | FrameKind::Pong | FrameKind::Bye | FrameKind::Connect => return None,
        };
        let arrived = &mut end.arrived[channel];
        if arrived.len() >= usize::from(CREDITS[channel]) {
            return None;
        }
        arrived.push_back((buffer, length));
        Some(false)
    }

    /// Closes connections that have ended, gives up peers whose connection lost data, and retries
    /// operations that waited for room.
    fn tend(&mut self) {
        for place in 0..self.ends.len() {
            let Some(end) = &mut self.ends[place] else {
                continue;
            };
            match end.stage {
                Stage::Up => {
                    for buffer in std::mem::take(&mut end.unposted) {
                        self.post(place, buffer);
                    }
                    self.say(place);
                }
                Stage::Gone | Stage::Failed => {
                    let has_lost = end.left.iter().any(|left| *left > 0);
                    let has_come = end.arrived.iter().any(|arrived| !arrived.is_empty());
                    let peer = end.peer;
                    if end.ep.is_some() {
                        self.close(place);
                    } else if has_lost && !has_come {
                        self.lose(peer);
                    }
                }
                _ => {}
            }
        }
    }

    #[cold]
    fn lose(&mut self, peer: Rank) {
        let ended = "the connection ended and frames in flight were lost";
        self.fail(peer, Failure::Network(ended));
    }

    /// Gives up a peer. The wire's link to the peer may be idle.
    #[cold]
    fn fail(&mut self, peer: Rank, failure: Failure) {
        if self.wire.place(peer).is_ok() {
            self.wire.fail_peer(peer, failure);
        }
    }
}

impl Connect for Connected {
    fn connections(&self) -> u16 {
        // The cast is lossless, because the setting has 16 bits.
        self.ends.len() as u16
    }

    fn expect(&mut self, peer: Rank, number: u32) {
        self.add(peer, number, Stage::Expected);
    }

    fn connect(&mut self, peer: Rank, number: u32) {
        let until = self.wire.now() + self.wire.dead_time / 2;
        if let Some(place) = self.add(peer, number, Stage::Asked(until))
            && (self.is_broken || self.ask(place).is_err())
        {
            self.over(place);
        }
    }

    fn made(&mut self, peer: Rank) -> Option<bool> {
        let place = self.place(peer);
        let stage = place.and_then(|place| self.ends[place].as_ref().map(|end| end.stage));
        let is_made = match stage {
            Some(Stage::Asked(until)) if self.wire.now() < until => return None,
            Some(Stage::Up) => true,
            _ => false,
        };
        self.counters.failed += u64::from(!is_made);
        Some(is_made)
    }

    fn disconnect(&mut self, peer: Rank) {
        if let Some(place) = self.place(peer) {
            self.close(place);
            if let Some(end) = self.ends[place].take() {
                self.numbers.insert(peer, end.next_out);
            }
        }
    }

    fn send_connected(&mut self, peer: Rank, fragment: &Fragment<'_>) -> Result<(), Refused> {
        self.send_by(peer, fragment)
    }

    fn receive_connected(
        &mut self,
        peer: Rank,
        channel: usize,
        handler: &mut impl FragmentHandler,
    ) -> bool {
        let Some(place) = self.place(peer) else {
            return false;
        };
        let mut any = false;
        while let Some(end) = &mut self.ends[place]
            && let Some(&(buffer, length)) = end.arrived[channel].front()
        {
            let bytes = &self.receives.bytes(buffer)[..length];
            let taken = Frame::decode(bytes).and_then(|(frame, header, payload)| match channel {
                0 => Some(handler.fragment(peer, header, payload)),
                _ => deliver(&mut end.arriving, &frame, header, payload, handler),
            });
            match taken {
                Some(true) => {}
                Some(false) => break,
                None => {
                    self.give_up(peer, Failure::Broken("frames out of order"), handler);
                    break;
                }
            }
            end.arrived[channel].pop_front();
            end.owed.frames[channel] += 1;
            end.owed.fragments += u16::from(channel == 1 && end.arriving.is_none());
            self.post(place, buffer);
            any = true;
        }
        if any {
            if let Some(link) = self.wire.links.get(peer) {
                link.liveness.heard();
            }
            self.say(place);
        }
        any
    }

    fn leave(&mut self, peer: Rank) {
        let place = self.place(peer);
        if let Some(end) = place.and_then(|place| self.ends[place].as_mut())
            && !end.asks
        {
            (end.asks, end.to_ask) = (true, true);
        }
    }

    fn taken(&mut self, peer: Rank) -> [u32; CHANNELS] {
        let place = self.place(peer);
        let end = place.and_then(|place| self.ends[place].as_mut());
        end.map_or([0; CHANNELS], |end| std::mem::take(&mut end.taken))
    }

    fn give_up(&mut self, peer: Rank, failure: Failure, handler: &mut impl FragmentHandler) {
        self.fail(peer, failure);
        self.wire.report_failures(handler);
    }
}

impl Transport for Connected {
    const AT_ONCE: bool = true;

    forward_transport!(wire in [Self { wire, .. }]:
        send, describe, has_direct, expose, write, read, has_atomic, atomic);

    fn receive(&mut self, handler: &mut impl FragmentHandler) -> bool {
        let mut ends = self.ends.iter().flatten();
        let is_changing = ends.any(|end| end.stage != Stage::Up);
        let is_used = self.ends.iter().any(Option::is_some);
        let until = self.until_events.get();
        if is_changing || until == 0 {
            self.look();
        } else {
            self.until_events.set(until - 1);
        }
        let mut any = false;
        if is_used {
            any = self.poll();
            self.tend();
        }
        self.wire.receive(handler) | any
    }

    fn transmit(&mut self, handler: &mut impl FragmentHandler) {
        for place in 0..self.ends.len() {
            self.send_queued_by(place, handler);
        }
        self.wire.transmit(handler);
    }

    fn outstanding(&self, peer: Rank) -> usize {
        let place = self.place(peer);
        let end = place.and_then(|place| self.ends[place].as_ref());
        self.wire.outstanding(peer) + end.map_or(0, End::outstanding)
    }

    fn settle(&mut self, peer: Rank) {
        self.leave(peer);
        // The peer may be waiting for a report, too.
        if let Some(place) = self.place(peer)
            && let Some(end) = &mut self.ends[place]
        {
            end.is_asked = true;
            self.say(place);
        }
        self.wire.settle(peer);
    }

    fn timeout(&self) -> Option<Duration> {
        // The caller may sleep, so the next receive checks for events.
        self.until_events.set(0);
        let timeout = self.wire.timeout();
        if !self.is_broken && !self.endpoints.may_wait() {
            return Some(Duration::ZERO);
        }
        let waits = |end: &End| {
            let is_sending = !end.queue.is_empty() && end.credit[1] > 0;
            matches!(end.stage, Stage::Asked(_))
                || end.ep.is_some() && matches!(end.stage, Stage::Gone | Stage::Failed)
                || is_sending
                || end.to_ask
                || !end.unposted.is_empty()
                || end.owed.is_due(end.is_asked)
        };
        let is_waiting = !self.can_wake || self.ends.iter().flatten().any(waits);
        match is_waiting {
            true => Some(timeout.map_or(RETRY, |timeout| timeout.min(RETRY))),
            false => timeout,
        }
    }

    fn waiter(&self) -> Arc<dyn Wait> {
        let waiter: Arc<Waiter> = Arc::clone(&self.waiter);
        waiter
    }

    fn abandon(&mut self, peers: &[Rank], handler: &mut impl FragmentHandler) {
        for &peer in peers {
            if let Some(place) = self.place(peer)
                && let Some(end) = &mut self.ends[place]
            {
                end.abandon();
            }
        }
        self.wire.abandon(peers, handler);
    }
}

impl std::fmt::Debug for Listening {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listening")
            .field("connections", &self.connections)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Connected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connected")
            .field("wire", &self.wire)
            .field("ends", &self.ends)
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}
