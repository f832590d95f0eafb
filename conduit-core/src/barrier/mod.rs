//! The split-phase barrier, as a state machine without I/O: start from [`Barrier`].
//!
//! # Algorithm
//! Dissemination of radix *r* (Hensgen, Finkel and Manber's barrier, generalised from 2): in round
//! *k* rank *i* sends what it knows to the ranks (*i* + *j*·*rᵏ*) mod *n* for *j* = 1 … *r* − 1
//! while *j*·*rᵏ* < *n*, and goes on to the next round when it has the messages of its own
//! partners. After the last round everybody knows of everybody. What is known is a [`Value`];
//! [merging](Value::merge) is idempotent, so it does no harm that a rank's value reaches another
//! along several ways when *n* is no power of *r*.
//!
//! # Cells
//! A message is one word of 64 bits, to be stored in one *cell* of the receiver: by the sender
//! where the receiver's memory is mapped, else by the receiver's handler of the system message.
//! [`Layout`] says where. The store has to be a release and the load an acquire; then everything
//! that any rank wrote before its notify is visible to every rank after its wait, because each hop
//! of the dissemination passes on what it acquired.
//!
//! A cell counts only when the epoch in it is the machine's own, so cells are never cleared. The
//! first epoch is 1: zeroed memory counts for nothing.
//!
//! # Why two sets of cells are enough
//! Each cell has one writer, which stores once per epoch to the set of the epoch's parity. Suppose
//! a sender stores for epoch *e* + 2. It has been notified of *e* + 2, so it has completed *e* + 1,
//! so the receiver has notified *e* + 1, and a rank notifies only after it completed the epoch
//! before: the receiver has completed *e*. For that it took every cell of *e* of its own, so the
//! store for *e* + 2 destroys nothing that is still needed, and no message of *e* to that cell can
//! be on its way any more to arrive later. Therefore a rank in epoch *e* finds in a cell of its
//! parity either the word of *e* or that of *e* − 2 (or zero in the first two epochs), and never
//! another.
//!
//! This is also why the 24 bits of epoch may wrap: they only tell *e* from *e* − 2. The number of
//! epochs is even, so parity goes on alternating across the wrap; and when epoch 2²⁴, whose bits
//! are zero, comes, no cell is left that has never been written, since every epoch writes every
//! cell of its parity.

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
    /// Notify while the barrier notified before has not been waited for.
    #[error("rank {rank}: barrier notify twice without a wait or a successful try between")]
    NotifyTwice {
        /// The calling rank.
        rank: u32,
    },
    /// [`Value::Quiesce`] or [`Value::Finish`] while a barrier that was notified has not been
    /// waited for.
    #[error("rank {rank}: a barrier has been notified, and seen no wait or successful try since")]
    Between {
        /// The calling rank.
        rank: u32,
    },
    /// Wait or try without a notify before.
    #[error("rank {rank}: barrier wait or try without a notify before")]
    NoNotify {
        /// The calling rank.
        rank: u32,
    },
}

/// How a barrier ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BarrierOutcome {
    /// All ids were the same, and this one; `None` when all ranks were anonymous.
    Match(Option<u32>),
    /// Ids differed, or a rank asked for a mismatch (`GASNET_ERR_BARRIER_MISMATCH`); or calls met
    /// that are not the same.
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
    /// Notified; messages are still missing.
    Pending,
    /// All messages are in; the caller has not yet waited.
    Complete,
}

/// One rank's part in the barriers of a job. See the [module](self) for the algorithm.
///
/// Call [`notify`](Self::notify); then [`advance`](Self::advance) whenever the rank polls, until it
/// says that the barrier is complete; then [`finish`](Self::finish). The messages that `notify` and
/// `advance` hand out must all reach their cells, each once, in any order.
#[derive(Clone, Debug)]
pub struct Barrier {
    layout: Layout,
    rank: u32,
    phase: Phase,
    /// Barriers notified so far; words carry the low 24 bits.
    epoch: u64,
    /// What is known in this epoch.
    merged: Value,
    round: u32,
    /// `radix^round`.
    distance: u32,
    /// The first sender of this round whose message is missing: `slot · distance` ranks behind.
    slot: u32,
    last: Option<BarrierOutcome>,
}

impl Barrier {
    /// The machine of `rank`, one of `size`, before the first barrier. `size` and `radix` as for
    /// [`Layout::new`].
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

    /// The layout of the cells.
    #[must_use]
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Number of cells (words of 64 bits, zero at the start) that this rank provides.
    #[must_use]
    pub fn cells(&self) -> usize {
        self.layout.cells()
    }

    /// Starts a barrier with this rank's value. `send` gets each message: target rank, cell there,
    /// word.
    ///
    /// # Errors
    /// [`BarrierError::NotifyTwice`] or [`BarrierError::Between`] when the barrier before has not
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

    /// Takes what has arrived and moves on as many rounds as that allows. `cell` loads one of this
    /// rank's cells (with acquire ordering); `send` is as for [`notify`](Self::notify).
    ///
    /// True when the barrier is complete and can be [finished](Self::finish); false while it is
    /// pending, and when none has been notified.
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
                // Below the size, since the round exists.
                self.distance *= self.layout.radix();
                self.slot = 1;
                self.send_round(&mut send);
            }
        }
        self.phase == Phase::Complete
    }

    /// True from notify until the barrier is complete: [`advance`](Self::advance) has something to
    /// do.
    #[inline]
    #[must_use]
    pub fn is_pending(&self) -> bool {
        self.phase == Phase::Pending
    }

    /// True from notify until the barrier is finished.
    #[inline]
    #[must_use]
    pub fn is_notified(&self) -> bool {
        self.phase != Phase::Idle
    }

    /// A rank whose message is missing, while the barrier is pending. It may be late itself, or
    /// wait for another.
    #[must_use]
    pub fn waits_for(&self) -> Option<u32> {
        let behind = (self.phase == Phase::Pending).then(|| self.slot * self.distance)?;
        Some(if self.rank >= behind {
            self.rank - behind
        } else {
            self.layout.size() - (behind - self.rank)
        })
    }

    /// Ends a complete barrier (the wait or try side); `None` while it is not complete.
    ///
    /// `value` is what the caller gives to wait. An id there must be the one all ranks agreed on,
    /// if there is one; the caller may be anonymous in notify and named in wait, and the reverse
    /// (GASNet-EX allows both). A mismatch of this kind is seen by this caller only, and the
    /// barrier is over all the same.
    ///
    /// # Errors
    /// [`BarrierError::NoNotify`] when no barrier has been notified.
    #[inline]
    pub fn finish(&mut self, value: Value) -> Result<Option<BarrierOutcome>, BarrierError> {
        match self.phase {
            Phase::Idle => Err(BarrierError::NoNotify { rank: self.rank }),
            Phase::Pending => Ok(None),
            Phase::Complete => {
                self.phase = Phase::Idle;
                Ok(Some(match self.merged.merge(value) {
                    Value::Mismatch(calls) => BarrierOutcome::Mismatch(calls),
                    // Nobody else has heard of an id that only this caller's wait has.
                    _ => self.merged.into(),
                }))
            }
        }
    }

    /// How the barrier completed last ended for all ranks, whatever was given to wait; `None`
    /// before the first (`gasnet_barrier_result`).
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

    /// The messages of the round that starts now.
    #[inline]
    fn send_round(&self, mut send: impl FnMut(u32, usize, u64)) {
        let word = self.merged.word(self.epoch);
        for slot in 1..=self.layout.fan_out(self.distance) {
            let ahead = u64::from(self.rank) + u64::from(slot * self.distance);
            let size = u64::from(self.layout.size());
            // Both terms are below the size, so one subtraction does what a remainder would.
            let target = if ahead < size { ahead } else { ahead - size };
            send(target as u32, self.layout.position(self.cell(slot)), word);
        }
    }
}
