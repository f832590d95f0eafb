//! Receive coalescing: decides when to poll again a ring that receives a flood.
//!
//! A target that keeps up with a flood causes false sharing. It reads each cache line just as the
//! sender writes the next one, its processor prefetches further lines, and so the two processors
//! wait for each other. If the target lets messages gather, each message takes a fraction of the
//! time. On Zen 4, bare loops over messages of 1 KiB took 20 instead of 140 ns per message. The
//! target therefore pauses between polls of such a ring. If messages have arrived by the end of a
//! pause, the next pause is twice as long, so no pause is much longer than the flood has lasted. If
//! none have arrived, the pauses end.
//!
//! A flood goes in one direction. If this rank has itself sent a message during the flood, another
//! rank may be waiting for that message's effects, so there is no pause. Stores into windows are
//! not counted as messages, so a pause may delay their effects once.
//!
//! `CONDUIT_SHM_COALESCING` sets the longest pause; 0 turns coalescing off.

use std::time::{Duration, Instant};

/// The number of consecutive polls that must find a message of several slots before the first
/// pause.
const STREAK: u8 = 4;
/// The length of the first pause.
const SHORTEST: Duration = Duration::from_nanos(125);

/// The state of the pauses of one ring.
#[derive(Debug, Default)]
pub(super) struct Coalescing {
    /// The number of polls that have found a message of several slots since this rank last sent a
    /// message or a pause last ended with an empty ring.
    streak: u8,
    length: Duration,
    until: Option<Instant>,
    /// Whether a pause has ended and the ring has not been polled since.
    over: bool,
    /// The number of messages that this rank had sent when the streak began.
    sent: u32,
}

impl Coalescing {
    /// Counts a poll that has emptied the ring and found a message of several slots. Starts a pause
    /// if one is due. `sent_before` and `sent` are the numbers of messages that this rank had sent
    /// before that poll and has sent now.
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

    /// Returns whether a pause was started that is not known to be over.
    #[inline(always)]
    pub(super) fn is_on(&self) -> bool {
        self.until.is_some()
    }

    /// Returns whether the pause continues, given that this rank has sent `sent` messages.
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

    /// Records that a poll found nothing.
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

    /// A target that receives through one ring and sends nothing.
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

        /// Takes a large message, then checks every five nanoseconds whether the pause continues.
        /// Returns the length of the pause.
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
