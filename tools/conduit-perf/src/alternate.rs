//! Alternating rounds, in which limit and figure are read in turn, so that every reading of the
//! figure lies between two readings of the limit that are close to it in time.
//!
//! The distance between two cores of a virtual machine can change from one second to the next, and
//! every latency in shared memory may change by a factor of several with it. A round in which the
//! limit changes is therefore discarded, and the result is the median of the rounds' ratios. This
//! module only does the arithmetic; [`crate::compare`] measures.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::figure::Unit;
use crate::placement::Placement;

/// The duration and number of measurements.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The number of good rounds required.
    pub good: usize,
    /// The number of rounds after which to stop, even if too few were good.
    pub most: usize,
    /// The largest relative difference between the limits before and after a good round.
    pub tolerance: f64,
    /// The target duration of one run of a limit or figure.
    pub time: Duration,
    /// The number of runs per reading. The reading is the fastest run, which excludes runs in which
    /// other processes took a core away.
    pub runs: usize,
}

impl Plan {
    /// The usual plan.
    pub const FULL: Self = Self {
        good: 21,
        most: 84,
        tolerance: 0.25,
        time: Duration::from_micros(600),
        runs: 5,
    };
    /// A plan for a first impression, which takes a fraction of the time.
    pub const QUICK: Self = Self {
        good: 9,
        most: 30,
        tolerance: 0.25,
        time: Duration::from_micros(300),
        runs: 3,
    };

    /// Returns the quick plan or the usual one.
    #[must_use]
    pub fn of(quick: bool) -> Self {
        if quick { Self::QUICK } else { Self::FULL }
    }

    /// Returns the plan for each of `jobs` jobs that share this plan's rounds.
    #[must_use]
    pub fn shared(self, jobs: usize) -> Self {
        Self {
            good: self.good.div_ceil(jobs),
            most: self.most.div_ceil(jobs),
            ..self
        }
    }

    /// Returns this plan with runs that are `times` times as long.
    #[must_use]
    pub fn longer(self, times: u32) -> Self {
        Self {
            time: self.time * times,
            ..self
        }
    }

    /// Returns the plan for sides with this placement. Sides that share cores take turns, so runs
    /// are longer there, in order that their start does not matter.
    #[must_use]
    pub fn placed(self, placement: Placement) -> Self {
        match placement {
            Placement::Apart => self,
            Placement::OneCore | Placement::Dealt => self.longer(5),
        }
    }
}

/// One reading of the figure between two of the limit, in seconds per operation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Round {
    /// The limit before the figure.
    pub before: f64,
    /// The figure.
    pub figure: f64,
    /// The limit after the figure.
    pub after: f64,
}

impl Round {
    /// Returns the limit for this round's figure.
    #[must_use]
    pub fn limit(&self) -> f64 {
        f64::midpoint(self.before, self.after)
    }

    /// Returns whether the limit is unchanged, which means that the larger of its two values is at
    /// most `1 + tolerance` times the smaller. A round with a reading of zero is never good.
    #[must_use]
    pub fn good(&self, tolerance: f64) -> bool {
        let (small, large) = (self.before.min(self.after), self.before.max(self.after));
        small > 0.0 && self.figure > 0.0 && large <= small * (1.0 + tolerance)
    }
}

/// The rounds so far.
#[derive(Clone, Debug)]
pub struct Tally {
    plan: Plan,
    good: Vec<Round>,
    discarded: Vec<Round>,
}

impl Tally {
    /// Creates an empty tally.
    #[must_use]
    pub fn new(plan: Plan) -> Self {
        Self {
            plan,
            good: Vec::new(),
            discarded: Vec::new(),
        }
    }

    /// Adds a round.
    pub fn add(&mut self, round: Round) {
        let kept = round.good(self.plan.tolerance);
        if kept {
            &mut self.good
        } else {
            &mut self.discarded
        }
        .push(round);
    }

    /// Returns whether the plan requires no more rounds.
    #[must_use]
    pub fn done(&self) -> bool {
        self.good.len() >= self.plan.good
            || self.good.len() + self.discarded.len() >= self.plan.most
    }

    /// Returns the result of the rounds, or `None` if there were none. If no round was good, the
    /// discarded ones are used, and [`Outcome::rounds`] is 0.
    #[must_use]
    pub fn outcome(&self, unit: Unit) -> Option<Outcome> {
        let rounds = if self.good.is_empty() {
            &self.discarded
        } else {
            &self.good
        };
        let of = |part: &dyn Fn(&Round) -> f64| rounds.iter().map(part).collect::<Vec<_>>();
        let ratios = of(&|round| unit.ratio(round.figure, round.limit()));
        let ratio = median(&ratios)?;
        Some(Outcome {
            figure: median(&of(&|round| round.figure))?,
            limit: median(&of(&Round::limit))?,
            ratio,
            spread: median_deviation(&ratios, ratio)?,
            rounds: self.good.len(),
            discarded: self.discarded.len(),
        })
    }
}

/// The result of a measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// The median of the figure, in seconds per operation.
    pub figure: f64,
    /// The median of the limit, in seconds per operation.
    pub limit: f64,
    /// The median of the rounds' ratios.
    pub ratio: f64,
    /// The median absolute deviation of the rounds' ratios.
    pub spread: f64,
    /// The number of good rounds.
    pub rounds: usize,
    /// The number of discarded rounds.
    pub discarded: usize,
}

/// Returns the median, or `None` if there are no values. The median of an even number of values is
/// the mean of the middle two.
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        len if len % 2 == 1 => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}

/// Returns the median distance of the values from `center`, or `None` if there are no values.
#[must_use]
pub fn median_deviation(values: &[f64], center: f64) -> Option<f64> {
    median(
        &values
            .iter()
            .map(|value| (value - center).abs())
            .collect::<Vec<_>>(),
    )
}

/// Returns the number of operations to try next, given that `count` operations took `time`. Returns
/// `None` if that time is close enough to `goal`.
#[must_use]
pub fn next_count(count: u64, time: Duration, goal: Duration) -> Option<u64> {
    /// The maximum number of operations in a run. Only operations that take no time at all would
    /// need more.
    const MOST: u64 = 1 << 32;
    if count >= MOST || time >= goal / 2 {
        return None;
    }
    // The step is bounded, because the time of a small count is mostly that of its start.
    let step = (goal.as_secs_f64() / time.as_secs_f64().max(1e-9)).clamp(2.0, 16.0);
    Some(((count as f64 * step) as u64).clamp(count + 1, MOST))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PLAN: Plan = Plan {
        good: 3,
        most: 10,
        tolerance: 0.25,
        time: Duration::from_millis(1),
        runs: 1,
    };

    fn round(before: f64, figure: f64, after: f64) -> Round {
        Round {
            before,
            figure,
            after,
        }
    }

    #[test]
    fn medians_of_odd_even_and_nothing() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 3.0, 100.0]), Some(3.5));
        assert_eq!(median_deviation(&[1.0, 2.0, 4.0], 2.0), Some(1.0));
    }

    #[test]
    fn a_flip_of_the_limit_discards_the_round_in_both_directions() {
        assert!(round(1.0, 1.0, 1.25).good(0.25));
        assert!(round(1.25, 1.0, 1.0).good(0.25));
        assert!(!round(1.0, 1.0, 1.26).good(0.25));
        assert!(!round(5.0, 1.0, 1.0).good(0.25));
        assert!(!round(0.0, 1.0, 0.0).good(0.25));
        assert!(!round(1.0, 0.0, 1.0).good(0.25));
    }

    #[test]
    fn near_and_far_rounds_give_one_ratio() {
        // The figure takes 1.5 times the limit whether the cores are near (50) or far (250). The
        // rounds in which the distance changes are meaningless.
        let mut tally = Tally::new(Plan { good: 5, ..PLAN });
        for round in [
            round(50.0, 75.0, 50.0),
            round(50.0, 375.0, 250.0),
            round(250.0, 375.0, 250.0),
            round(250.0, 375.0, 50.0),
            round(50.0, 75.0, 50.0),
            round(250.0, 375.0, 250.0),
        ] {
            assert!(!tally.done());
            tally.add(round);
        }
        let outcome = tally.outcome(Unit::Nanoseconds).expect("rounds");
        assert_eq!((outcome.ratio, outcome.spread), (1.5, 0.0));
        assert_eq!((outcome.rounds, outcome.discarded), (4, 2));
    }

    #[test]
    fn rates_are_compared_as_rates() {
        let mut tally = Tally::new(PLAN);
        tally.add(round(1.0, 4.0, 1.0));
        assert_eq!(tally.outcome(Unit::Millions).expect("round").ratio, 0.25);
        assert_eq!(tally.outcome(Unit::Nanoseconds).expect("round").ratio, 4.0);
    }

    #[test]
    fn without_a_good_round_it_stops_and_says_so() {
        let mut tally = Tally::new(PLAN);
        assert_eq!(tally.outcome(Unit::Nanoseconds), None);
        while !tally.done() {
            tally.add(round(1.0, 3.0, 2.0));
        }
        let outcome = tally.outcome(Unit::Nanoseconds).expect("rounds");
        assert_eq!((outcome.rounds, outcome.discarded), (0, PLAN.most));
        assert_eq!(outcome.ratio, 2.0);
    }

    proptest! {
        /// The search for a count must end near the goal, no matter how fast an operation is.
        #[test]
        fn counts_reach_the_goal(nanos in 0.01f64..1e7, overhead in 0u64..100_000) {
            let goal = Duration::from_millis(2);
            let time = |count: u64| {
                Duration::from_nanos(overhead + (count as f64 * nanos) as u64)
            };
            let mut count = 1;
            let mut steps = 0;
            while let Some(next) = next_count(count, time(count), goal) {
                prop_assert!(next > count);
                count = next;
                steps += 1;
                prop_assert!(steps < 40);
            }
            prop_assert!(time(count) >= goal / 2);
            prop_assert!(count == 1 || time(count) <= goal * 2);
        }

        #[test]
        fn the_median_splits_its_values(values in proptest::collection::vec(-1e9f64..1e9, 1..50)) {
            let middle = median(&values).expect("not empty");
            let below = values.iter().filter(|&&value| value < middle).count();
            let above = values.iter().filter(|&&value| value > middle).count();
            prop_assert!(below <= values.len() / 2 && above <= values.len() / 2);
        }

        /// The number of rounds and their classification must follow the plan.
        #[test]
        fn a_plan_is_kept(limits in proptest::collection::vec(1.0f64..1.6, 12)) {
            let mut tally = Tally::new(PLAN);
            let mut added = 0;
            for pair in limits.windows(2) {
                if tally.done() {
                    break;
                }
                tally.add(round(pair[0], 1.0, pair[1]));
                added += 1;
            }
            let outcome = tally.outcome(Unit::Nanoseconds).expect("rounds");
            prop_assert_eq!(outcome.rounds + outcome.discarded, added);
            prop_assert!(outcome.rounds <= PLAN.good && added <= PLAN.most);
            prop_assert!(tally.done());
        }
    }
}
