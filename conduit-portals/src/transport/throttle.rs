//! Throttles progress after a submission.
//!
//! While one submission follows another, immediate progress would keep packets and acknowledgements
//! from travelling together, and the reply to a single message can't have arrived yet. Polling too
//! early for a reply puts cache lines that the peer is about to write into the Shared state, which
//! delays the writer. Over libfabric's `shm`, this makes a round trip of 0.33 µs a tenth longer.
//!
//! The clock is read only every few polls, so a rank that polls seldom waits for at most that
//! number of polls.

use std::time::{Duration, Instant};

/// Number of polls between two readings of the clock. With a backlog, one in this many polls makes
/// progress.
const POLLS: u32 = 8;
/// How long progress is withheld from a rank that only polls. Any time from 0.13 to 0.25 µs is
/// suitable.
const DELAY: Duration = Duration::from_nanos(130);

/// Decides whether a poll makes progress.
#[derive(Debug, Default)]
pub(crate) struct ProgressThrottle {
    /// Number of polls since progress was last made.
    polls: u32,
    /// Whether there are queued events that did not fit in the mailboxes, in which case more are to
    /// be expected.
    backlog: bool,
    /// The time of the first of these polls.
    first: Option<Instant>,
}

impl ProgressThrottle {
    /// Records that progress has been made.
    #[inline]
    pub(crate) fn restart(&mut self, backlog: bool) {
        *self = Self {
            polls: 0,
            backlog,
            first: None,
        };
    }

    /// Counts a poll. Returns whether it should make progress.
    #[inline]
    pub(crate) fn allows(&mut self, now: impl FnOnce() -> Instant) -> bool {
        self.polls += 1;
        if self.polls == 1 && !self.backlog {
            self.first = Some(now());
            return false;
        }
        self.polls.is_multiple_of(POLLS)
            && self
                .first
                .is_none_or(|first| now().saturating_duration_since(first) >= DELAY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Polls at an interval of `each` nanoseconds until a poll makes progress; returns the number
    /// of polls.
    fn polls(backlog: bool, each: u64) -> u32 {
        let mut throttle = ProgressThrottle::default();
        throttle.restart(backlog);
        let mut now = Instant::now();
        let mut polls = 1;
        while !throttle.allows(|| now) {
            now += Duration::from_nanos(each);
            polls += 1;
        }
        polls
    }

    #[test]
    fn frequent_polls_are_throttled_for_the_delay() {
        assert_eq!(polls(false, 5), 32);
        assert_eq!(polls(false, 10), 16);
    }

    #[test]
    fn seldom_polls_and_a_backlog_skip_only_a_few() {
        for each in [20, 1000, 1_000_000] {
            assert_eq!(polls(false, each), POLLS);
        }
        assert_eq!(polls(true, 5), POLLS);
    }

    /// Simulates a rank that repeatedly polls a few times and then computes.
    #[test]
    fn bursts_of_polls_do_not_make_it_longer() {
        let mut throttle = ProgressThrottle::default();
        throttle.restart(false);
        let mut now = Instant::now();
        let polls = (1..).find(|poll| {
            now += Duration::from_nanos(if poll % 10 == 0 { 1_000_000 } else { 5 });
            throttle.allows(|| now)
        });
        assert_eq!(polls, Some(2 * POLLS));
    }

    #[test]
    fn each_progress_restarts_the_count() {
        let mut throttle = ProgressThrottle::default();
        for _ in 0..3 {
            throttle.restart(true);
            for _ in 1..POLLS {
                assert!(!throttle.allows(Instant::now));
            }
            assert!(throttle.allows(Instant::now));
        }
    }
}
