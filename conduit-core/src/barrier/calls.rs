//! Calls on barriers, and calls for quiescence: barriers after which no message is in flight.
//!
//! Quiescence needs no message counts from other ranks. Every request is answered exactly once,
//! either by a reply or by credits in a counter, so its sender knows when the request has been
//! handled. Handlers send no requests. Hence no message is in flight once each rank has seen the
//! answers to all of its own requests and has arrived at a barrier. A handler may continue to run
//! after its reply, so a rank arrives at the second barrier only when none of its handlers is
//! running.

use crate::barrier::{BarrierOutcome, Value};

use crate::barrier::state::TEAM_BARRIER;
use crate::engine::report::Awaits;
use crate::engine::{Calls, subject};
use crate::kernel::error::Result;
use crate::ni::Ni;
use crate::threads::{Lock, Mode};

impl<'e, N: Ni, M: Mode> Calls<'e, N, M, subject::Barriers> {
    /// Announces this rank's arrival at a barrier. Stores that this rank made before this call are
    /// visible to every rank once that rank has waited for the barrier.
    pub fn barrier_notify(self, value: Value) -> Result<()> {
        self.arrive("barrier_notify", value)
    }

    fn arrive(self, operation: &'static str, value: Value) -> Result<()> {
        self.engine
            .check_outside(operation, am::Operation::Request)?;
        self.engine.check_fault()?;
        self.engine.barriers.notify(self.kernel(), operation, value)
    }

    /// Waits until all ranks have arrived. Compares `value` with the value that they agreed on.
    pub fn barrier_wait(self, value: Value) -> Result<BarrierOutcome> {
        self.await_barrier("barrier_wait", value)
    }

    fn await_barrier(self, operation: &'static str, value: Value) -> Result<BarrierOutcome> {
        self.engine.wait_for(operation, Awaits::Barrier, |engine| {
            engine.job().check_process()?;
            engine.barriers.finish(&engine.kernel, operation, value)
        })
    }

    /// Polls once and finishes the barrier as [`Calls::barrier_wait`] does, but without waiting.
    /// Returns `None` if not all ranks have arrived yet.
    pub fn barrier_try(self, value: Value) -> Result<Option<BarrierOutcome>> {
        self.engine.poll()?;
        self.barrier_test(value)
    }

    /// Tests the barrier as [`Calls::barrier_try`] does, but without polling.
    pub fn barrier_test(self, value: Value) -> Result<Option<BarrierOutcome>> {
        self.job().check_process()?;
        self.engine
            .barriers
            .finish(self.kernel(), "barrier_try", value)
    }

    /// Arrives at a barrier and waits for it.
    #[inline]
    pub fn barrier(self, value: Value) -> Result<BarrierOutcome> {
        self.meet("barrier", value)
    }

    /// Performs a barrier as a part of another call. Errors and reports name that call.
    #[inline]
    pub fn meet(self, operation: &'static str, value: Value) -> Result<BarrierOutcome> {
        self.arrive(operation, value)?;
        self.await_barrier(operation, value)
    }

    /// Returns the outcome on which all ranks agreed for the last barrier, or `None` before the
    /// first barrier.
    pub fn barrier_result(self) -> Option<BarrierOutcome> {
        self.engine.barriers.last()
    }

    /// Starts a barrier of the team of all ranks and returns the barrier's number, counted from 1.
    /// Team barriers have no ids and are independent of the split-phase barrier. Several may be in
    /// progress; they end in the order in which they were started.
    pub fn team_barrier_start(self) -> Result<u64> {
        self.engine
            .check_outside(TEAM_BARRIER, am::Operation::Request)?;
        self.engine.check_fault()?;
        self.engine.barriers.start_team(self.kernel())
    }

    /// Returns whether the team barrier with this number has ended. Does not poll.
    pub fn team_barrier_over(self, number: u64) -> Result<bool> {
        self.job().check_process()?;
        self.engine.barriers.is_team_over(self.kernel(), number)
    }

    /// Waits for the team barrier with this number.
    pub fn team_barrier_wait(self, number: u64) -> Result<()> {
        self.engine
            .wait_for(TEAM_BARRIER, Awaits::Barrier, |engine| {
                Ok(engine.barriers().team_barrier_over(number)?.then_some(()))
            })
    }

    /// Starts a team barrier and waits for it.
    pub fn team_barrier(self) -> Result<()> {
        let number = self.team_barrier_start()?;
        self.team_barrier_wait(number)
    }

    /// Waits until all ranks have made this call, and until all requests that any rank sent before
    /// its call, and the replies to them, have been handled. Collective. If other threads send
    /// messages during the call, it waits for these messages too.
    ///
    /// The call consists of two [barriers](Self::barrier), and of nothing else if no request is in
    /// flight. It must not be made between notify and wait. Its barriers match only those of other
    /// `quiesce` calls: if some ranks call a barrier or [`Calls::finish`] instead, all ranks get a
    /// mismatch.
    pub fn quiesce(self) -> Result<BarrierOutcome> {
        self.quiesce_as("quiesce", Value::Quiesce)
    }

    /// Waits as [`Calls::quiesce`] does, but matches only other calls of `finish`. `finish` is the
    /// last operation in which the ranks communicate.
    pub fn finish(self) -> Result<BarrierOutcome> {
        self.quiesce_as("finish", Value::Finish)
    }

    fn quiesce_as(self, operation: &'static str, value: Value) -> Result<BarrierOutcome> {
        self.engine.check_outside(operation, am::Operation::Block)?;
        self.engine.wait_for(operation, Awaits::Answers, |engine| {
            // In PAR mode another thread may still be running the handler of a reply that counts as
            // an answer already.
            let is_quiet = engine.barriers().all_answered()?
                && engine.messages.last_reply.try_lock().is_some();
            Ok(is_quiet.then_some(()))
        })?;
        let outcome = self.meet(operation, value)?;
        if let BarrierOutcome::Mismatch(_) = outcome {
            // All ranks get the mismatch, so no rank enters the second barrier.
            return Ok(outcome);
        }
        self.engine
            .wait_for(operation, Awaits::Handlers, |engine| {
                Ok(engine.messages.arriving.try_lock().is_some().then_some(()))
            })?;
        self.meet(operation, value)
    }

    /// Returns whether every request of this rank has been answered. Does not poll.
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
