//! The driver's clock. Reading the system's clock takes 30 ns, and the time is needed several times
//! per small packet. If the processor has a time-stamp counter, the time is computed from this
//! counter. The counter is calibrated against the system's clock about once per millisecond.

use std::time::Instant;

use super::system;
use crate::protocol::Nanos;

/// The number of ticks after which the counter is calibrated again. It corresponds to a millisecond
/// of a slow counter, or a few tenths of a millisecond of a fast one.
const WINDOW: u64 = 1 << 20;
/// The longest time that an undisturbed reading of the system's clock takes, in ticks.
const UNDISTURBED: u64 = 4_000;
/// The reciprocal of the fraction by which a tick's length may differ from that of the previous
/// window.
const STEADY: u64 = 256;

/// A calibration, which consists of simultaneous readings of the counter and of the system's clock.
#[derive(Debug, Clone, Copy)]
struct Anchor {
    ticks: u64,
    at: Nanos,
    /// The length of a tick in 2⁻³² ns, or 0 if it is unknown.
    tick: u64,
}

impl Anchor {
    /// Returns the time at which the counter has the value `ticks`, if this calibration covers that
    /// value.
    #[inline]
    fn time(&self, ticks: u64) -> Option<Nanos> {
        // A counter that goes back, for example when a virtual machine migrates, is far outside the
        // window, too.
        let passed = ticks.wrapping_sub(self.ticks);
        if passed >= WINDOW || self.tick == 0 {
            return None;
        }
        // Cannot overflow: there are less than 2²⁰ ticks, and each is shorter than 2¹¹ ns.
        Some(self.at + ((passed * self.tick) >> 32))
    }

    /// Returns the next calibration, for the readings `ticks` of the counter and `at` of the
    /// system's clock.
    fn next(&self, ticks: u64, at: Nanos) -> Self {
        let (passed, nanos) = (ticks.wrapping_sub(self.ticks), at.saturating_sub(self.at));
        if passed < WINDOW {
            return *self;
        }
        let tick = (u128::from(nanos) << 32) / u128::from(passed);
        let tick = u64::try_from(tick).ok().filter(|tick| *tick < 1 << 43);
        let tick = tick.unwrap_or(0);
        // A counter that has stopped or jumped is not used until it has been steady for a window.
        let steady = self.tick == 0 || self.tick.abs_diff(tick) <= self.tick / STEADY;
        Self {
            ticks,
            at,
            tick: if steady { tick } else { 0 },
        }
    }
}

/// A clock that starts at its creation.
#[derive(Debug)]
pub(super) struct Clock {
    start: Instant,
    anchor: Option<Anchor>,
    last: Nanos,
}

impl Clock {
    pub(super) fn new() -> Self {
        let start = Instant::now();
        Self {
            start,
            anchor: system::ticks().map(|ticks| Anchor {
                ticks,
                at: 0,
                tick: 0,
            }),
            last: 0,
        }
    }

    /// Returns the time of the system's clock.
    #[inline]
    pub(super) fn now(&self) -> Nanos {
        self.start.elapsed().as_nanos() as Nanos
    }

    /// Returns the time, accurate to a few microseconds. Successive results never decrease.
    #[inline]
    pub(super) fn coarse(&mut self) -> Nanos {
        let known = match (&self.anchor, system::ticks()) {
            (Some(anchor), Some(ticks)) => anchor.time(ticks),
            _ => None,
        };
        let time = match known {
            Some(time) => time,
            None => self.read_system(),
        };
        self.last = self.last.max(time);
        self.last
    }

    /// Reads the system's clock and calibrates the counter.
    #[cold]
    fn read_system(&mut self) -> Nanos {
        let before = system::ticks();
        let at = self.now();
        if let (Some(anchor), Some(before), Some(after)) =
            (&mut self.anchor, before, system::ticks())
            && after.wrapping_sub(before) < UNDISTURBED
        {
            *anchor = anchor.next(before, at);
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// Returns a counter of 2 GHz, calibrated over one window.
    fn half_a_nanosecond() -> Anchor {
        let first = Anchor {
            ticks: 1_000,
            at: 500,
            tick: 0,
        };
        assert_eq!(first.time(1_000), None, "nothing is known yet");
        let second = first.next(1_000 + 2 * WINDOW, 500 + WINDOW);
        assert_eq!(second.tick, 1 << 31);
        second
    }

    #[test]
    fn time_goes_on_with_the_counter_for_a_window() {
        let anchor = half_a_nanosecond();
        assert_eq!(anchor.time(anchor.ticks + 4_000), Some(anchor.at + 2_000));
        assert_eq!(anchor.time(anchor.ticks + WINDOW), None);
        assert_eq!(anchor.time(anchor.ticks - 1), None, "back");
    }

    #[test]
    fn a_window_is_measured_to_its_end() {
        let anchor = half_a_nanosecond();
        let early = anchor.next(anchor.ticks + WINDOW / 2, anchor.at + WINDOW / 4);
        assert_eq!(early.ticks, anchor.ticks);
    }

    #[test]
    fn a_counter_that_jumps_is_not_believed() {
        let anchor = half_a_nanosecond();
        for (ticks, nanos) in [
            (WINDOW, 10 * WINDOW),
            (1_000 * WINDOW, WINDOW),
            (WINDOW, u64::MAX / 2),
            (WINDOW, 0),
        ] {
            let next = anchor.next(anchor.ticks + ticks, anchor.at + nanos);
            assert_eq!(next.time(next.ticks), None, "{ticks} ticks in {nanos} ns");
            let after = next.next(next.ticks + 2 * WINDOW, next.at + WINDOW);
            assert_eq!(after.time(after.ticks), Some(after.at));
        }
    }

    #[test]
    fn a_glance_never_goes_back_and_stays_near_the_system_s_clock() {
        let mut clock = Clock::new();
        let mut before = 0;
        let end = Instant::now() + Duration::from_millis(20);
        while Instant::now() < end {
            let earlier = clock.now();
            let coarse = clock.coarse();
            assert!(coarse >= before && coarse <= clock.now() + 20_000);
            assert!(coarse + 20_000 > earlier, "{coarse} at {earlier}");
            before = coarse;
        }
    }
}
