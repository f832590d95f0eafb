//! When to look again at a ring whose messages come one after the other.
//!
//! A target that keeps up with a flood reads each line just as its sender goes on to the next, and its processor reads ahead: lines
//! are taken away that are being written, and both wait for each other. One that lets some messages come together takes a fraction of
//! the time for them (Zen 4, 1 KiB each: 20 ns a message and not 140 in bare loops). So between two looks it rests, for a time that
//! doubles while each rest brings something, so that none is longer than the flood has lasted; a rest in vain is the last one.
//!
//! A flood goes one way. Where this rank has sent a message since, somebody may wait for what comes of it: there is no rest. Stores
//! into windows are not known here; what they bring about may come later by a rest.

use std::time::{Duration, Instant};

/// Looks that have each found something large before the first rest.
const ROW: u8 = 4;
/// The first rest.
const SHORTEST: Duration = Duration::from_nanos(125);

/// A ring's rests.
#[derive(Debug, Default)]
pub(super) struct Rest {
    /// Looks that have found something large since a message was sent, or a rest was in vain.
    row: u8,
    length: Duration,
    until: Option<Instant>,
    /// A rest is over, and nobody has looked yet.
    over: bool,
    /// What had been sent when the ring was last found empty, or a rest was ended by that.
    sent: u32,
}

impl Rest {
    /// All that the ring had has been taken, something large among it: when that began `sent_before` messages had been sent, and by
    /// now `sent`.
    #[inline]
    pub(super) fn begin(
        &mut self,
        longest: Duration,
        sent_before: u32,
        sent: u32,
        now: impl FnOnce() -> Instant,
    ) {
        if sent != self.sent || sent_before != sent {
            *self = Self {
                sent,
                ..Self::default()
            };
            return;
        }
        self.over = false;
        if self.row < ROW {
            self.row += 1;
            return;
        }
        self.length = (self.length * 2).max(SHORTEST).min(longest);
        self.until = Some(now() + self.length);
    }

    /// Whether there is a rest that may not be over.
    #[inline(always)]
    pub(super) fn is_on(&self) -> bool {
        self.until.is_some()
    }

    /// Whether the ring is not to be looked at, when `sent` messages have been sent.
    #[inline]
    pub(super) fn goes_on(&mut self, sent: u32, now: impl FnOnce() -> Instant) -> bool {
        let Some(until) = self.until else {
            return false;
        };
        if sent != self.sent {
            *self = Self {
                sent,
                ..Self::default()
            };
            return false;
        }
        if now() < until {
            return true;
        }
        self.until = None;
        self.over = true;
        false
    }

    /// Nothing was found.
    #[inline(always)]
    pub(super) fn in_vain(&mut self) {
        if self.over {
            *self = Self {
                sent: self.sent,
                ..Self::default()
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST: Duration = Duration::from_micros(1);

    /// A ring's target that sends nothing.
    struct Target {
        rest: Rest,
        sent: u32,
        now: Instant,
    }

    impl Target {
        fn new() -> Self {
            Self {
                rest: Rest::default(),
                sent: 0,
                now: Instant::now(),
            }
        }

        /// Takes something large, then looks every five nanoseconds: how long it rests.
        fn takes(&mut self) -> Duration {
            self.rest.begin(LONGEST, self.sent, self.sent, || self.now);
            let taken = self.now;
            while self.rest.is_on() && self.rest.goes_on(self.sent, || self.now) {
                self.now += Duration::from_nanos(5);
            }
            self.now - taken
        }
    }

    #[test]
    fn rests_double_up_to_the_longest() {
        let mut target = Target::new();
        let rests: Vec<_> = (0..ROW + 6).map(|_| target.takes().as_nanos()).collect();
        assert_eq!(rests, [0, 0, 0, 0, 125, 250, 500, 1000, 1000, 1000]);
    }

    #[test]
    fn one_in_vain_is_the_last() {
        let mut target = Target::new();
        for _ in 0..ROW + 3 {
            target.takes();
        }
        target.rest.in_vain();
        for _ in 0..ROW {
            assert_eq!(target.takes(), Duration::ZERO);
        }
        assert_eq!(target.takes(), SHORTEST);
    }

    #[test]
    fn looks_in_vain_without_a_rest_change_nothing() {
        let mut target = Target::new();
        for _ in 0..ROW {
            target.takes();
            target.rest.in_vain();
        }
        assert_eq!(target.takes(), SHORTEST);
    }

    #[test]
    fn who_sends_while_it_takes_or_between_does_not_rest() {
        let mut target = Target::new();
        for _ in 0..3 * ROW {
            target
                .rest
                .begin(LONGEST, target.sent, target.sent + 1, || target.now);
            target.sent += 1;
            assert!(!target.rest.is_on());
        }
        for _ in 0..3 * ROW {
            target.sent += 1;
            assert_eq!(target.takes(), Duration::ZERO);
        }
    }

    #[test]
    fn who_sends_in_a_rest_ends_it() {
        let mut target = Target::new();
        for _ in 0..ROW + 3 {
            target.takes();
        }
        target.rest.begin(LONGEST, 0, 0, || target.now);
        assert!(target.rest.goes_on(0, || target.now));
        assert!(!target.rest.goes_on(1, || target.now));
        target.sent = 1;
        for _ in 0..ROW {
            assert_eq!(target.takes(), Duration::ZERO);
        }
        assert_eq!(target.takes(), SHORTEST);
    }
}
