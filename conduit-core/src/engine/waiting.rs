//! How a rank waits: it spins, then yields, then sleeps, polling all the while.
//!
//! Spinning is the fastest where every rank has a core of its own; where there are more ranks than cores the settings
//! make it yield at once. Sleeping is for long waits: an arriving message wakes the rank.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use super::{Engine, Error, Result};
use crate::ni::Ni;
use crate::threads::Mode;

/// Idle polls before the first yield, unless set: about a millisecond, so that the wait for a message of some megabytes
/// doesn't end in a sleep.
pub(super) const DEFAULT_SPIN: u32 = 100_000;

/// Idle polls between two looks for a dead peer, so that traffic of others doesn't hide it.
const LOOK_FOR_THE_DEAD: u32 = 1 << 14;

/// A shorter spin than this says that ranks share cores. A program that waits by polling then has to let others run, too:
/// every so many idle polls.
const CROWDED: u32 = 64;
const POLLS_A_YIELD: u32 = 16;

/// A yield that takes so long has given the core to somebody who computes and may do so for long, where a sleeper that is woken has it
/// at once: the rank sleeps so many times instead of yielding.
const LONG_YIELD: Duration = Duration::from_millis(1);
const SLEEPS: u32 = 64;
/// After a long yield so many are timed, later one in so many: timing costs a twentieth of a yield between ranks.
const WARY: u32 = 64;
const TIMED: u32 = 8;

/// Less than the pauses of networks that nothing wakes. A timer of theirs may end a sleep sooner, which costs some yields.
const NAP: Duration = Duration::from_micros(40);
/// Longest sleep between two polls.
const SLEEP: Duration = Duration::from_millis(10);

/// The state of one wait.
#[derive(Debug, Default)]
pub struct Waiter {
    idle: u32,
    /// Those that found nothing, and one once it is known that this wait may be where it is.
    polls: u32,
}

/// Dropped only by a panic in a poll of a waiting call, mostly a handler's: the call is left, and its caller gets back what the
/// operations have that it waits for.
struct Unwinding<'a, N: Ni, M: Mode> {
    engine: &'a Engine<N, M>,
    operation: &'static str,
}

impl<N: Ni, M: Mode> Drop for Unwinding<'_, N, M> {
    #[cold]
    fn drop(&mut self) {
        let Self { engine, operation } = *self;
        // A handler's panic has said more already.
        engine.job.fail(Error::Panicked {
            operation,
            rank: engine.job.rank,
        });
        engine.abandon();
    }
}

impl<N: Ni, M: Mode> Engine<N, M> {
    /// Polls until `ready` gives a value. Refused in handlers.
    #[inline]
    pub(super) fn wait_for<T>(
        &self,
        operation: &'static str,
        mut ready: impl FnMut(&Self) -> Result<Option<T>>,
    ) -> Result<T> {
        let mut waiter = Waiter::default();
        loop {
            if let Some(value) = ready(self)? {
                return Ok(value);
            }
            self.wait_once(operation, &mut waiter)?;
        }
    }

    /// One round of a wait: a poll and, if that found nothing, what is due then.
    #[inline]
    fn wait_once(&self, operation: &'static str, waiter: &mut Waiter) -> Result<()> {
        self.check_fault()?;
        self.job.check_context(operation, am::Operation::Block)?;
        if waiter.polls == 0 {
            self.check_wait(operation)?;
            waiter.polls = 1;
        }
        let unwinding = Unwinding {
            engine: self,
            operation,
        };
        let events = self.poll_waiting();
        std::mem::forget(unwinding);
        if events > 0 {
            waiter.idle = 0;
            return Ok(());
        }
        self.idle(waiter, operation)
    }

    /// Refused like a poll. What waits may be half done, so this ends the job; what leaves memory of the caller with the network
    /// has been refused before.
    #[inline(never)]
    fn check_wait(&self, operation: &'static str) -> Result<()> {
        let checked = self.check_outside(operation, am::Operation::Block);
        if let Err(error) = &checked {
            self.job.fail(error.clone());
        }
        checked
    }

    /// One round of [`Engine::wait_until`], for loops that test their condition themselves; `waiter` is that of the loop.
    pub fn wait_step(&self, waiter: &mut Waiter) -> Result<()> {
        self.wait_once("wait_until", waiter)
    }

    /// Polls, and waits in between, until the condition holds. For conditions that handlers or peers' puts make true.
    pub fn wait_until(&self, mut condition: impl FnMut() -> bool) -> Result<()> {
        self.wait_for("wait_until", |_| Ok(condition().then_some(())))
    }

    #[inline]
    fn idle(&self, waiter: &mut Waiter, operation: &'static str) -> Result<()> {
        waiter.idle = waiter.idle.saturating_add(1);
        waiter.polls = waiter.polls.wrapping_add(1);
        if waiter.idle <= self.spin {
            // Without a pause at first: an answer is often only nanoseconds away.
            if waiter.idle > 64 {
                std::hint::spin_loop();
            }
            if waiter.polls.is_multiple_of(LOOK_FOR_THE_DEAD) {
                return self.look_for_the_dead(operation);
            }
            return Ok(());
        }
        self.idle_long(waiter, operation)
    }

    #[cold]
    fn idle_long(&self, waiter: &mut Waiter, operation: &'static str) -> Result<()> {
        let sleeps = self.sleeps.load(Relaxed);
        if sleeps == 0 && waiter.idle <= self.spin.saturating_add(self.yields) {
            self.yield_core();
            return Ok(());
        }
        self.sleeps.store(sleeps.saturating_sub(1), Relaxed);
        let asleep = Instant::now();
        self.job.ni.wait(SLEEP);
        // Who was woken soon is likely to be needed again soon, and yields a while before it sleeps again.
        let yields = match asleep.elapsed() < NAP {
            true => self.yields / 2,
            false => self.yields,
        };
        waiter.idle = self.spin.saturating_add(yields);
        self.look_for_the_dead(operation)
    }

    #[inline]
    fn yield_core(&self) {
        let count = self.yield_count.load(Relaxed).wrapping_add(1);
        self.yield_count.store(count, Relaxed);
        if count > WARY && !count.is_multiple_of(TIMED) {
            return std::thread::yield_now();
        }
        let start = Instant::now();
        std::thread::yield_now();
        if start.elapsed() >= LONG_YIELD {
            self.sleeps.store(SLEEPS, Relaxed);
            self.yield_count.store(0, Relaxed);
        }
    }

    /// What a program that only polls is owed as well: now and then a look for dead peers, and a core for the others.
    #[inline]
    pub(super) fn polled_idly(&self) {
        let polls = self.idle_polls.load(Relaxed).wrapping_add(1);
        self.idle_polls.store(polls, Relaxed);
        if self.spin < CROWDED && polls.is_multiple_of(POLLS_A_YIELD) {
            std::thread::yield_now();
        }
        if polls.is_multiple_of(LOOK_FOR_THE_DEAD) {
            // Told by the fault, which the poll looks at next.
            let _ = self.look_for_the_dead("poll");
        }
    }

    /// Is there a peer that has died, or that writes what makes no sense? Either ends the job.
    #[cold]
    fn look_for_the_dead(&self, operation: &'static str) -> Result<()> {
        let rank = self.job.rank;
        if let Some(peer) = self.job.ni.failed_peer() {
            self.job.fail(Error::PeerFailed {
                operation,
                rank,
                peer,
                reason: self.job.ni.failure(peer),
            });
        }
        if let Some(peer) = self.job.ni.bad_peer() {
            let reason = "it has written messages that make no sense".to_owned();
            self.job.fail(Error::Protocol { rank, peer, reason });
        }
        self.check_fault()
    }
}
