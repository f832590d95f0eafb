//! Estimates the round-trip time (RTT) to a peer according to RFC 6298 and RFC 9002, 5.

use super::contract::Nanos;

/// The length of a period. The min RTT covers the last one to two periods.
const MEMORY: Nanos = 10_000_000_000;
/// Samples are clamped to this value, because a longer delay is not due to the path.
const LONGEST: Nanos = 60_000_000_000;
/// The RTT assumed before the first sample.
const INITIAL: Nanos = 5_000_000;

/// The RTT estimate of one path. Times are in nanoseconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct RttEstimator {
    smoothed: Nanos,
    variation: Nanos,
    latest: Nanos,
    /// The shortest samples of this period and of the one before.
    min: [Nanos; 2],
    period: Nanos,
}

impl Default for RttEstimator {
    fn default() -> Self {
        Self {
            smoothed: INITIAL,
            variation: INITIAL / 2,
            latest: 0,
            min: [Nanos::MAX; 2],
            period: 0,
        }
    }
}

impl RttEstimator {
    /// Resumes an earlier estimate. The min RTT is measured anew.
    pub(super) fn resumed(now: Nanos, smoothed: Nanos, variation: Nanos) -> Self {
        Self {
            smoothed,
            variation,
            latest: smoothed,
            min: [Nanos::MAX; 2],
            period: now,
        }
    }

    /// Adds a sample. `elapsed` is the time from the sending of a packet to the arrival of its
    /// answer, and `delay` is the peer's ack delay.
    pub(super) fn sample(&mut self, now: Nanos, elapsed: Nanos, delay: Nanos) {
        let sample = elapsed
            .checked_sub(delay)
            .unwrap_or(elapsed)
            .clamp(1, LONGEST);
        if now.saturating_sub(self.period) > MEMORY {
            self.period = now;
            self.min = [Nanos::MAX, self.min[0]];
        }
        self.min[0] = self.min[0].min(sample);
        if self.latest == 0 {
            self.smoothed = sample;
            self.variation = sample / 2;
        } else {
            self.variation = (3 * self.variation + self.smoothed.abs_diff(sample)) / 4;
            self.smoothed = (7 * self.smoothed + sample) / 8;
        }
        self.latest = sample;
    }

    /// Returns the smoothed RTT (`smoothed_rtt`).
    pub(super) fn smoothed(&self) -> Nanos {
        self.smoothed
    }

    /// Returns the last sample (`latest_rtt`), or 0 before the first.
    pub(super) fn latest(&self) -> Nanos {
        self.latest
    }

    /// Returns the RTT variation (`rttvar`).
    pub(super) fn variation(&self) -> Nanos {
        self.variation
    }

    /// Returns the shortest recent RTT (`min_rtt`), or [`Nanos::MAX`] before the first sample.
    pub(super) fn min(&self) -> Nanos {
        self.min[0].min(self.min[1])
    }

    /// Returns the probe time-out without the peer's ack delay: `smoothed_rtt + 4 * rttvar` (RFC
    /// 9002, 6.2.1).
    pub(super) fn timeout(&self) -> Nanos {
        self.smoothed + 4 * self.variation
    }

    /// Returns the time threshold of loss detection (RFC 9002, 6.1.2). The threshold tolerates
    /// reordering by a quarter of a round trip instead of an eighth.
    pub(super) fn loss_delay(&self) -> Nanos {
        let longer = self.smoothed.max(self.latest);
        longer + longer / 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_settles_on_a_steady_round_trip() {
        let mut rtt = RttEstimator::default();
        for n in 0..100 {
            rtt.sample(n, 40_000, 10_000);
        }
        assert_eq!(rtt.min(), 30_000);
        assert!(rtt.smoothed().abs_diff(30_000) < 100 && rtt.timeout() < 31_000);
    }

    #[test]
    fn a_delay_longer_than_the_round_trip_is_not_believed() {
        let mut rtt = RttEstimator::default();
        rtt.sample(0, 20_000, 24_000);
        assert_eq!(rtt.latest(), 20_000);
        rtt.sample(1, 20_000, 20_000);
        assert_eq!(rtt.latest(), 1);
    }

    #[test]
    fn a_shortest_round_trip_is_forgotten() {
        let mut rtt = RttEstimator::default();
        rtt.sample(1, 1_000, 0);
        rtt.sample(MEMORY + 2, 5_000, 0);
        assert_eq!(rtt.min(), 1_000);
        rtt.sample(2 * MEMORY + 4, 5_000, 0);
        assert_eq!(rtt.min(), 5_000);
    }
}
