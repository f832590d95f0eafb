//! How far a rank may run ahead at a peer.
//!
//! A rank never refuses what arrives: responses may be behind it, and refusing requests until there is room could wait for
//! itself. Instead each rank has a *window* at each peer: operations that it has sent and the peer has not *taken* yet, and units
//! of 64 bytes that they may need there until they are delivered. A peer has taken an operation when nothing of it is left in
//! its queues. It tells how many it has taken so far with every tiny fragment, and by a fragment of its own when half of a
//! window is untold; so a window of at least two of the largest messages never stands still while the peer takes.

use super::buffers::UNIT;
use super::wire::Taken;

/// What an operation uses of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Cost {
    pub(super) operations: u16,
    pub(super) units: u16,
}

impl Cost {
    /// Of an operation without bytes that might have to wait at the target.
    pub(super) const HEADER: Self = Self {
        operations: 1,
        units: 0,
    };

    /// Of a put. One that is too long for managed entries waits nowhere.
    #[inline]
    pub(super) fn of_put(length: usize, max_managed: usize) -> Self {
        Self {
            operations: 1,
            units: match length <= max_managed {
                // Fits: `max_managed` is at most 4096 units.
                true => length.div_ceil(UNIT) as u16,
                false => 0,
            },
        }
    }
}

/// The size of all windows of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) operations: u16,
    pub(super) units: u16,
}

impl Size {
    /// Shares `bytes` out among `peers`.
    pub(super) fn new(operations: u16, bytes: usize, max_managed: usize, peers: usize) -> Self {
        let least = 2 * max_managed.div_ceil(UNIT) + 2;
        let share = bytes / peers.max(1) / UNIT;
        Self {
            operations,
            // Counters of 16 bits are compared by their difference.
            units: share.clamp(least, 1 << 15) as u16,
        }
    }
}

/// The initiator's side: what it has sent, and what of it the peer has taken.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Sent {
    operations: u16,
    units: u16,
    taken: Taken,
}

impl Sent {
    /// Counts an operation, if the window has room for it.
    #[inline]
    pub(super) fn take(&mut self, cost: Cost, size: Size) -> bool {
        let operations = self.operations.wrapping_sub(self.taken.operations);
        let units = self.units.wrapping_sub(self.taken.units);
        let fits = operations < size.operations
            && u32::from(units) + u32::from(cost.units) <= u32::from(size.units);
        if fits {
            self.operations = self.operations.wrapping_add(cost.operations);
            self.units = self.units.wrapping_add(cost.units);
        }
        fits
    }

    /// Undoes [`Sent::take`] of an operation that was not sent after all.
    #[inline]
    pub(super) fn untake(&mut self, cost: Cost) {
        self.operations = self.operations.wrapping_sub(cost.operations);
        self.units = self.units.wrapping_sub(cost.units);
    }

    /// Hears what the peer has taken; false if that is more than was sent.
    #[inline]
    pub(super) fn hear(&mut self, taken: Taken) -> bool {
        let right = taken.operations.wrapping_sub(self.taken.operations)
            <= self.operations.wrapping_sub(self.taken.operations)
            && taken.units.wrapping_sub(self.taken.units)
                <= self.units.wrapping_sub(self.taken.units);
        if right {
            self.taken = taken;
        }
        right
    }
}

/// The target's side: what has arrived of a peer, what of it was taken, and what of that the peer was told.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Arrived {
    arrived: Taken,
    taken: Taken,
    told: Taken,
}

impl Arrived {
    /// Counts an operation; false if the peer has overrun its window.
    #[inline]
    pub(super) fn arrive(&mut self, cost: Cost, size: Size) -> bool {
        self.arrived.operations = self.arrived.operations.wrapping_add(cost.operations);
        self.arrived.units = self.arrived.units.wrapping_add(cost.units);
        self.arrived.operations.wrapping_sub(self.told.operations) <= size.operations
            && self.arrived.units.wrapping_sub(self.told.units) <= size.units
    }

    /// Counts what was taken.
    #[inline]
    pub(super) fn take(&mut self, cost: Cost) {
        self.taken.operations = self.taken.operations.wrapping_add(cost.operations);
        self.taken.units = self.taken.units.wrapping_add(cost.units);
    }

    /// What to tell, also again.
    #[inline]
    pub(super) fn tell(&mut self) -> Taken {
        self.told = self.taken;
        self.told
    }

    /// What was told last.
    #[inline]
    pub(super) fn told(&self) -> Taken {
        self.told
    }

    /// Whether half of a window is untold.
    #[inline]
    pub(super) fn is_due(&self, size: Size) -> bool {
        let operations = self.taken.operations.wrapping_sub(self.told.operations);
        let units = self.taken.units.wrapping_sub(self.told.units);
        operations >= size.operations / 2 || units >= size.units / 2
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// One rank sends, the other takes and tells when it is due or now and then: whatever the sizes, the sender's window
        /// never stays full once all was taken, the target's count is never overrun, and the counters may wrap.
        #[test]
        fn a_window_never_stands_still(
            operations in 2_u16..300,
            max_managed in 1_usize..300_000,
            bytes in 0_usize..1 << 22,
            peers in 1_usize..64,
            steps in prop::collection::vec((0_usize..400_000, 0_usize..4), 1..400),
        ) {
            let max_managed = max_managed.min(super::super::config::MAX_MANAGED);
            let size = Size::new(operations, bytes, max_managed, peers);
            let (mut sent, mut arrived) = (Sent::default(), Arrived::default());
            let mut waiting = Vec::new();
            // Near the wrap.
            for counter in [&mut sent.operations, &mut sent.taken.operations, &mut arrived.arrived.operations,
                &mut arrived.taken.operations, &mut arrived.told.operations] {
                *counter = u16::MAX - 100;
            }
            for (length, action) in steps {
                let cost = Cost::of_put(length, max_managed);
                if !sent.take(cost, size) {
                    // All that waits is taken; what is due is told.
                    for cost in waiting.drain(..) {
                        arrived.take(cost);
                        if arrived.is_due(size) {
                            prop_assert!(sent.hear(arrived.tell()));
                        }
                    }
                    prop_assert!(sent.take(cost, size));
                }
                prop_assert!(arrived.arrive(cost, size));
                waiting.push(cost);
                if action == 0 {
                    arrived.take(waiting.remove(0));
                }
                if action == 1 || arrived.is_due(size) {
                    prop_assert!(sent.hear(arrived.tell()));
                }
            }
        }
    }

    #[test]
    fn overrunning_is_noticed() {
        let size = Size::new(4, 0, 640, 1);
        let cost = Cost::of_put(64, 640);
        let (mut sent, mut arrived) = (Sent::default(), Arrived::default());
        for _ in 0..4 {
            assert!(sent.take(cost, size));
            assert!(arrived.arrive(cost, size));
        }
        assert!(!sent.take(cost, size));
        assert!(!arrived.arrive(cost, size));
        let taken = |operations, units| Taken { operations, units };
        assert!(!sent.hear(taken(5, 4)), "more than was sent");
        assert!(!sent.hear(taken(4, 5)));
        assert!(sent.hear(taken(2, 2)));
        assert!(!sent.hear(taken(1, 2)), "less than before");
        assert!(sent.take(cost, size));
    }
}
