//! The measurement of a figure and its limit in alternating rounds, on all sides.

use std::time::Duration;

use crate::Error;
use crate::alternate::{Plan, Round, Tally, next_count};
use crate::figure::{Figure, Subject, Target, Unit};
use crate::limits::Limit;
use crate::piece::Piece;
use crate::side::Side;

/// A figure and its limit.
pub struct Comparison<'p> {
    /// The figure's name.
    pub name: &'static str,
    /// The number of bytes per operation of the figure.
    pub size: usize,
    /// The target, if any.
    pub target: Option<Target>,
    /// The limit. It also determines the unit of figure and limit, and the placement of the sides.
    pub limit: Limit,
    /// The figure's operations.
    pub figure: Box<dyn Piece + 'p>,
}

impl<'p> Comparison<'p> {
    /// Creates the comparison of `figure` with `limit`.
    pub fn new(
        name: &'static str,
        size: usize,
        limit: Limit,
        target: Option<Target>,
        figure: impl Piece + 'p,
    ) -> Self {
        Self {
            name,
            size,
            target,
            limit,
            figure: Box::new(figure),
        }
    }

    /// Returns the description of the figure.
    #[must_use]
    pub fn subject(&self) -> Subject {
        Subject {
            name: self.name,
            size: self.size,
            limit_name: self.limit.name,
            unit: self.limit.unit,
            target: self.target,
        }
    }

    /// Measures on all sides. Collective. Returns the figure on side 0, and `None` on the others.
    ///
    /// # Errors
    /// Fails on all sides if an error occurs on any side.
    pub fn measure(&mut self, side: &Side<'_>, plan: Plan) -> Result<Option<Figure>, Error> {
        side.place(self.limit.placement)?;
        let tally = alternate(
            side,
            plan.placed(self.limit.placement),
            &mut *self.limit.piece,
            &mut *self.figure,
        )?;
        let subject = self.subject();
        let outcome = tally.outcome(subject.unit).filter(|_| side.rank() == 0);
        Ok(outcome.map(|outcome| Figure::new(&subject, side.sides(), &outcome)))
    }
}

/// Measures all `comparisons` in sequence on all sides. Collective. Each comparison uses the plan
/// for its unit. Returns the figures on side 0, and an empty list on the others. Comparisons that
/// need more cores than are available are left out.
///
/// # Errors
/// Fails on all sides if an error occurs on any side.
pub fn measure_all<'p>(
    side: &Side<'_>,
    plan: impl Fn(Unit) -> Plan,
    comparisons: impl IntoIterator<Item = Comparison<'p>>,
) -> Result<Vec<Figure>, Error> {
    let mut figures = Vec::new();
    for mut comparison in comparisons {
        if side.fits(comparison.limit.placement) {
            let plan = plan(comparison.limit.unit);
            figures.extend(comparison.measure(side, plan)?);
        }
    }
    Ok(figures)
}

/// Runs `limit` and `figure` alternately until side 0's tally is done. Collective. Only side 0's
/// tally is meaningful, because the other sides' clocks see only their own part of an operation.
///
/// # Errors
/// Fails on all sides if an error occurs on any side.
pub fn alternate(
    side: &Side<'_>,
    plan: Plan,
    limit: &mut (impl Piece + ?Sized),
    figure: &mut (impl Piece + ?Sized),
) -> Result<Tally, Error> {
    let limit_count = calibrate(side, limit, plan.time)?;
    let figure_count = calibrate(side, figure, plan.time)?;
    let mut tally = Tally::new(plan);
    let mut before = reading(side, limit, limit_count, plan.runs)?;
    loop {
        let between = reading(side, figure, figure_count, plan.runs)?;
        let after = reading(side, limit, limit_count, plan.runs)?;
        tally.add(Round {
            before,
            figure: between,
            after,
        });
        before = after;
        if side.agree(u64::from(tally.done()))? == 1 {
            return Ok(tally);
        }
    }
}

/// Finds the number of operations that take about `goal` when undisturbed. Returns the same number
/// on all sides.
///
/// # Errors
/// Fails on all sides if an error occurs on any side.
pub fn calibrate(
    side: &Side<'_>,
    piece: &mut (impl Piece + ?Sized),
    goal: Duration,
) -> Result<u64, Error> {
    /// The number of runs per count, of which the fastest is used. A single run may be slowed by
    /// other processes. Operations would seem to take longer than they do, and later runs would
    /// have so few that their start would dominate the result.
    const RUNS: usize = 3;
    /// The minimum number of operations, however long they take. With fewer, the result would
    /// mostly be the time of a run's start and end.
    const LEAST: u64 = 4;
    let mut count = LEAST;
    loop {
        let mut time = Duration::MAX;
        for _ in 0..RUNS {
            time = time.min(run(side, piece, count)?);
        }
        match side.agree(next_count(count, time, goal).unwrap_or(0))? {
            0 => return Ok(count),
            next => count = next,
        }
    }
}

/// Runs `count` operations `runs` times. Returns the number of seconds per operation in the fastest
/// run.
///
/// # Errors
/// Fails on all sides if an error occurs on any side.
pub fn reading(
    side: &Side<'_>,
    piece: &mut (impl Piece + ?Sized),
    count: u64,
    runs: usize,
) -> Result<f64, Error> {
    let mut fastest = Duration::MAX;
    for _ in 0..runs.max(1) {
        fastest = fastest.min(run(side, piece, count)?);
    }
    Ok(fastest.as_secs_f64() / count as f64)
}

/// Starts one run on all sides together and reports an error to the other sides.
fn run(side: &Side<'_>, piece: &mut (impl Piece + ?Sized), count: u64) -> Result<Duration, Error> {
    side.meet()?;
    piece.run(side, count).inspect_err(|_| side.abort())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::Placement;
    use crate::testing::in_threads;

    const PLAN: Plan = Plan {
        good: 3,
        most: 6,
        tolerance: 0.25,
        time: Duration::from_micros(50),
        runs: 2,
    };

    /// Returns a piece whose clock shows exactly `nanos` nanoseconds per operation, so that results
    /// are exact.
    fn takes(nanos: u64) -> impl FnMut(&Side<'_>, u64) -> Result<Duration, Error> {
        move |_, count| Ok(Duration::from_nanos(nanos * count))
    }

    #[test]
    fn all_sides_do_the_same_rounds_and_side_0_has_the_ratio() {
        let tallies = in_threads(3, |side| {
            let mut runs = Vec::new();
            // The other sides' clocks would lead to different numbers of operations and rounds, so
            // the test shows that only side 0's clock decides.
            let own = 1 + side.rank() as u64;
            let mut figure = |_: &Side<'_>, count: u64| {
                runs.push(count);
                Ok(Duration::from_nanos(30 * own * count))
            };
            let tally = alternate(side, PLAN, &mut takes(20 * own * own), &mut figure);
            (
                tally
                    .expect("rounds")
                    .outcome(Unit::Nanoseconds)
                    .expect("rounds"),
                runs,
            )
        });
        let (outcome, runs) = &tallies[0];
        assert!((outcome.ratio - 1.5).abs() < 1e-9, "{outcome:?}");
        assert_eq!((outcome.rounds, outcome.discarded), (3, 0));
        assert!(
            tallies.iter().all(|(_, others)| others == runs),
            "{tallies:?}"
        );
    }

    #[test]
    fn a_changing_limit_stops_at_the_most_rounds() {
        // A reading consists of a single run, so that each reading differs from the previous one.
        let plan = Plan { runs: 1, ..PLAN };
        let tallies = in_threads(2, |side| {
            let mut run = 0u64;
            let mut flipping = |_: &Side<'_>, count: u64| {
                run += 1;
                let nanos = if run.is_multiple_of(2) { 50 } else { 250 };
                Ok(Duration::from_nanos(count * nanos))
            };
            alternate(side, plan, &mut flipping, &mut takes(100)).expect("rounds")
        });
        let outcome = tallies[0].outcome(Unit::Nanoseconds).expect("rounds");
        assert_eq!((outcome.rounds, outcome.discarded), (0, PLAN.most));
    }

    #[test]
    fn a_list_of_comparisons_gives_side_0_a_figure_each() {
        let figures = in_threads(2, |side| {
            let limit = |nanos| Limit {
                name: "known",
                size: 8,
                unit: Unit::Gigabytes,
                placement: Placement::OneCore,
                piece: Box::new(takes(nanos)),
            };
            let target = Some(Target::AtLeast(0.9));
            let comparisons = [
                Comparison::new("half", 8, limit(10), target, takes(20)),
                Comparison::new("equal", 8, limit(10), target, takes(10)),
                Comparison::new(
                    "nowhere",
                    8,
                    Limit {
                        placement: Placement::Apart,
                        ..limit(10)
                    },
                    target,
                    |_: &Side<'_>, _| unreachable!("measured without a core of its own"),
                ),
            ];
            measure_all(side, |_| PLAN, comparisons).expect("figures")
        });
        let ratios: Vec<_> = figures[0]
            .iter()
            .map(|one| (one.name.as_str(), one.ratio))
            .collect();
        assert_eq!(ratios, [("half", 0.5), ("equal", 1.0)]);
        assert_eq!(figures[0][1].value, 0.8);
        assert!(figures[1].is_empty());
    }

    #[test]
    fn one_sides_error_ends_all() {
        let errors = in_threads(2, |side| {
            let mut figure = |side: &Side<'_>, count: u64| match side.rank() {
                1 => Err(Error::Corrupt {
                    what: "test",
                    got: 1,
                    expected: 2,
                }),
                _ => takes(100)(side, count),
            };
            alternate(side, PLAN, &mut takes(100), &mut figure).map(drop)
        });
        assert!(
            matches!(errors[0], Err(Error::Aborted { by: 1 })),
            "{errors:?}"
        );
        assert!(
            matches!(errors[1], Err(Error::Corrupt { .. })),
            "{errors:?}"
        );
    }
}
