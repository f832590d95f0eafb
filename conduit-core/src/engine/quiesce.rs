//! Quiescence: a barrier after which no message is under way.
//!
//! No count has to travel for it. Every request is answered once, by a reply or by credits in a counter, so its sender knows
//! when it has been handled; and handlers send none. So none is under way once each rank has found all of its own answered and
//! arrived at a barrier. Handlers may go on after their replies: the second barrier is arrived at outside of them.

use super::{Engine, Result};
use crate::ni::Ni;
use crate::threads::{Lock, Mode};

impl<N: Ni, M: Mode> Engine<N, M> {
    /// Waits until all ranks have called it and all messages sent before, by any of them, have been handled: requests and
    /// their replies. Collective. Threads that go on sending meanwhile make it wait for theirs too.
    ///
    /// Two [team barriers](Engine::team_barrier); where no request is under way nothing else.
    pub fn quiesce(&self) -> Result<()> {
        const OPERATION: &str = "quiesce";
        self.check_outside(OPERATION, am::Operation::Block)?;
        self.wait_for(OPERATION, |engine| {
            // In PAR another thread may be running the handler of a reply that is settled already.
            let is_quiet = engine.all_answered()? && engine.recent_replies.try_lock().is_some();
            Ok(is_quiet.then_some(()))
        })?;
        self.team_barrier()?;
        self.wait_for(OPERATION, |engine| {
            Ok(engine.am.try_lock().is_some().then_some(()))
        })?;
        self.team_barrier()
    }

    /// Whether every request of this rank has been answered. Does not poll.
    fn all_answered(&self) -> Result<bool> {
        if self.credits.flow.outstanding() > 0 {
            self.credits
                .collect_of(&self.job, &self.control, 0..self.job.size)?;
        }
        Ok(self.credits.flow.outstanding() == 0)
    }
}
