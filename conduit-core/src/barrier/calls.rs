//! Calls on barriers; and quiescence: barriers after which no message is under way.
//!
//! No count has to travel for it. Every request is answered once, by a reply or by credits in a
//! counter, so its sender knows when it has been handled; and handlers send none. So none is under
//! way once each rank has found all of its own answered and arrived at a barrier. Handlers may go
//! on after their replies: the second barrier is arrived at outside of them.

use crate::barrier::{BarrierOutcome, Value};

use crate::barrier::state::TEAM_BARRIER;
use crate::engine::report::Awaits;
use crate::engine::{Calls, subject};
use crate::kernel::error::Result;
use crate::ni::Ni;
use crate::threads::{Lock, Mode};

impl<'e, N: Ni, M: Mode> Calls<'e, N, M, subject::Barriers> {
    /// Starts a barrier: this rank has arrived. Stores before it are seen by all ranks after their
    /// wait.
    pub fn barrier_notify(self, value: Value) -> Result<()> {
        self.arrive("barrier_notify", value)
    }

    fn arrive(self, operation: &'static str, value: Value) -> Result<()> {
        self.engine
            .check_outside(operation, am::Operation::Request)?;
        self.engine.check_fault()?;
        self.engine.barriers.notify(self.kernel(), operation, value)
    }

    /// Waits until all ranks have arrived. `value` is compared with what they agreed on.
    pub fn barrier_wait(self, value: Value) -> Result<BarrierOutcome> {
        self.await_barrier("barrier_wait", value)
    }

    fn await_barrier(self, operation: &'static str, value: Value) -> Result<BarrierOutcome> {
        self.engine.wait_for(operation, Awaits::Barrier, |engine| {
            engine.job().check_process()?;
            engine.barriers.finish(&engine.kernel, operation, value)
        })
    }

    /// As [`Calls::barrier_wait`], after one poll and without waiting; `None`: not all have
    /// arrived.
    pub fn barrier_try(self, value: Value) -> Result<Option<BarrierOutcome>> {
        self.engine.poll()?;
        self.barrier_test(value)
    }

    /// As [`Calls::barrier_try`], without polling.
    pub fn barrier_test(self, value: Value) -> Result<Option<BarrierOutcome>> {
        self.job().check_process()?;
        self.engine
            .barriers
            .finish(self.kernel(), "barrier_try", value)
    }

    /// Notify and wait.
    #[inline]
    pub fn barrier(self, value: Value) -> Result<BarrierOutcome> {
        self.meet("barrier", value)
    }

    /// The same as a part of another call, whose name it has in errors and reports.
    #[inline]
    pub fn meet(self, operation: &'static str, value: Value) -> Result<BarrierOutcome> {
        self.arrive(operation, value)?;
        self.await_barrier(operation, value)
    }

    /// How the last barrier ended for all ranks; `None` before the first.
    pub fn barrier_result(self) -> Option<BarrierOutcome> {
        self.engine.barriers.last()
    }

    /// Starts a barrier of all ranks as a team: without ids, independent of the split-phase
    /// barrier. Several may be under way; they end in the order in which they were started. Gives
    /// its number, from 1.
    pub fn team_barrier_start(self) -> Result<u64> {
        self.engine
            .check_outside(TEAM_BARRIER, am::Operation::Request)?;
        self.engine.check_fault()?;
        self.engine.barriers.start_team(self.kernel())
    }

    /// Has the team's barrier of this number ended? Does not poll.
    pub fn team_barrier_over(self, number: u64) -> Result<bool> {
        self.job().check_process()?;
        self.engine.barriers.is_team_over(self.kernel(), number)
    }

    /// Waits for the team's barrier of this number.
    pub fn team_barrier_wait(self, number: u64) -> Result<()> {
        self.engine
            .wait_for(TEAM_BARRIER, Awaits::Barrier, |engine| {
                Ok(engine.barriers().team_barrier_over(number)?.then_some(()))
            })
    }

    /// A barrier of the team, from start to end.
    pub fn team_barrier(self) -> Result<()> {
        let number = self.team_barrier_start()?;
        self.team_barrier_wait(number)
    }

    /// Waits until all ranks have called it and all messages sent before, by any of them, have been
    /// handled: requests and their replies. Collective. Threads that go on sending meanwhile make
    /// it wait for theirs too.
    ///
    /// Two [barriers](Self::barrier), so not between notify and wait; where no request is under
    /// way nothing else. They agree with no others: where some ranks have called a barrier, or
    /// [`Calls::finish`], all get a mismatch.
    pub fn quiesce(self) -> Result<BarrierOutcome> {
        self.quiesce_as("quiesce", Value::Quiesce)
    }

    /// As [`Calls::quiesce`], and agrees with itself only: the last that the ranks do with each
    /// other.
    pub fn finish(self) -> Result<BarrierOutcome> {
        self.quiesce_as("finish", Value::Finish)
    }

    fn quiesce_as(self, operation: &'static str, value: Value) -> Result<BarrierOutcome> {
        self.engine.check_outside(operation, am::Operation::Block)?;
        self.engine.wait_for(operation, Awaits::Answers, |engine| {
            // In PAR another thread may be running the handler of a reply that is settled already.
            let is_quiet = engine.barriers().all_answered()?
                && engine.messages.last_reply.try_lock().is_some();
            Ok(is_quiet.then_some(()))
        })?;
        let outcome = self.meet(operation, value)?;
        if let BarrierOutcome::Mismatch(_) = outcome {
            // On all ranks: none of them goes on to the second.
            return Ok(outcome);
        }
        self.engine
            .wait_for(operation, Awaits::Handlers, |engine| {
                Ok(engine.messages.arriving.try_lock().is_some().then_some(()))
            })?;
        self.meet(operation, value)
    }

    /// Whether every request of this rank has been answered. Does not poll.
    fn all_answered(self) -> Result<bool> {
        if self.engine.messages.credits.flow.outstanding() > 0 {
            self.engine
                .messages
                .credits
                .collect_of(self.kernel(), 0..self.job().size)?;
        }
        Ok(self.engine.messages.credits.flow.outstanding() == 0)
    }
}
