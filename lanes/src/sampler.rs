//! The sampling of traffic.

/// A sampler that notes one in `mean` units of traffic on average, at random intervals.
///
/// The user defines the unit, for example a message or a number of bytes. Fixed intervals would
/// alias with periodic traffic. For example, in a round-robin all-to-all exchange among 64 ranks,
/// every 32nd message goes to one of only two peers. Intervals are therefore uniformly distributed
/// between 1 and `2 * mean - 1`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Sampler {
    /// The number of units up to and including the next sample.
    left: u32,
    mean: u32,
    random: u32,
}

impl Sampler {
    /// Creates a sampler that notes one unit in `mean` on average. `mean` is clamped to the range
    /// from 1 to 2^30. Ranks should use different seeds, so that they do not sample in step.
    #[must_use]
    pub fn new(mean: u32, seed: u32) -> Self {
        let mut sampler = Self {
            left: 0,
            mean: mean.clamp(1, 1 << 30),
            random: crate::seeded(seed),
        };
        sampler.left = sampler.interval();
        sampler
    }

    /// Returns the number of units up to and including the next sample, which is at least 1.
    #[inline]
    #[must_use]
    pub fn left(&self) -> u32 {
        self.left
    }

    /// Counts units of traffic. Returns the number of samples to note for them. The fast path costs
    /// a subtraction and a branch that is rarely taken.
    #[inline]
    pub fn pass(&mut self, units: u32) -> u32 {
        match self.left.checked_sub(units) {
            Some(left) if left > 0 => {
                self.left = left;
                0
            }
            _ => self.note(units),
        }
    }

    #[cold]
    fn note(&mut self, mut units: u32) -> u32 {
        // Most of a large count is divided by the mean interval rather than looped over, so that it
        // costs no more than a small count.
        let mut noted = units.saturating_sub(self.left) / (2 * self.mean) * 2;
        units -= noted * self.mean;
        while units >= self.left {
            units -= self.left;
            self.left = self.interval();
            noted += 1;
        }
        self.left -= units;
        noted
    }

    fn interval(&mut self) -> u32 {
        self.random = crate::scramble(self.random);
        1 + self.random % (2 * self.mean - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_in_so_many_is_noted_whatever_the_pieces() {
        for (mean, units) in [(1, 1), (32, 1), (32, 7), (32, 1000), (4096, 65_536)] {
            let mut sampler = Sampler::new(mean, 5);
            let calls = 4_000 * mean / units.min(mean);
            let noted: u64 = (0..calls).map(|_| u64::from(sampler.pass(units))).sum();
            let expected = u64::from(calls) * u64::from(units) / u64::from(mean);
            assert!(
                noted.abs_diff(expected) <= expected / 20 + 1,
                "{noted} of {units}/{mean}"
            );
        }
    }

    #[test]
    fn a_period_of_the_traffic_is_not_met_always_at_the_same_place() {
        let mut sampler = Sampler::new(32, 1);
        let mut noted = [0u32; 64];
        for message in 0..64 * 32 * 100 {
            noted[message % 64] += sampler.pass(1);
        }
        // The expected number is 100, with a standard deviation below 10.
        assert!(
            noted.iter().all(|noted| (50..150).contains(noted)),
            "{noted:?}"
        );
    }

    #[test]
    fn extremes_do_no_harm() {
        let mut sampler = Sampler::new(0, 0);
        assert_eq!(sampler.pass(u32::MAX), u32::MAX);
        let mut sampler = Sampler::new(u32::MAX, 0);
        assert!(sampler.pass(u32::MAX) < 100);
        assert_eq!(sampler.pass(0), 0);
    }
}
