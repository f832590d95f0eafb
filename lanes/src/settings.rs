//! The settings of lanes.

use crate::{ROWS, SAMPLE, Weight};

/// The settings of a rank's lanes. All ranks should have the same settings, but no rank relies on
/// that.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Settings {
    /// The maximum number of lanes. For [`LaneKind::Holder`](crate::LaneKind::Holder), this should
    /// be [`ROWS`], so that the rank accepts every offer of a busy owner. Held lanes cost the rank
    /// nothing.
    pub slots: u16,
    /// The size of a lane in the network's unit, such as bytes of a window. The owner states it in
    /// each offer.
    pub size: u32,
    /// The mean number of units of traffic per sample.
    pub interval: u32,
    /// The number of samples in a round.
    pub samples: u32,
    /// The decay of weights. Each weight loses 1 part in 2^`decay` per round.
    pub decay: u32,
    /// The lowest weight that earns a lane (the promotion threshold), in samples.
    pub threshold: u32,
    /// The factor by which a peer's weight must exceed that of a holder for the peer to take the
    /// holder's lane.
    pub factor: u32,
    /// The number of standard deviations by which the peer's weight must also exceed the holder's.
    pub deviations: u32,
    /// The minimum number of rounds that a lane is kept.
    pub hold: u32,
    /// The largest exponent of the back-off: after the nth consecutive denial, a rank waits for 2^n
    /// rounds plus a random number of up to as many more.
    pub backoff: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            slots: 16,
            size: 0,
            interval: 32,
            samples: 32,
            decay: 4,
            threshold: 8,
            factor: 2,
            deviations: 3,
            hold: 16,
            backoff: 9,
        }
    }
}

/// A setting out of range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name} is {value}, must be from {low} to {high}")]
pub struct SettingsError {
    /// The setting's name.
    pub name: &'static str,
    /// The setting's value.
    pub value: u32,
    /// The lowest accepted value.
    pub low: u32,
    /// The highest accepted value.
    pub high: u32,
}

impl Settings {
    /// Checks that all settings are in range.
    ///
    /// # Errors
    /// Returns the first setting that is out of range.
    pub fn check(&self) -> Result<(), SettingsError> {
        // More lanes than rows would be useless, because a peer without a row has no weight.
        let rows = ROWS as u32;
        for (name, value, low, high) in [
            ("slots", u32::from(self.slots), 0, rows),
            ("interval", self.interval, 1, 1 << 30),
            ("samples", self.samples, 1, 1 << 16),
            ("decay", self.decay, 1, 16),
            ("threshold", self.threshold, 1, 1 << 16),
            ("factor", self.factor, 1, 1 << 8),
            ("deviations", self.deviations, 0, 1 << 6),
            ("hold", self.hold, 0, 1 << 16),
            ("backoff", self.backoff, 0, 16),
        ] {
            if !(low..=high).contains(&value) {
                return Err(SettingsError {
                    name,
                    value,
                    low,
                    high,
                });
            }
        }
        Ok(())
    }

    /// Returns settings for tests, which grant lanes for minimal traffic and permit immediate
    /// recalls.
    #[must_use]
    pub fn forced(self) -> Self {
        Self {
            interval: 4,
            samples: 2,
            threshold: 1,
            hold: 0,
            ..self
        }
    }

    /// Reduces the number of lanes to as many of them as fit into the budget, so that the lanes
    /// that a rank promises never exceed it. The number is never increased.
    #[must_use]
    pub fn within(mut self, budget: u64) -> Self {
        if let Some(fit) = budget.checked_div(self.size.into()) {
            self.slots = self.slots.min(u16::try_from(fit).unwrap_or(u16::MAX));
        }
        self
    }

    /// Returns the lowest weight that earns a free lane.
    pub(crate) fn least(&self) -> Weight {
        self.threshold.saturating_mul(SAMPLE)
    }

    /// Returns whether a peer of weight `weight` takes the lane of a holder of weight `held`. The
    /// peer must be heavier by a factor and by more than chance explains. Sample counts have a
    /// Poisson distribution, so the variance of their difference is at most their sum. An idle
    /// holder loses its lane to any peer at the threshold, because small counts would rarely pass
    /// that test.
    #[must_use]
    pub fn beats(&self, weight: Weight, held: Weight) -> bool {
        let (weight, held) = (u64::from(weight), u64::from(held));
        let more = weight.saturating_sub(held);
        let variance = u64::from(SAMPLE) * (weight + held);
        let least = u64::from(self.deviations * self.deviations) * variance;
        let is_idle = held < u64::from(SAMPLE) && weight >= u64::from(self.least());
        more > 0 && weight >= u64::from(self.factor) * held && (is_idle || more * more >= least)
    }

    /// Returns the lowest weight that beats `held`, which is the price stated in a denial.
    #[must_use]
    pub fn price(&self, held: Weight) -> Weight {
        // Bisection finds the price, because `beats` is monotonic in the weight.
        let (mut low, mut high) = (held, Weight::MAX);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.beats(middle, held) {
                true => high = middle,
                false => low = middle + 1,
            }
        }
        low
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ships_can_be_and_what_cannot_is_named() {
        Settings::default().check().unwrap();
        let error = Settings {
            decay: 17,
            ..Settings::default()
        }
        .check()
        .unwrap_err();
        assert_eq!(error.to_string(), "decay is 17, must be from 1 to 16");
    }

    #[test]
    fn lanes_fit_their_budget() {
        let slots = |size, budget| {
            Settings {
                size,
                ..Settings::default()
            }
            .within(budget)
            .slots
        };
        assert_eq!(slots(1 << 20, 3 << 20), 3);
        assert_eq!(slots(1 << 20, (3 << 20) - 1), 2);
        assert_eq!(slots(1 << 20, 1 << 19), 0);
        assert_eq!(slots(1 << 20, u64::MAX), 16);
        assert_eq!(slots(0, 0), 16, "a lane without a size");
    }

    #[test]
    fn a_price_is_the_least_weight_that_beats() {
        let settings = Settings::default();
        for held in [0, 1, 255, 256, 5_000, 100_000, 1 << 30] {
            let price = settings.price(held);
            assert!(settings.beats(price, held) && !settings.beats(price - 1, held));
        }
        // For an idle holder, the price is the threshold. For a light holder, the margin beyond
        // chance determines it, and for a heavy one, it is twice the holder's weight.
        assert_eq!(settings.price(0), 8 * SAMPLE);
        assert!((11 * SAMPLE..12 * SAMPLE).contains(&settings.price(SAMPLE)));
        assert_eq!(settings.price(100 * SAMPLE), 200 * SAMPLE);
        assert!(
            !settings.beats(u32::MAX, u32::MAX),
            "an equal peer takes no lane"
        );
    }
}
