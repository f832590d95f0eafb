//! The barriers: machines of [`crate::barrier`] over cells in the control regions.
//!
//! A mapped peer's cell is stored to directly; another's is reached by a system message that stores it there.
//!
//! There are two, independent of each other: GASNet-1's split-phase barrier, and that of all ranks as a team, which
//! GASNet-EX allows to be under way at the same time.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

pub use crate::barrier::BarrierOutcome;
use crate::barrier::{Barrier, BarrierError, Value};

use super::{Engine, Error, Result, system};
use crate::ni::{Ni, Rank};
use crate::threads::{Lock, Mode};

/// One barrier of this rank.
pub(super) struct Side<M: Mode> {
    machine: M::Lock<Barrier>,
    running: AtomicBool,
    /// The first of its cells.
    cells: usize,
}

/// Which barrier; a place in [`Engine`]'s list.
const SPLIT: usize = 0;
const TEAM: usize = 1;
const BARRIERS: usize = 2;

/// All barriers of a rank.
pub(super) struct Barriers<M: Mode> {
    sides: [Side<M>; BARRIERS],
    cells: usize,
}

impl<M: Mode> Barriers<M> {
    pub(super) fn new(rank: Rank, size: u32, radix: u32) -> Self {
        let mut cells = 0;
        let mut side = || {
            let machine = Barrier::new(rank, size, radix);
            let first = cells;
            cells += machine.cells();
            Side {
                machine: Lock::new(machine),
                running: AtomicBool::new(false),
                cells: first,
            }
        };
        let sides = [side(), side()];
        Self { sides, cells }
    }

    /// Cells of all of them.
    pub(super) fn cells(&self) -> usize {
        self.cells
    }

    /// Is one under way? Every poll moves it on then.
    #[inline]
    pub(super) fn any_running(&self) -> bool {
        self.sides.iter().any(|side| side.running.load(Relaxed))
    }
}

impl<N: Ni, M: Mode> Engine<N, M> {
    /// Starts a barrier: this rank has arrived. Stores before it are seen by all ranks after their wait.
    pub fn barrier_notify(&self, value: Value) -> Result<()> {
        self.notify("barrier_notify", SPLIT, value)
    }

    fn notify(&self, operation: &'static str, which: usize, value: Value) -> Result<()> {
        self.check_context(operation, am::Operation::Request)?;
        self.check_fault()?;
        let side = &self.barriers.sides[which];
        let mut barrier = side.machine.lock();
        barrier
            .notify(value, |target, cell, word| {
                self.send_cell(target, side.cells + cell, word)
            })
            .map_err(|error| self.barrier_error(operation, error))?;
        side.running.store(barrier.is_pending(), Relaxed);
        Ok(())
    }

    /// Waits until all ranks have arrived. `value` is compared with what they agreed on.
    pub fn barrier_wait(&self, value: Value) -> Result<BarrierOutcome> {
        self.wait_for("barrier_wait", |engine| {
            engine.barrier_finish("barrier_wait", SPLIT, value)
        })
    }

    /// As [`Engine::barrier_wait`], after one poll and without waiting; `None`: not all have arrived.
    pub fn barrier_try(&self, value: Value) -> Result<Option<BarrierOutcome>> {
        self.poll()?;
        self.barrier_test(value)
    }

    /// As [`Engine::barrier_try`], without polling.
    pub fn barrier_test(&self, value: Value) -> Result<Option<BarrierOutcome>> {
        self.barrier_finish("barrier_try", SPLIT, value)
    }

    /// Notify and wait.
    #[inline]
    pub fn barrier(&self, value: Value) -> Result<BarrierOutcome> {
        self.barrier_notify(value)?;
        self.barrier_wait(value)
    }

    /// How the last barrier ended for all ranks; `None` before the first.
    pub fn barrier_result(&self) -> Option<BarrierOutcome> {
        self.barriers.sides[SPLIT].machine.lock().last()
    }

    /// Starts the barrier of all ranks as a team: without ids, independent of the split-phase barrier.
    pub fn team_barrier_notify(&self) -> Result<()> {
        self.notify("team_barrier", TEAM, Value::Anonymous)
    }

    /// Has the team's barrier ended? Once, for each notify. Does not poll.
    pub fn team_barrier_test(&self) -> Result<bool> {
        let ended = self.barrier_finish("team_barrier", TEAM, Value::Anonymous)?;
        Ok(ended.is_some())
    }

    /// Waits for the team's barrier.
    pub fn team_barrier_wait(&self) -> Result<()> {
        self.wait_for("team_barrier", |engine| {
            Ok(engine.team_barrier_test()?.then_some(()))
        })
    }

    fn barrier_finish(
        &self,
        operation: &'static str,
        which: usize,
        value: Value,
    ) -> Result<Option<BarrierOutcome>> {
        let side = &self.barriers.sides[which];
        let mut barrier = side.machine.lock();
        self.step(side, &mut barrier);
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

    /// Moves barriers on; true when that completed one. Part of every poll, so that a rank that only polls passes the
    /// messages of others on.
    pub(super) fn advance_barrier(&self) -> bool {
        let mut ended = false;
        for side in &self.barriers.sides {
            if side.running.load(Relaxed)
                && let Some(mut barrier) = side.machine.try_lock()
            {
                ended |= self.step(side, &mut barrier);
            }
        }
        ended
    }

    fn step(&self, side: &Side<M>, barrier: &mut Barrier) -> bool {
        let was_pending = barrier.is_pending();
        if was_pending {
            // SYNC: Acquire, pairs with the Release in `send_cell` and `receive_cell`: what a rank did before notify is
            // seen after wait.
            barrier.advance(
                |cell| self.control.cell(side.cells + cell).load(Acquire),
                |target, cell, word| self.send_cell(target, side.cells + cell, word),
            );
            side.running.store(barrier.is_pending(), Relaxed);
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
