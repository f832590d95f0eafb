//! The split-phase barrier: the machine of [`crate::barrier`] over cells in the control regions.
//!
//! A mapped peer's cell is stored to directly; another's is reached by a system message that stores it there.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

pub use crate::barrier::BarrierOutcome;
use crate::barrier::{BarrierError, Value};

use super::{Engine, Error, Result, system};
use crate::ni::{Ni, Rank};
use crate::threads::{Lock, Mode};

impl<N: Ni, M: Mode> Engine<N, M> {
    /// Starts a barrier: this rank has arrived. Stores before it are seen by all ranks after their wait.
    pub fn barrier_notify(&self, value: Value) -> Result<()> {
        self.check_context("barrier_notify", am::Operation::Request)?;
        self.check_fault()?;
        let mut barrier = self.barrier.lock();
        barrier
            .notify(value, |target, cell, word| {
                self.send_cell(target, cell, word)
            })
            .map_err(|error| self.barrier_error("barrier_notify", error))?;
        self.barrier_running.store(barrier.is_pending(), Relaxed);
        Ok(())
    }

    /// Waits until all ranks have arrived. `value` is compared with what they agreed on.
    pub fn barrier_wait(&self, value: Value) -> Result<BarrierOutcome> {
        self.wait_for("barrier_wait", |engine| {
            engine.barrier_finish("barrier_wait", value)
        })
    }

    /// As [`Engine::barrier_wait`], after one poll and without waiting; `None`: not all have arrived.
    pub fn barrier_try(&self, value: Value) -> Result<Option<BarrierOutcome>> {
        self.poll()?;
        self.barrier_finish("barrier_try", value)
    }

    /// Notify and wait.
    #[inline]
    pub fn barrier(&self, value: Value) -> Result<BarrierOutcome> {
        self.barrier_notify(value)?;
        self.barrier_wait(value)
    }

    /// How the last barrier ended for all ranks; `None` before the first.
    pub fn barrier_result(&self) -> Option<BarrierOutcome> {
        self.barrier.lock().last()
    }

    fn barrier_finish(
        &self,
        operation: &'static str,
        value: Value,
    ) -> Result<Option<BarrierOutcome>> {
        let mut barrier = self.barrier.lock();
        self.step(&mut barrier);
        barrier
            .finish(value)
            .map_err(|error| self.barrier_error(operation, error))
    }

    fn barrier_error(&self, operation: &'static str, error: BarrierError) -> Error {
        Error::Barrier {
            operation,
            rank: self.rank,
            reason: error.to_string(),
        }
    }

    /// Moves a barrier on; true when that completed it. Part of every poll, so that a rank that only polls passes the
    /// messages of others on.
    pub(super) fn advance_barrier(&self) -> bool {
        self.barrier
            .try_lock()
            .is_some_and(|mut barrier| self.step(&mut barrier))
    }

    fn step(&self, barrier: &mut super::Barrier) -> bool {
        let was_pending = barrier.is_pending();
        if was_pending {
            // SYNC: Acquire, pairs with the Release in `send_cell` and `receive_cell`: what a rank did before notify is
            // seen after wait.
            barrier.advance(
                |cell| self.control.cell(cell).load(Acquire),
                |target, cell, word| self.send_cell(target, cell, word),
            );
            self.barrier_running.store(barrier.is_pending(), Relaxed);
        }
        was_pending && !barrier.is_pending()
    }

    fn send_cell(&self, target: Rank, cell: usize, word: u64) {
        match self.control.peer_cell(target, cell) {
            Some(at) => {
                at.store(word, Release);
                self.ni.notify(target);
            }
            None => self.send_system(
                target,
                system::Message::BarrierCell {
                    cell: cell as u32,
                    word,
                },
            ),
        }
    }

    /// A cell's word has come as a system message.
    pub(super) fn receive_cell(&self, source: Rank, cell: u32, word: u64) {
        if (cell as usize) < self.control.cells() {
            self.control.cell(cell as usize).store(word, Release);
        } else {
            self.fail(self.bad_message(source, format!("barrier cell {cell} does not exist")));
        }
    }
}
