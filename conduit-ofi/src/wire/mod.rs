//! One rank's end of the network, which is a [`Transport`] of fragments over an endpoint of
//! libfabric.
//!
//! Every fragment travels in frames (module `frame`), and each frame is one message of libfabric. A
//! tiny fragment is sent at once, either injected or from a buffer. A longer fragment is sent from
//! its own memory when there is room, in as many frames as it needs. If libfabric refuses a call
//! for now (`-FI_EAGAIN`), the wire refuses the fragment, or keeps the frame in the link's queue.
//! Receives are posted for messages of any rank. If the provider supports it, they use buffers that
//! take several messages (`FI_MULTI_RECV`), so the cost of receives does not grow with the job.
//!
//! **Guarantees.** A peer that owes an answer and is silent for the dead time is reported as
//! failed. After [`abandon`](Transport::abandon), no memory of the caller is accessed, even if the
//! endpoint must be closed to ensure that. All input from peers is checked, and malformed frames
//! are counted and dropped.
//!
//! **Costs.** [`WireConfig`] determines the memory for buffers, independently of the job size. A
//! peer takes memory for a link while there is traffic with it, and a few bytes otherwise.

mod atomic;
mod atomic_ops;
mod buffers;
pub mod connected;
mod direct;
pub(crate) mod failure;
mod frame;
#[cfg(test)]
mod intruder;
mod link;
pub(crate) mod liveness;
pub(crate) mod neighbours;
pub(crate) mod objects;
mod receive;
pub(crate) mod scope;
mod send;
pub(crate) mod sessions;
mod slots;
mod wait;
pub(crate) mod watch;

use std::cell::Cell;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use conduit_core::ni::{AtomicOp, AtomicType, Rank};
use conduit_portals::transport::fragment::{Failure, Fragment, FragmentHandler, Payload, Refused};
use conduit_portals::transport::{NativeAtomic, PortalsCounters, Transport, Wait};
use libfabric_sys::{FI_ADDR_UNSPEC, FI_READ, FI_RECV, FI_SEND, FI_WRITE, fi_addr_t};
use seal::TAG;

use atomic_ops::Atomics;
use buffers::Buffers;
use link::{Links, OfiLink};
use liveness::{CHECKS, Nanos, Verdict};
use objects::{Objects, Refusal, Registered};
pub(crate) use scope::{Addresses, Hosts};
use scope::{FixedJob, Quiet, Scope};
use slots::Slots;
use wait::Waiter;
use watch::{Call, Calls, Watch, Watched};

/// The sizes of an [`OfiEndpoint`]. The memory that they determine does not grow with the job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WireConfig {
    /// The maximum length of a frame.
    pub frame: usize,
    /// The number of send buffers for frames of at most 1 KiB.
    pub small: u32,
    /// The number of send buffers for larger frames.
    pub large: u32,
    /// The number of receive buffers.
    pub receives: u32,
    /// The size of each receive buffer in bytes, if one buffer takes several messages.
    pub receive_bytes: usize,
    /// The maximum number of direct accesses in flight.
    pub direct: u32,
    /// The duration of silence after which a peer that owes an answer is dead.
    pub dead_time: Duration,
}

impl Default for WireConfig {
    fn default() -> Self {
        Self {
            // Up to this size, `ofi_rxm` sends eagerly, which means without asking the peer first.
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
    /// Clamps every size to its bounds.
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

/// The size of a small buffer, which suffices for a tiny fragment in its frame.
pub(crate) const SMALL: usize = 1 << 10;
const _: () =
    assert!(frame::HEADER + conduit_portals::transport::fragment::MAX_TINY + TAG <= SMALL);

/// The largest job in which all addresses are inserted at start if the provider reports sources.
/// The provider then knows every source from the first message on. In a larger job, the addresses
/// of ranks that never communicate would take too much memory (see `docs/ofi.md`).
const MAX_PREINSERTED: u32 = 1 << 14;

/// The counters of a wire since its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WireCounters {
    /// The number of frames sent.
    pub frames: u64,
    /// The number of frames injected (copied by the library before the call returned).
    pub injected: u64,
    /// The number of frames sent from the user's memory.
    pub zero_copy: u64,
    /// The number of frames received.
    pub received: u64,
    /// The number of frames received that were malformed or of another job.
    pub malformed: u64,
    /// The number of frames received from an endpoint other than that of the rank in their header.
    pub wrong_source: u64,
    /// The number of frames received with an invalid tag.
    pub bad_tag: u64,
    /// The number of frames received with a number that was received before.
    pub replayed: u64,
    /// The number of calls that the library refused for now (`-FI_EAGAIN`).
    pub again: u64,
    /// The number of operations that failed.
    pub errors: u64,
    /// The number of direct writes.
    pub writes: u64,
    /// The number of direct reads.
    pub reads: u64,
    /// The number of atomics performed by the provider.
    pub atomics: u64,
    /// The number of direct accesses sent as messages because local memory could not be registered.
    pub unregistered: u64,
}

impl WireCounters {
    /// Returns each counter with its name.
    pub fn each(&self) -> [(&'static str, u64); 14] {
        [
            ("frames", self.frames),
            ("injected", self.injected),
            ("zero_copy", self.zero_copy),
            ("received", self.received),
            ("malformed", self.malformed),
            ("wrong_source", self.wrong_source),
            ("bad_tag", self.bad_tag),
            ("replayed", self.replayed),
            ("again", self.again),
            ("errors", self.errors),
            ("writes", self.writes),
            ("reads", self.reads),
            ("atomics", self.atomics),
            ("unregistered", self.unregistered),
        ]
    }
}

/// One rank's end of the network. See the [module](self).
pub struct OfiEndpoint<S: Scope = FixedJob> {
    // This field is dropped before the buffers, which the library may access until the endpoint is
    // closed.
    objects: Objects,
    small: Buffers,
    large: Buffers,
    receives: Buffers,
    /// Whether one receive takes several messages (`FI_MULTI_RECV`).
    multi: bool,
    /// The receive buffers that are not posted because the library refused them for now.
    unposted: Vec<u32>,
    /// The number of bytes of all links' frames that are held for lack of room.
    held: usize,
    /// The limit on the number of bytes of all links' early frames.
    early_room: usize,
    /// The number of bytes of all links' early frames.
    early: usize,
    slots: Slots,
    links: Links<S::Session>,
    scope: S,
    /// The seal of frames, or `None` if frames are not sealed.
    seal: Option<Box<S::Seal>>,
    /// The sources of the messages of one read of the queue, or `None` if the provider does not
    /// report them.
    sources: Option<Box<Sources>>,
    /// Whether frames whose source is unknown are accepted.
    accepts_unknown_source: bool,
    /// The maximum length of a frame with its tag.
    frame: usize,
    /// The maximum length of an injected frame.
    inject: usize,
    /// The length of a frame's tag.
    tag: usize,
    /// Whether a message may be sent from two pieces of memory.
    pieces: bool,
    /// The number of the last ping, to any peer.
    pings: u32,
    /// The links that have something to send.
    outgoing: Vec<Rank>,
    /// The failed links that have not been reported yet.
    failures: Vec<(Rank, Failure)>,
    /// The time until which operations in flight with failed peers may complete before the endpoint
    /// is closed, if there are such operations.
    grace: Option<Nanos>,
    /// The memory exposed to peers, each piece with its first byte, its length and its
    /// registration.
    exposed: Vec<(usize, usize, Registered)>,
    /// The atomics that the provider supports.
    atomics: Atomics,
    /// The reason why no peer can be reached any more, if that is so.
    broken: Option<Failure>,
    dead_time: Nanos,
    start: Instant,
    next_check: Nanos,
    /// The number of receives until the clock is read again.
    unclocked: Cell<u32>,
    /// The number of consecutive empty receives.
    idle: u32,
    waiter: Arc<Waiter>,
    counters: WireCounters,
    calls: Arc<Calls>,
    /// The watchdog. It is dropped last, because closing the endpoint may hang as well.
    watch: Option<Watch>,
}

/// The parts of a new wire.
pub(crate) struct Parts<S: Scope = FixedJob> {
    pub(crate) objects: Objects,
    pub(crate) scope: S,
    pub(crate) seal: Option<S::Seal>,
    /// The maximum number of bytes buffered for frames that cannot be delivered yet.
    pub(crate) arrival_bytes: usize,
}

/// Returns the time since the wire's start.
fn elapsed(start: Instant) -> Nanos {
    Nanos::try_from(start.elapsed().as_nanos()).unwrap_or(Nanos::MAX)
}

/// The maximum number of completions read by one call.
const BATCH: usize = 32;

/// The sources of one batch of messages.
type Sources = [fi_addr_t; BATCH];

impl<S: Scope> OfiEndpoint<S> {
    pub(crate) fn new(parts: Parts<S>, config: &WireConfig) -> Result<Self, Refusal> {
        let Parts {
            mut objects,
            scope,
            seal,
            arrival_bytes,
        } = parts;
        let config = config.clone().bounded();
        let limits = objects.offer.limits();
        let frame = config.frame.min(limits.max_message) & !63;
        let multi = objects.offer.has_multi_receive();
        let allows_zero_copy = objects.offer.allows_zero_copy();
        let (receives, receive_bytes) = match multi {
            true => (config.receives, config.receive_bytes),
            // Without receives of several messages, the same amount of memory is divided into
            // pieces of one frame.
            false => {
                let bytes = config.receives as usize * config.receive_bytes;
                // The cast is lossless, because the number of receives is bounded.
                let count = (bytes / frame).min(limits.receives).max(2) as u32;
                (count, frame)
            }
        };
        // The pool of small buffers also serves atomics.
        let access = FI_SEND | FI_WRITE | FI_READ;
        let small = Buffers::new(&mut objects, config.small, SMALL.min(frame), access)?;
        let large = Buffers::new(&mut objects, config.large, frame, FI_SEND)?;
        let receives_memory = Buffers::new(&mut objects, receives, receive_bytes, FI_RECV)?;
        let has_source = objects.offer.has_source();
        let waiter = Arc::new(Waiter::new(&objects.descriptors));
        let size = scope.size();
        let nanos = config.dead_time.as_nanos();
        let mut wire = Self {
            objects,
            small,
            large,
            receives: receives_memory,
            multi,
            unposted: (0..receives).collect(),
            held: 0,
            // All frames in the receive buffers may be early.
            early_room: arrival_bytes.max(receives as usize * receive_bytes),
            early: 0,
            slots: Slots::new(receives + config.small + config.large + config.direct),
            links: Links::new(size),
            scope,
            tag: if seal.is_some() { TAG } else { 0 },
            // A sealed frame is sent from the buffer in which it was sealed. In an open network, a
            // peer can be closed at any time. The user's memory must not be accessed after that,
            // but libfabric cannot cancel operations in flight.
            pieces: limits.pieces >= 2 && allows_zero_copy && seal.is_none() && !S::OPEN,
            seal: seal.map(Box::new),
            sources: has_source.then(|| Box::new([FI_ADDR_UNSPEC; BATCH])),
            accepts_unknown_source: !has_source || size > MAX_PREINSERTED,
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
            next_check: 0,
            unclocked: Cell::new(0),
            idle: 0,
            waiter,
            counters: WireCounters::default(),
            calls: Arc::default(),
            watch: None,
        };
        wire.atomics = Atomics::of(&wire.objects);
        if !wire.accepts_unknown_source {
            wire.insert_all(size);
        }
        wire.post_receives()?;
        Ok(wire)
    }

    /// Starts the watchdog, which ends the process if a library call hangs.
    ///
    /// # Errors
    /// Returns an error if the system cannot create a thread.
    pub(crate) fn start_watch(&mut self, watched: Watched) -> std::io::Result<()> {
        self.watch = Some(Watch::start(Arc::clone(&self.calls), watched)?);
        Ok(())
    }

    /// Returns the current counters.
    pub fn counters(&self) -> WireCounters {
        self.counters
    }

    /// Returns a report of all nonzero counters, with one line per part.
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

    /// Returns the provider and its domain.
    pub fn offer(&self) -> &crate::provider::Offer {
        &self.objects.offer
    }

    /// Returns the number of bytes of memory used for peers.
    pub fn memory(&self) -> usize {
        self.links.memory() + self.scope.memory()
    }

    fn now(&self) -> Nanos {
        elapsed(self.start)
    }

    /// Returns the link to a peer. Opens or reopens the link if necessary.
    #[inline]
    fn open(&mut self, peer: Rank) -> Result<&mut OfiLink<S::Session>, Refused> {
        let place = self.place(peer)?;
        self.links.alive(place)
    }

    /// Returns the index of the link to a peer. Opens or reopens the link if necessary.
    #[inline]
    fn place(&mut self, peer: Rank) -> Result<usize, Refused> {
        match self.links.find(peer) {
            Some(place) => Ok(place),
            None => self.add(peer),
        }
    }

    #[cold]
    fn add(&mut self, peer: Rank) -> Result<usize, Refused> {
        self.open_new(peer)?;
        self.links.find(peer).ok_or(Refused::NoSuchRank)
    }

    /// Inserts all addresses. If the library refuses an address now, this is not reported until the
    /// address is used and refused again.
    fn insert_all(&mut self, size: u32) {
        for peer in 0..size {
            let address = self.scope.address(peer);
            if let Some(Ok(handle)) = address.map(|address| self.objects.insert(address)) {
                self.links.note(peer, handle);
            }
        }
    }

    fn open_new(&mut self, peer: Rank) -> Result<(), Refused> {
        if self.links.reopen(peer) {
            return Ok(());
        }
        let address = self.scope.address(peer).ok_or(Refused::NoSuchRank)?;
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
        let mut link = OfiLink::new(peer, handle);
        link.failure = failure;
        self.links.add(link);
        if let Some(failure) = failure {
            self.failures.push((peer, failure));
        }
        Ok(())
    }

    /// Handles a library call that was refused for a peer, or an operation with the peer that
    /// failed. Gives up this peer, or all peers if this rank's device has failed.
    #[cold]
    fn refused(&mut self, peer: Rank, operation: &'static str, error: i64) {
        if failure::is_own(error) {
            self.fail_all(operation, error);
        } else {
            let failure = failure::of_peer(&self.objects.offer, operation, error);
            self.fail_peer(peer, failure);
        }
    }

    /// Gives up a peer.
    #[cold]
    fn fail_peer(&mut self, peer: Rank, failure: Failure) {
        let Some(link) = self.links.get(peer) else {
            return;
        };
        if link.failure.is_none() {
            link.failure = Some(failure);
            link.backlog.clear();
            link.queue.clear();
            link.in_flight.clear();
            self.held -= link.held.take().map_or(0, |held| held.bytes());
            self.early -= link.early.take().map_or(0, |early| early.bytes());
            link.arriving = None;
            link.unsettled = None;
            link.pong = None;
            self.failures.push((peer, failure));
        }
    }

    /// Checks all peers. Pings the peers that owe an answer, and gives up those that have been
    /// silent for the dead time.
    ///
    /// Makes links idle on which there has been no traffic since the last check, because everything
    /// sent on them has arrived.
    #[cold]
    fn check_peers(&mut self, now: Nanos, handler: &mut impl FragmentHandler) {
        self.next_check = now + self.dead_time / CHECKS;
        let mut pings = Vec::new();
        let mut dead = Vec::new();
        let mut quiet = Vec::new();
        let mut freed = Vec::new();
        for link in self.links.all().filter(|link| link.failure.is_none()) {
            if link.liveness.is_quiet() {
                match S::on_quiet(&mut link.session) {
                    Quiet::Idle => quiet.push(link.peer),
                    Quiet::Free => freed.push(link.peer),
                    Quiet::Stay => {}
                    Quiet::Probe => link.liveness.sent(),
                }
            }
            match link.liveness.check(now, self.dead_time) {
                Verdict::Fine => {}
                Verdict::Ping => {
                    if S::may_ping(&link.session, link.liveness.is_known()) {
                        pings.push(link.peer);
                    }
                }
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
            self.scope.on_late(peer);
            self.ping(peer);
        }
        for (peer, failure) in dead {
            self.fail_peer(peer, failure);
        }
        for peer in quiet {
            if self.links.make_idle(peer) {
                handler.link_idle(peer);
            }
        }
        for peer in freed {
            if let Some(link) = self.links.get(peer) {
                link.shrink();
            }
            handler.link_idle(peer);
        }
    }

    /// Sends queued frames, and reports failures.
    #[inline(never)]
    fn transmit_some(&mut self, handler: &mut impl FragmentHandler) {
        if self.broken.is_none() {
            self.send_queued(handler);
        }
        self.report_failures(handler);
    }

    /// Reports the failed peers.
    #[inline]
    fn report_failures(&mut self, handler: &mut impl FragmentHandler) {
        if !self.failures.is_empty() {
            self.report_some_failures(handler);
        }
    }

    /// Reports each failed peer once no direct access and no frame in flight with the peer can
    /// access the user's memory any more. libfabric cannot cancel such operations. If they do not
    /// complete in time, the endpoint is closed, and with it the links to all peers.
    #[cold]
    fn report_some_failures(&mut self, handler: &mut impl FragmentHandler) {
        let is_over = |wire: &mut Self, peer| {
            let link = wire.links.peek(peer);
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
            self.fail_all("completion", -i64::from(libfabric_sys::FI_ETIMEDOUT));
            for (peer, failure) in std::mem::take(&mut self.failures) {
                handler.failed(peer, failure);
            }
        }
    }
}

impl<S: Scope> Transport for OfiEndpoint<S> {
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
        /// The number of receives between two reads of the clock, which costs more than an empty
        /// receive. A caller that sleeps asks for the [timeout](Transport::timeout) first, which
        /// resets the count.
        const UNCLOCKED: u32 = 1024;
        /// The number of consecutive empty receives after which the clock is also read, because the
        /// caller may then yield.
        const IDLE: u32 = 32;
        let arrived = self.broken.is_none() && self.complete(handler);
        self.idle = if arrived { 0 } else { self.idle + 1 };
        let left = self.unclocked.get().saturating_sub(1);
        self.unclocked.set(left);
        if left == 0 || self.idle >= IDLE {
            self.unclocked.set(UNCLOCKED);
            self.idle = 0;
            let now = self.now();
            if now >= self.next_check {
                self.check_peers(now, handler);
            }
        }
        self.report_failures(handler);
        arrived
    }

    #[inline(always)]
    fn transmit(&mut self, handler: &mut impl FragmentHandler) {
        if !self.outgoing.is_empty() || !self.failures.is_empty() {
            self.transmit_some(handler);
        }
    }

    fn outstanding(&self, peer: Rank) -> usize {
        let link = self.links.peek(peer);
        link.map_or(0, |link| link.outstanding(self.frame))
    }

    fn settle(&mut self, peer: Rank) {
        self.settle_by_ping(peer);
    }

    fn timeout(&self) -> Option<Duration> {
        // The caller may sleep, so the next receive reads the clock.
        self.unclocked.set(0);
        let is_broken = self.broken.is_some();
        if !is_broken && !self.objects.may_wait() {
            return Some(Duration::ZERO);
        }
        if !is_broken && (!self.outgoing.is_empty() || !self.unposted.is_empty()) {
            return Some(S::PAUSE);
        }
        // Without open links, there is no peer to check.
        let until_look = Duration::from_nanos(self.next_check.saturating_sub(self.now()));
        (!self.links.is_empty()).then_some(until_look)
    }

    fn waiter(&self) -> Arc<dyn Wait> {
        let waiter: Arc<Waiter> = Arc::clone(&self.waiter);
        waiter
    }

    /// Closes the endpoint if operations do not complete, because only closing it reliably discards
    /// all operations in flight. (`fi_cancel` may come too late, or support only receives: see
    /// `fi_endpoint(3)`.) All peers are lost with the endpoint, so operations with responsive peers
    /// first get time to complete.
    fn abandon(&mut self, peers: &[Rank], handler: &mut impl FragmentHandler) {
        /// The time that operations get to complete. It is much longer than completion takes with a
        /// live peer, and short compared with the time that a job takes to end.
        const PATIENCE: Nanos = 250_000_000;
        for &peer in peers {
            if let Some(link) = self.links.get(peer) {
                link.abandon();
            }
        }
        let until = self.now() + PATIENCE.min(self.dead_time / 2);
        let is_reached = |wire: &Self, peer: &Rank| {
            let link = wire.links.peek(*peer);
            link.is_some_and(|link| link.direct > 0)
        };
        while self.broken.is_none() && peers.iter().any(|peer| is_reached(self, peer)) {
            if self.now() >= until {
                self.fail_all("completion", -i64::from(libfabric_sys::FI_ETIMEDOUT));
            } else if !self.complete(handler) {
                std::thread::yield_now();
            }
        }
    }

    fn describe(&self, peer: Rank) -> String {
        let Some(place) = self.scope.place(peer) else {
            return String::new();
        };
        let gone = self.scope.gone();
        let mut text = format!("{place} (provider {:?}{gone}", self.objects.offer);
        // If addresses are translated on the path, these frames may be the peer's own.
        let strangers = self.counters.wrong_source;
        if strangers > 0 {
            let _ = write!(
                text,
                "; {strangers} frames were not from the endpoint of the rank in their header"
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
        // SAFETY: the caller guarantees that the memory is valid as long as this wire exists.
        unsafe { self.expose_memory(base, len) }
    }

    #[inline]
    unsafe fn write(
        &mut self,
        peer: Rank,
        access: &conduit_portals::transport::Access,
    ) -> Result<(), Refused> {
        // SAFETY: the caller guarantees that the access's memory is valid until the write ends.
        unsafe { self.write_directly(peer, access) }
    }

    #[inline]
    unsafe fn read(
        &mut self,
        peer: Rank,
        access: &conduit_portals::transport::Access,
    ) -> Result<(), Refused> {
        // SAFETY: the caller guarantees that the access's memory is valid until the read ends.
        unsafe { self.read_directly(peer, access) }
    }
}

impl<S: Scope> Drop for OfiEndpoint<S> {
    fn drop(&mut self) {
        // The fields are dropped after this call, and the endpoint is dropped first.
        self.calls.begin(Call::Close);
    }
}

impl<S: Scope> std::fmt::Debug for OfiEndpoint<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wire")
            .field("owner", &self.scope.owner())
            .field("offer", &self.objects.offer)
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}
