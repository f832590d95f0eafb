//! One rank's end: a [`Transport`] of fragments over an endpoint of libfabric.
//!
//! Every fragment goes in frames (`frame`), each one message of libfabric: tiny ones at once, from a buffer or injected;
//! others from where they lie, as many bytes as a frame holds, as there is room. What libfabric refuses for now (`FI_EAGAIN`) is refused
//! here, or stays in the link's queue. Receives are posted for messages of anybody: buffers that take one message after the other
//! (`FI_MULTI_RECV`) where the provider can, so what they cost does not grow with the job.

mod atomic;
mod direct;
#[cfg(test)]
mod intruder;
mod receive;
mod send;

use std::cell::Cell;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use conduit_core::ni::{AtomicOp, AtomicType, Rank};
use conduit_portals::transport::fragment::{Failure, Fragment, FragmentHandler, Payload, Refused};
use conduit_portals::transport::{NativeAtomic, PortalsCounters, Transport, Wait};
use libfabric_sys::{FI_ADDR_UNSPEC, FI_READ, FI_RECV, FI_SEND, FI_WRITE, fi_addr_t};
use seal::{Sealer, TAG};

use crate::buffers::Buffers;
use crate::failure;
use crate::link::{Link, Links};
use crate::liveness::{LOOKS, Nanos, Verdict};
use crate::objects::{Objects, Refusal, Registered};
use crate::slots::Slots;
use crate::wait::Waiter;

use atomic::Atomics;

/// Sizes of a [`Wire`]. What they cost does not grow with the job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WireConfig {
    /// Bytes of the largest frame.
    pub frame: usize,
    /// Buffers for frames of at most 1 KiB, and for larger ones.
    pub small: u32,
    /// Buffers for larger ones.
    pub large: u32,
    /// Buffers that messages are received into.
    pub receives: u32,
    /// Bytes of each, where one takes several messages.
    pub receive_bytes: usize,
    /// Direct accesses under way at most.
    pub direct: u32,
    /// A peer that owes an answer and is silent for so long is dead.
    pub dead_time: Duration,
}

impl Default for WireConfig {
    fn default() -> Self {
        Self {
            // What `ofi_rxm` sends at once, without asking the peer first.
            frame: 16 << 10,
            small: 512,
            large: 64,
            receives: 8,
            receive_bytes: 256 << 10,
            direct: 1024,
            dead_time: Duration::from_secs(30),
        }
    }
}

impl WireConfig {
    /// The same with every size inside its bounds.
    pub(crate) fn bounded(mut self) -> Self {
        self.frame = self.frame.clamp(2 << 10, 1 << 20).next_multiple_of(64);
        self.small = self.small.clamp(8, 1 << 16);
        self.large = self.large.clamp(2, 1 << 12);
        self.receives = self.receives.clamp(2, 1 << 12);
        self.receive_bytes = self.receive_bytes.max(4 * self.frame).next_multiple_of(64);
        self.direct = self.direct.clamp(8, 1 << 16);
        self.dead_time = self.dead_time.max(Duration::from_millis(100));
        self
    }
}

/// Bytes of a small buffer: a tiny fragment in its frame.
pub(crate) const SMALL: usize = 1 << 10;
const _: () =
    assert!(crate::frame::HEADER + conduit_portals::transport::fragment::MAX_TINY + TAG <= SMALL);

/// In a job of so many ranks at most all addresses are made known to a provider that tells where messages come from, so that it knows
/// them from the first message on. A larger one would take much memory for ranks that are never met (see `docs/ofi.md`).
const ALL_KNOWN: u32 = 1 << 14;

/// What a wire has counted since its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WireCounters {
    /// Frames sent.
    pub frames: u64,
    /// Of them those whose bytes the library has copied before the call returned.
    pub injected: u64,
    /// Of them those sent from the user's memory.
    pub lent: u64,
    /// Frames received.
    pub received: u64,
    /// Of them those that were of another job or made no sense.
    pub nonsense: u64,
    /// Of them those that did not come from their rank's endpoint.
    pub strangers: u64,
    /// Of them those whose tag was wrong.
    pub forged: u64,
    /// Of them those that had come before.
    pub repeated: u64,
    /// Calls that the library has answered with "try again".
    pub again: u64,
    /// Operations that have failed.
    pub errors: u64,
    /// Direct writes.
    pub writes: u64,
    /// Direct reads.
    pub reads: u64,
    /// Atomics that the provider does.
    pub atomics: u64,
    /// Direct accesses that went by message, as their own memory could not be registered.
    pub unregistered: u64,
}

impl WireCounters {
    /// Each with its name.
    pub fn each(&self) -> [(&'static str, u64); 14] {
        [
            ("frames", self.frames),
            ("injected", self.injected),
            ("lent", self.lent),
            ("received", self.received),
            ("nonsense", self.nonsense),
            ("strangers", self.strangers),
            ("forged", self.forged),
            ("repeated", self.repeated),
            ("again", self.again),
            ("errors", self.errors),
            ("writes", self.writes),
            ("reads", self.reads),
            ("atomics", self.atomics),
            ("unregistered", self.unregistered),
        ]
    }
}

/// The addresses of all ranks' endpoints, each in as many bytes.
#[derive(Debug)]
pub(crate) struct Addresses {
    pub(crate) bytes: Box<[u8]>,
    pub(crate) each: usize,
}

impl Addresses {
    fn of(&self, rank: Rank) -> Option<&[u8]> {
        let begin = (rank as usize).checked_mul(self.each)?;
        self.bytes.get(begin..begin.checked_add(self.each)?)
    }
}

/// All hosts' names.
#[derive(Debug, Default)]
pub(crate) struct Hosts {
    /// By rank: the number of its host's name.
    pub(crate) of: Box<[u32]>,
    pub(crate) names: Vec<String>,
}

impl Hosts {
    fn name(&self, rank: Rank) -> Option<&str> {
        let number = *self.of.get(rank as usize)?;
        self.names.get(number as usize).map(String::as_str)
    }
}

/// See the module.
pub struct Wire {
    // Before the buffers, which it may reach until it is closed.
    objects: Objects,
    small: Buffers,
    large: Buffers,
    receives: Buffers,
    /// A receive takes several messages.
    multi: bool,
    /// Receive buffers that the library has refused for now.
    unposted: Vec<u32>,
    /// Bytes of the frames held for want of room, of all links.
    held: usize,
    /// Bytes that frames may take that are there before others, and those that they do, of all links.
    early_room: usize,
    early: usize,
    slots: Slots,
    links: Links,
    addresses: Addresses,
    hosts: Hosts,
    rank: Rank,
    /// The job's number.
    job: u64,
    /// What frames are sealed with, if they are.
    seal: Option<Box<Sealer>>,
    /// Where the messages of one read of the queue have come from, if the provider tells.
    sources: Option<Box<Sources>>,
    /// A frame is taken also if nobody says where it has come from.
    takes_unknown: bool,
    /// Bytes of the largest frame with its tag, and of the largest that is injected.
    frame: usize,
    inject: usize,
    /// Bytes of a frame's tag.
    tag: usize,
    /// Pieces that a message can be sent from.
    pieces: bool,
    /// The last ping's number, whoever it went to.
    pings: u32,
    /// Links with something to go out.
    outgoing: Vec<Rank>,
    /// Links that have failed, and whose user does not know yet.
    failures: Vec<(Rank, Failure)>,
    /// Until when direct accesses to those may end by themselves.
    grace: Option<Nanos>,
    /// Own memory that peers can reach, with its first byte and length.
    exposed: Vec<(usize, usize, Registered)>,
    /// Those that the provider does.
    atomics: Atomics,
    /// Why nobody can be reached any more.
    broken: Option<Failure>,
    dead_time: Nanos,
    start: Instant,
    next_look: Nanos,
    /// Receives until the clock is looked at, and receives in a row that have found nothing.
    unclocked: Cell<u32>,
    idle: u32,
    waiter: Arc<Waiter>,
    counters: WireCounters,
}

/// What a wire is made of.
pub(crate) struct Parts {
    pub(crate) objects: Objects,
    pub(crate) rank: Rank,
    pub(crate) addresses: Addresses,
    pub(crate) hosts: Hosts,
    pub(crate) job: u64,
    pub(crate) seal: Option<Sealer>,
    /// Bytes for what has arrived and can't be delivered yet.
    pub(crate) arrival_bytes: usize,
}

/// Where so many messages have come from.
type Sources = [fi_addr_t; receive::BATCH];

impl Wire {
    pub(crate) fn new(parts: Parts, config: &WireConfig) -> Result<Self, Refusal> {
        let Parts {
            mut objects,
            rank,
            addresses,
            hosts,
            job,
            seal,
            arrival_bytes,
        } = parts;
        let config = config.clone().bounded();
        let limits = objects.offer.limits();
        let frame = config.frame.min(limits.max_message) & !63;
        let multi = objects.offer.has_multi_receive();
        let may_lend = objects.offer.may_lend();
        let (receives, receive_bytes) = match multi {
            true => (config.receives, config.receive_bytes),
            // As much memory in pieces of one frame.
            false => {
                let bytes = config.receives as usize * config.receive_bytes;
                // Fits: less than the product's factors.
                let count = (bytes / frame).min(limits.receives).max(2) as u32;
                (count, frame)
            }
        };
        // Of small ones atomics use some.
        let access = FI_SEND | FI_WRITE | FI_READ;
        let small = Buffers::new(&mut objects, config.small, SMALL.min(frame), access)?;
        let large = Buffers::new(&mut objects, config.large, frame, FI_SEND)?;
        let receives_memory = Buffers::new(&mut objects, receives, receive_bytes, FI_RECV)?;
        let has_source = objects.offer.has_source();
        let waiter = Arc::new(Waiter::new(&objects.descriptors));
        // Fits: ranks.
        let size = hosts.of.len() as u32;
        let nanos = config.dead_time.as_nanos();
        let mut wire = Self {
            objects,
            small,
            large,
            receives: receives_memory,
            multi,
            unposted: (0..receives).collect(),
            held: 0,
            // What is received into can all be early.
            early_room: arrival_bytes.max(receives as usize * receive_bytes),
            early: 0,
            slots: Slots::new(receives + config.small + config.large + config.direct),
            links: Links::new(size),
            addresses,
            hosts,
            rank,
            job,
            tag: if seal.is_some() { TAG } else { 0 },
            // A frame with a tag is sent from where the tag was made.
            pieces: limits.pieces >= 2 && may_lend && seal.is_none(),
            seal: seal.map(Box::new),
            sources: has_source.then(|| Box::new([FI_ADDR_UNSPEC; receive::BATCH])),
            takes_unknown: !has_source || size > ALL_KNOWN,
            frame,
            inject: limits.inject,
            pings: 0,
            outgoing: Vec::new(),
            failures: Vec::new(),
            grace: None,
            exposed: Vec::new(),
            atomics: Atomics::default(),
            broken: None,
            dead_time: Nanos::try_from(nanos).unwrap_or(Nanos::MAX),
            start: Instant::now(),
            next_look: 0,
            unclocked: Cell::new(0),
            idle: 0,
            waiter,
            counters: WireCounters::default(),
        };
        wire.atomics = Atomics::of(&wire.objects);
        if !wire.takes_unknown {
            wire.know_all(size);
        }
        wire.post_receives()?;
        Ok(wire)
    }

    /// What has happened so far.
    pub fn counters(&self) -> WireCounters {
        self.counters
    }

    /// A line for each part, of the counts that are not zero.
    pub fn report(&self, portals: &PortalsCounters, rank: Rank) -> String {
        let mut text = String::new();
        let offer = &self.objects.offer;
        let parts: [(&str, Vec<(&'static str, u64)>); 3] = [
            ("portals", portals.each().into()),
            ("wire", self.counters.each().into()),
            ("memory of peers", vec![("bytes", self.memory() as u64)]),
        ];
        for (part, counts) in parts {
            let _ = write!(text, "rank {rank}: ofi ({offer:?}) {part}:");
            for (name, count) in counts.iter().filter(|(_, count)| *count > 0) {
                let _ = write!(text, " {name} {count}");
            }
            text.push('\n');
        }
        text
    }

    /// The provider and its domain.
    pub fn offer(&self) -> &crate::provider::Offer {
        &self.objects.offer
    }

    /// Bytes of memory for peers.
    pub fn memory(&self) -> usize {
        self.links.memory() + self.addresses.bytes.len()
    }

    fn now(&self) -> Nanos {
        Nanos::try_from(self.start.elapsed().as_nanos()).unwrap_or(Nanos::MAX)
    }

    /// The link to a peer, which becomes known to libfabric now, or has rested.
    #[inline]
    fn open(&mut self, peer: Rank) -> Result<&mut Link, Refused> {
        let place = self.place(peer)?;
        self.links.alive(place)
    }

    /// Where it is.
    #[inline]
    fn place(&mut self, peer: Rank) -> Result<usize, Refused> {
        match self.links.find(peer) {
            Some(place) => Ok(place),
            None => self.add(peer),
        }
    }

    #[cold]
    fn add(&mut self, peer: Rank) -> Result<usize, Refused> {
        self.know(peer)?;
        self.links.find(peer).ok_or(Refused::NoSuchRank)
    }

    /// Makes all addresses known. One that is refused is refused again, and told, when it is used.
    fn know_all(&mut self, size: u32) {
        for peer in 0..size {
            let address = self.addresses.of(peer);
            if let Some(Ok(handle)) = address.map(|address| self.objects.insert(address)) {
                self.links.note(peer, handle);
            }
        }
    }

    fn know(&mut self, peer: Rank) -> Result<(), Refused> {
        if self.links.wake(peer) {
            return Ok(());
        }
        let address = self.addresses.of(peer).ok_or(Refused::NoSuchRank)?;
        let (handle, failure) = match self.broken {
            Some(failure) => (0, Some(failure)),
            None => match self.objects.insert(address) {
                Ok(handle) => (handle, None),
                Err(refusal) => {
                    let offer = &self.objects.offer;
                    let failure = failure::of_peer(offer, refusal.operation, refusal.error);
                    (0, Some(failure))
                }
            },
        };
        let mut link = Link::new(peer, handle);
        link.failure = failure;
        self.links.add(link);
        if let Some(failure) = failure {
            self.failures.push((peer, failure));
        }
        Ok(())
    }

    /// The library has refused something for a peer, or an operation with it has failed: the peer can't be reached any more, or
    /// nobody can.
    #[cold]
    fn refused(&mut self, peer: Rank, operation: &'static str, error: i64) {
        if failure::is_own(error) {
            self.breaks(operation, error);
        } else {
            let failure = failure::of_peer(&self.objects.offer, operation, error);
            self.fails(peer, failure);
        }
    }

    /// A peer can't be reached any more.
    #[cold]
    fn fails(&mut self, peer: Rank, failure: Failure) {
        let Some(link) = self.links.get(peer) else {
            return;
        };
        if link.failure.is_none() {
            link.failure = Some(failure);
            link.backlog.clear();
            link.queue.clear();
            link.lent.clear();
            self.held -= link.held.take().map_or(0, |held| held.bytes());
            self.early -= link.early.take().map_or(0, |early| early.bytes());
            link.arriving = None;
            link.unsettled = None;
            link.pong = None;
            self.failures.push((peer, failure));
        }
    }

    /// Looks at all peers, asks those that owe an answer, gives up those that have been silent for too long.
    ///
    /// Who has had nothing to say since the look before, and was sent nothing, may rest: all that it was sent has reached it.
    #[cold]
    fn look_at_peers(&mut self, now: Nanos, handler: &mut impl FragmentHandler) {
        self.next_look = now + self.dead_time / LOOKS;
        let mut pings = Vec::new();
        let mut dead = Vec::new();
        let mut quiet = Vec::new();
        for link in self.links.all().filter(|link| link.failure.is_none()) {
            if link.liveness.is_quiet() {
                quiet.push(link.peer);
            }
            match link.liveness.look(now, self.dead_time) {
                Verdict::Fine => {}
                Verdict::Ping => pings.push(link.peer),
                Verdict::Dead => {
                    let silent = self.dead_time / 1_000_000;
                    let failure = match link.liveness.is_known() {
                        true => Failure::Silent(silent),
                        false => failure::unanswered(silent),
                    };
                    dead.push((link.peer, failure));
                }
            }
        }
        for peer in pings {
            self.ping(peer);
        }
        for (peer, failure) in dead {
            self.fails(peer, failure);
        }
        for peer in quiet {
            if self.links.rest(peer) {
                handler.link_idle(peer);
            }
        }
    }

    /// What there is to do besides what is sent at once.
    #[inline(never)]
    fn transmit_some(&mut self, handler: &mut impl FragmentHandler) {
        if self.broken.is_none() {
            self.send_queued(handler);
        }
        self.tell_failures(handler);
    }

    /// Tells the user which peers have failed.
    #[inline]
    fn tell_failures(&mut self, handler: &mut impl FragmentHandler) {
        if !self.failures.is_empty() {
            self.tell_some_failures(handler);
        }
    }

    /// A peer's failure is told when nothing that is under way to it can touch the user's memory any more: direct accesses, and frames
    /// sent from where their bytes lie. libfabric can't cancel them; those that don't end by themselves end with the endpoint, and
    /// with it the links to all others.
    #[cold]
    fn tell_some_failures(&mut self, handler: &mut impl FragmentHandler) {
        let is_over = |wire: &mut Self, peer| {
            let link = wire.links.look(peer);
            wire.broken.is_some() || link.is_none_or(|link| link.direct == 0)
        };
        for (peer, failure) in std::mem::take(&mut self.failures) {
            if is_over(self, peer) {
                handler.failed(peer, failure);
            } else {
                self.failures.push((peer, failure));
            }
        }
        if self.failures.is_empty() {
            self.grace = None;
            return;
        }
        let now = self.now();
        let until = *self.grace.get_or_insert(now + self.dead_time / 2);
        if now >= until {
            self.breaks("completion", -i64::from(libfabric_sys::FI_ETIMEDOUT));
            for (peer, failure) in std::mem::take(&mut self.failures) {
                handler.failed(peer, failure);
            }
        }
    }
}

impl Transport for Wire {
    const AT_ONCE: bool = true;

    #[inline(always)]
    fn send(&mut self, peer: Rank, fragment: &Fragment<'_>) -> Result<(), Refused> {
        match fragment.payload {
            Payload::Copied(pieces) => self.send_tiny(peer, fragment.header, pieces),
            Payload::Read { token, length } => {
                self.send_later(peer, fragment.header, token, length as usize)
            }
        }
    }

    #[inline]
    fn receive(&mut self, handler: &mut impl FragmentHandler) -> bool {
        /// Receives between two looks at the clock, which costs more than an empty receive itself; and of those in a row that have
        /// found nothing, since their caller may be yielding in between. Who sleeps asks for the [timeout](Transport::timeout)
        /// before, and looks after it.
        const UNCLOCKED: u32 = 1024;
        const IDLE: u32 = 32;
        let arrived = self.broken.is_none() && self.complete(handler);
        self.idle = if arrived { 0 } else { self.idle + 1 };
        let left = self.unclocked.get().saturating_sub(1);
        self.unclocked.set(left);
        if left == 0 || self.idle >= IDLE {
            self.unclocked.set(UNCLOCKED);
            self.idle = 0;
            let now = self.now();
            if now >= self.next_look {
                self.look_at_peers(now, handler);
            }
        }
        self.tell_failures(handler);
        arrived
    }

    #[inline(always)]
    fn transmit(&mut self, handler: &mut impl FragmentHandler) {
        if !self.outgoing.is_empty() || !self.failures.is_empty() {
            self.transmit_some(handler);
        }
    }

    fn outstanding(&self, peer: Rank) -> usize {
        let link = self.links.look(peer);
        link.map_or(0, |link| link.outstanding(self.frame))
    }

    fn settle(&mut self, peer: Rank) {
        self.settle_by_ping(peer);
    }

    fn timeout(&self) -> Option<Duration> {
        /// Where nothing wakes who sleeps, or something waits for room.
        const PAUSE: Duration = Duration::from_micros(50);
        // Time passes until the next receive.
        self.unclocked.set(0);
        let is_broken = self.broken.is_some();
        if !is_broken && !self.objects.may_wait() {
            return Some(Duration::ZERO);
        }
        if !is_broken && (!self.outgoing.is_empty() || !self.unposted.is_empty()) {
            return Some(PAUSE);
        }
        let until_look = Duration::from_nanos(self.next_look.saturating_sub(self.now()));
        Some(until_look)
    }

    fn waiter(&self) -> Arc<dyn Wait> {
        let waiter: Arc<Waiter> = Arc::clone(&self.waiter);
        waiter
    }

    /// What libfabric has been given can be called back for certain in one way only: by closing the endpoint, which discards all that is
    /// under way (`fi_endpoint(3)`; `fi_cancel` may be too late, or know receives only). All peers are lost with it, so what is under
    /// way to peers that answer may end by itself first.
    fn abandon(&mut self, peers: &[Rank], handler: &mut impl FragmentHandler) {
        /// What that may take: much longer than it does with a peer that is up, and little against what the end of a job may.
        const PATIENCE: Nanos = 250_000_000;
        for &peer in peers {
            if let Some(link) = self.links.get(peer) {
                link.abandon();
            }
        }
        let until = self.now() + PATIENCE.min(self.dead_time / 2);
        let is_reached = |wire: &Self, peer: &Rank| {
            let link = wire.links.look(*peer);
            link.is_some_and(|link| link.direct > 0)
        };
        while self.broken.is_none() && peers.iter().any(|peer| is_reached(self, peer)) {
            if self.now() >= until {
                self.breaks("completion", -i64::from(libfabric_sys::FI_ETIMEDOUT));
            } else if !self.complete(handler) {
                std::thread::yield_now();
            }
        }
    }

    fn describe(&self, peer: Rank) -> String {
        let Some(host) = self.hosts.name(peer) else {
            return String::new();
        };
        let mut text = format!("on host {host} (provider {:?}", self.objects.offer);
        // They may be the peer's, behind something that translates addresses.
        let strangers = self.counters.strangers;
        if strangers > 0 {
            let _ = write!(
                text,
                "; {strangers} frames were not from the endpoint of the rank that they named"
            );
        }
        text + ")"
    }

    fn has_direct(&self) -> bool {
        self.objects.offer.has_direct()
    }

    fn has_atomic(&self, op: AtomicOp, ty: AtomicType, _fetch: bool) -> bool {
        self.atomics.has(op, ty)
    }

    fn atomic(
        &mut self,
        peer: Rank,
        remote: conduit_portals::transport::Remote,
        atomic: &NativeAtomic,
    ) -> Result<(), Refused> {
        self.atomic_there(peer, remote, atomic)
    }

    unsafe fn expose(
        &mut self,
        base: *mut u8,
        len: usize,
    ) -> Result<Option<conduit_portals::transport::Remote>, String> {
        // SAFETY: the caller's promise.
        unsafe { self.expose_memory(base, len) }
    }

    #[inline]
    unsafe fn write(
        &mut self,
        peer: Rank,
        access: &conduit_portals::transport::Access,
    ) -> Result<(), Refused> {
        // SAFETY: the caller's promise.
        unsafe { self.write_directly(peer, access) }
    }

    #[inline]
    unsafe fn read(
        &mut self,
        peer: Rank,
        access: &conduit_portals::transport::Access,
    ) -> Result<(), Refused> {
        // SAFETY: the caller's promise.
        unsafe { self.read_directly(peer, access) }
    }
}

impl std::fmt::Debug for Wire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wire")
            .field("rank", &self.rank)
            .field("offer", &self.objects.offer)
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}
