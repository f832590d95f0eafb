//! The split-phase barrier, as a state machine without I/O. The entry point is [`Barrier`].
//!
//! # Algorithm
//! Dissemination of radix *r* (Hensgen, Finkel and Manber's barrier, generalised from 2): in round
//! *k* rank *i* sends what it knows to the ranks (*i* + *j*·*rᵏ*) mod *n* for *j* = 1 … *r* − 1
//! while *j*·*rᵏ* < *n*, and advances to the next round when it has the messages of its own
//! partners. After the last round every rank knows of every other. This knowledge is a [`Value`].
//! [Merging](Value::merge) is idempotent, so a rank's value may reach another on several paths when
//! *n* is not a power of *r*.
//!
//! # Cells
//! A message is one word of 64 bits, stored in one *cell* of the receiver: by the sender if the
//! receiver's memory is mapped, otherwise by the receiver's handler of the system message.
//! [`Layout`] defines the cell. The store must be a release and the load an acquire. Then
//! everything that any rank wrote before its notify is visible to every rank after its wait,
//! because each hop of the dissemination passes on what it acquired.
//!
//! A cell counts only if its epoch is the machine's own, so cells are never cleared. The first
//! epoch is 1; zeroed memory therefore never counts.
//!
//! # Why two sets of cells are enough
//! Each cell has one writer, which stores once per epoch to the set of the epoch's parity. Suppose
//! a sender stores for epoch *e* + 2. It has notified *e* + 2, so it has completed *e* + 1, so the
//! receiver has notified *e* + 1. A rank notifies only after it has completed the previous epoch,
//! so the receiver has completed *e*. For that it took each of its own cells of *e*. The store for
//! *e* + 2 therefore destroys nothing that is still needed, and no message of *e* to that cell can
//! still be in flight and arrive later. Hence a rank in epoch *e* finds in a cell of its parity
//! either the word of *e* or that of *e* − 2 (or zero in the first two epochs), and never another.
//!
//! This is also why the 24 bits of epoch may wrap: they only distinguish *e* from *e* − 2. The
//! number of epochs is even, so parity keeps alternating across the wrap. When epoch 2²⁴, whose
//! bits are zero, begins, every cell has been written before, because every epoch writes every cell
//! of its parity.

pub(crate) mod calls;
mod layout;
pub(crate) mod state;
#[cfg(test)]
mod tests;
mod value;

pub use layout::{CellIndex, Layout, MAX_RADIX, MIN_RADIX, cell_count};
pub use value::{Calls, Value};

/// A call that the barrier's state does not allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BarrierError {
    /// Notify was called before the previously notified barrier has been finished.
    #[error(
        "rank {rank}: barrier_notify called twice without barrier_wait or a successful barrier_try"
    )]
    NotifyTwice {
        /// The calling rank.
        rank: u32,
    },
    /// Notify was called with [`Value::Quiesce`] or [`Value::Finish`] while a notified barrier was
    /// unfinished.
    #[error(
        "rank {rank}: a notified barrier is not completed by barrier_wait or a successful barrier_try"
    )]
    Between {
        /// The calling rank.
        rank: u32,
    },
    /// Wait or try was called without a preceding notify.
    #[error("rank {rank}: barrier_wait or barrier_try called without barrier_notify")]
    NoNotify {
        /// The calling rank.
        rank: u32,
    },
}

/// The outcome of a barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BarrierOutcome {
    /// All ids were equal to this one, or all ranks were anonymous (`None`).
    Match(Option<u32>),
    /// Ids differed, a rank requested a mismatch (`GASNET_ERR_BARRIER_MISMATCH`), or ranks made
    /// different calls.
    Mismatch(Calls),
}

impl From<Value> for BarrierOutcome {
    fn from(value: Value) -> Self {
        match value {
            Value::Anonymous | Value::Quiesce | Value::Finish => Self::Match(None),
            Value::Named(id) => Self::Match(Some(id)),
            Value::Mismatch(calls) => Self::Mismatch(calls),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Between a wait and the next notify.
    Idle,
    /// Notified, but messages are missing.
    Pending,
    /// All messages have arrived, but the caller has not waited yet.
    Complete,
}

/// One rank's part in the barriers of a job. See the [module](self) for the algorithm.
///
/// Call [`notify`](Self::notify), then [`advance`](Self::advance) whenever the rank polls until it
/// returns that the barrier is complete, then [`finish`](Self::finish). The messages passed to
/// `send` by `notify` and `advance` must all reach their cells, each once, in any order.
#[derive(Clone, Debug)]
pub struct Barrier {
    layout: Layout,
    rank: u32,
    phase: Phase,
    /// The number of barriers notified so far. Words carry its low 24 bits.
    epoch: u64,
    /// The merged value of this epoch so far.
    merged: Value,
    round: u32,
    /// `radix^round`.
    distance: u32,
    /// The slot of the first sender of this round whose message is missing. That sender is `slot ·
    /// distance` ranks behind.
    slot: u32,
    last: Option<BarrierOutcome>,
}

impl Barrier {
    /// Creates the machine of `rank`, one of `size` ranks, in its state before the first barrier.
    /// See [`Layout::new`] for `size` and `radix`.
    #[must_use]
    pub fn new(rank: u32, size: u32, radix: u32) -> Self {
        let layout = Layout::new(size, radix);
        Self {
            layout,
            rank: rank % layout.size(),
            phase: Phase::Idle,
            epoch: 0,
            merged: Value::Anonymous,
            round: 0,
            distance: 1,
            slot: 1,
            last: None,
        }
    }

    /// Returns the layout of the cells.
    #[must_use]
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Returns the number of cells (words of 64 bits, initially zero) that this rank provides.
    #[must_use]
    pub fn cells(&self) -> usize {
        self.layout.cells()
    }

    /// Starts a barrier with this rank's value. Passes each message to `send` as the target rank,
    /// the position of the cell there, and the word.
    ///
    /// # Errors
    /// [`BarrierError::NotifyTwice`] or [`BarrierError::Between`] if the previous barrier has not
    /// been [finished](Self::finish).
    #[inline]
    pub fn notify(
        &mut self,
        value: Value,
        send: impl FnMut(u32, usize, u64),
    ) -> Result<(), BarrierError> {
        if self.phase != Phase::Idle {
            let rank = self.rank;
            return Err(match value {
                Value::Quiesce | Value::Finish => BarrierError::Between { rank },
                _ => BarrierError::NotifyTwice { rank },
            });
        }
        self.epoch += 1;
        self.merged = value;
        self.round = 0;
        self.distance = 1;
        self.slot = 1;
        if self.layout.rounds() == 0 {
            self.complete();
        } else {
            self.phase = Phase::Pending;
            self.send_round(send);
        }
        Ok(())
    }

    /// Takes the messages that have arrived and advances as many rounds as they allow. `cell` loads
    /// one of this rank's cells (with acquire ordering); `send` is as for [`notify`](Self::notify).
    ///
    /// Returns true if the barrier is complete and can be [finished](Self::finish), and false while
    /// it is pending or if no barrier has been notified.
    #[inline]
    pub fn advance(
        &mut self,
        cell: impl Fn(usize) -> u64,
        mut send: impl FnMut(u32, usize, u64),
    ) -> bool {
        while self.phase == Phase::Pending {
            let fan_in = self.layout.fan_out(self.distance);
            while self.slot <= fan_in {
                let position = self.layout.position(self.cell(self.slot));
                let Some(value) = Value::from_word(cell(position), self.epoch) else {
                    return false;
                };
                self.merged = self.merged.merge(value);
                self.slot += 1;
            }
            self.round += 1;
            if self.round == self.layout.rounds() {
                self.complete();
            } else {
                // Cannot overflow: the new distance is below the size, because the round exists.
                self.distance *= self.layout.radix();
                self.slot = 1;
                self.send_round(&mut send);
            }
        }
        self.phase == Phase::Complete
    }

    /// Returns whether the barrier is notified but not complete, so that [`advance`](Self::advance)
    /// has work.
    #[inline]
    #[must_use]
    pub fn is_pending(&self) -> bool {
        self.phase == Phase::Pending
    }

    /// Returns whether the barrier is notified but not finished.
    #[inline]
    #[must_use]
    pub fn is_notified(&self) -> bool {
        self.phase != Phase::Idle
    }

    /// Returns a rank whose message is missing, while the barrier is pending. That rank may itself
    /// be late, or wait for another.
    #[must_use]
    pub fn waits_for(&self) -> Option<u32> {
        let behind = (self.phase == Phase::Pending).then(|| self.slot * self.distance)?;
        Some(if self.rank >= behind {
            self.rank - behind
        } else {
            self.layout.size() - (behind - self.rank)
        })
    }

    /// Finishes a complete barrier (the wait or try side). Returns `None` while the barrier is not
    /// complete.
    ///
    /// `value` is the value passed to wait. If it is an id, it must be the id that all ranks agreed
    /// on, if any. The caller may be anonymous in notify and named in wait, and vice versa
    /// (GASNet-EX allows both). Only this caller sees a mismatch of this kind; the barrier ends
    /// nevertheless.
    ///
    /// # Errors
    /// [`BarrierError::NoNotify`] if no barrier has been notified.
    #[inline]
    pub fn finish(&mut self, value: Value) -> Result<Option<BarrierOutcome>, BarrierError> {
        match self.phase {
            Phase::Idle => Err(BarrierError::NoNotify { rank: self.rank }),
            Phase::Pending => Ok(None),
            Phase::Complete => {
                self.phase = Phase::Idle;
                Ok(Some(match self.merged.merge(value) {
                    Value::Mismatch(calls) => BarrierOutcome::Mismatch(calls),
                    // No other rank knows an id that only this caller's wait has.
                    _ => self.merged.into(),
                }))
            }
        }
    }

    /// Returns how the last completed barrier ended for all ranks, whatever was passed to wait, or
    /// `None` before the first (`gasnet_barrier_result`).
    #[must_use]
    pub fn last(&self) -> Option<BarrierOutcome> {
        self.last
    }

    fn complete(&mut self) {
        self.phase = Phase::Complete;
        self.last = Some(self.merged.into());
    }

    #[inline]
    fn cell(&self, slot: u32) -> CellIndex {
        CellIndex {
            parity: (self.epoch & 1) as u32,
            round: self.round,
            slot,
        }
    }

    /// Sends the messages of the current round.
    #[inline]
    fn send_round(&self, mut send: impl FnMut(u32, usize, u64)) {
        let word = self.merged.word(self.epoch);
        for slot in 1..=self.layout.fan_out(self.distance) {
            let ahead = u64::from(self.rank) + u64::from(slot * self.distance);
            let size = u64::from(self.layout.size());
            // Both terms are below the size, so one subtraction replaces a remainder.
            let target = if ahead < size { ahead } else { ahead - size };
            send(target as u32, self.layout.position(self.cell(slot)), word);
        }
    }
}
