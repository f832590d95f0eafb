//! Flow control, which limits how far a rank may run ahead of a peer.
//!
//! A rank never refuses an arrival, because responses may be behind it, and refusing requests until
//! there is room could deadlock. Instead, each rank has a *window* at each peer. The window limits
//! the number of operations that the rank has sent and the peer has not yet *consumed*, and the
//! number of 64-byte units of memory that these operations may need at the peer until they are
//! delivered. An operation is consumed when the peer's queues hold nothing of it. A short put in a
//! queue's `mailbox` counts as consumed. The peer reports consumption in *window updates*: with the
//! next tiny fragment when an eighth of a window is unreported, and in a separate fragment when
//! half of the window is unreported. A window of at least two of the largest messages therefore
//! never stalls while the peer consumes.
//!
//! Each rank has several windows at each peer, and the index at the target selects the one that an
//! operation uses. A rank that consumes nothing from one queue (for example no requests until its
//! replies are sent) must not hold back traffic to another of its queues (for example its peers'
//! replies). Otherwise two ranks whose requests fill each other's windows could not reply.
//!
//! All windows of a job have one size, except that those of a few peers may be wider
//! ([`super::wide`]). A wider window has a higher limit, but consumption in it is reported after
//! the same amounts.

use super::buffers::UNIT;
use super::wire::{WindowCount, WindowUpdate};

/// Number of windows at each peer. Indices that are equal modulo this number share a window.
pub(crate) const WINDOWS: usize = 4;

/// The number of units in the largest window. It is bounded because 16-bit counters are compared by
/// computing their difference.
const MOST_UNITS: usize = 1 << 15;

/// The share of a window that an operation uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Cost {
    pub(crate) operations: u16,
    pub(crate) units: u16,
    /// The number of the window, less than [`WINDOWS`].
    window: u8,
}

impl Cost {
    /// Returns the cost of an operation that needs no memory for waiting bytes at the target.
    #[inline]
    pub(crate) fn of_header(index: u8) -> Self {
        Self::of_short(index, 0)
    }

    /// Returns the cost of a put that is short enough for a managed entry.
    #[inline(always)]
    pub(crate) fn of_short(index: u8, length: usize) -> Self {
        Self {
            window: index % WINDOWS as u8,
            operations: 1,
            // The cast is lossless: `max_managed` is at most 4096 units.
            units: length.div_ceil(UNIT) as u16,
        }
    }

    /// Returns the cost of a put. A put that is too long for managed entries needs no buffer.
    #[inline]
    pub(crate) fn of_put(index: u8, length: usize, max_managed: usize) -> Self {
        match length <= max_managed {
            true => Self::of_short(index, length),
            false => Self::of_header(index),
        }
    }

    /// Adds the cost of another operation if both use the same window, and returns whether they do.
    /// The sum must be within that window.
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

impl WindowCount {
    #[inline(always)]
    fn add(&mut self, cost: Cost) {
        self.operations = self.operations.wrapping_add(cost.operations);
        self.units = self.units.wrapping_add(cost.units);
    }

    /// Returns the difference from an earlier count.
    #[inline(always)]
    fn since(self, earlier: Self) -> Self {
        Self {
            operations: self.operations.wrapping_sub(earlier.operations),
            units: self.units.wrapping_sub(earlier.units),
        }
    }

    /// Returns whether a window of this size that already contains this count has room for an
    /// operation.
    #[inline(always)]
    fn has_room(self, cost: Cost, size: WindowSize) -> bool {
        self.operations < size.operations
            && u32::from(self.units) + u32::from(cost.units) <= u32::from(size.units)
    }
}

/// The size of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WindowSize {
    pub(crate) operations: u16,
    pub(crate) units: u16,
}

impl WindowSize {
    /// Returns the size of a window if `bytes` are divided equally among `peers` and their windows,
    /// clamped to the permitted sizes.
    pub(crate) fn new(operations: u16, bytes: usize, max_managed: usize, peers: usize) -> Self {
        let share = bytes / (WINDOWS * peers.max(1)) / UNIT;
        Self {
            operations,
            units: share.clamp(Self::least(max_managed), MOST_UNITS) as u16,
        }
    }

    /// Returns the number of units in the smallest window that never stalls.
    fn least(max_managed: usize) -> usize {
        2 * max_managed.div_ceil(UNIT) + 2
    }

    /// Returns whether this is the smallest window, which is the case if the shared bytes sufficed
    /// for no larger one.
    pub(crate) fn is_least(self, max_managed: usize) -> bool {
        usize::from(self.units) == Self::least(max_managed)
    }

    /// Returns a window that holds this many bytes, and is not smaller than this one.
    pub(crate) fn widened(self, bytes: u32) -> Self {
        let units = (bytes as usize / UNIT).min(MOST_UNITS) as u16;
        Self {
            units: units.max(self.units),
            ..self
        }
    }
}

/// The initiator's side of a window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct SendWindow {
    sent: WindowCount,
    /// The part of `sent` that the peer has consumed.
    consumed: WindowCount,
}

/// The initiator's side of all windows at a peer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SendWindows([SendWindow; WINDOWS]);

impl SendWindows {
    /// Counts an operation as sent, if its window has room for it.
    #[inline]
    pub(crate) fn reserve(&mut self, cost: Cost, size: WindowSize) -> bool {
        let SendWindow { sent, consumed } = &mut self.0[cost.window()];
        let fits = sent.since(*consumed).has_room(cost, size);
        if fits {
            sent.add(cost);
        }
        fits
    }

    /// Undoes [`SendWindows::reserve`] for an operation that was not sent after all.
    #[inline]
    pub(crate) fn release(&mut self, cost: Cost) {
        let sent = &mut self.0[cost.window()].sent;
        sent.operations = sent.operations.wrapping_sub(cost.operations);
        sent.units = sent.units.wrapping_sub(cost.units);
    }

    /// Returns whether the operations in flight fit windows of this size.
    pub(crate) fn fit(&self, size: WindowSize) -> bool {
        let mut windows = self.0.iter();
        windows.all(|window| window.sent.since(window.consumed).units <= size.units)
    }

    /// Applies a peer's update; returns `false` if it reports more than was sent, or an unknown
    /// window.
    #[inline]
    pub(crate) fn apply(&mut self, update: WindowUpdate) -> bool {
        let Some(window) = self.0.get_mut(usize::from(update.window)) else {
            return false;
        };
        // Most updates report nothing new.
        if update.consumed == window.consumed {
            return true;
        }
        let new = update.consumed.since(window.consumed);
        let outstanding = window.sent.since(window.consumed);
        let valid = new.operations <= outstanding.operations && new.units <= outstanding.units;
        if valid {
            window.consumed = update.consumed;
        }
        valid
    }
}

/// The target's side of a window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct ReceiveWindow {
    arrived: WindowCount,
    /// The part of `arrived` that was consumed.
    consumed: WindowCount,
    /// The part of `consumed` that was reported to the peer.
    reported: WindowCount,
}

impl ReceiveWindow {
    /// Returns whether at least a fraction `1 / parts` of the window is unreported.
    #[inline]
    fn is_unreported(&self, size: WindowSize, parts: u16) -> bool {
        let unreported = self.consumed.since(self.reported);
        unreported.operations >= size.operations / parts || unreported.units >= size.units / parts
    }
}

/// When an eighth of a window is unreported, an update is added to the next fragment to the peer.
/// When half of the window is unreported, the update is sent in a separate fragment.
const PIGGYBACK: u16 = 8;
const EXPLICIT: u16 = 2;

/// The target's side of all windows of a peer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ReceiveWindows {
    windows: [ReceiveWindow; WINDOWS],
    /// A bit for each window in which enough consumption is unreported for an update.
    unreported: u8,
    /// The number of the window that the last update reported.
    last: u8,
}

impl ReceiveWindows {
    /// Counts an operation; returns `false` if the peer has overrun its window.
    #[inline]
    pub(crate) fn arrive(&mut self, cost: Cost, size: WindowSize) -> bool {
        let window = &mut self.windows[cost.window()];
        window.arrived.add(cost);
        let held = window.arrived.since(window.reported);
        held.operations <= size.operations && held.units <= size.units
    }

    /// Returns whether an operation would be within its window.
    #[inline(always)]
    pub(crate) fn has_room(&self, cost: Cost, size: WindowSize) -> bool {
        let window = &self.windows[cost.window()];
        window.arrived.since(window.reported).has_room(cost, size)
    }

    /// Counts an operation for which the window [has room](Self::has_room) and that is consumed at
    /// once. Returns whether half of its window is unreported.
    #[inline(always)]
    pub(crate) fn arrive_consumed(&mut self, cost: Cost, size: WindowSize) -> bool {
        self.windows[cost.window()].arrived.add(cost);
        self.consume(cost, size)
    }

    /// Counts consumption. Returns whether half of the window is unreported.
    #[inline(always)]
    pub(crate) fn consume(&mut self, cost: Cost, size: WindowSize) -> bool {
        let window = &mut self.windows[cost.window()];
        window.consumed.add(cost);
        if !window.is_unreported(size, PIGGYBACK) {
            return false;
        }
        self.unreported |= 1 << cost.window();
        window.is_unreported(size, EXPLICIT)
    }

    /// Returns whether there is something to report.
    #[inline(always)]
    pub(crate) fn has_update(&self) -> bool {
        self.unreported != 0
    }

    /// Returns the update for the next window that has one. If no window has one, returns the last
    /// update again. Call [`update_sent`](Self::update_sent) once the update is sent.
    #[inline]
    pub(crate) fn update(&self) -> WindowUpdate {
        if !self.has_update() {
            return self.last_update();
        }
        let next = usize::from(self.last) + 1;
        // The bits are doubled, so that the search wraps around.
        let twice = u32::from(self.unreported) << WINDOWS | u32::from(self.unreported);
        let window = (next + (twice >> next).trailing_zeros() as usize) % WINDOWS;
        WindowUpdate {
            // The cast is lossless: the number is less than `WINDOWS`.
            window: window as u8,
            consumed: self.windows[window].consumed,
        }
    }

    /// Returns the last update, to be repeated when there is no new one.
    #[inline]
    pub(crate) fn last_update(&self) -> WindowUpdate {
        WindowUpdate {
            window: self.last,
            consumed: self.windows[usize::from(self.last) % WINDOWS].reported,
        }
    }

    /// Records that an update was sent to the peer. Returns the number of units that it newly
    /// reports.
    #[inline]
    pub(crate) fn update_sent(&mut self, update: WindowUpdate) -> u16 {
        self.last = update.window;
        let number = usize::from(update.window) % WINDOWS;
        let window = &mut self.windows[number];
        let new = update.consumed.since(window.reported);
        window.reported = update.consumed;
        if window.consumed == update.consumed {
            self.unreported &= !(1 << number);
        }
        new.units
    }

    /// Returns whether half of any window is unreported.
    #[inline]
    pub(crate) fn is_due(&self, size: WindowSize) -> bool {
        let mut windows = self.windows.iter();
        windows.any(|window| window.is_unreported(size, EXPLICIT))
    }

    /// Returns the state to keep for an idle peer, or `None` while any arrival is not yet consumed.
    pub(crate) fn idle(&self) -> Option<IdleWindows> {
        let mut windows = self.windows.iter();
        let all_consumed = windows.all(|window| window.arrived == window.consumed);
        let counts = |window: ReceiveWindow| [window.consumed, window.reported];
        all_consumed.then(|| IdleWindows(self.windows.map(counts)))
    }

    /// Returns the window of the last update.
    pub(crate) fn last_updated(&self) -> u8 {
        self.last
    }

    /// Restores the state from the results of [`idle`](Self::idle) and
    /// [`last_updated`](Self::last_updated).
    pub(crate) fn resume(idle: &IdleWindows, last: u8, size: WindowSize) -> Self {
        let windows = idle.0.map(|[consumed, reported]| ReceiveWindow {
            arrived: consumed,
            consumed,
            reported,
        });
        let has_update = |window: &ReceiveWindow| {
            window.consumed != window.reported && window.is_unreported(size, PIGGYBACK)
        };
        let unreported = (0..)
            .zip(&windows)
            .map(|(number, window)| u8::from(has_update(window)) << number);
        Self {
            unreported: unreported.sum(),
            windows,
            last,
        }
    }
}

/// The [`ReceiveWindows`] of an idle peer, reduced to the consumed count and the reported count of
/// each window.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IdleWindows([[WindowCount; 2]; WINDOWS]);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn send_update(arrived: &mut ReceiveWindows) -> WindowUpdate {
        let update = arrived.update();
        arrived.update_sent(update);
        update
    }

    proptest! {
        /// One rank sends. The other consumes, and sends updates occasionally and when they are
        /// due. Whatever the sizes, and whatever other windows hold, no window of the sender stays
        /// full once everything in it was consumed. The target never counts an overrun, even if the
        /// counters wrap.
        #[test]
        fn a_window_never_stands_still(
            operations in 2_u16..300,
            max_managed in 1_usize..300_000,
            bytes in 0_usize..1 << 22,
            peers in 1_usize..64,
            steps in prop::collection::vec((0_u8..16, 0_usize..400_000, 0_usize..4), 1..400),
        ) {
            let max_managed = max_managed.min(super::super::config::MAX_MANAGED);
            let size = WindowSize::new(operations, bytes, max_managed, peers);
            let (mut sent, mut arrived) = (SendWindows::default(), ReceiveWindows::default());
            let mut waiting: [Vec<Cost>; WINDOWS] = Default::default();
            // The counters start close to the wrap-around.
            for window in 0..WINDOWS {
                let (out, inn) = (&mut sent.0[window], &mut arrived.windows[window]);
                for count in [&mut out.sent, &mut out.consumed, &mut inn.arrived, &mut inn.consumed,
                    &mut inn.reported] {
                    count.operations = u16::MAX - 100;
                }
            }
            for (index, length, action) in steps {
                let cost = Cost::of_put(index, length, max_managed);
                if !sent.reserve(cost, size) {
                    // Everything in this window is consumed, but nothing in the other windows.
                    // Updates that are due are sent.
                    for cost in waiting[cost.window()].drain(..) {
                        if arrived.consume(cost, size) {
                            while arrived.is_due(size) {
                                prop_assert!(sent.apply(send_update(&mut arrived)));
                            }
                        }
                    }
                    prop_assert!(sent.reserve(cost, size));
                }
                prop_assert!(arrived.arrive(cost, size));
                waiting[cost.window()].push(cost);
                if action == 0 {
                    arrived.consume(waiting[cost.window()].remove(0), size);
                }
                if action == 1 {
                    prop_assert!(sent.apply(send_update(&mut arrived)));
                }
                while arrived.is_due(size) {
                    prop_assert!(sent.apply(send_update(&mut arrived)));
                }
            }
        }
    }

    #[test]
    fn overrunning_is_noticed() {
        let size = WindowSize::new(4, 0, 640, 1);
        let cost = Cost::of_put(2, 64, 640);
        let (mut sent, mut arrived) = (SendWindows::default(), ReceiveWindows::default());
        for _ in 0..4 {
            assert!(sent.reserve(cost, size));
            assert!(arrived.arrive(cost, size));
        }
        assert!(!sent.reserve(cost, size));
        assert!(!arrived.arrive(cost, size));
        let update = |operations, units| WindowUpdate {
            window: 2,
            consumed: WindowCount { operations, units },
        };
        assert!(!sent.apply(update(5, 4)), "more than was sent");
        assert!(!sent.apply(update(4, 5)));
        assert!(sent.apply(update(2, 2)));
        assert!(!sent.apply(update(1, 2)), "less than before");
        assert!(sent.reserve(cost, size));
        let nowhere = WindowUpdate {
            window: WINDOWS as u8,
            consumed: WindowCount::default(),
        };
        assert!(!sent.apply(nowhere));
        // The window of another index always has room.
        assert!(sent.reserve(Cost::of_header(1), size));
    }

    /// Checks that an update that was not sent is returned again.
    #[test]
    fn each_window_has_one_update() {
        let size = WindowSize::new(100, 0, 640, 1);
        let mut arrived = ReceiveWindows::default();
        for consumed in 1..=100 / PIGGYBACK {
            assert!(!arrived.has_update(), "too few to be reported: {consumed}");
            for index in 0..4 {
                let cost = Cost::of_header(index);
                assert!(arrived.arrive(cost, size));
                assert!(!arrived.consume(cost, size));
            }
        }
        assert_eq!(arrived.update(), arrived.update());
        let mut windows = [0; WINDOWS].map(|_| send_update(&mut arrived).window);
        windows.sort_unstable();
        assert_eq!(windows, [0, 1, 2, 3]);
        assert_eq!(arrived.update(), arrived.last_update());
    }
}
