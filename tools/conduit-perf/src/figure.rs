//! A figure, which is one measured number of Conduit together with the limit measured alongside.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::alternate::{Outcome, Plan, Round, Tally};

/// The unit of a number. Measurements are times per operation. The unit determines how they are
/// printed, and whether a ratio is that of times or that of rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unit {
    /// Nanoseconds per operation. The ratio is the figure's time divided by the limit's: 1 is as
    /// fast as the limit, and 2 takes twice as long.
    #[serde(rename = "ns")]
    Nanoseconds,
    /// Millions of operations per second. The ratio is the figure's rate divided by the limit's: 1
    /// is as fast as the limit, and 0.5 is half as fast.
    #[serde(rename = "M/s")]
    Millions,
    /// Gigabytes (10⁹ bytes) per second. The ratio is the figure's rate divided by the limit's.
    #[serde(rename = "GB/s")]
    Gigabytes,
}

impl Unit {
    /// Returns the number to print for `seconds` per operation of `size` bytes.
    #[must_use]
    pub fn value(self, seconds: f64, size: usize) -> f64 {
        match self {
            Self::Nanoseconds => seconds * 1e9,
            Self::Millions => 1e-6 / seconds,
            Self::Gigabytes => size as f64 * 1e-9 / seconds,
        }
    }

    /// Returns the ratio of two times per operation.
    #[must_use]
    pub fn ratio(self, figure_seconds: f64, limit_seconds: f64) -> f64 {
        match self {
            Self::Nanoseconds => figure_seconds / limit_seconds,
            Self::Millions | Self::Gigabytes => limit_seconds / figure_seconds,
        }
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nanoseconds => "ns",
            Self::Millions => "M/s",
            Self::Gigabytes => "GB/s",
        })
    }
}

/// The target of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// A time of at most this many times the limit's time.
    AtMost(f64),
    /// A rate of at least this fraction of the limit's rate.
    AtLeast(f64),
    /// A time of at most this many nanoseconds, independent of the limit.
    Nanoseconds(f64),
}

impl Target {
    /// Returns whether a figure with this ratio and value meets the target.
    #[must_use]
    pub fn met(self, ratio: f64, value: f64) -> bool {
        match self {
            Self::AtMost(most) => ratio <= most,
            Self::AtLeast(least) => ratio >= least,
            Self::Nanoseconds(most) => value <= most,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtMost(most) => write!(f, "≤ {most}"),
            Self::AtLeast(least) => write!(f, "≥ {least}"),
            Self::Nanoseconds(most) => write!(f, "≤ {most} ns"),
        }
    }
}

/// The result of comparing a figure with its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The target is met.
    Within,
    /// The target is missed.
    Outside,
    /// The limit changed in every round, so the ratio is meaningless.
    Unsettled,
}

/// One measured number with its limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// The figure's name.
    pub name: String,
    /// The number of bytes per operation, or 0 if no bytes are carried.
    pub size: usize,
    /// The number of ranks that took part.
    pub ranks: usize,
    /// The figure in `unit`, as the median over the good rounds.
    pub value: f64,
    /// The unit of `value` and `limit`.
    pub unit: Unit,
    /// The limit's name.
    pub limit_name: String,
    /// The limit in `unit`, as the median over the good rounds.
    pub limit: f64,
    /// The median of the good rounds' ratios (not the ratio of the medians).
    pub ratio: f64,
    /// The median distance of the rounds' ratios from `ratio`.
    pub spread: f64,
    /// The target, if any.
    pub target: Option<Target>,
    /// The number of good rounds. If it is 0, all numbers are from the discarded rounds.
    pub rounds: usize,
    /// The number of rounds that were discarded because the limit changed during them.
    pub discarded: usize,
}

/// The description of a figure before it is measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Subject {
    /// The figure's name.
    pub name: &'static str,
    /// The number of bytes per operation.
    pub size: usize,
    /// The limit's name.
    pub limit_name: &'static str,
    /// The unit of printed numbers.
    pub unit: Unit,
    /// The target, if any.
    pub target: Option<Target>,
}

impl Figure {
    /// Combines the description with the measured outcome.
    #[must_use]
    pub fn new(subject: &Subject, ranks: usize, outcome: &Outcome) -> Self {
        Self {
            name: subject.name.to_owned(),
            size: subject.size,
            ranks,
            value: subject.unit.value(outcome.figure, subject.size),
            unit: subject.unit,
            limit_name: subject.limit_name.to_owned(),
            limit: subject.unit.value(outcome.limit, subject.size),
            ratio: outcome.ratio,
            spread: outcome.spread,
            target: subject.target,
            rounds: outcome.rounds,
            discarded: outcome.discarded,
        }
    }

    /// Builds a figure from rounds, all of which count. Each round consists of the seconds per
    /// operation of the figure and of the limit. Returns `None` if there are no rounds.
    #[must_use]
    pub fn of_rounds(
        subject: &Subject,
        ranks: usize,
        rounds: impl IntoIterator<Item = (f64, f64)>,
    ) -> Option<Self> {
        let mut tally = Tally::new(Plan {
            tolerance: f64::MAX,
            ..Plan::QUICK
        });
        for (figure, limit) in rounds {
            tally.add(Round {
                before: limit,
                figure,
                after: limit,
            });
        }
        let outcome = tally.outcome(subject.unit)?;
        Some(Self::new(subject, ranks, &outcome))
    }

    /// Returns the result of comparing the figure with its target, or `None` if it has no target.
    #[must_use]
    pub fn verdict(&self) -> Option<Verdict> {
        let target = self.target?;
        Some(match self.rounds {
            0 => Verdict::Unsettled,
            _ if target.met(self.ratio, self.value) => Verdict::Within,
            _ => Verdict::Outside,
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn figure(ratio: f64, target: Option<Target>, rounds: usize) -> Figure {
        let subject = Subject {
            name: "put",
            size: 8,
            limit_name: "bare-store",
            unit: Unit::Nanoseconds,
            target,
        };
        let outcome = Outcome {
            figure: ratio * 2e-9,
            limit: 2e-9,
            ratio,
            spread: 0.01,
            rounds,
            discarded: 3,
        };
        Figure::new(&subject, 2, &outcome)
    }

    #[test]
    fn units_turn_seconds_into_numbers() {
        let close = |a: f64, b: f64| (a - b).abs() < 1e-9 * b;
        assert!(close(Unit::Nanoseconds.value(250e-9, 0), 250.0));
        assert!(close(Unit::Millions.value(5e-9, 64), 200.0));
        assert!(close(Unit::Gigabytes.value(1e-3, 1_000_000), 1.0));
        assert!(close(Unit::Nanoseconds.ratio(3.0, 2.0), 1.5));
        assert!(close(Unit::Millions.ratio(4.0, 2.0), 0.5));
        assert!(close(Unit::Gigabytes.ratio(4.0, 2.0), 0.5));
    }

    #[test]
    fn the_verdict_follows_the_target() {
        let verdict = |ratio, target, rounds| figure(ratio, target, rounds).verdict();
        assert_eq!(verdict(1.0, None, 9), None);
        assert_eq!(
            verdict(1.3, Some(Target::AtMost(1.3)), 9),
            Some(Verdict::Within)
        );
        assert_eq!(
            verdict(1.31, Some(Target::AtMost(1.3)), 9),
            Some(Verdict::Outside)
        );
        assert_eq!(
            verdict(0.25, Some(Target::AtLeast(0.25)), 9),
            Some(Verdict::Within)
        );
        assert_eq!(
            verdict(0.24, Some(Target::AtLeast(0.25)), 9),
            Some(Verdict::Outside)
        );
        assert_eq!(
            verdict(1.0, Some(Target::AtMost(1.3)), 0),
            Some(Verdict::Unsettled)
        );
    }

    #[test]
    fn a_time_to_reach_is_independent_of_the_limit() {
        // The figure's value is 2 ns times the ratio.
        let verdict = |ratio| figure(ratio, Some(Target::Nanoseconds(100.0)), 9).verdict();
        assert_eq!(verdict(49.0), Some(Verdict::Within));
        assert_eq!(verdict(51.0), Some(Verdict::Outside));
    }

    #[test]
    fn json_has_the_agreed_fields_and_comes_back_equal() {
        let figure = figure(1.25, Some(Target::AtMost(1.3)), 9);
        let json = serde_json::to_string(&figure).expect("json");
        let value: serde_json::Value = serde_json::from_str(&json).expect("parse");
        for field in ["name", "size", "value", "unit", "limit", "ratio"] {
            assert!(!value[field].is_null(), "{field} missing in {json}");
        }
        assert_eq!(value["unit"], "ns");
        assert_eq!(value["target"]["at_most"], 1.3);
        assert_eq!(
            serde_json::from_str::<Figure>(&json).expect("figure"),
            figure
        );
    }
}
