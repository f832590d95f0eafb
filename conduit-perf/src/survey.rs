//! The limits alone: every limit in turn, several times over, so that each is seen in whatever states the machine goes
//! through meanwhile.

use serde::Serialize;

use crate::Error;
use crate::alternate::{Plan, median};
use crate::compare::{calibrate, reading};
use crate::figure::Unit;
use crate::limits::Limit;
use crate::side::Side;

/// A reading of a limit alone, over several rounds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Reading {
    /// The limit.
    pub name: &'static str,
    /// Bytes per operation; 0 if no bytes are carried.
    pub size: usize,
    /// Sides that took part.
    pub ranks: usize,
    /// The median.
    pub value: f64,
    /// The unit of the numbers.
    pub unit: Unit,
    /// The fastest round.
    pub best: f64,
    /// The slowest round.
    pub worst: f64,
    /// The number of rounds.
    pub rounds: usize,
}

/// Reads all `limits` as often as `plan` wants good rounds. Every side must call it; side 0 gets the
/// readings, the others nothing. Limits for which there are too few cores are taken out of the list. `progress` is told
/// how many readings were taken.
///
/// # Errors
/// Any side's error ends the survey on all sides.
pub fn survey(
    side: &Side<'_>,
    limits: &mut Vec<Limit>,
    plan: Plan,
    progress: &mut dyn FnMut(usize),
) -> Result<Vec<Reading>, Error> {
    limits.retain(|limit| side.fits(limit.placement));
    let mut runs = Vec::with_capacity(limits.len());
    for limit in limits.iter_mut() {
        side.place(limit.placement)?;
        runs.push((
            calibrate(side, &mut *limit.piece, plan.placed(limit.placement).time)?,
            Vec::with_capacity(plan.good),
        ));
    }
    let mut done = 0;
    for _ in 0..plan.good {
        for (limit, (count, times)) in limits.iter_mut().zip(&mut runs) {
            side.place(limit.placement)?;
            times.push(reading(side, &mut *limit.piece, *count, plan.runs)?);
            done += 1;
            progress(done);
        }
    }
    if side.rank() != 0 {
        return Ok(Vec::new());
    }
    Ok(limits
        .iter()
        .zip(&runs)
        .filter_map(|(limit, (_, times))| summarize(limit, side.sides(), times))
        .collect())
}

/// The summary of a limit's readings, in seconds per operation; `None` without one.
fn summarize(limit: &Limit, ranks: usize, times: &[f64]) -> Option<Reading> {
    let value = |seconds: f64| limit.unit.value(seconds, limit.size);
    Some(Reading {
        name: limit.name,
        size: limit.size,
        ranks,
        value: value(median(times)?),
        unit: limit.unit,
        best: value(times.iter().copied().min_by(f64::total_cmp)?),
        worst: value(times.iter().copied().max_by(f64::total_cmp)?),
        rounds: times.len(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits;

    #[test]
    fn the_best_rate_is_the_shortest_time() {
        let reading = summarize(&limits::queue(), 2, &[10e-9, 5e-9, 20e-9]).expect("runs");
        let close = |a: f64, b: f64| (a - b).abs() < 1e-9 * b;
        assert!(close(reading.value, 100.0), "{reading:?}");
        assert!(
            close(reading.best, 200.0) && close(reading.worst, 50.0),
            "{reading:?}"
        );
        assert!(reading.size == 64 && reading.rounds == 3);
    }
}
