//! When to make progress again after something was submitted.
//!
//! Not at once: while one submission follows the other, what is sent and acknowledged had better travel together; and the answer
//! to a single message can't be there yet. Who looks for it all the same reads memory that the peer is about to write, and over
//! libfabric's `shm` the answer comes later for that (a tenth of a round trip of 0.33 µs).
//!
//! Only every few looks is it asked whether the time is over: a rank that looks seldom does not wait for longer than those few.

use std::time::{Duration, Instant};

/// Looks between two glances at the clock, and all that there are where more is to be expected.
const FEW: u32 = 8;
/// How long a pause is for who does nothing but look. Any time from 0.13 to 0.25 µs will do.
const TIME: Duration = Duration::from_nanos(130);

/// The time between two progresses.
#[derive(Debug, Default)]
pub(crate) struct Pause {
    /// Looks so far.
    looks: u32,
    crowded: bool,
    /// When the first of them was.
    first: Option<Instant>,
}

impl Pause {
    /// Progress has been made. `crowded`: more than a message for each queue has come, so there is more to be expected.
    #[inline]
    pub(crate) fn begin(&mut self, crowded: bool) {
        *self = Self {
            looks: 0,
            crowded,
            first: None,
        };
    }

    /// Somebody looks: whether it is time for progress.
    #[inline]
    pub(crate) fn is_over(&mut self, now: impl FnOnce() -> Instant) -> bool {
        self.looks += 1;
        if self.looks == 1 && !self.crowded {
            self.first = Some(now());
            return false;
        }
        self.looks.is_multiple_of(FEW)
            && self
                .first
                .is_none_or(|first| now().saturating_duration_since(first) >= TIME)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks until it is over, each so many nanoseconds after the one before.
    fn looks(crowded: bool, each: u64) -> u32 {
        let mut pause = Pause::default();
        pause.begin(crowded);
        let mut now = Instant::now();
        let mut looks = 1;
        while !pause.is_over(|| now) {
            now += Duration::from_nanos(each);
            looks += 1;
        }
        looks
    }

    #[test]
    fn who_looks_often_pauses_for_the_time() {
        assert_eq!(looks(false, 5), 32);
        assert_eq!(looks(false, 10), 16);
    }

    #[test]
    fn who_looks_seldom_or_has_much_to_do_pauses_for_a_few_looks() {
        for each in [20, 1000, 1_000_000] {
            assert_eq!(looks(false, each), FEW);
        }
        assert_eq!(looks(true, 5), FEW);
    }

    /// A rank that looks a few times and then computes, again and again.
    #[test]
    fn bursts_of_looks_do_not_make_it_longer() {
        let mut pause = Pause::default();
        pause.begin(false);
        let mut now = Instant::now();
        let looks = (1..).find(|look| {
            now += Duration::from_nanos(if look % 10 == 0 { 1_000_000 } else { 5 });
            pause.is_over(|| now)
        });
        assert_eq!(looks, Some(2 * FEW));
    }

    #[test]
    fn each_pause_is_by_itself() {
        let mut pause = Pause::default();
        for _ in 0..3 {
            pause.begin(true);
            for _ in 1..FEW {
                assert!(!pause.is_over(Instant::now));
            }
            assert!(pause.is_over(Instant::now));
        }
    }
}
