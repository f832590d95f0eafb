//! A thread that makes progress while its rank doesn't.
//!
//! A rank that computes does not poll; its peers would take it for dead. So each rank has a thread that looks now and then at a
//! counter which every progress of the rank raises. While the counter moves the thread does nothing else; when it has stood
//! still for a *period* the thread attends: it makes progress itself, and sleeps until a packet comes or something is due.
//!
//! The hand-over between the rank's threads and this one:
//!
//! - **Mutual exclusion** is the lock around the wire, which the thread only tries ([`Attended::attend`]). When somebody has it, the
//!   rank is not away.
//! - **The counter** decides nothing but who bothers. It is read and written relaxed; a stale value makes the thread attend once
//!   without need, or one period late.
//! - **Every sleep of the thread ends** after a period, whatever it has missed: a timer that the rank has set meanwhile, the end
//!   of the rank's presence. So no hand-over depends on a wake-up that could be lost, and a timer is at most two periods late.
//! - **A rank that sleeps** and wants to be woken by packets calls [`ProgressThread::arm`] first, then looks for packets a last time,
//!   then sleeps. The thread looks at `armed` after it has been woken by `arm`'s event and before every sleep, and waits for the
//!   socket then; since that wait ends for packets that were there before, it doesn't matter which came first. It takes `armed`
//!   down with a swap, so one arming wakes at most once, and it calls [`Attended::wake`] afterwards: whatever that sets is seen by a
//!   rank that arms again.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::EventfdFlags;

use crate::transport::interface::{Wait, timespec};

/// What the thread attends to: a wire with what is above it, behind a lock.
pub trait Attended: Send + Sync + 'static {
    /// Makes progress, unless somebody else is at it (`None`): runs no handler and waits for nobody. Says when it wants to be
    /// called next, if no packet comes before: `Some(None)` when nothing is due.
    fn attend(&self) -> Option<Option<Duration>>;
    /// Wakes the rank, which has [armed](ProgressThread::arm) and may be asleep by now, or about to.
    fn wake(&self);
}

/// On a cache line of its own: the rank writes it with every progress.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Presence(AtomicU64);

#[derive(Debug)]
struct Shared {
    presence: Presence,
    /// The rank sleeps, or is about to, and wants to be woken.
    armed: AtomicBool,
    stop: AtomicBool,
    /// Threads of the rank that wait for the socket themselves.
    waiting: AtomicU32,
    /// Readable when the thread is to look at `armed` or `stop`.
    event: OwnedFd,
}

/// The thread. It ends when this is dropped, at once unless it is attending, then after that.
#[derive(Debug)]
pub struct ProgressThread {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl ProgressThread {
    /// How long a rank may be away before the thread attends, unless something else is set.
    pub const PERIOD: Duration = Duration::from_millis(20);

    /// The same where `attend` is set, in milliseconds: long before others take the rank for one that has failed.
    pub fn period(attend: u32, dead_time: u32) -> Duration {
        Duration::from_millis(attend.min(dead_time / 4).into())
    }

    /// Starts the thread of `rank`.
    ///
    /// # Errors
    /// The system has no thread or descriptor left.
    pub fn start(
        rank: u32,
        attended: Arc<dyn Attended>,
        waiter: Arc<dyn Wait>,
        period: Duration,
    ) -> io::Result<Self> {
        let (mut progress_thread, thread) = Self::new(attended, waiter, period)?;
        let thread = std::thread::Builder::new()
            .name(format!("conduit {rank}"))
            .stack_size(256 << 10)
            .spawn(move || thread.run())?;
        progress_thread.thread = Some(thread);
        Ok(progress_thread)
    }

    /// What both sides have; the thread does not run yet.
    pub(crate) fn new(
        attended: Arc<dyn Attended>,
        waiter: Arc<dyn Wait>,
        period: Duration,
    ) -> io::Result<(Self, Thread)> {
        let event = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let shared = Arc::new(Shared {
            presence: Presence::default(),
            armed: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            waiting: AtomicU32::new(0),
            event,
        });
        let thread = Thread {
            shared: Arc::clone(&shared),
            attended,
            waiter,
            period,
        };
        let progress_thread = Self {
            shared,
            thread: None,
        };
        Ok((progress_thread, thread))
    }

    /// Somebody of the rank makes progress. Call it with the wire locked: then no two threads are in it at once.
    #[inline]
    pub fn present(&self) {
        let presence = &self.shared.presence.0;
        presence.store(
            presence.load(Ordering::Relaxed).wrapping_add(1),
            Ordering::Relaxed,
        );
    }

    /// Asks to be woken ([`Attended::wake`]) when a packet comes, or when a period is over, whichever is first: the rank is
    /// about to sleep for something else than packets, too. Look for packets once more after this and before sleeping. Costs a
    /// system call.
    pub fn arm(&self) {
        // Release: pairs with the thread's swap; what the rank did before is done when it is woken.
        if !self.shared.armed.swap(true, Ordering::AcqRel) {
            self.shared.rouse();
        }
    }

    /// The rank is awake for another reason. The thread may wake it all the same, if that is under way.
    pub fn disarm(&self) {
        self.shared.armed.store(false, Ordering::Relaxed);
    }

    /// Waits for packets as [`Wait::wait`] does, and the thread knows of it and does nothing meanwhile: whoever calls this
    /// makes progress afterwards.
    pub fn wait(&self, waiter: &dyn Wait, timeout: Option<Duration>) -> bool {
        self.shared.waiting.fetch_add(1, Ordering::Relaxed);
        let readable = waiter.wait(None, timeout);
        // Before the count falls, so that the thread does not take the rank for one that was away.
        let presence = &self.shared.presence.0;
        presence.fetch_add(1, Ordering::Relaxed);
        self.shared.waiting.fetch_sub(1, Ordering::Release);
        readable
    }

    /// Threads of the rank that wait for packets themselves.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> u32 {
        self.shared.waiting.load(Ordering::Acquire)
    }
}

impl Drop for ProgressThread {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.shared.rouse();
        if let Some(thread) = self.thread.take() {
            // Dropped by the thread itself, which holds a part of what it attends to: it ends by itself.
            if thread.thread().id() != std::thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}

impl Shared {
    /// Makes the thread look.
    fn rouse(&self) {
        // Fails only when the counter is full, and then the event is readable anyway.
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }

    /// Takes the event back.
    fn calm(&self) {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.event, &mut count);
    }
}

/// The thread's side.
pub(crate) struct Thread {
    shared: Arc<Shared>,
    attended: Arc<dyn Attended>,
    waiter: Arc<dyn Wait>,
    period: Duration,
}

impl Thread {
    fn run(self) {
        // The program's signal handlers belong on its own threads.
        block_signals();
        let mut seen = self.presence();
        while !self.shared.stop.load(Ordering::Acquire) {
            seen = self.round(seen);
        }
    }

    /// Watches for a rank that sleeps, or sleeps for a period and attends to a rank that has not been here since the counter was
    /// `seen`, until it is back. The counter after it.
    pub(crate) fn round(&self, seen: u64) -> u64 {
        if self.shared.armed.load(Ordering::Acquire) {
            self.watch();
        } else {
            // A pause that was cut short says nothing of the rank.
            if self.pause(self.period) && self.is_away(seen) {
                self.stand_in(seen);
            }
        }
        self.presence()
    }

    pub(crate) fn presence(&self) -> u64 {
        self.shared.presence.0.load(Ordering::Relaxed)
    }

    /// Nobody has been here since the counter was `seen`, and nobody waits for packets or for this thread.
    fn is_away(&self, seen: u64) -> bool {
        // Acquire: who no longer waits has raised the counter before.
        self.shared.waiting.load(Ordering::Acquire) == 0
            && self.presence() == seen
            && !self.is_roused()
    }

    fn is_roused(&self) -> bool {
        self.shared.stop.load(Ordering::Acquire) || self.shared.armed.load(Ordering::Acquire)
    }

    /// Sleeps for `time`, unless it is roused before.
    fn pause(&self, time: Duration) -> bool {
        let mut descriptors = [rustix::event::PollFd::new(
            &self.shared.event,
            rustix::event::PollFlags::IN,
        )];
        let timeout = timespec(time);
        match rustix::event::poll(&mut descriptors, Some(&timeout)) {
            Ok(0) => true,
            Ok(_) => {
                self.shared.calm();
                false
            }
            Err(_) => false,
        }
    }

    /// The rank sleeps: wait for it, then wake it.
    fn watch(&self) {
        let until = Instant::now() + self.period;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let readable = self.waiter.wait(Some(&self.shared.event), Some(left));
            if readable || left.is_zero() {
                break;
            }
            self.shared.calm();
            if self.shared.stop.load(Ordering::Acquire)
                || !self.shared.armed.load(Ordering::Acquire)
            {
                break;
            }
        }
        if self.shared.armed.swap(false, Ordering::AcqRel) {
            self.attended.wake();
        }
    }

    /// The rank is away, and last was here when the counter was `seen`: attend until it is back.
    fn stand_in(&self, seen: u64) {
        while self.is_away(seen) {
            let Some(due) = self.attended.attend() else {
                return;
            };
            let limit = due.unwrap_or(self.period).min(self.period);
            if self.waiter.wait(Some(&self.shared.event), Some(limit)) {
                continue;
            }
            self.shared.calm();
        }
    }
}

/// Lets no signal be handled by the calling thread.
fn block_signals() {
    // SAFETY: fills the set, then blocks it for the calling thread; no memory is kept.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &all, std::ptr::null_mut());
    }
}
