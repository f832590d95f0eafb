//! What can be tuned.

use crate::{ROWS, SAMPLE, Weight};

/// Settings of a rank's lanes. All ranks should have the same; none trusts another to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Settings {
    /// Lanes that a rank has at most (its capacity). Those that it only holds cost it nothing: for
    /// [`LaneKind::Holder`](crate::LaneKind::Holder) it should be [`ROWS`], so that a rank takes
    /// what any owner of much traffic offers.
    pub slots: u16,
    /// What a lane is worth, in the network's unit: the bytes of a window. The owner tells it with
    /// each offer.
    pub size: u32,
    /// Units of traffic of which one is noted.
    pub interval: u32,
    /// Samples in a round.
    pub samples: u32,
    /// Of each weight 1 part in 2^`decay` goes with a round.
    pub decay: u32,
    /// The least weight that earns a lane (the promotion threshold), in samples.
    pub threshold: u32,
    /// How many times a holder's weight another peer must have to take its lane.
    pub factor: u32,
    /// By how many standard deviations it has to be heavier as well.
    pub deviations: u32,
    /// Rounds that a lane stays at least.
    pub hold: u32,
    /// After the nth denial running a rank waits 2^n rounds and up to as many more; n is at most
    /// this.
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

/// Settings that can't be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name} is {value}, must be from {low} to {high}")]
pub struct SettingsError {
    /// Which.
    pub name: &'static str,
    /// The value.
    pub value: u32,
    /// The least that is accepted.
    pub low: u32,
    /// The most.
    pub high: u32,
}

impl Settings {
    /// Looks whether they can be.
    ///
    /// # Errors
    /// The first that can't.
    pub fn check(&self) -> Result<(), SettingsError> {
        // A peer without a row has no weight, so there is no use for more lanes than rows.
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

    /// For tests: lanes are given for next to nothing, and may be taken back at once.
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

    /// As many lanes of this size as there is room for, and no more than before: what is promised
    /// never exceeds a budget.
    #[must_use]
    pub fn within(mut self, budget: u64) -> Self {
        if let Some(fit) = budget.checked_div(self.size.into()) {
            self.slots = self.slots.min(u16::try_from(fit).unwrap_or(u16::MAX));
        }
        self
    }

    /// The least weight that earns a free lane.
    pub(crate) fn least(&self) -> Weight {
        self.threshold.saturating_mul(SAMPLE)
    }

    /// Whether a peer of weight `weight` takes the lane of one of weight `held`: it is heavier by a
    /// factor, and by more than chance explains. The counts of samples vary as Poisson's do, so the
    /// variance of their difference is at most their sum. Of small counts that is too much to ask:
    /// the lane of one that is idle goes to whoever would get a free one.
    #[must_use]
    pub fn beats(&self, weight: Weight, held: Weight) -> bool {
        let (weight, held) = (u64::from(weight), u64::from(held));
        let more = weight.saturating_sub(held);
        let variance = u64::from(SAMPLE) * (weight + held);
        let least = u64::from(self.deviations * self.deviations) * variance;
        let is_idle = held < u64::from(SAMPLE) && weight >= u64::from(self.least());
        more > 0 && weight >= u64::from(self.factor) * held && (is_idle || more * more >= least)
    }

    /// The least weight that beats another: what a denial names as price.
    #[must_use]
    pub fn price(&self, held: Weight) -> Weight {
        // beats() holds from some weight on, which is found by halving.
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
        assert_eq!(slots(0, 0), 16, "a lane that costs no room");
    }

    #[test]
    fn a_price_is_the_least_weight_that_beats() {
        let settings = Settings::default();
        for held in [0, 1, 255, 256, 5_000, 100_000, 1 << 30] {
            let price = settings.price(held);
            assert!(settings.beats(price, held) && !settings.beats(price - 1, held));
        }
        // As for a free one where the holder is idle, then what chance does not explain, then twice
        // as much.
        assert_eq!(settings.price(0), 8 * SAMPLE);
        assert!((11 * SAMPLE..12 * SAMPLE).contains(&settings.price(SAMPLE)));
        assert_eq!(settings.price(100 * SAMPLE), 200 * SAMPLE);
        assert!(
            !settings.beats(u32::MAX, u32::MAX),
            "nobody takes its equal's lane"
        );
    }
}
