//! How a rank waits: it polls, and does in between what its
//! [`Backoff`](crate::kernel::backoff::Backoff) says.

use std::time::Instant;

use crate::engine::Engine;
use crate::engine::report::Awaits;
use crate::kernel::backoff::{Duty, Pause, SLEEP, Waiter};
use crate::kernel::error::{Error, Result};
use crate::messages::inbox::WAITING;
use crate::ni::Ni;
use crate::threads::Mode;

/// Dropped only by a panic in a poll of a waiting call, mostly a handler's, or in a caller's
/// function: the call is left, and its caller gets back what the operations have that it waits for.
pub(crate) struct Unwinding<'a, N: Ni, M: Mode> {
    pub(crate) engine: &'a Engine<N, M>,
    pub(crate) operation: &'static str,
}

impl<N: Ni, M: Mode> Drop for Unwinding<'_, N, M> {
    #[cold]
    fn drop(&mut self) {
        let Self { engine, operation } = *self;
        // A handler's panic has said more already.
        engine.kernel.job.fail(Error::Panicked {
            operation,
            rank: engine.kernel.job.rank,
        });
        let _ = engine.abandon();
    }
}

impl<N: Ni, M: Mode> Engine<N, M> {
    /// Polls until `ready` gives a value. Refused in handlers.
    #[inline]
    pub(crate) fn wait_for<T>(
        &self,
        operation: &'static str,
        awaits: Awaits,
        mut ready: impl FnMut(&Self) -> Result<Option<T>>,
    ) -> Result<T> {
        let mut waiter = Waiter::default();
        loop {
            if let Some(value) = ready(self)? {
                if waiter.number != 0 {
                    self.kernel.forget_wait(&waiter);
                }
                return Ok(value);
            }
            self.wait_once(operation, awaits, &mut waiter)?;
        }
    }

    /// One round of a wait: a poll and, if that found nothing, what is due then. Inlined by force,
    /// as a call costs each message 27 instructions of 1,340.
    #[inline(always)]
    fn wait_once(
        &self,
        operation: &'static str,
        awaits: Awaits,
        waiter: &mut Waiter,
    ) -> Result<()> {
        self.check_fault()?;
        self.kernel
            .job
            .check_context(operation, am::Operation::Block)?;
        if waiter.begins() {
            self.do_duty(waiter, operation, awaits)?;
        }
        let unwinding = Unwinding {
            engine: self,
            operation,
        };
        let events = self.poll_for(WAITING);
        std::mem::forget(unwinding);
        if events > 0 {
            waiter.found();
            return Ok(());
        }
        match self.kernel.backoff.idle(waiter) {
            Pause::None => Ok(()),
            Pause::Spin => {
                std::hint::spin_loop();
                Ok(())
            }
            pause => self.pause(waiter, operation, awaits, pause),
        }
    }

    /// Does the duty of a round.
    #[inline(never)]
    fn do_duty(&self, waiter: &mut Waiter, operation: &'static str, awaits: Awaits) -> Result<()> {
        let duty = waiter.duty();
        if duty != Duty::CheckPlace {
            return self.attend(waiter, operation, awaits, duty == Duty::CheckLiveness);
        }
        // Refused like a poll. What waits may be half done, so this ends the job; what leaves
        // memory of the caller with the network has been refused before.
        let checked = self.check_outside(operation, am::Operation::Block);
        if let Err(Error::Context { rank, reason, .. }) = checked {
            self.kernel.job.fail(Error::WaitRefused {
                operation,
                rank,
                reason,
            });
        }
        checked
    }

    /// Says what a wait is for, if that is wanted now, and looks for dead peers if that is.
    fn attend(
        &self,
        waiter: &mut Waiter,
        operation: &'static str,
        awaits: Awaits,
        liveness: bool,
    ) -> Result<()> {
        if let Some(reports) = &self.kernel.reports
            && let Some(waited) = reports.look(waiter)
        {
            self.report().wait(operation, awaits, waited, reports.stack);
        }
        if liveness {
            self.kernel.check_liveness(operation);
            self.check_fault()?;
        }
        Ok(())
    }

    /// One round of [`Engine::wait_until`], for loops that test their condition themselves;
    /// `waiter` is that of the loop.
    pub fn wait_step(&self, waiter: &mut Waiter) -> Result<()> {
        self.wait_once("wait_until", Awaits::Condition, waiter)
    }

    /// Polls, and waits in between, until the condition holds. For conditions that handlers or
    /// peers' puts make true.
    pub fn wait_until(&self, condition: impl FnMut() -> bool) -> Result<()> {
        self.wait_until_in("wait_until", condition)
    }

    /// [`Engine::wait_until`] in an operation that reports and errors name.
    pub fn wait_until_in(
        &self,
        operation: &'static str,
        mut condition: impl FnMut() -> bool,
    ) -> Result<()> {
        self.wait_for(operation, Awaits::Condition, |_| {
            Ok(condition().then_some(()))
        })
    }

    #[cold]
    fn pause(
        &self,
        waiter: &mut Waiter,
        operation: &'static str,
        awaits: Awaits,
        pause: Pause,
    ) -> Result<()> {
        match pause {
            Pause::None | Pause::Spin => {}
            Pause::Yield => std::thread::yield_now(),
            Pause::TimedYield => {
                let begin = Instant::now();
                std::thread::yield_now();
                self.kernel.backoff.yielded(begin.elapsed());
            }
            Pause::Sleep => {
                let begin = Instant::now();
                self.kernel.job.ni.wait(SLEEP);
                self.kernel.backoff.slept(waiter, begin.elapsed());
                self.attend(waiter, operation, awaits, true)?;
            }
        }
        Ok(())
    }

    /// What a program that only polls is owed as well: now and then a look for dead peers, and a
    /// core for the others.
    #[inline]
    pub(crate) fn polled_idly(&self) {
        let (yields, looks) = self.kernel.backoff.polled_idly();
        if yields {
            std::thread::yield_now();
        }
        // A child may not lock what its parent's threads do.
        if (yields || looks)
            && !self.kernel.job.is_child()
            && let Some(reports) = &self.kernel.reports
            && reports.answer_polling()
        {
            self.report().polling(reports.stack);
        }
        if looks {
            self.kernel.check_liveness("poll");
        }
    }
}
