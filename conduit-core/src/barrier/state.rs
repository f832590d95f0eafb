//! The barriers: machines of [`crate::barrier`] over cells in the control regions.
//!
//! A mapped peer's cell is stored to directly; another's is reached by a system message that stores
//! it there.
//!
//! There are two, independent of each other: GASNet-1's split-phase barrier, which quiescence uses
//! too, and that of all ranks as a team, which GASNet-EX allows to be under way at the same time.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::barrier::{Barrier, BarrierError, BarrierOutcome, Value};

use crate::kernel::Kernel;
use crate::kernel::error::{Error, Result};
use crate::kernel::system::Message;
use crate::ni::{Ni, Rank};
use crate::threads::{Lock, Mode};

/// One barrier of this rank.
struct Side<M: Mode> {
    machine: M::Lock<RepeatedBarrier>,
    running: AtomicBool,
    /// The first of its cells.
    cells: usize,
}

/// A barrier that runs again and again, and how many of them have been asked for (the team's, which
/// may be several).
struct RepeatedBarrier {
    barrier: Barrier,
    started: u64,
    ended: u64,
}

/// GASNet-1's split-phase barrier; a place in the list of [`Barriers`].
const SPLIT: usize = 0;
/// That of all ranks as a team.
const TEAM: usize = 1;
const BARRIERS: usize = 2;

/// All barriers of a rank.
pub(crate) struct Barriers<M: Mode> {
    sides: [Side<M>; BARRIERS],
    cells: usize,
}

impl<M: Mode> Barriers<M> {
    pub(crate) fn new(rank: Rank, size: u32, radix: u32) -> Self {
        let mut cells = 0;
        let mut side = || {
            let barrier = Barrier::new(rank, size, radix);
            let first = cells;
            cells += barrier.cells();
            Side {
                machine: Lock::new(RepeatedBarrier {
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
    pub(crate) fn cells(&self) -> usize {
        self.cells
    }

    /// Is one under way? Every poll moves it on then.
    #[inline]
    pub(crate) fn any_running(&self) -> bool {
        self.sides.iter().any(|side| side.running.load(Relaxed))
    }

    /// For each barrier under way a rank whose message it lacks, which may itself wait for
    /// another's.
    pub(crate) fn lack(&self) -> Vec<Rank> {
        let machines = self.sides.iter().map(|side| side.machine.lock());
        let mut lack: Vec<_> = machines
            .filter_map(|machine| machine.barrier.waits_for())
            .collect();
        lack.dedup();
        lack
    }

    /// This rank arrives at the split-phase barrier.
    pub(crate) fn notify<N: Ni>(
        &self,
        kernel: &Kernel<N, M>,
        operation: &'static str,
        value: Value,
    ) -> Result<()> {
        let side = &self.sides[SPLIT];
        side.arrive(kernel, operation, &mut side.machine.lock().barrier, value)
    }

    /// Ends the split-phase barrier if all have arrived, comparing `value` with what they agreed
    /// on.
    pub(crate) fn finish<N: Ni>(
        &self,
        kernel: &Kernel<N, M>,
        operation: &'static str,
        value: Value,
    ) -> Result<Option<BarrierOutcome>> {
        let side = &self.sides[SPLIT];
        let barrier = &mut side.machine.lock().barrier;
        side.step(kernel, barrier);
        let outcome = barrier.finish(value);
        outcome.map_err(|reason| error(kernel, operation, reason))
    }

    /// How the last split-phase barrier ended for all ranks; `None` before the first.
    pub(crate) fn last(&self) -> Option<BarrierOutcome> {
        self.sides[SPLIT].machine.lock().barrier.last()
    }

    /// Asks for one more barrier of the team; gives its number, from 1.
    pub(crate) fn start_team<N: Ni>(&self, kernel: &Kernel<N, M>) -> Result<u64> {
        let side = &self.sides[TEAM];
        let mut machine = side.machine.lock();
        machine.started += 1;
        if machine.started == machine.ended + 1 {
            side.arrive(kernel, TEAM_BARRIER, &mut machine.barrier, Value::Anonymous)?;
            side.step_team(kernel, &mut machine)?;
        }
        Ok(machine.started)
    }

    /// Has the team's barrier of this number ended?
    pub(crate) fn is_team_over<N: Ni>(&self, kernel: &Kernel<N, M>, number: u64) -> Result<bool> {
        let side = &self.sides[TEAM];
        let mut machine = side.machine.lock();
        side.step_team(kernel, &mut machine)?;
        Ok(machine.ended >= number)
    }

    /// Moves barriers on; true when that completed one. Part of every poll, so that a rank that
    /// only polls passes the messages of others on.
    pub(crate) fn advance<N: Ni>(&self, kernel: &Kernel<N, M>) -> bool {
        let mut ended = false;
        if kernel.job.is_child() {
            return ended;
        }
        for (which, side) in self.sides.iter().enumerate() {
            if side.running.load(Relaxed)
                && let Some(mut machine) = side.machine.try_lock()
            {
                ended |= if which == TEAM {
                    side.step_team(kernel, &mut machine)
                        .unwrap_or_else(|error| {
                            kernel.job.fail(error);
                            false
                        })
                } else {
                    side.step(kernel, &mut machine.barrier)
                };
            }
        }
        ended
    }
}

/// What calls on a barrier of the team are called in errors.
pub(crate) const TEAM_BARRIER: &str = "team_barrier";

impl<M: Mode> Side<M> {
    fn arrive<N: Ni>(
        &self,
        kernel: &Kernel<N, M>,
        operation: &'static str,
        barrier: &mut Barrier,
        value: Value,
    ) -> Result<()> {
        barrier
            .notify(value, |target, cell, word| {
                store(kernel, target, self.cells + cell, word)
            })
            .map_err(|reason| error(kernel, operation, reason))?;
        self.running.store(barrier.is_pending(), Relaxed);
        Ok(())
    }

    /// Moves a barrier on; true when that completed it.
    fn step<N: Ni>(&self, kernel: &Kernel<N, M>, barrier: &mut Barrier) -> bool {
        let was_pending = barrier.is_pending();
        if was_pending {
            // SYNC: Acquire, pairs with the Release in `store` and `receive`: what a
            // rank did before notify is seen after wait.
            barrier.advance(
                |cell| kernel.control.cell(self.cells + cell).load(Acquire),
                |target, cell, word| store(kernel, target, self.cells + cell, word),
            );
            self.running.store(barrier.is_pending(), Relaxed);
        }
        was_pending && !barrier.is_pending()
    }

    /// Moves the team's barriers on: this rank arrives at the next one when it has left the one
    /// before.
    fn step_team<N: Ni>(
        &self,
        kernel: &Kernel<N, M>,
        machine: &mut RepeatedBarrier,
    ) -> Result<bool> {
        let mut ended = false;
        while machine.started > machine.ended {
            self.step(kernel, &mut machine.barrier);
            let outcome = machine.barrier.finish(Value::Anonymous);
            if outcome
                .map_err(|reason| error(kernel, TEAM_BARRIER, reason))?
                .is_none()
            {
                break;
            }
            machine.ended += 1;
            ended = true;
            if machine.started > machine.ended {
                self.arrive(kernel, TEAM_BARRIER, &mut machine.barrier, Value::Anonymous)?;
            }
        }
        Ok(ended)
    }
}

/// Stores a word in a cell of a rank, directly where the rank is mapped.
fn store<N: Ni, M: Mode>(kernel: &Kernel<N, M>, target: Rank, cell: usize, word: u64) {
    match kernel.control.peer_cell(target, cell) {
        Some(at) => {
            at.store(word, Release);
            kernel.job.ni.notify(target);
        }
        None => {
            let cell = cell as u32;
            kernel.send_system(target, Message::BarrierCell { cell, word });
        }
    }
}

/// A cell's word has come as a system message.
pub(crate) fn receive<N: Ni, M: Mode>(kernel: &Kernel<N, M>, source: Rank, cell: u32, word: u64) {
    if (cell as usize) < kernel.control.cells() {
        kernel.control.cell(cell as usize).store(word, Release);
    } else {
        let reason = format!("barrier cell {cell} does not exist");
        kernel.job.fail_by_message(source, reason);
    }
}

fn error<N: Ni, M: Mode>(
    kernel: &Kernel<N, M>,
    operation: &'static str,
    error: BarrierError,
) -> Error {
    Error::Barrier {
        operation,
        rank: kernel.job.rank,
        reason: error.to_string(),
    }
}
