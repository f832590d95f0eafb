//! When a rank that waits looks for the answer to what it has asked.
//!
//! Who looks at a cache line takes it away from whoever is about to write it. An answer can't be there before its request has gone
//! one way and it the other; looks before that are in vain and make it later. So the first poll of a wait for an answer comes after
//! some turns of an idle loop. How many follows what the polls find: fewer where the answer was there already, more where it came just
//! behind, so that most are found by the first. Who waits only now, when the answer is there, has no turns: a look at once does no harm,
//! as the line is still this rank's own.
//!
//! Answers that come much later say nothing, unless they all do: then each was looked for too early. Where the most turns are still too
//! few they are of no use: the two processors are far from each other, or the target does not run, or the wait was for something
//! else. Then there are none for a long while.

use std::hint::black_box;
use std::sync::atomic::{AtomicU32, Ordering};

/// An answer that was found by fewer polls more than the first was just missed.
const CLOSE: u32 = 4;
/// So many answers in a row that came later are all of them.
const ALL: u32 = 8;
/// Parts of a turn: one too many costs as much as it takes, one too few much more.
const PARTS: u32 = 8;
/// Parts added for an answer that was just missed, for each one left out where it was there: one of so many is missed. Measured on
/// Zen 4: 159 to 171 ns a round trip with 4 to 24, 180 and more with 32; 170 with whole turns.
const STEP: u32 = 12;
/// Turns at most, of about a nanosecond. Answers that take longer gain nothing.
const MOST: u32 = 128;
/// Answers without turns, and of which nothing is learnt, where the most were too few.
const RESIGNED: u32 = 1 << 12;

/// What a rank has learnt of its answers. Of one thread.
#[derive(Debug, Default)]
pub(super) struct Patience {
    /// Parts of turns.
    parts: AtomicU32,
    /// Polls of whoever waits for the answer that was asked for last; 0 also where it was there before.
    polls: AtomicU32,
    /// Answers in a row that came later than close.
    late: AtomicU32,
    /// Answers to come that are waited for without turns.
    resigned: AtomicU32,
}

impl Patience {
    /// This rank asks.
    #[inline(always)]
    pub(super) fn begin(&self) {
        self.polls.store(0, Ordering::Relaxed);
    }

    /// This rank waits for the answer and is about to poll: lets some time pass first, where that is due.
    #[inline(always)]
    pub(super) fn before_poll(&self, is_answered: impl FnOnce() -> bool) {
        if self.is_due(is_answered) {
            turn(self.turns());
        }
    }

    /// Polls that waited for the answer asked for last.
    #[cfg(test)]
    pub(super) fn polls(&self) -> u32 {
        self.polls.load(Ordering::Relaxed)
    }

    #[inline(always)]
    fn is_due(&self, is_answered: impl FnOnce() -> bool) -> bool {
        let polls = self.polls.load(Ordering::Relaxed);
        if polls == 0 && is_answered() {
            return false;
        }
        self.polls.store(polls.saturating_add(1), Ordering::Relaxed);
        polls == 0
    }

    /// The answer is there.
    #[inline(always)]
    pub(super) fn end(&self) {
        let polls = self.polls.load(Ordering::Relaxed);
        let Some(more) = polls.checked_sub(1) else {
            return;
        };
        let resigned = self.resigned.load(Ordering::Relaxed);
        if resigned > 0 {
            self.resigned.store(resigned - 1, Ordering::Relaxed);
            return;
        }
        let mut late = self.late.load(Ordering::Relaxed);
        late = if more < CLOSE { 0 } else { (late + 1).min(ALL) };
        self.late.store(late, Ordering::Relaxed);
        let parts = self.parts.load(Ordering::Relaxed);
        let parts = match more {
            0 => parts.saturating_sub(1),
            _ if more < CLOSE || late == ALL => parts + STEP,
            _ => parts,
        };
        if parts > MOST * PARTS {
            self.resign();
        } else {
            self.parts.store(parts, Ordering::Relaxed);
        }
    }

    #[cold]
    fn resign(&self) {
        self.parts.store(0, Ordering::Relaxed);
        self.late.store(0, Ordering::Relaxed);
        self.resigned.store(RESIGNED, Ordering::Relaxed);
    }

    pub(super) fn turns(&self) -> u32 {
        self.parts.load(Ordering::Relaxed) / PARTS
    }
}

/// A chain of multiplications, between which no memory is touched: stores would queue up behind those of the request, which wait for
/// their line.
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

    /// Waits for an answer that comes so long after it was asked for, with a poll every ten nanoseconds, where a turn takes one; gives
    /// the time of the poll that finds it.
    fn wait(patience: &Patience, answer: u32) -> u32 {
        patience.begin();
        let mut now = 0;
        loop {
            if patience.is_due(|| now >= answer) {
                now += patience.turns();
            }
            now += 10;
            if now >= answer {
                patience.end();
                return now;
            }
        }
    }

    /// What has been learnt of many such answers.
    fn used_to(answer: u32) -> Patience {
        let patience = Patience::default();
        for _ in 0..300 {
            wait(&patience, answer);
        }
        patience
    }

    #[test]
    fn most_answers_are_found_by_the_first_poll() {
        for answer in [30, 60, 90, 120] {
            let patience = used_to(answer);
            let at_once = (0..1000).filter(|_| {
                let found = wait(&patience, answer);
                assert!(found < answer + 20, "{found} ns for one of {answer}");
                patience.polls() == 1
            });
            assert!(at_once.count() > 800);
        }
    }

    #[test]
    fn who_waits_late_finds_what_is_there_and_learns_nothing() {
        let patience = used_to(90);
        let before = patience.turns();
        assert!(before > 50);
        for _ in 0..1000 {
            assert_eq!(wait(&patience, 0), 10);
        }
        assert_eq!(patience.turns(), before);
    }

    #[test]
    fn nobody_holds_off_for_longer_than_the_most() {
        let patience = Patience::default();
        for _ in 0..10_000 {
            let before = patience.turns();
            assert!(before <= MOST);
            assert!(wait(&patience, 1_000) < 1_010);
        }
    }

    /// As where ranks share a core: the first poll is in vain whatever was before it, and the next finds the answer.
    #[test]
    fn what_is_of_no_use_ends() {
        let patience = Patience::default();
        const ANSWERS: u32 = 100_000;
        let mut total = 0;
        for _ in 0..ANSWERS {
            patience.begin();
            assert!(patience.is_due(|| false));
            total += patience.turns();
            assert!(!patience.is_due(|| false));
            patience.end();
        }
        assert!(total < 2 * ANSWERS, "{total} turns");
        for _ in 0..2 * RESIGNED {
            wait(&patience, 60);
        }
        assert!(patience.turns() > 20, "and is tried again");
    }

    #[test]
    fn a_few_that_come_late_change_nothing() {
        let patience = used_to(60);
        let before = patience.turns();
        for _ in 1..ALL {
            wait(&patience, 5_000);
        }
        assert_eq!(patience.turns(), before);
    }
}
