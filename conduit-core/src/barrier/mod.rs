//! The split-phase barrier, as a state machine without I/O. The entry point is [`Barrier`].
//!
//! # Algorithm
//! The algorithm is a dissemination of radix *r* (the barrier of Hensgen, Finkel and Manber,
//! generalised from radix 2). In round *k*, rank *i* sends what it knows to the ranks (*i* +
//! *j*·*rᵏ*) mod *n* for *j* = 1 … *r* − 1 while *j*·*rᵏ* < *n*. It advances to the next round when
//! it has received the messages from its own partners of this round. After the last round every
//! rank knows the contributions of all others, merged into one [`Value`]. [Merging](Value::merge)
//! is idempotent, so a rank's value may reach another rank on several paths, which happens when *n*
//! is not a power of *r*.
//!
//! # Cells
//! A message is one word of 64 bits, stored in one *cell* of the receiver. The sender stores it if
//! the receiver's memory is mapped; otherwise the receiver's handler stores it when the system
//! message arrives. [`Layout`] defines which cell. The store must be a release and the load an
//! acquire. Then everything that any rank wrote before its notify is visible to every rank after
//! its wait, because each hop of the dissemination passes on the writes that it acquired.
//!
//! A word in a cell counts only if its epoch is the machine's current epoch, so cells are never
//! cleared. The first epoch is 1, so zeroed memory never counts.
//!
//! # Why two sets of cells are enough
//! Each cell has one writer, which stores one word per epoch, to the set that belongs to the
//! epoch's parity. Suppose a sender stores for epoch *e* + 2. The sender has notified *e* + 2, so
//! it has completed *e* + 1, so the receiver has notified *e* + 1. A rank notifies only after it
//! has completed the previous epoch, so the receiver has completed *e*, for which it read every one
//! of its cells of *e*. The store for *e* + 2 therefore destroys nothing that is still needed, and
//! no message of *e* to that cell can still be in flight and arrive later. Hence a rank in epoch
//! *e* finds, in a cell of that epoch's parity, either the word of *e* or the word of *e* − 2 (or
//! zero in the first two epochs).
//!
//! For the same reason the 24 bits of the epoch may wrap: they need only distinguish *e* from *e* −
//! 2. The number of distinct epochs is even, so parity keeps alternating across the wrap. When
//! epoch 2²⁴ begins, whose 24 bits are zero, no cell still holds its initial zero, because every
//! epoch writes all cells of its parity.

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
    /// Notify was called again before the previously notified barrier was finished.
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

/// The state machine of one rank for the barriers of a job. See the [module](self) for the
/// algorithm.
///
/// Call [`notify`](Self::notify), then call [`advance`](Self::advance) whenever the rank polls
/// until `advance` returns that the barrier is complete, then call [`finish`](Self::finish). Each
/// message that `notify` and `advance` pass to `send` must reach its cell exactly once, in any
/// order.
#[derive(Clone, Debug)]
pub struct Barrier {
    layout: Layout,
    rank: u32,
    phase: Phase,
    /// The number of barriers notified so far. The words sent carry its low 24 bits.
    epoch: u64,
    /// The value merged so far in this epoch.
    merged: Value,
    round: u32,
    /// `radix^round`.
    distance: u32,
    /// The slot of the first sender in this round whose message is missing. That sender is `slot ·
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

    /// Reads the messages that have arrived and advances as many rounds as they allow. `cell` loads
    /// one of this rank's cells and must use acquire ordering; `send` is used as in
    /// [`notify`](Self::notify).
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

    /// Returns whether the barrier is notified but not complete, in which case
    /// [`advance`](Self::advance) must be called.
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

    /// Returns a rank whose message is missing, or `None` if the barrier is not pending. That rank
    /// may be late, or may itself be waiting for another rank.
    #[must_use]
    pub fn waits_for(&self) -> Option<u32> {
        let behind = (self.phase == Phase::Pending).then(|| self.slot * self.distance)?;
        Some(if self.rank >= behind {
            self.rank - behind
        } else {
            self.layout.size() - (behind - self.rank)
        })
    }

    /// Finishes a complete barrier, on behalf of wait or try. Returns `None` if the barrier is not
    /// complete.
    ///
    /// `value` is the value passed to wait. If `value` is an id, it must equal the id, if any, on
    /// which all ranks agreed. The caller may be anonymous in notify and named in wait, and vice
    /// versa (GASNet-EX allows both). Only this caller sees a mismatch caused by its own `value`;
    /// the barrier ends nevertheless.
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
                    // If only this caller's wait had an id, no other rank knows it, so it is not
                    // part of the outcome.
                    _ => self.merged.into(),
                }))
            }
        }
    }

    /// Returns the outcome on which all ranks agreed for the last completed barrier, whatever was
    /// passed to wait (`gasnet_barrier_result`). Returns `None` before the first barrier has
    /// completed.
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
            // Both `rank` and the offset are below the size, so one subtraction replaces a
            // remainder.
            let target = if ahead < size { ahead } else { ahead - size };
            send(target as u32, self.layout.position(self.cell(slot)), word);
        }
    }
}
