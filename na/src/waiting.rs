//! Sleeping until something is to be done: one descriptor for all that can happen, which other event
//! loops can poll too.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

/// A network's descriptor, or the alarm: which of them it was doesn't matter.
const ANY: epoll::EventData = epoll::EventData::new_u64(0);

/// An `epoll` descriptor over those of the network, a timer for what is due, and an event that
/// threads of this process raise. Each context has its own, so that none takes another's away.
#[derive(Debug)]
pub(crate) struct Waiting {
    epoll: OwnedFd,
    timer: OwnedFd,
    event: OwnedFd,
    /// Somebody sleeps, or may: what ends an operation has to raise the event.
    armed: AtomicBool,
    /// An operation has ended since the last look at what has ended.
    raised: AtomicBool,
    /// When the timer goes off, in nanoseconds after `begun`; `u64::MAX`: it does not.
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

    /// Readable when there is something to do.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Somebody is about to sleep, for this long at most before something is due. `false`: an
    /// operation has ended meanwhile. To be called before the last look at whether anything else
    /// is to be done.
    pub(crate) fn arm(&self, due: Option<Duration>) -> bool {
        // SYNC: SeqCst, with `raise`: either that sees this flag, or this sees that one.
        self.armed.store(true, Ordering::SeqCst);
        self.due.store(u64::MAX, Ordering::Relaxed);
        self.hasten(due);
        !self.raised.swap(false, Ordering::SeqCst)
    }

    /// Whether somebody sleeps, or may.
    pub(crate) fn is_armed(&self) -> bool {
        self.armed.load(Ordering::SeqCst)
    }

    /// Something is due in this time: whoever sleeps is woken then, if not before. Called with the
    /// engine's lock held.
    pub(crate) fn hasten(&self, due: Option<Duration>) {
        let Some(due) = due else {
            return;
        };
        let at = self.begun.elapsed().saturating_add(due).as_nanos();
        let at = u64::try_from(at).unwrap_or(u64::MAX);
        if at < self.due.load(Ordering::Relaxed) {
            self.due.store(at, Ordering::Relaxed);
            // 0 would disarm it.
            self.set_timer(due.max(Duration::from_nanos(1)));
        }
    }

    fn set_timer(&self, due: Duration) {
        let value = Itimerspec {
            it_interval: zero(),
            it_value: conduit_portals::transport::timespec(due),
        };
        // Nothing but a wrong argument is refused.
        let _ = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &value);
    }

    /// Nobody sleeps any more; what made the descriptor readable is dealt with. To be called before
    /// a look at what has ended.
    pub(crate) fn disarm(&self) {
        self.raised.store(false, Ordering::SeqCst);
        if !self.armed.load(Ordering::SeqCst) {
            return;
        }
        self.armed.store(false, Ordering::SeqCst);
        let mut count = [0; 8];
        // Empty unless it was raised.
        let _ = rustix::io::read(&self.event, &mut count);
        self.set_timer(Duration::ZERO);
        let _ = rustix::io::read(&self.timer, &mut count);
    }

    /// An operation has ended: wakes whoever sleeps, or is about to.
    pub(crate) fn raise(&self) {
        let is_known = self.raised.swap(true, Ordering::SeqCst);
        if !is_known && self.armed.load(Ordering::SeqCst) {
            // It can only be refused when it is raised already.
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
        // A signal ends it early, which is allowed.
        let _ = epoll::wait(&self.epoll, &mut events[..], limit.as_ref());
    }
}
