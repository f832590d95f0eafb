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
    machine: M::Lock<Machine>,
    running: AtomicBool,
    /// The first of its cells.
    cells: usize,
}

/// A barrier that runs again and again, and how many of them have been asked for (the team's, which may be several).
struct Machine {
    barrier: Barrier,
    started: u64,
    ended: u64,
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
            let barrier = Barrier::new(rank, size, radix);
            let first = cells;
            cells += barrier.cells();
            Side {
                machine: Lock::new(Machine {
                    barrier,
                    started: 0,
                    ended: 0,
                }),
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
        self.check_outside(operation, am::Operation::Request)?;
        self.check_fault()?;
        let side = &self.barriers.sides[which];
        self.arrive(operation, side, &mut side.machine.lock().barrier, value)
    }

    fn arrive(
        &self,
        operation: &'static str,
        side: &Side<M>,
        barrier: &mut Barrier,
        value: Value,
    ) -> Result<()> {
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
            engine.barrier_finish("barrier_wait", value)
        })
    }

    /// As [`Engine::barrier_wait`], after one poll and without waiting; `None`: not all have arrived.
    pub fn barrier_try(&self, value: Value) -> Result<Option<BarrierOutcome>> {
        self.poll()?;
        self.barrier_test(value)
    }

    /// As [`Engine::barrier_try`], without polling.
    pub fn barrier_test(&self, value: Value) -> Result<Option<BarrierOutcome>> {
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
        self.barriers.sides[SPLIT].machine.lock().barrier.last()
    }

    /// Starts a barrier of all ranks as a team: without ids, independent of the split-phase barrier. Several may be under
    /// way; they end in the order in which they were started. Gives its number, from 1.
    pub fn team_barrier_start(&self) -> Result<u64> {
        const OPERATION: &str = "team_barrier";
        self.check_outside(OPERATION, am::Operation::Request)?;
        self.check_fault()?;
        let side = &self.barriers.sides[TEAM];
        let mut machine = side.machine.lock();
        machine.started += 1;
        if machine.started == machine.ended + 1 {
            self.arrive(OPERATION, side, &mut machine.barrier, Value::Anonymous)?;
            self.step_team(side, &mut machine)?;
        }
        Ok(machine.started)
    }

    /// Has the team's barrier of this number ended? Does not poll.
    pub fn team_barrier_over(&self, number: u64) -> Result<bool> {
        self.job.check_process()?;
        let side = &self.barriers.sides[TEAM];
        let mut machine = side.machine.lock();
        self.step_team(side, &mut machine)?;
        Ok(machine.ended >= number)
    }

    /// Waits for the team's barrier of this number.
    pub fn team_barrier_wait(&self, number: u64) -> Result<()> {
        self.wait_for("team_barrier", |engine| {
            Ok(engine.team_barrier_over(number)?.then_some(()))
        })
    }

    /// A barrier of the team, from start to end.
    pub fn team_barrier(&self) -> Result<()> {
        let number = self.team_barrier_start()?;
        self.team_barrier_wait(number)
    }

    /// Moves the team's barriers on: this rank arrives at the next one when it has left the one before.
    fn step_team(&self, side: &Side<M>, machine: &mut Machine) -> Result<bool> {
        let mut ended = false;
        while machine.started > machine.ended {
            self.step(side, &mut machine.barrier);
            let outcome = machine.barrier.finish(Value::Anonymous);
            if outcome
                .map_err(|error| self.barrier_error("team_barrier", error))?
                .is_none()
            {
                break;
            }
            machine.ended += 1;
            ended = true;
            if machine.started > machine.ended {
                self.arrive("team_barrier", side, &mut machine.barrier, Value::Anonymous)?;
            }
        }
        Ok(ended)
    }

    fn barrier_finish(
        &self,
        operation: &'static str,
        value: Value,
    ) -> Result<Option<BarrierOutcome>> {
        self.job.check_process()?;
        let side = &self.barriers.sides[SPLIT];
        let mut machine = side.machine.lock();
        self.step(side, &mut machine.barrier);
        let outcome = machine.barrier.finish(value);
        outcome.map_err(|error| self.barrier_error(operation, error))
    }

    fn barrier_error(&self, operation: &'static str, error: BarrierError) -> Error {
        Error::Barrier {
            operation,
            rank: self.job.rank,
            reason: error.to_string(),
        }
    }

    /// Moves barriers on; true when that completed one. Part of every poll, so that a rank that only polls passes the
    /// messages of others on.
    pub(super) fn advance_barrier(&self) -> bool {
        let mut ended = false;
        if self.job.is_child() {
            return ended;
        }
        for (which, side) in self.barriers.sides.iter().enumerate() {
            if side.running.load(Relaxed)
                && let Some(mut machine) = side.machine.try_lock()
            {
                ended |= if which == TEAM {
                    self.step_team(side, &mut machine).unwrap_or_else(|error| {
                        self.job.fail(error);
                        false
                    })
                } else {
                    self.step(side, &mut machine.barrier)
                };
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
                self.job.ni.notify(target);
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
            self.job
                .fail_by_message(source, format!("barrier cell {cell} does not exist"));
        }
    }
}
