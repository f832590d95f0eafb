//! How far a rank may run ahead at a peer.
//!
//! A rank never refuses what arrives: responses may be behind it, and refusing requests until there is room could wait for
//! itself. Instead each rank has a *window* at each peer: operations that it has sent and the peer has not *taken* yet, and units
//! of 64 bytes that they may need there until they are delivered. A peer has taken an operation when nothing of it is left in
//! its queues; a short put in a `mailbox`, of which each queue has one, counts as taken. It tells how many it has taken so far with
//! the next tiny fragment when an eighth of a window is untold, and by a fragment of its own when half of one is; so a window of at
//! least two of the largest messages never stands still while the peer takes.
//!
//! There are several windows, and the target's index says which one an operation uses: a rank that takes nothing of one queue
//! (no requests, until its replies have gone) must not hold back what goes to another (its peers' replies). Two ranks whose
//! requests fill each other's windows could not answer any otherwise.

use super::buffers::UNIT;
use super::wire::{Taken, Told};

/// Windows at each peer. Indices whose numbers are the same modulo this share one.
pub(crate) const WINDOWS: usize = 4;

/// What an operation uses of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Cost {
    pub(crate) operations: u16,
    pub(crate) units: u16,
    /// Which window, less than [`WINDOWS`].
    window: u8,
}

impl Cost {
    /// Of an operation to an index without bytes that might have to wait at the target.
    #[inline]
    pub(crate) fn of_header(index: u8) -> Self {
        Self {
            operations: 1,
            units: 0,
            window: index % WINDOWS as u8,
        }
    }

    /// Of a put to an index that is short enough for a managed entry.
    #[inline(always)]
    pub(crate) fn of_short(index: u8, length: usize) -> Self {
        Self {
            window: index % WINDOWS as u8,
            operations: 1,
            // Fits: as below.
            units: length.div_ceil(UNIT) as u16,
        }
    }

    /// Of a put to an index. One that is too long for managed entries waits nowhere.
    #[inline]
    pub(crate) fn of_put(index: u8, length: usize, max_managed: usize) -> Self {
        Self {
            window: index % WINDOWS as u8,
            operations: 1,
            units: match length <= max_managed {
                // Fits: `max_managed` is at most 4096 units.
                true => length.div_ceil(UNIT) as u16,
                false => 0,
            },
        }
    }
}

impl Cost {
    /// Adds another one's, if it is of the same window. The sum is within that window.
    #[inline]
    pub(crate) fn add(&mut self, other: Self) -> bool {
        let same = self.window == other.window;
        if same {
            self.operations = self.operations.wrapping_add(other.operations);
            self.units = self.units.wrapping_add(other.units);
        }
        same
    }

    #[inline]
    fn window(self) -> usize {
        usize::from(self.window) % WINDOWS
    }
}

/// The size of each window of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) operations: u16,
    pub(crate) units: u16,
}

impl Size {
    /// One of so many parts.
    #[inline]
    fn part(self, parts: u16) -> Self {
        Self {
            operations: self.operations / parts,
            units: self.units / parts,
        }
    }

    /// Shares `bytes` out among `peers` and their windows.
    pub(crate) fn new(operations: u16, bytes: usize, max_managed: usize, peers: usize) -> Self {
        let least = 2 * max_managed.div_ceil(UNIT) + 2;
        let share = bytes / (WINDOWS * peers.max(1)) / UNIT;
        Self {
            operations,
            // Counters of 16 bits are compared by their difference.
            units: share.clamp(least, 1 << 15) as u16,
        }
    }
}

/// The initiator's side of a window: what it has sent, and what of it the peer has taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Out {
    operations: u16,
    units: u16,
    taken: Taken,
}

/// The initiator's side of all windows at a peer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Sent([Out; WINDOWS]);

impl Sent {
    /// Counts an operation, if its window has room for it.
    #[inline]
    pub(crate) fn take(&mut self, cost: Cost, size: Size) -> bool {
        let out = &mut self.0[cost.window()];
        let operations = out.operations.wrapping_sub(out.taken.operations);
        let units = out.units.wrapping_sub(out.taken.units);
        let fits = operations < size.operations
            && u32::from(units) + u32::from(cost.units) <= u32::from(size.units);
        if fits {
            out.operations = out.operations.wrapping_add(cost.operations);
            out.units = out.units.wrapping_add(cost.units);
        }
        fits
    }

    /// Undoes [`Sent::take`] of an operation that was not sent after all.
    #[inline]
    pub(crate) fn untake(&mut self, cost: Cost) {
        let out = &mut self.0[cost.window()];
        out.operations = out.operations.wrapping_sub(cost.operations);
        out.units = out.units.wrapping_sub(cost.units);
    }

    /// Hears what the peer has taken; false if that is more than was sent, or of no window.
    #[inline]
    pub(crate) fn hear(&mut self, told: Told) -> bool {
        let Some(out) = self.0.get_mut(usize::from(told.window)) else {
            return false;
        };
        let taken = told.taken;
        // Nothing new, as mostly.
        if taken == out.taken {
            return true;
        }
        let right = taken.operations.wrapping_sub(out.taken.operations)
            <= out.operations.wrapping_sub(out.taken.operations)
            && taken.units.wrapping_sub(out.taken.units) <= out.units.wrapping_sub(out.taken.units);
        if right {
            out.taken = taken;
        }
        right
    }
}

/// The target's side of a window: what has arrived of a peer, what of it was taken, and what of that the peer was told.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct In {
    arrived: Taken,
    taken: Taken,
    told: Taken,
}

impl In {
    /// Whether this part of the window is untold.
    #[inline]
    fn is_untold(&self, part: Size) -> bool {
        let operations = self.taken.operations.wrapping_sub(self.told.operations);
        let units = self.taken.units.wrapping_sub(self.told.units);
        operations >= part.operations || units >= part.units
    }
}

/// How much of a window is told with what goes to the peer anyhow, and how much for its own sake: an eighth and half of it.
const WORTH: u16 = 8;
const DUE: u16 = 2;

/// The target's side of all windows of a peer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Arrived {
    windows: [In; WINDOWS],
    /// Those of which enough is untold to be told, a bit each.
    untold: u8,
    /// Of which one was told last.
    last: u8,
}

impl Arrived {
    /// Counts an operation; false if the peer has overrun its window.
    #[inline]
    pub(crate) fn arrive(&mut self, cost: Cost, size: Size) -> bool {
        let window = &mut self.windows[cost.window()];
        let arrived = &mut window.arrived;
        arrived.operations = arrived.operations.wrapping_add(cost.operations);
        arrived.units = arrived.units.wrapping_add(cost.units);
        arrived.operations.wrapping_sub(window.told.operations) <= size.operations
            && arrived.units.wrapping_sub(window.told.units) <= size.units
    }

    /// Whether an operation would be within its window.
    #[inline(always)]
    pub(crate) fn has_room(&self, cost: Cost, size: Size) -> bool {
        let In { arrived, told, .. } = self.windows[cost.window()];
        arrived.operations.wrapping_sub(told.operations) < size.operations
            && u32::from(arrived.units.wrapping_sub(told.units)) + u32::from(cost.units)
                <= u32::from(size.units)
    }

    /// Counts an operation that [has room](Self::has_room) and is taken at once. Whether half of its window is untold.
    #[inline(always)]
    pub(crate) fn arrive_taken(&mut self, cost: Cost, size: Size) -> bool {
        let arrived = &mut self.windows[cost.window()].arrived;
        arrived.operations = arrived.operations.wrapping_add(cost.operations);
        arrived.units = arrived.units.wrapping_add(cost.units);
        self.take(cost, size)
    }

    /// Counts what was taken. Whether half of its window is untold.
    #[inline(always)]
    pub(crate) fn take(&mut self, cost: Cost, size: Size) -> bool {
        let window = &mut self.windows[cost.window()];
        window.taken.operations = window.taken.operations.wrapping_add(cost.operations);
        window.taken.units = window.taken.units.wrapping_add(cost.units);
        if !window.is_untold(size.part(WORTH)) {
            return false;
        }
        self.untold |= 1 << cost.window();
        window.is_untold(size.part(DUE))
    }

    /// Whether there is something to tell.
    #[inline(always)]
    pub(crate) fn has_news(&self) -> bool {
        self.untold != 0
    }

    /// What to tell next: of the next window that has something to tell, or once more of the last. It is told when
    /// [`told`](Self::told) says so.
    #[inline]
    pub(crate) fn news(&self) -> Told {
        if !self.has_news() {
            return self.old();
        }
        let next = usize::from(self.last) + 1;
        // Twice in a row, so that it goes on behind the last window.
        let twice = u32::from(self.untold) << WINDOWS | u32::from(self.untold);
        let window = (next + (twice >> next).trailing_zeros() as usize) % WINDOWS;
        Told {
            // Fits: there are few.
            window: window as u8,
            taken: self.windows[window].taken,
        }
    }

    /// What was told last, to tell it again.
    #[inline]
    pub(crate) fn old(&self) -> Told {
        Told {
            window: self.last,
            taken: self.windows[usize::from(self.last) % WINDOWS].told,
        }
    }

    /// The peer will hear this.
    #[inline]
    pub(crate) fn told(&mut self, told: Told) {
        self.last = told.window;
        let number = usize::from(told.window) % WINDOWS;
        let window = &mut self.windows[number];
        window.told = told.taken;
        if window.taken == told.taken {
            self.untold &= !(1 << number);
        }
    }

    /// Whether half of some window is untold.
    #[inline]
    pub(crate) fn is_due(&self, size: Size) -> bool {
        let half = size.part(DUE);
        self.windows.iter().any(|window| window.is_untold(half))
    }

    /// What has to be kept, if all that has arrived was taken.
    pub(crate) fn rest(&self) -> Option<RestingIn> {
        let settled = |window: &In| window.arrived == window.taken;
        self.windows
            .iter()
            .all(settled)
            .then(|| RestingIn(self.windows.map(|In { taken, told, .. }| [taken, told])))
    }

    /// Of which window something was told last.
    pub(crate) fn last_told(&self) -> u8 {
        self.last
    }

    /// From what was kept, and [`last_told`](Self::last_told).
    pub(crate) fn resume(resting: &RestingIn, last: u8, size: Size) -> Self {
        let windows = resting.0.map(|[taken, told]| In {
            arrived: taken,
            taken,
            told,
        });
        let worth = |window: &In| window.taken != window.told && window.is_untold(size.part(WORTH));
        let untold = (0..)
            .zip(&windows)
            .map(|(number, window)| u8::from(worth(window)) << number);
        Self {
            untold: untold.sum(),
            windows,
            last,
        }
    }
}

/// [`Arrived`] of a peer of which nothing waits: what was taken, and what of it was told.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RestingIn([[Taken; 2]; WINDOWS]);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Tells what is new.
    fn tell(arrived: &mut Arrived) -> Told {
        let told = arrived.news();
        arrived.told(told);
        told
    }

    proptest! {
        /// One rank sends, the other takes and tells when it is due or now and then: whatever the sizes, no window of the sender
        /// stays full once all of it was taken, whatever others hold; the target's count is never overrun, and the counters
        /// may wrap.
        #[test]
        fn a_window_never_stands_still(
            operations in 2_u16..300,
            max_managed in 1_usize..300_000,
            bytes in 0_usize..1 << 22,
            peers in 1_usize..64,
            steps in prop::collection::vec((0_u8..16, 0_usize..400_000, 0_usize..4), 1..400),
        ) {
            let max_managed = max_managed.min(super::super::config::MAX_MANAGED);
            let size = Size::new(operations, bytes, max_managed, peers);
            let (mut sent, mut arrived) = (Sent::default(), Arrived::default());
            let mut waiting: [Vec<Cost>; WINDOWS] = Default::default();
            // Near the wrap.
            for window in 0..WINDOWS {
                let (out, inn) = (&mut sent.0[window], &mut arrived.windows[window]);
                for counter in [&mut out.operations, &mut out.taken.operations, &mut inn.arrived.operations,
                    &mut inn.taken.operations, &mut inn.told.operations] {
                    *counter = u16::MAX - 100;
                }
            }
            for (index, length, action) in steps {
                let cost = Cost::of_put(index, length, max_managed);
                if !sent.take(cost, size) {
                    // All that waits in this window is taken, nothing of the others; what is due is told.
                    for cost in waiting[cost.window()].drain(..) {
                        if arrived.take(cost, size) {
                            while arrived.is_due(size) {
                                prop_assert!(sent.hear(tell(&mut arrived)));
                            }
                        }
                    }
                    prop_assert!(sent.take(cost, size));
                }
                prop_assert!(arrived.arrive(cost, size));
                waiting[cost.window()].push(cost);
                if action == 0 {
                    arrived.take(waiting[cost.window()].remove(0), size);
                }
                if action == 1 {
                    prop_assert!(sent.hear(tell(&mut arrived)));
                }
                while arrived.is_due(size) {
                    prop_assert!(sent.hear(tell(&mut arrived)));
                }
            }
        }
    }

    #[test]
    fn overrunning_is_noticed() {
        let size = Size::new(4, 0, 640, 1);
        let cost = Cost::of_put(2, 64, 640);
        let (mut sent, mut arrived) = (Sent::default(), Arrived::default());
        for _ in 0..4 {
            assert!(sent.take(cost, size));
            assert!(arrived.arrive(cost, size));
        }
        assert!(!sent.take(cost, size));
        assert!(!arrived.arrive(cost, size));
        let told = |operations, units| Told {
            window: 2,
            taken: Taken { operations, units },
        };
        assert!(!sent.hear(told(5, 4)), "more than was sent");
        assert!(!sent.hear(told(4, 5)));
        assert!(sent.hear(told(2, 2)));
        assert!(!sent.hear(told(1, 2)), "less than before");
        assert!(sent.take(cost, size));
        let nowhere = Told {
            window: WINDOWS as u8,
            taken: Taken::default(),
        };
        assert!(!sent.hear(nowhere));
        // Another index' window has room all the while.
        assert!(sent.take(Cost::of_header(1), size));
    }

    /// What did not reach the peer is told again.
    #[test]
    fn news_are_told_once_of_each_window() {
        let size = Size::new(100, 0, 640, 1);
        let mut arrived = Arrived::default();
        for taken in 1..=100 / WORTH {
            assert!(!arrived.has_news(), "too few to be told: {taken}");
            for index in 0..4 {
                let cost = Cost::of_header(index);
                assert!(arrived.arrive(cost, size));
                assert!(!arrived.take(cost, size));
            }
        }
        assert_eq!(arrived.news(), arrived.news());
        let mut windows = [0; WINDOWS].map(|_| tell(&mut arrived).window);
        windows.sort_unstable();
        assert_eq!(windows, [0, 1, 2, 3]);
        assert_eq!(arrived.news(), arrived.old());
    }
}
