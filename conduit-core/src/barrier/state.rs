//! The barriers of one rank: state machines of [`crate::barrier`] whose cells are in the control
//! regions.
//!
//! A rank stores its words directly in the cells of mapped peers. It sends each word for another
//! peer in a system message.
//!
//! There are two independent barriers: GASNet-1's split-phase barrier, which quiescence uses too,
//! and the barrier of the team of all ranks. GASNet-EX allows the two to be in progress at the same
//! time.

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
    /// The index of this barrier's first cell.
    cells: usize,
}

/// A barrier that is repeated. Several team barriers may be started before the first of them ends;
/// `started` counts those started and `ended` those that have ended.
struct RepeatedBarrier {
    barrier: Barrier,
    started: u64,
    ended: u64,
}

/// The index of GASNet-1's split-phase barrier in [`Barriers`].
const SPLIT: usize = 0;
/// The index of the barrier of the team of all ranks.
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

    /// Returns the total number of cells of the two barriers.
    pub(crate) fn cells(&self) -> usize {
        self.cells
    }

    /// Returns whether a barrier is in progress. If so, polls must advance it.
    #[inline]
    pub(crate) fn any_running(&self) -> bool {
        self.sides.iter().any(|side| side.running.load(Relaxed))
    }

    /// Returns, for each barrier in progress, a rank whose message is missing. That rank may itself
    /// be waiting for another rank's message.
    pub(crate) fn lack(&self) -> Vec<Rank> {
        let machines = self.sides.iter().map(|side| side.machine.lock());
        let mut lack: Vec<_> = machines
            .filter_map(|machine| machine.barrier.waits_for())
            .collect();
        lack.dedup();
        lack
    }

    /// Records this rank's arrival at the split-phase barrier.
    pub(crate) fn notify<N: Ni>(
        &self,
        kernel: &Kernel<N, M>,
        operation: &'static str,
        value: Value,
    ) -> Result<()> {
        let side = &self.sides[SPLIT];
        side.arrive(kernel, operation, &mut side.machine.lock().barrier, value)
    }

    /// Finishes the split-phase barrier if all ranks have arrived, and compares `value` with the
    /// value that they agreed on.
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

    /// Returns the outcome on which all ranks agreed for the last split-phase barrier, or `None`
    /// before the first.
    pub(crate) fn last(&self) -> Option<BarrierOutcome> {
        self.sides[SPLIT].machine.lock().barrier.last()
    }

    /// Starts another team barrier and returns its number, counted from 1.
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

    /// Returns whether the team barrier with this number has ended.
    pub(crate) fn is_team_over<N: Ni>(&self, kernel: &Kernel<N, M>, number: u64) -> Result<bool> {
        let side = &self.sides[TEAM];
        let mut machine = side.machine.lock();
        side.step_team(kernel, &mut machine)?;
        Ok(machine.ended >= number)
    }

    /// Advances the barriers and returns whether one of them completed. Every poll calls this
    /// function, so a rank that only polls still sends the messages for which other ranks wait.
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

/// The name that team barrier calls have in errors.
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

    /// Advances a barrier and returns whether it completed.
    fn step<N: Ni>(&self, kernel: &Kernel<N, M>, barrier: &mut Barrier) -> bool {
        let was_pending = barrier.is_pending();
        if was_pending {
            // SYNC: Acquire pairs with the Release in `store` and `receive`. It makes everything
            // that a rank did before its notify visible to every rank after its wait.
            barrier.advance(
                |cell| kernel.control.cell(self.cells + cell).load(Acquire),
                |target, cell, word| store(kernel, target, self.cells + cell, word),
            );
            self.running.store(barrier.is_pending(), Relaxed);
        }
        was_pending && !barrier.is_pending()
    }

    /// Advances the team barriers. This rank arrives at the next team barrier as soon as it has
    /// left the previous one.
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

/// Stores a word in a cell of `target`. Stores directly if `target` is mapped, and otherwise sends
/// a system message.
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

/// Stores a word that arrived in a system message in the barrier cell for which it was sent.
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
