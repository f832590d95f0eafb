//! When to make progress again after something was submitted.
//!
//! Not at once: while one submission follows the other, what is sent and acknowledged had better travel together; and the answer
//! to a single message can't be there yet. Who looks for it all the same reads memory that the peer is about to write, and over
//! libfabric's `shm` the answer comes later for that (a tenth of a round trip of 0.33 µs).
//!
//! A pause is a number of looks, so that a rank which looks seldom is not kept waiting, and only one that looks often pauses for
//! a time.

use std::time::{Duration, Instant};

/// Looks in any case.
const FEW: u32 = 8;
/// How long a pause is for who does nothing but look. Any time from 0.1 to 0.25 µs will do.
const TIME: Duration = Duration::from_nanos(150);
/// However fast the looks are.
const MOST: u32 = 64;

/// The time between two progresses.
#[derive(Debug, Default)]
pub(crate) struct Pause {
    /// Looks so far, and those that make it up.
    looks: u32,
    most: u32,
    /// The first of them, if it matters.
    first: Option<Instant>,
}

impl Pause {
    /// Progress has been made. `crowded`: more than a message for each queue has come, so there is more to be expected.
    #[inline]
    pub(crate) fn begin(&mut self, crowded: bool) {
        *self = Self {
            looks: 0,
            most: if crowded { FEW } else { MOST },
            first: None,
        };
    }

    /// Somebody looks: whether it is time for progress.
    #[inline]
    pub(crate) fn is_over(&mut self, now: impl FnOnce() -> Instant) -> bool {
        self.looks += 1;
        match self.looks {
            1 if self.most > FEW => self.first = Some(now()),
            FEW => self.most = self.most.min(self.looks_for(now)),
            _ => {}
        }
        self.looks >= self.most
    }

    /// How many looks the time takes, as fast as they have come up to here.
    fn looks_for(&self, now: impl FnOnce() -> Instant) -> u32 {
        let Some(first) = self.first else {
            return FEW;
        };
        let each = now().saturating_duration_since(first).as_nanos() / u128::from(FEW - 1);
        // Fits: at most the time.
        (TIME.as_nanos() / each.max(1)).clamp(FEW.into(), MOST.into()) as u32
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
        assert_eq!(looks(false, 5), 30);
        assert_eq!(looks(false, 10), 15);
        assert_eq!(looks(false, 0), MOST);
    }

    #[test]
    fn who_looks_seldom_or_has_much_to_do_pauses_for_a_few_looks() {
        for each in [20, 1000, 1_000_000] {
            assert_eq!(looks(false, each), FEW);
        }
        assert_eq!(looks(true, 5), FEW);
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
