//! When a rank that waits looks for the answer to what it has asked.
//!
//! Who looks at a cache line takes it away from whoever is about to write it. An answer can't be there before its request has gone
//! one way and it the other; looks before that are in vain and make it later. So the second look of a wait for an answer comes after
//! some turns of an idle loop. How many follows what the looks find: fewer where the answer was there already, more where it came just
//! behind, so that most are found by the look behind the turns. The first look is at once: who waits only now may find the answer, and
//! otherwise the line is still this rank's own.
//!
//! Answers that come much later say nothing, unless they all do: then each was looked for too early.

use std::hint::black_box;
use std::sync::atomic::{AtomicU32, Ordering};

/// The look before which the turns are.
const SECOND: u32 = 1;
/// An answer that was found by fewer looks more than the second was just missed.
const CLOSE: u32 = 4;
/// So many answers in a row that came later are all of them.
const ALL: u32 = 8;
/// Turns added for one that was just missed, for each one left out where it was there: one of so many is missed. Measured on Zen 4: 167
/// to 174 ns a round trip with 4 to 16, 180 and more with 1 and 24.
const STEP: u32 = 8;
/// Turns at most, of about a nanosecond. Answers that take longer gain nothing: the two processors are far from each other.
const MOST: u32 = 128;

/// What a rank has learnt of its answers. Of one thread.
#[derive(Debug, Default)]
pub(super) struct Patience {
    turns: AtomicU32,
    /// Looks of whoever waits, since this rank has asked.
    looks: AtomicU32,
    /// Answers in a row that came later than close.
    late: AtomicU32,
}

impl Patience {
    /// This rank asks.
    #[inline(always)]
    pub(super) fn begin(&self) {
        self.looks.store(0, Ordering::Relaxed);
    }

    /// This rank waits for the answer and is about to look: lets some time pass first, where that is due.
    #[inline(always)]
    pub(super) fn before_look(&self) {
        if self.is_due() {
            turn(self.turns.load(Ordering::Relaxed));
        }
    }

    #[inline(always)]
    fn is_due(&self) -> bool {
        let looks = self.looks.load(Ordering::Relaxed);
        self.looks.store(looks.saturating_add(1), Ordering::Relaxed);
        looks == SECOND
    }

    /// The answer is there.
    #[inline(always)]
    pub(super) fn end(&self) {
        let looks = self.looks.load(Ordering::Relaxed);
        let Some(more) = looks.checked_sub(SECOND + 1) else {
            return;
        };
        let mut late = self.late.load(Ordering::Relaxed);
        late = if more < CLOSE { 0 } else { (late + 1).min(ALL) };
        self.late.store(late, Ordering::Relaxed);
        let turns = self.turns.load(Ordering::Relaxed);
        let turns = match more {
            0 => turns.saturating_sub(1),
            _ if more < CLOSE || late == ALL => (turns + STEP).min(MOST),
            _ => turns,
        };
        self.turns.store(turns, Ordering::Relaxed);
    }
}

/// A chain of multiplications. It touches no memory: stores would queue up behind those of the request, which wait for their line.
#[inline(never)]
fn turn(turns: u32) {
    let mut number = black_box(u64::from(turns));
    for _ in 0..turns {
        number = number.wrapping_mul(number).wrapping_add(1);
    }
    black_box(number);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Waits for an answer that comes so long after it was asked for, with a look every ten nanoseconds, where a turn takes one; gives
    /// the time of the look that finds it.
    fn wait(patience: &Patience, answer: u32) -> u32 {
        patience.begin();
        let mut now = 0;
        loop {
            if patience.is_due() {
                now += patience.turns.load(Ordering::Relaxed);
            }
            now += 10;
            if now >= answer {
                patience.end();
                return now;
            }
        }
    }

    #[test]
    fn most_answers_are_found_by_the_look_behind_the_turns() {
        for answer in [30, 60, 90, 120] {
            let patience = Patience::default();
            for _ in 0..300 {
                wait(&patience, answer);
            }
            let at_once = (0..1000).filter(|_| {
                let found = wait(&patience, answer);
                assert!(found < answer + 20, "{found} ns for one of {answer}");
                patience.looks.load(Ordering::Relaxed) == SECOND + 1
            });
            assert!(at_once.count() > 800);
        }
    }

    #[test]
    fn who_waits_late_finds_what_is_there() {
        let patience = Patience::default();
        for _ in 0..300 {
            wait(&patience, 90);
        }
        assert_eq!(wait(&patience, 10), 10);
    }

    #[test]
    fn nobody_holds_off_for_longer_than_the_most() {
        let patience = Patience::default();
        for _ in 0..1000 {
            wait(&patience, 1_000);
            assert!(patience.turns.load(Ordering::Relaxed) <= MOST);
        }
        assert!(wait(&patience, 1_000) < 1_010);
        assert_eq!(wait(&patience, 20), 20 + MOST, "the worst case");
    }

    #[test]
    fn a_few_that_come_late_change_nothing() {
        let patience = Patience::default();
        for _ in 0..300 {
            wait(&patience, 60);
        }
        let before = patience.turns.load(Ordering::Relaxed);
        for _ in 1..ALL {
            wait(&patience, 5_000);
        }
        assert_eq!(patience.turns.load(Ordering::Relaxed), before);
    }
}
