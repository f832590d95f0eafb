//! A survey of the limits alone: measures every limit in turn, several times, so that each is seen
//! in the different states of the machine.

use anyhow::Context;
use serde::{Deserialize, Serialize};

use crate::alternate::{Plan, median};
use crate::compare::{calibrate, reading};
use crate::figure::Unit;
use crate::limits::{Limit, catalogue};
use crate::select::{self, Choice};
use crate::side::Side;
use crate::{Error, job};

/// The task of a survey's processes.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    sides: usize,
    plan: Plan,
    figures: Vec<String>,
    /// The memory that the sides share.
    memory: String,
}

/// A reading of a limit alone, over several rounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reading {
    /// The limit.
    pub name: String,
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

/// Returns the requested limits with `sides` processes.
fn limits(sides: usize, figures: &[String]) -> Vec<Limit> {
    let mut limits = catalogue(sides);
    limits.retain(|limit| select::wanted(figures, limit.name));
    limits
}

/// Measures the requested limits with `sides` processes.
///
/// # Errors
/// One of the processes fails.
pub(crate) fn measure(choice: &Choice, sides: usize) -> anyhow::Result<Vec<Reading>> {
    let asked = limits(sides, &choice.figures).len();
    if asked == 0 {
        return Ok(Vec::new());
    }
    let order = |memory| {
        job::Order::Limits(Order {
            sides,
            plan: choice.plan(),
            figures: choice.figures.clone(),
            memory,
        })
    };
    let readings: Vec<_> = job::run_sides(sides, usize::MAX, order, &[])?;
    if readings.len() < asked {
        let left_out = asked - readings.len();
        eprintln!("{left_out} limits left out: they need a core for each of {sides} processes");
    }
    Ok(readings)
}

/// Runs one of the processes. They are ranks only to the launcher: nothing of Conduit runs in them.
pub(crate) fn serve(order: &Order) -> anyhow::Result<()> {
    let rank = std::env::var("PMI_RANK").context("PMI_RANK")?.parse()?;
    let mut limits = limits(order.sides, &order.figures);
    job::as_side(&order.memory, rank, order.sides, |side| {
        Ok(survey(side, &mut limits, order.plan)?)
    })
}

/// Reads all `limits` as often as `plan` has good rounds. Collective. Side 0 gets the readings, the
/// others nothing. Limits that need more cores than available are removed from the list.
///
/// # Errors
/// An error on any side ends the survey on all sides.
pub fn survey(side: &Side<'_>, limits: &mut Vec<Limit>, plan: Plan) -> Result<Vec<Reading>, Error> {
    limits.retain(|limit| side.fits(limit.placement));
    let mut runs = Vec::with_capacity(limits.len());
    for limit in limits.iter_mut() {
        side.place(limit.placement)?;
        runs.push((
            calibrate(side, &mut *limit.piece, plan.placed(limit.placement).time)?,
            Vec::with_capacity(plan.good),
        ));
    }
    for _ in 0..plan.good {
        for (limit, (count, times)) in limits.iter_mut().zip(&mut runs) {
            side.place(limit.placement)?;
            times.push(reading(side, &mut *limit.piece, *count, plan.runs)?);
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

/// Summarises a limit's readings, in seconds per operation; returns `None` without readings.
fn summarize(limit: &Limit, ranks: usize, times: &[f64]) -> Option<Reading> {
    let value = |seconds: f64| limit.unit.value(seconds, limit.size);
    Some(Reading {
        name: limit.name.to_owned(),
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
