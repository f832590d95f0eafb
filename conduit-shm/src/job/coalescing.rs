//! Receive coalescing: when to poll a ring again whose messages come in a flood.
//!
//! A target that keeps up with a flood causes false sharing: it reads each line just as its sender writes the next
//! one, its processor prefetches further lines, and both wait for each other. If it lets messages gather they cost a
//! fraction of the time (Zen 4, 1 KiB each: 20 ns a message instead of 140 in bare loops). So the target pauses between
//! polls of such a ring. Each pause after which something is there is followed by one of twice the length, so that none
//! is longer than the flood has lasted. A pause after which nothing is there ends this.
//!
//! A flood goes one way. If this rank has sent a message since, somebody may wait for what follows from it, and there
//! is no pause. Stores into windows are not known here; what they bring about may be later by one pause.
//!
//! The setting `CONDUIT_SHM_COALESCING` is the longest pause; 0 turns it off.

use std::time::{Duration, Instant};

/// Polls in a row that have found a message of several slots before the first pause.
const STREAK: u8 = 4;
/// The first pause.
const SHORTEST: Duration = Duration::from_nanos(125);

/// A ring's pauses.
#[derive(Debug, Default)]
pub(super) struct Coalescing {
    /// Polls that have found such a message since this rank sent one, or a pause brought nothing.
    streak: u8,
    length: Duration,
    until: Option<Instant>,
    /// A pause is over, and the ring has not been polled yet.
    over: bool,
    /// Messages that this rank had sent when the streak began.
    sent: u32,
}

impl Coalescing {
    /// The ring has been emptied, and a message of several slots was among it. This rank had sent `sent_before` messages
    /// when that began, and now has sent `sent`.
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
        if self.streak < STREAK {
            self.streak += 1;
            return;
        }
        self.length = (self.length * 2).max(SHORTEST).min(longest);
        self.until = Some(now() + self.length);
    }

    /// Whether there is a pause that may not be over.
    #[inline(always)]
    pub(super) fn is_on(&self) -> bool {
        self.until.is_some()
    }

    /// Whether the pause goes on, where this rank has sent `sent` messages.
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

    /// The poll has found nothing.
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
        coalescing: Coalescing,
        sent: u32,
        now: Instant,
    }

    impl Target {
        fn new() -> Self {
            Self {
                coalescing: Coalescing::default(),
                sent: 0,
                now: Instant::now(),
            }
        }

        /// Takes something large, then looks every five nanoseconds: how long it pauses.
        fn takes(&mut self) -> Duration {
            self.coalescing
                .begin(LONGEST, self.sent, self.sent, || self.now);
            let taken = self.now;
            while self.coalescing.is_on() && self.coalescing.goes_on(self.sent, || self.now) {
                self.now += Duration::from_nanos(5);
            }
            self.now - taken
        }
    }

    #[test]
    fn pauses_double_up_to_the_longest() {
        let mut target = Target::new();
        let pauses: Vec<_> = (0..STREAK + 6).map(|_| target.takes().as_nanos()).collect();
        assert_eq!(pauses, [0, 0, 0, 0, 125, 250, 500, 1000, 1000, 1000]);
    }

    #[test]
    fn one_in_vain_is_the_last() {
        let mut target = Target::new();
        for _ in 0..STREAK + 3 {
            target.takes();
        }
        target.coalescing.in_vain();
        for _ in 0..STREAK {
            assert_eq!(target.takes(), Duration::ZERO);
        }
        assert_eq!(target.takes(), SHORTEST);
    }

    #[test]
    fn looks_in_vain_without_a_rest_change_nothing() {
        let mut target = Target::new();
        for _ in 0..STREAK {
            target.takes();
            target.coalescing.in_vain();
        }
        assert_eq!(target.takes(), SHORTEST);
    }

    #[test]
    fn who_sends_while_it_takes_or_between_does_not_rest() {
        let mut target = Target::new();
        for _ in 0..3 * STREAK {
            target
                .coalescing
                .begin(LONGEST, target.sent, target.sent + 1, || target.now);
            target.sent += 1;
            assert!(!target.coalescing.is_on());
        }
        for _ in 0..3 * STREAK {
            target.sent += 1;
            assert_eq!(target.takes(), Duration::ZERO);
        }
    }

    #[test]
    fn who_sends_in_a_rest_ends_it() {
        let mut target = Target::new();
        for _ in 0..STREAK + 3 {
            target.takes();
        }
        target.coalescing.begin(LONGEST, 0, 0, || target.now);
        assert!(target.coalescing.goes_on(0, || target.now));
        assert!(!target.coalescing.goes_on(1, || target.now));
        target.sent = 1;
        for _ in 0..STREAK {
            assert_eq!(target.takes(), Duration::ZERO);
        }
        assert_eq!(target.takes(), SHORTEST);
    }
}
