//! Counts the peers that are sending to this rank and share its buffers.

use crate::protocol::contract::Nanos;

/// The length of a period. A peer no longer counts once it has sent nothing for one to two periods.
const PERIOD: Nanos = 2_000_000;

/// Counts the links on which a segment was received in the current period, and those of the
/// previous period.
#[derive(Debug)]
pub(super) struct Senders {
    period: u32,
    began: Nanos,
    now: u32,
    before: u32,
}

impl Default for Senders {
    fn default() -> Self {
        // Links start with period 0.
        Self {
            period: 1,
            began: 0,
            now: 0,
            before: 0,
        }
    }
}

impl Senders {
    /// Records a segment received on a link. `period` is the period of the link's previous segment,
    /// and is updated.
    pub(super) fn note(&mut self, now: Nanos, period: &mut u32) {
        self.roll_over(now);
        if *period != self.period {
            *period = self.period;
            self.now += 1;
        }
    }

    /// Returns the number of peers that are sending, at least 1.
    pub(super) fn count(&mut self, now: Nanos) -> u32 {
        self.roll_over(now);
        self.now.max(self.before).max(1)
    }

    fn roll_over(&mut self, now: Nanos) {
        let elapsed = now.saturating_sub(self.began);
        if elapsed >= PERIOD {
            self.before = if elapsed < 2 * PERIOD { self.now } else { 0 };
            self.now = 0;
            self.began = now;
            self.period = self.period.wrapping_add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_peer_does_not_count() {
        let mut senders = Senders::default();
        let mut periods = [0; 5];
        for period in &mut periods {
            senders.note(1, period);
            senders.note(2, period);
        }
        assert_eq!(senders.count(3), 5);
        assert_eq!(senders.count(PERIOD + 3), 5);
        senders.note(PERIOD + 4, &mut periods[2]);
        assert_eq!(senders.count(2 * PERIOD + 4), 1);
        assert_eq!(senders.count(9 * PERIOD), 1);
    }
}
