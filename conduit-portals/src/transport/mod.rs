//! Portals in software: the Ni contract over any [`Transport`] that carries fragments.
//!
//! A put is one fragment. A get is one fragment, and its reply is another. Their headers (`wire`)
//! carry the fields of Portals' messages. The offsets in them are addresses only where the target
//! exposes all memory of its process. Messages are matched on arrival, in order, against the
//! index's match list ([`crate::matching`]). Bytes for a region are written to it as their segments
//! arrive; bytes for a managed entry are buffered until their event has been delivered. No arrival
//! is refused for lack of room, because flow control (`window`) bounds the memory that each peer's
//! messages may take here.
//!
//! Where the transport has access to peers' memory, operations on exportable entries use this
//! access (`direct`).
//!
//! One lock guards everything in all threading modes, because the progress thread also enters, in
//! order to acknowledge on behalf of a rank that computes. Events are delivered outside of the
//! lock.

mod buffers;
mod config;
pub mod connect;
pub mod connections;
mod control;
mod direct;
mod forward;
pub mod fragment;
mod inbound;
mod interface;
mod linger;
mod link;
mod lock;
mod mailbox;
mod network;
pub mod open;
mod operation;
mod poll;
mod progress_thread;
mod queue;
mod receive;
pub(crate) mod regions;
mod send;
mod state;
#[cfg(test)]
mod tests;
mod throttle;
mod wide;
mod window;
mod wire;

pub use config::{LaneSettings, MAX_MANAGED, PortalsConfig};
pub use connect::{CHANNELS, Connect};
pub use interface::{Access, NativeAtomic, Remote, Transport, Wait, timespec};
pub use progress_thread::{Progress, ProgressThread};
pub use state::PortalsCounters;

use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use conduit_core::fork::Standing;
use conduit_core::ni::{Capabilities, Limits, Rank, Reach};
use conduit_core::threads::{Lock, Mode};

use crate::matching::{DESCRIPTORS, PT_INDICES};

use control::Control;
use direct::Native;
use linger::Linger;
use link::TransportLink;
use lock::{Bias, BiasedLock, Guard};
use poll::Delivery;
use queue::QUEUES;
use regions::REGIONS;
use state::{ENTRIES, Flags, Portals, schedule};
use throttle::ProgressThrottle;
use wire::Left;

/// The state that the lock guards.
struct Inner<T> {
    /// Dropped before the regions that it exposes to peers.
    transport: T,
    portals: Portals,
    /// Whether an operation was submitted since progress was last made.
    submitted: bool,
    /// Withholds progress from some polls after a submission.
    throttle: ProgressThrottle,
    /// Number of fragments handed to the transport since it last transmitted.
    batched: u32,
}

/// The state shared with the progress thread.
struct Shared<T> {
    inner: BiasedLock<Inner<T>>,
    flags: Arc<Flags>,
    /// Whether events were delivered since the last call of `ready`.
    delivered: AtomicBool,
    /// Wakes the rank when it sleeps on more than the socket.
    waker: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

/// One rank's end of a network over a transport.
///
/// The type is `Send` in [`ParSync`](conduit_core::threads::ParSync) and in
/// [`Par`](conduit_core::threads::Par), and `Sync` in `Par`.
pub struct SoftPortals<M: Mode, T: Transport> {
    rank: Rank,
    size: u32,
    /// Distinguishes this process from a forked child, which must not use any part of this
    /// structure.
    standing: Standing,
    limits: Limits,
    reach: Reach,
    unreachable: Reach,
    /// Dropped before the state on which it makes progress.
    progress_thread: Option<ProgressThread>,
    waiter: Arc<dyn Wait>,
    shared: Arc<Shared<T>>,
    /// The events to deliver, for each queue.
    deliveries: Box<[M::Lock<Delivery>]>,
    mode: PhantomData<M>,
}

impl<T: Transport + 'static> Progress for Shared<T> {
    fn progress(&self) -> Option<Option<Duration>> {
        let mut inner = self.inner.try_lock_remote()?;
        inner.portals.on_progress_thread = true;
        inner.progress();
        inner.portals.on_progress_thread = false;
        Some(inner.transport.timeout())
    }
    fn wake(&self) {
        if let Some(wake) = self.waker.get() {
            wake();
        }
    }
}

/// The longest sleep of a rank that leaves.
const LINGER_PAUSE: Duration = Duration::from_millis(1);

impl<M: Mode, T: Transport> SoftPortals<M, T> {
    /// Creates the portals of `rank` in a job of `size` ranks, all of which use an equal `config`.
    pub fn new(transport: T, rank: Rank, size: u32, config: &PortalsConfig) -> Self {
        let flags = Arc::new(Flags::new());
        let mut portals = Portals::new(rank, size, config, Arc::clone(&flags));
        portals.direct.enabled = transport.has_direct();
        let config = &portals.config;
        if portals.direct.enabled && config.native_atomics {
            portals.native = Native::new(|op, ty, fetch| transport.has_atomic(op, ty, fetch));
        }
        let mut capabilities = Capabilities::REMOTE_COMPLETION;
        capabilities.set(Capabilities::NATIVE_ATOMICS, portals.native.has_any());
        let limits = Limits {
            pt_indices: PT_INDICES as u8,
            event_queues: QUEUES as u8,
            match_entries: ENTRIES,
            memory_descriptors: DESCRIPTORS as u32,
            regions: REGIONS as u32,
            region_bytes: config.region_bytes,
        };
        let reach = Reach {
            capabilities,
            inject_size: config.inject_size,
            max_message: config.max_message,
            max_managed: config.max_managed,
        };
        let unreachable = Reach {
            capabilities: Capabilities::empty(),
            inject_size: 0,
            max_message: 0,
            max_managed: 0,
        };
        let (writers, deliveries) = (0..QUEUES)
            .map(|_| {
                let (writer, reader) = mailbox::inline_puts();
                (writer, M::Lock::new(Delivery::new(reader)))
            })
            .unzip::<_, _, Vec<_>, Vec<_>>();
        portals.mailboxes = writers.into();
        let waiter = transport.waiter();
        let bias = match M::PARALLEL {
            true => Bias::None,
            false => Bias::Owner,
        };
        let inner = Inner {
            transport,
            portals,
            submitted: false,
            throttle: ProgressThrottle::default(),
            batched: 0,
        };
        Self {
            rank,
            size,
            standing: Standing::new(),
            limits,
            reach,
            unreachable,
            progress_thread: None,
            waiter,
            shared: Arc::new(Shared {
                inner: BiasedLock::new(inner, bias),
                flags,
                delivered: AtomicBool::new(false),
                waker: OnceLock::new(),
            }),
            deliveries: deliveries.into(),
            mode: PhantomData,
        }
    }

    /// Starts a thread that makes progress once this rank has made none for a `period`.
    ///
    /// # Errors
    /// Returns the system's error if it has no thread or file descriptor left.
    pub fn start_progress_thread(&mut self, period: Duration) -> io::Result<()>
    where
        T: 'static,
    {
        let shared: Arc<Shared<T>> = Arc::clone(&self.shared);
        let waiter = Arc::clone(&self.waiter);
        self.progress_thread = Some(ProgressThread::start(self.rank, shared, waiter, period)?);
        Ok(())
    }

    /// Locks the state.
    #[inline]
    fn inner(&self) -> Guard<'_, Inner<T>> {
        // SAFETY: if `M` is parallel, the lock has no bias, and any thread may lock it. Otherwise
        // this type is not `Sync`, so one thread at a time calls its methods, and no guard outlives
        // a call.
        unsafe { self.shared.inner.lock() }
    }

    /// Locks the state, or returns `None` if it is locked.
    #[inline]
    fn try_inner(&self) -> Option<Guard<'_, Inner<T>>> {
        // SAFETY: if `M` is parallel, the lock has no bias. Otherwise this type is not `Sync`, so
        // one thread at a time calls its methods, and no guard outlives a call.
        unsafe { self.shared.inner.try_lock() }
    }

    /// Returns the progress thread, if it was started.
    pub fn progress_thread(&self) -> Option<&ProgressThread> {
        self.progress_thread.as_ref()
    }

    /// Sets the function that wakes this rank when it sleeps on more than the socket and has
    /// [armed](ProgressThread::arm) the progress thread. Only the first call has an effect.
    pub fn set_waker(&self, wake: impl Fn() + Send + Sync + 'static) {
        let _ = self.shared.waker.set(Box::new(wake));
    }

    /// Makes progress, and increments the counter that the progress thread checks. Does nothing in
    /// a child process, whose packets would carry the parent's sequence numbers.
    #[inline]
    fn advance(&self, inner: &mut Inner<T>) -> bool {
        if !self.standing.stands() {
            return false;
        }
        if let Some(progress_thread) = &self.progress_thread {
            progress_thread.count_progress();
        }
        inner.progress()
    }

    /// Calls `look` with the counters of the portals and with the transport.
    pub fn counters<R>(&self, look: impl FnOnce(&PortalsCounters, &T) -> R) -> R {
        let inner = self.inner();
        let lanes = inner.portals.wide.as_deref();
        let counters = PortalsCounters {
            lanes: lanes.map(|lanes| lanes.statistics).unwrap_or_default(),
            ..inner.portals.counters
        };
        look(&counters, &inner.transport)
    }

    /// Returns a text for human readers that lists the peers that have a wide window at this rank,
    /// and the peers at which this rank has one. The text is empty if there are none.
    pub fn lanes(&self) -> String {
        let inner = self.inner();
        let wide = inner.portals.wide.as_deref();
        wide.map(wide::describe).unwrap_or_default()
    }

    /// Announces to the peers that this rank ends in good order, so that its silence is not
    /// mistaken for a failure. Then waits until they have received everything that this rank sent,
    /// or until nothing more has reached them for a bounded time. Messages that they send from here
    /// on may never be received. Has no effect in a child process.
    pub fn leave(&self) {
        self.leave_as(Left::Finished);
    }

    fn leave_as(&self, left: Left) {
        if self.standing.is_child() {
            return;
        }
        let mut inner = self.inner();
        let timeout = inner.portals.config.linger;
        if std::mem::replace(&mut inner.portals.leaving, true) {
            return;
        }
        if timeout.is_zero() {
            return;
        }
        let mut linger = Linger::new(Instant::now(), timeout);
        // Peers that have left by now are skipped.
        self.advance(&mut inner);
        inner.queue_leave(left);
        self.advance(&mut inner);
        inner.settle();
        loop {
            self.advance(&mut inner);
            let pause = inner.transport.timeout().unwrap_or(LINGER_PAUSE);
            // If a timer is due sooner than `LINGER_PAUSE`, an acknowledgement may still have to be
            // sent.
            let outstanding = inner.outstanding();
            let settled = pause >= LINGER_PAUSE && outstanding == 0;
            if settled || linger.is_over(Instant::now(), outstanding) {
                return;
            }
            let pause = pause.min(LINGER_PAUSE);
            drop(inner);
            self.waiter.wait(None, Some(pause));
            inner = self.inner();
        }
    }
}

impl<T: Transport> Inner<T> {
    /// Receives, flushes control queues and transmits. Returns whether something has arrived.
    fn progress(&mut self) -> bool {
        self.submitted = false;
        self.batched = 0;
        if self.portals.held > 0 && !self.portals.on_progress_thread {
            self.portals.process_held();
        }
        let arrived = self.transport.receive(&mut self.portals);
        if !self.portals.outgoing.is_empty() {
            self.flush_control();
        }
        self.transport.transmit(&mut self.portals);
        if !self.portals.native.waiting.is_empty() {
            self.resume_tasks();
        }
        self.throttle.restart(self.portals.flags.has_queued());
        arrived
    }

    /// Returns whether a poll should make progress. After a submission, only some polls do.
    #[inline]
    fn is_due(&mut self) -> bool {
        !self.submitted || self.throttle.allows(Instant::now)
    }

    fn queue_leave(&mut self, left: Left) {
        let Portals {
            rank,
            links,
            outgoing,
            ..
        } = &mut self.portals;
        let peers = links.all().filter(|link| link.peer != *rank);
        for link in peers.filter(|link| link.is_up()) {
            link.control.push_back(Control::Leave(left));
            schedule(outgoing, link);
        }
    }

    /// Makes the transport ensure that the peers receive everything.
    fn settle(&mut self) {
        let own = self.portals.rank;
        let peers = self.portals.links.active().filter(|link| link.peer != own);
        for link in peers.filter(|link| link.is_up()) {
            self.transport.settle(link.peer);
        }
    }

    /// Returns the amount that has not reached its peer yet, not counting peers that are gone.
    fn outstanding(&mut self) -> usize {
        let links = self.portals.links.active().filter(|link| link.is_up());
        let of_link =
            |link: &mut TransportLink| link.control.len() + self.transport.outstanding(link.peer);
        self.portals.native.under_way() + links.map(of_link).sum::<usize>()
    }
}

impl<M: Mode, T: Transport> Drop for SoftPortals<M, T> {
    fn drop(&mut self) {
        if self.standing.is_child() {
            // The progress thread doesn't exist in a child process and can't be joined. A transport
            // that closes its connections would also close them for the parent.
            std::mem::forget(self.progress_thread.take());
            std::mem::forget(Arc::clone(&self.shared));
            return;
        }
        // A process that ends after it has dropped its portals has not failed. A process that is
        // panicking has failed, so its peers are not told that it leaves.
        if !std::thread::panicking() {
            self.leave_as(Left::Unfinished);
        }
    }
}

impl<M: Mode, T: Transport> fmt::Debug for SoftPortals<M, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SoftPortals")
            .field("rank", &self.rank)
            .field("size", &self.size)
            .field("mode", &M::NAME)
            .finish_non_exhaustive()
    }
}
