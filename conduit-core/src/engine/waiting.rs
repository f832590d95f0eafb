//! The wait loop of a rank, which polls and, between polls, follows the rank's
//! [`Backoff`](crate::kernel::backoff::Backoff).

use std::time::Instant;

use crate::engine::Engine;
use crate::engine::report::Awaits;
use crate::kernel::backoff::{Duty, Pause, SLEEP, Waiter};
use crate::kernel::error::{Error, Result};
use crate::messages::inbox::WAITING;
use crate::ni::Ni;
use crate::threads::Mode;

/// A guard for a waiting call. It is dropped only by a panic in the call's poll (usually in a
/// handler) or in a function of the caller. It then fails the job and abandons the operations that
/// the call waits for, so that the caller gets their memory back.
pub(crate) struct Unwinding<'a, N: Ni, M: Mode> {
    pub(crate) engine: &'a Engine<N, M>,
    pub(crate) operation: &'static str,
}

impl<N: Ni, M: Mode> Drop for Unwinding<'_, N, M> {
    #[cold]
    fn drop(&mut self) {
        let Self { engine, operation } = *self;
        // A handler's panic has already recorded a more specific error.
        engine.kernel.job.fail(Error::Panicked {
            operation,
            rank: engine.kernel.job.rank,
        });
        let _ = engine.abandon();
    }
}

impl<N: Ni, M: Mode> Engine<N, M> {
    /// Polls until `ready` returns a value. Fails in handlers.
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

    /// Runs one round of a wait: a poll and, if the poll found nothing, the next step of the
    /// back-off. This function is force-inlined, because a call would add 27 instructions to the
    /// 1,340 that each message takes.
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

    /// Performs the duty of this round.
    #[inline(never)]
    fn do_duty(&self, waiter: &mut Waiter, operation: &'static str, awaits: Awaits) -> Result<()> {
        let duty = waiter.duty();
        if duty != Duty::CheckPlace {
            return self.attend(waiter, operation, awaits, duty == Duty::CheckLiveness);
        }
        // A wait is refused wherever a poll is refused. The call may be half done, so the refusal
        // ends the job. Calls that leave memory of the caller with the network were refused before
        // they started.
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

    /// Reports the wait if a report is due, and checks liveness if `liveness` is true.
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

    /// Runs one round of [`Engine::wait_until`]. Intended for loops that test their condition
    /// themselves. Each loop must have its own `waiter`.
    pub fn wait_step(&self, waiter: &mut Waiter) -> Result<()> {
        self.wait_once("wait_until", Awaits::Condition, waiter)
    }

    /// Polls and backs off until the condition holds. Intended for conditions that become true
    /// through handlers or through peers' puts.
    pub fn wait_until(&self, condition: impl FnMut() -> bool) -> Result<()> {
        self.wait_until_in("wait_until", condition)
    }

    /// Waits as [`Engine::wait_until`] does. Reports and errors name `operation`.
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

    /// Performs the work that follows an idle poll outside a wait: occasionally checks liveness,
    /// and yields to other ranks.
    #[inline]
    pub(crate) fn polled_idly(&self) {
        let (yields, looks) = self.kernel.backoff.polled_idly();
        if yields {
            std::thread::yield_now();
        }
        // A child must not take locks that threads of its parent use.
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
