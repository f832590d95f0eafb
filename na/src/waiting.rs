//! Sleeping until there is work, with one descriptor for all events. Other event loops can poll
//! this descriptor too.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

/// The event data of all descriptors. It is the same for all, because it does not matter which
/// descriptor became readable.
const ANY: epoll::EventData = epoll::EventData::new_u64(0);

/// An `epoll` descriptor over the network's descriptors, a timer, and an event that threads of this
/// process raise. Each context has its own `Waiting`, so that contexts do not consume each other's
/// events.
#[derive(Debug)]
pub(crate) struct Waiting {
    epoll: OwnedFd,
    timer: OwnedFd,
    event: OwnedFd,
    /// Whether a thread sleeps or may sleep, so that the end of an operation has to raise the
    /// event.
    armed: AtomicBool,
    /// Whether an operation has ended since the last check for completions.
    raised: AtomicBool,
    /// The time at which the timer expires, in nanoseconds after `begun`, or `u64::MAX` if the
    /// timer is not set.
    due: AtomicU64,
    begun: Instant,
}

fn zero() -> Timespec {
    Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    }
}

impl Waiting {
    pub(crate) fn new(network: &[BorrowedFd<'_>]) -> io::Result<Self> {
        let waiting = Self {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            timer: timerfd_create(
                TimerfdClockId::Monotonic,
                TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK,
            )?,
            event: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            armed: AtomicBool::new(false),
            raised: AtomicBool::new(false),
            due: AtomicU64::new(u64::MAX),
            begun: Instant::now(),
        };
        let own = [waiting.timer.as_fd(), waiting.event.as_fd()];
        for descriptor in network.iter().chain(&own) {
            epoll::add(&waiting.epoll, descriptor, ANY, epoll::EventFlags::IN)?;
        }
        Ok(waiting)
    }

    /// Returns a descriptor that becomes readable when there is work.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Prepares a sleep of at most the given time. Returns `false` if an operation has ended in the
    /// meantime. Must be called before the last check for other work.
    pub(crate) fn arm(&self, due: Option<Duration>) -> bool {
        // SYNC: SeqCst, paired with the stores and loads in `raise`: either `raise` sees `armed`,
        // or this call sees `raised`.
        self.armed.store(true, Ordering::SeqCst);
        self.due.store(u64::MAX, Ordering::Relaxed);
        self.hasten(due);
        !self.raised.swap(false, Ordering::SeqCst)
    }

    /// Returns whether a thread sleeps or may sleep.
    pub(crate) fn is_armed(&self) -> bool {
        self.armed.load(Ordering::SeqCst)
    }

    /// Wakes a sleeping thread after the given time at the latest. Must be called with the engine's
    /// lock held.
    pub(crate) fn hasten(&self, due: Option<Duration>) {
        let Some(due) = due else {
            return;
        };
        let at = self.begun.elapsed().saturating_add(due).as_nanos();
        let at = u64::try_from(at).unwrap_or(u64::MAX);
        if at < self.due.load(Ordering::Relaxed) {
            self.due.store(at, Ordering::Relaxed);
            // The time is at least 1 ns, because 0 would disarm the timer.
            self.set_timer(due.max(Duration::from_nanos(1)));
        }
    }

    fn set_timer(&self, due: Duration) {
        let value = Itimerspec {
            it_interval: zero(),
            it_value: conduit_portals::transport::timespec(due),
        };
        // The result is ignored, because only invalid arguments are refused.
        let _ = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &value);
    }

    /// Ends a sleep and resets the descriptor. Must be called before a check for completions.
    pub(crate) fn disarm(&self) {
        self.raised.store(false, Ordering::SeqCst);
        if !self.armed.load(Ordering::SeqCst) {
            return;
        }
        self.armed.store(false, Ordering::SeqCst);
        let mut count = [0; 8];
        // The results are ignored, because reading fails if the event was not raised or the timer
        // has not expired.
        let _ = rustix::io::read(&self.event, &mut count);
        self.set_timer(Duration::ZERO);
        let _ = rustix::io::read(&self.timer, &mut count);
    }

    /// Records that an operation has ended, and wakes a thread that sleeps or is about to sleep.
    pub(crate) fn raise(&self) {
        let is_known = self.raised.swap(true, Ordering::SeqCst);
        if !is_known && self.armed.load(Ordering::SeqCst) {
            // The write only fails if the event is already raised.
            let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
        }
    }

    /// Sleeps until the descriptor is readable, or for `limit`.
    pub(crate) fn sleep(&self, limit: Option<Duration>) {
        let limit = limit.map(conduit_portals::transport::timespec);
        let mut events = [const {
            epoll::Event {
                flags: epoll::EventFlags::empty(),
                data: ANY,
            }
        }; 4];
        // A signal may end the sleep early, which is harmless.
        let _ = epoll::wait(&self.epoll, &mut events[..], limit.as_ref());
    }
}
