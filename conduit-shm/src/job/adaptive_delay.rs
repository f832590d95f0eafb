//! Adaptive delay: how long to wait before the first poll for a reply.
//!
//! Polling a cache line pulls it into the poller's cache and delays the writer. A reply cannot have
//! arrived before the request and the reply have each travelled one way, so earlier polls find
//! nothing and delay the reply. Therefore the first poll after an offer comes after some steps of
//! an idle loop. The number of steps adapts: it falls while replies have arrived by the first poll,
//! and rises if they arrive just after it. A rank that begins to wait when the reply has already
//! arrived doesn't delay.
//!
//! Replies that come much later say nothing about the right number of steps, unless all replies
//! come late: then every first poll was too early. If even the maximum number of steps is too few,
//! a delay is useless: the processors are far apart, the target does not run, or the wait was for
//! something else. The rank then skips the delay for a long while.
//!
//! `CONDUIT_SHM_ADAPTIVE_DELAY` turns the delay off. The constants and their measurements are in
//! docs/shm.md.

use std::hint::black_box;
use std::sync::atomic::{AtomicU32, Ordering};

/// A reply that is found fewer than this many polls after the first poll counts as just missed.
const CLOSE: u32 = 4;
/// After this many consecutive late replies, every late reply counts as just missed.
const ALL: u32 = 8;
/// The number of parts in a step. The adaptation counts in parts, so that the delay shrinks more
/// slowly than it grows, because one step too many costs only its own time, whereas one step too
/// few costs much more.
const PARTS: u32 = 8;
/// The number of parts added for a reply that was just missed. One part is removed for each reply
/// that had arrived, so one reply in about this many is missed. On Zen 4, a round trip took 159 to
/// 171 ns with values from 4 to 24, 180 ns and more with 32, and 170 ns if the delay was counted in
/// whole steps.
const STEP: u32 = 12;
/// The maximum number of steps, of about a nanosecond each. A delay gains nothing for replies that
/// take longer.
const MOST: u32 = 128;
/// The number of replies that are awaited without a delay, and ignored by the adaptation, once the
/// maximum number of steps was too few.
const GIVEN_UP: u32 = 1 << 12;

/// A flag that is set in the count of polls once the reply has been seen.
const SEEN: u32 = 1 << 31;

/// The state that adapts one thread's delay to the replies that it gets.
#[derive(Debug)]
pub(super) struct AdaptiveDelay {
    /// The maximum number of parts, or 0 if the delay is turned off.
    most: u32,
    /// The current delay, in parts of steps.
    parts: AtomicU32,
    /// The number of polls since the last offer, up to the one that saw the reply, possibly with
    /// [`SEEN`]. The number stays 0 if the reply had arrived before the first poll.
    polls: AtomicU32,
    /// The number of consecutive replies that took at least [`CLOSE`] polls after the first.
    late: AtomicU32,
    /// The number of further replies to await without a delay.
    given_up: AtomicU32,
}

impl AdaptiveDelay {
    pub(super) fn new(is_on: bool) -> Self {
        Self {
            most: if is_on { MOST * PARTS } else { 0 },
            parts: 0.into(),
            polls: 0.into(),
            late: 0.into(),
            given_up: 0.into(),
        }
    }

    /// Starts a new measurement, when this rank offers a slot.
    #[inline(always)]
    pub(super) fn begin(&self) {
        self.polls.store(0, Ordering::Relaxed);
    }

    /// Delays the first poll for the reply, if a delay is due.
    #[inline(always)]
    pub(super) fn before_poll(&self, is_replied: impl FnOnce() -> bool) {
        if self.is_due(is_replied) {
            idle(self.steps());
        }
    }

    /// Returns the number of polls since the last offer, up to the one that saw the reply.
    #[cfg(test)]
    pub(super) fn polls(&self) -> u32 {
        self.polls.load(Ordering::Relaxed) & !SEEN
    }

    /// Records that the reply was seen, so that further polls before the reply is taken don't
    /// count.
    #[inline(always)]
    pub(super) fn seen(&self) {
        let polls = self.polls.load(Ordering::Relaxed);
        self.polls.store(polls | SEEN, Ordering::Relaxed);
    }

    #[inline(always)]
    fn is_due(&self, is_replied: impl FnOnce() -> bool) -> bool {
        let polls = self.polls.load(Ordering::Relaxed);
        if polls & SEEN != 0 || (polls == 0 && is_replied()) {
            return false;
        }
        self.polls
            .store((polls + 1).min(SEEN - 1), Ordering::Relaxed);
        polls == 0
    }

    /// Adapts the delay. Must be called when the reply is taken.
    #[inline(always)]
    pub(super) fn end(&self) {
        let polls = self.polls.load(Ordering::Relaxed) & !SEEN;
        let Some(more) = polls.checked_sub(1) else {
            return;
        };
        let given_up = self.given_up.load(Ordering::Relaxed);
        if given_up > 0 {
            self.given_up.store(given_up - 1, Ordering::Relaxed);
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
        if parts > self.most {
            self.give_up();
        } else {
            self.parts.store(parts, Ordering::Relaxed);
        }
    }

    #[cold]
    fn give_up(&self) {
        self.parts.store(0, Ordering::Relaxed);
        self.late.store(0, Ordering::Relaxed);
        self.given_up.store(GIVEN_UP, Ordering::Relaxed);
    }

    pub(super) fn steps(&self) -> u32 {
        self.parts.load(Ordering::Relaxed) / PARTS
    }
}

/// Spins on a chain of multiplications. The loop touches no memory, because stores would queue up
/// behind those of the request, which wait for their cache line.
#[inline(never)]
fn idle(steps: u32) {
    let mut number = black_box(u64::from(steps));
    for _ in 0..steps {
        number = number.wrapping_mul(number).wrapping_add(1);
    }
    black_box(number);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Waits for a reply that comes `reply` nanoseconds after the offer. A poll takes ten
    /// nanoseconds, and a step takes one. Returns the time of the poll that finds it.
    fn wait(delay: &AdaptiveDelay, reply: u32) -> u32 {
        delay.begin();
        let mut now = 0;
        loop {
            if delay.is_due(|| now >= reply) {
                now += delay.steps();
            }
            now += 10;
            if now >= reply {
                delay.end();
                return now;
            }
        }
    }

    /// Returns the state after many replies that take `reply` nanoseconds.
    fn used_to(reply: u32) -> AdaptiveDelay {
        let delay = AdaptiveDelay::new(true);
        for _ in 0..300 {
            wait(&delay, reply);
        }
        delay
    }

    #[test]
    fn most_answers_are_found_by_the_first_poll() {
        for reply in [30, 60, 90, 120] {
            let delay = used_to(reply);
            let at_once = (0..1000).filter(|_| {
                let found = wait(&delay, reply);
                assert!(
                    found < reply + 20,
                    "found after {found} ns, sent after {reply}"
                );
                delay.polls() == 1
            });
            assert!(at_once.count() > 800);
        }
    }

    #[test]
    fn who_waits_late_finds_what_is_there_and_learns_nothing() {
        let delay = used_to(90);
        let before = delay.steps();
        assert!(before > 50);
        for _ in 0..1000 {
            assert_eq!(wait(&delay, 0), 10);
        }
        assert_eq!(delay.steps(), before);
    }

    #[test]
    fn nobody_holds_off_for_longer_than_the_most() {
        let delay = AdaptiveDelay::new(true);
        for _ in 0..10_000 {
            let before = delay.steps();
            assert!(before <= MOST);
            assert!(wait(&delay, 1_000) < 1_010);
        }
    }

    /// Simulates ranks that share a core: the first poll finds nothing no matter how long the delay
    /// is, and the next one finds the reply.
    #[test]
    fn what_is_of_no_use_ends() {
        let delay = AdaptiveDelay::new(true);
        const ANSWERS: u32 = 100_000;
        let mut total = 0;
        for _ in 0..ANSWERS {
            delay.begin();
            assert!(delay.is_due(|| false));
            total += delay.steps();
            assert!(!delay.is_due(|| false));
            delay.end();
        }
        assert!(total < 2 * ANSWERS, "{total} steps");
        for _ in 0..2 * GIVEN_UP {
            wait(&delay, 60);
        }
        assert!(delay.steps() > 20, "the delay is tried again");
    }

    #[test]
    fn a_few_that_come_late_change_nothing() {
        let delay = used_to(60);
        let before = delay.steps();
        for _ in 1..ALL {
            wait(&delay, 5_000);
        }
        assert_eq!(delay.steps(), before);
    }
    #[test]
    fn there_is_none_where_it_is_turned_off() {
        let delay = AdaptiveDelay::new(false);
        for _ in 0..100 {
            wait(&delay, 60);
            assert_eq!(delay.steps(), 0);
        }
    }
    /// Checks that further looks at a reply that was already seen don't count, because a composite
    /// network checks again before it polls.
    #[test]
    fn looks_at_a_reply_that_was_seen_do_not_count() {
        let delay = AdaptiveDelay::new(true);
        for _ in 0..100 {
            delay.begin();
            assert!(delay.is_due(|| false));
            delay.seen();
            assert!(!delay.is_due(|| true));
            assert_eq!(delay.polls(), 1);
            delay.end();
            assert_eq!(delay.steps(), 0);
        }
    }
}
