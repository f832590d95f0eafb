//! The round trip to a peer and back, estimated from samples.

use super::contract::Nanos;

/// The shortest round trip is that of the last one to two of these.
const MEMORY: Nanos = 10_000_000_000;
/// Samples are not longer: what takes a minute has waited for something else than the path.
const LONGEST: Nanos = 60_000_000_000;
/// Assumed before the first sample.
const INITIAL: Nanos = 5_000_000;

/// Smoothed as TCP's and QUIC's (RFC 6298, RFC 9002).
#[derive(Debug, Clone, Copy)]
pub(super) struct RttEstimator {
    smoothed: Nanos,
    variation: Nanos,
    latest: Nanos,
    /// The shortest of the present period and of the one before.
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
    /// As it was estimated some time ago; the shortest is measured anew.
    pub(super) fn resumed(now: Nanos, smoothed: Nanos, variation: Nanos) -> Self {
        Self {
            smoothed,
            variation,
            latest: smoothed,
            min: [Nanos::MAX; 2],
            period: now,
        }
    }

    /// An answer has come `elapsed` after what it answers was sent; the peer says that it waited
    /// `delay` before it sent it.
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

    /// Smoothed.
    pub(super) fn smoothed(&self) -> Nanos {
        self.smoothed
    }

    /// The last sample; 0 before the first.
    pub(super) fn latest(&self) -> Nanos {
        self.latest
    }

    /// Mean deviation.
    pub(super) fn variation(&self) -> Nanos {
        self.variation
    }

    /// The shortest of late; [`Nanos::MAX`] before the first sample.
    pub(super) fn min(&self) -> Nanos {
        self.min[0].min(self.min[1])
    }

    /// An answer that has not come after so long (and the peer's delay) is not expected any more.
    pub(super) fn timeout(&self) -> Nanos {
        self.smoothed + 4 * self.variation
    }

    /// What was sent so long ago has been overtaken by what was sent after it and is acknowledged
    /// (RFC 9002, 6.1.2, with a quarter of a round trip for other orders of arrival instead of an
    /// eighth).
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
