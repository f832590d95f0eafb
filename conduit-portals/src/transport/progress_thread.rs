//! A thread that makes progress while its rank doesn't.
//!
//! A rank that computes does not poll, and its peers would declare it dead. Each rank therefore has
//! a thread that periodically checks a counter, which the rank increments with every progress.
//! While the counter changes, the thread does nothing else. When the counter has not changed for a
//! *period*, the thread makes progress in the rank's place, and sleeps until a packet arrives or a
//! timer is due.
//!
//! The hand-over between the rank's threads and this one:
//!
//! - **Mutual exclusion** is the lock around the portals, which the thread only tries to take
//!   ([`Progress::progress`]). If the lock is held, the rank is not away.
//! - **The counter** only decides whether the thread acts; it protects nothing. It is read and
//!   written with relaxed ordering, because a stale value only makes the thread act once
//!   unnecessarily, or one period late.
//! - **Every sleep of the thread is bounded** by a period, no matter what the thread has missed,
//!   for instance that the rank has set a timer or gone away. Thus no hand-over depends on a
//!   wake-up that could be lost, and a timer is at most two periods late.
//! - **A rank that sleeps** and wants to be woken by packets calls [`ProgressThread::arm`], then
//!   checks for packets a last time, then sleeps. The thread reads `armed` after `arm`'s event has
//!   woken it and before every sleep, and then waits for the socket. Packets that arrived earlier
//!   also end that wait, so it doesn't matter whether a packet arrives before or after `arm`. The
//!   thread clears `armed` with a swap, so arming once causes at most one wake-up. It calls
//!   [`Progress::wake`] after the swap, so `wake` sees everything that the rank did before it armed
//!   the thread.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use conduit_core::signals;
use rustix::event::EventfdFlags;

use crate::transport::interface::{Wait, timespec};

/// The object on which the thread makes progress: a transport with the portals above it, behind a
/// lock.
pub trait Progress: Send + Sync + 'static {
    /// Makes progress without running handlers or blocking. Returns `None` if another thread holds
    /// the lock. Otherwise returns the time until this method has to be called again if no packet
    /// arrives earlier, or `Some(None)` if no timer is set.
    fn progress(&self) -> Option<Option<Duration>>;
    /// Wakes the rank, which has [armed](ProgressThread::arm) the thread and is asleep or about to
    /// sleep.
    fn wake(&self);
}

/// The rank's progress counter. It has a cache line of its own, because the rank writes it with
/// every progress.
#[derive(Debug, Default)]
#[repr(align(128))]
struct ProgressCount(AtomicU64);

#[derive(Debug)]
struct Shared {
    progress_count: ProgressCount,
    /// Whether the rank sleeps or is about to sleep, and wants to be woken.
    armed: AtomicBool,
    stop: AtomicBool,
    /// Number of the rank's threads that wait for the socket themselves.
    waiting: AtomicU32,
    /// Readable when the thread has to check `armed` or `stop`.
    event: OwnedFd,
}

/// Handle of the thread. Dropping the handle ends the thread, once any progress that the thread is
/// making is complete.
#[derive(Debug)]
pub struct ProgressThread {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl ProgressThread {
    /// Default time that a rank may be away before the thread makes progress for it.
    pub const PERIOD: Duration = Duration::from_millis(20);

    /// Returns the period for settings in milliseconds. The period is `attend`, but at most a
    /// quarter of `dead_time`, after which peers declare the rank dead.
    pub fn period(attend: u32, dead_time: u32) -> Duration {
        Duration::from_millis(attend.min(dead_time / 4).into())
    }

    /// Starts the thread of `rank`.
    ///
    /// # Errors
    /// The system has no thread or descriptor left.
    pub fn start(
        rank: u32,
        progress: Arc<dyn Progress>,
        waiter: Arc<dyn Wait>,
        period: Duration,
    ) -> io::Result<Self> {
        let (mut progress_thread, thread) = Self::new(progress, waiter, period)?;
        let thread = std::thread::Builder::new()
            .name(format!("conduit {rank}"))
            .stack_size(256 << 10)
            .spawn(move || thread.run())?;
        progress_thread.thread = Some(thread);
        Ok(progress_thread)
    }

    /// Creates both sides; the thread does not run yet.
    pub(crate) fn new(
        progress: Arc<dyn Progress>,
        waiter: Arc<dyn Wait>,
        period: Duration,
    ) -> io::Result<(Self, Thread)> {
        let event = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let shared = Arc::new(Shared {
            progress_count: ProgressCount::default(),
            armed: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            waiting: AtomicU32::new(0),
            event,
        });
        let thread = Thread {
            shared: Arc::clone(&shared),
            progress,
            waiter,
            period,
        };
        let progress_thread = Self {
            shared,
            thread: None,
        };
        Ok((progress_thread, thread))
    }

    /// Increments the rank's progress counter. Call it with the lock held, because the counter has
    /// one writer.
    #[inline]
    pub fn count_progress(&self) {
        let progress_count = &self.shared.progress_count.0;
        progress_count.store(
            progress_count.load(Ordering::Relaxed).wrapping_add(1),
            Ordering::Relaxed,
        );
    }

    /// Requests a wake-up ([`Progress::wake`]) when a packet arrives or a period is over, whichever
    /// is first. Call this when the rank is about to sleep on something other than the socket, and
    /// check for packets once more before it sleeps. The call costs a system call.
    pub fn arm(&self) {
        // The Release pairs with the thread's swap, so that `wake` sees what the rank did before it
        // armed the thread.
        if !self.shared.armed.swap(true, Ordering::AcqRel) {
            self.shared.signal();
        }
    }

    /// Revokes the request, because the rank is awake for another reason. A wake-up in progress may
    /// still arrive.
    pub fn disarm(&self) {
        self.shared.armed.store(false, Ordering::Relaxed);
    }

    /// Waits for packets as [`Wait::wait`] does. The thread does nothing meanwhile, because the
    /// caller makes progress afterwards.
    pub fn wait(&self, waiter: &dyn Wait, timeout: Option<Duration>) -> bool {
        self.shared.waiting.fetch_add(1, Ordering::Relaxed);
        let readable = waiter.wait(None, timeout);
        // The counter is incremented before `waiting` decreases, so that the thread doesn't
        // conclude that the rank has been away.
        let progress_count = &self.shared.progress_count.0;
        progress_count.fetch_add(1, Ordering::Relaxed);
        self.shared.waiting.fetch_sub(1, Ordering::Release);
        readable
    }

    #[cfg(test)]
    pub(crate) fn waiting(&self) -> u32 {
        self.shared.waiting.load(Ordering::Acquire)
    }
}

impl Drop for ProgressThread {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.shared.signal();
        if let Some(thread) = self.thread.take() {
            // The thread itself may drop this handle, with the last reference to the object on
            // which it makes progress.
            if thread.thread().id() != std::thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}

impl Shared {
    /// Interrupts the thread's sleep.
    fn signal(&self) {
        // The write fails only when the event's counter is full, in which case the event is
        // readable anyway.
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }

    fn drain(&self) {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.event, &mut count);
    }
}

/// The thread's side of the handle.
pub(crate) struct Thread {
    shared: Arc<Shared>,
    progress: Arc<dyn Progress>,
    waiter: Arc<dyn Wait>,
    period: Duration,
}

impl Thread {
    fn run(self) {
        signals::block();
        let mut seen = self.progress_count();
        while !self.shared.stop.load(Ordering::Acquire) {
            seen = self.round(seen);
        }
    }

    /// If the rank sleeps, waits for packets in its place. Otherwise sleeps for a period, and if
    /// the rank's counter is then still at `seen`, makes progress for the rank until it is back.
    /// Returns the counter.
    pub(crate) fn round(&self, seen: u64) -> u64 {
        if self.shared.armed.load(Ordering::Acquire) {
            self.wait_and_wake();
        } else {
            // An interrupted sleep is no evidence that the rank is away.
            if self.sleep(self.period) && self.is_away(seen) {
                self.progress_for_rank(seen);
            }
        }
        self.progress_count()
    }

    pub(crate) fn progress_count(&self) -> u64 {
        self.shared.progress_count.0.load(Ordering::Relaxed)
    }

    /// Returns whether the counter still equals `seen`, and the rank waits neither for packets nor
    /// for this thread.
    fn is_away(&self, seen: u64) -> bool {
        // The Acquire ensures that the increment by a thread that no longer waits is visible below.
        self.shared.waiting.load(Ordering::Acquire) == 0
            && self.progress_count() == seen
            && !self.is_signalled()
    }

    fn is_signalled(&self) -> bool {
        self.shared.stop.load(Ordering::Acquire) || self.shared.armed.load(Ordering::Acquire)
    }

    /// Sleeps for `time`; returns `false` if the sleep was interrupted.
    fn sleep(&self, time: Duration) -> bool {
        let mut descriptors = [rustix::event::PollFd::new(
            &self.shared.event,
            rustix::event::PollFlags::IN,
        )];
        let timeout = timespec(time);
        match rustix::event::poll(&mut descriptors, Some(&timeout)) {
            Ok(0) => true,
            Ok(_) => {
                self.shared.drain();
                false
            }
            Err(_) => false,
        }
    }

    /// Waits for packets in place of the sleeping rank, then wakes it.
    fn wait_and_wake(&self) {
        let until = Instant::now() + self.period;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let readable = self.waiter.wait(Some(&self.shared.event), Some(left));
            if readable || left.is_zero() {
                break;
            }
            self.shared.drain();
            if self.shared.stop.load(Ordering::Acquire)
                || !self.shared.armed.load(Ordering::Acquire)
            {
                break;
            }
        }
        if self.shared.armed.swap(false, Ordering::AcqRel) {
            self.progress.wake();
        }
    }

    /// Makes progress until the rank is back; its counter was `seen` when it went away.
    fn progress_for_rank(&self, seen: u64) {
        while self.is_away(seen) {
            let Some(due) = self.progress.progress() else {
                return;
            };
            let limit = due.unwrap_or(self.period).min(self.period);
            if self.waiter.wait(Some(&self.shared.event), Some(limit)) {
                continue;
            }
            self.shared.drain();
        }
    }
}
