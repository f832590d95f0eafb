//! The rules that determine when a waiting rank spins, yields and sleeps. They read no clock.
//!
//! Spinning is fastest if every rank has a core of its own. If there are more ranks than cores, the
//! settings make a rank yield at once. Sleeping is for long waits; an arriving message wakes the
//! rank.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

/// Default number of idle polls before the first yield. These polls take about a millisecond, so
/// that a rank does not fall asleep while it waits for a message of a few megabytes.
const DEFAULT_SPIN: u32 = 100_000;

/// The number of rounds of a wait between two successive checks of whether a report is due. Rounds
/// that found something count too, so that traffic from other ranks suppresses neither reports nor
/// liveness checks.
const REPORT_INTERVAL: u16 = 1 << 8;
/// The number of rounds of a wait between two successive liveness checks.
const LIVENESS_INTERVAL: u16 = 1 << 14;

/// A spin limit below `OVERSUBSCRIBED` means that ranks share cores. A program that waits by
/// polling must then let other ranks run too, so it yields every `POLLS_A_YIELD` idle polls.
const OVERSUBSCRIBED: u32 = 64;
const POLLS_A_YIELD: u32 = 16;

/// A yield that takes at least `LONG_YIELD` has given the core to a computing process, which may
/// keep the core for a long time. A sleeper that is woken gets the core at once, so the rank
/// replaces its next `SLEEPS` yields by sleeps.
const LONG_YIELD: Duration = Duration::from_millis(1);
const SLEEPS: u32 = 64;
/// After a long yield the next `WARY` yields are timed, and after those only one in `TIMED`,
/// because timing a yield between ranks makes it 5 % more expensive.
const WARY: u32 = 64;
const TIMED: u32 = 8;

/// A sleep shorter than this counts as short. Networks that can't wake a rank sleep for longer than
/// this. If one of their timers nevertheless ends a sleep earlier, the rank yields a few times in
/// vain.
const SHORT_SLEEP: Duration = Duration::from_micros(40);
/// The longest sleep between two polls.
pub(crate) const SLEEP: Duration = Duration::from_millis(10);

/// The action after a poll that found nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pause {
    /// Poll again.
    None,
    /// Poll again after the processor's pause instruction.
    Spin,
    /// Yield the core.
    Yield,
    /// Yield the core and report the time it took.
    TimedYield,
    /// Sleep, report the time it took, and check liveness.
    Sleep,
}

/// The work of a wait's round in addition to its poll.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Duty {
    /// Check whether a wait is allowed in this context.
    CheckPlace,
    /// Check whether to report the wait.
    Report,
    /// Check whether to report the wait, and check liveness.
    CheckLiveness,
}

/// The state of one wait.
///
/// It takes 8 bytes, which is what the C interface's headers reserve.
#[derive(Debug, Default)]
pub struct Waiter {
    idle: u32,
    /// The number of rounds begun. The number wraps.
    rounds: u16,
    /// The number that [`Reports`](crate::kernel::reports::Reports) assigned to this wait, or 0 if
    /// it has assigned none.
    pub(crate) number: u16,
}

impl Waiter {
    /// Begins a round, and returns whether the round has a [duty](Waiter::duty).
    #[inline]
    pub(crate) fn begins(&mut self) -> bool {
        let due = self.rounds.is_multiple_of(REPORT_INTERVAL);
        self.rounds = self.rounds.wrapping_add(1);
        due
    }

    /// Returns the duty of the round just begun.
    pub(crate) fn duty(&self) -> Duty {
        match self.rounds.wrapping_sub(1) {
            0 => Duty::CheckPlace,
            round if round.is_multiple_of(LIVENESS_INTERVAL) => Duty::CheckLiveness,
            _ => Duty::Report,
        }
    }

    /// Records that a poll found something.
    #[inline]
    pub(crate) fn found(&mut self) {
        self.idle = 0;
    }
}

/// The back-off rules of a rank, and what the rank has observed about its core.
#[derive(Debug)]
pub(crate) struct Backoff {
    spin: u32,
    yields: u32,
    /// The number of idle polls outside waits.
    idle_polls: AtomicU32,
    /// The number of yields since the last long yield.
    yield_count: AtomicU32,
    /// The number of sleeps that are still to replace yields.
    sleeps: AtomicU32,
}

impl Backoff {
    /// Creates the rules. `spin` is the number of idle polls before the first yield, if set, and
    /// `yields` the number of yields before the first sleep.
    pub(crate) fn new(spin: Option<u32>, yields: u32) -> Self {
        Self {
            spin: spin.unwrap_or(DEFAULT_SPIN),
            yields,
            idle_polls: AtomicU32::new(0),
            yield_count: AtomicU32::new(0),
            sleeps: AtomicU32::new(0),
        }
    }

    /// Records that a poll in a wait found nothing, and returns what to do next.
    #[inline]
    pub(crate) fn idle(&self, waiter: &mut Waiter) -> Pause {
        waiter.idle = waiter.idle.saturating_add(1);
        if waiter.idle > self.spin {
            return self.idle_long(waiter);
        }
        // At first there is no pause, because a reply is often only nanoseconds away.
        match waiter.idle <= 64 {
            true => Pause::None,
            false => Pause::Spin,
        }
    }

    #[cold]
    fn idle_long(&self, waiter: &mut Waiter) -> Pause {
        let sleeps = self.sleeps.load(Relaxed);
        if sleeps > 0 || waiter.idle > self.spin.saturating_add(self.yields) {
            self.sleeps.store(sleeps.saturating_sub(1), Relaxed);
            return Pause::Sleep;
        }
        let count = self.yield_count.load(Relaxed).wrapping_add(1);
        self.yield_count.store(count, Relaxed);
        match count > WARY && !count.is_multiple_of(TIMED) {
            true => Pause::Yield,
            false => Pause::TimedYield,
        }
    }

    /// Records the duration of a timed yield.
    pub(crate) fn yielded(&self, time: Duration) {
        if time >= LONG_YIELD {
            self.sleeps.store(SLEEPS, Relaxed);
            self.yield_count.store(0, Relaxed);
        }
    }

    /// Records the duration of a sleep.
    pub(crate) fn slept(&self, waiter: &mut Waiter, time: Duration) {
        // A rank that was woken soon is likely to be needed again soon, so it yields for a while
        // before it sleeps again.
        let yields = match time < SHORT_SLEEP {
            true => self.yields / 2,
            false => self.yields,
        };
        waiter.idle = self.spin.saturating_add(yields);
    }

    /// Counts an idle poll outside a wait. Returns whether the program must yield now, and whether
    /// to check liveness.
    #[inline]
    pub(crate) fn polled_idly(&self) -> (bool, bool) {
        let polls = self.idle_polls.load(Relaxed).wrapping_add(1);
        self.idle_polls.store(polls, Relaxed);
        let yields = self.spin < OVERSUBSCRIBED && polls.is_multiple_of(POLLS_A_YIELD);
        (yields, polls.is_multiple_of(LIVENESS_INTERVAL.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the pauses of a wait, run-length encoded.
    fn pauses(backoff: &Backoff, waiter: &mut Waiter, count: u32) -> Vec<(Pause, u32)> {
        let mut all: Vec<(Pause, u32)> = Vec::new();
        for _ in 0..count {
            let pause = backoff.idle(waiter);
            if pause == Pause::Sleep {
                backoff.slept(waiter, SLEEP);
            }
            match all.last_mut() {
                Some((last, count)) if *last == pause => *count += 1,
                _ => all.push((pause, 1)),
            }
        }
        all
    }

    #[test]
    fn a_wait_spins_then_yields_then_sleeps() {
        let backoff = Backoff::new(Some(100), 10);
        let mut waiter = Waiter::default();
        let expected = [
            (Pause::None, 64),
            (Pause::Spin, 36),
            (Pause::TimedYield, 10),
            (Pause::Sleep, 5),
        ];
        assert_eq!(pauses(&backoff, &mut waiter, 115), expected);
        waiter.found();
        assert_eq!(pauses(&backoff, &mut waiter, 64), [(Pause::None, 64)]);
    }

    #[test]
    fn who_is_woken_soon_yields_before_it_sleeps_again() {
        let backoff = Backoff::new(Some(0), 10);
        let mut waiter = Waiter::default();
        pauses(&backoff, &mut waiter, 11);
        backoff.slept(&mut waiter, Duration::ZERO);
        let expected = [(Pause::TimedYield, 5), (Pause::Sleep, 1)];
        assert_eq!(pauses(&backoff, &mut waiter, 6), expected);
    }

    #[test]
    fn a_long_yield_makes_the_rank_sleep_instead() {
        let backoff = Backoff::new(Some(0), u32::MAX);
        let mut waiter = Waiter::default();
        assert_eq!(backoff.idle(&mut waiter), Pause::TimedYield);
        backoff.yielded(LONG_YIELD);
        let expected = [(Pause::Sleep, SLEEPS), (Pause::TimedYield, 1)];
        assert_eq!(pauses(&backoff, &mut waiter, SLEEPS + 1), expected);
    }

    #[test]
    fn yields_are_timed_often_at_first_and_seldom_later() {
        let backoff = Backoff::new(Some(0), u32::MAX);
        let mut waiter = Waiter::default();
        let all = pauses(&backoff, &mut waiter, WARY + TIMED);
        let expected = [
            (Pause::TimedYield, WARY),
            (Pause::Yield, TIMED - 1),
            (Pause::TimedYield, 1),
        ];
        assert_eq!(all, expected);
    }

    #[test]
    fn traffic_hides_neither_reports_nor_the_dead() {
        let mut waiter = Waiter::default();
        let mut duties = |rounds: u16| {
            let due = (0..rounds).filter_map(|_| {
                waiter.found();
                waiter.begins().then(|| waiter.duty())
            });
            due.collect::<Vec<_>>()
        };
        assert_eq!(duties(1), [Duty::CheckPlace]);
        assert_eq!(duties(REPORT_INTERVAL), [Duty::Report]);
        let looks = duties(LIVENESS_INTERVAL);
        let dead = looks.iter().filter(|duty| **duty == Duty::CheckLiveness);
        assert_eq!((looks.len(), dead.count()), (64, 1));
        // When the number of rounds wraps, one liveness check is skipped.
        let looks = duties(u16::MAX);
        let of = |duty| looks.iter().filter(|one| **one == duty).count();
        assert_eq!((of(Duty::CheckPlace), of(Duty::CheckLiveness)), (1, 3));
    }
}
