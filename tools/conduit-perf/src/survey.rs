//! A survey, which measures the limits without figures. Every limit is measured in turn, several
//! times, so that each is seen in different states of the machine.

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

/// The result of measuring a limit without a figure, over several rounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reading {
    /// The limit's name.
    pub name: String,
    /// The number of bytes per operation, or 0 if no bytes are carried.
    pub size: usize,
    /// The number of sides that took part.
    pub ranks: usize,
    /// The median of the rounds.
    pub value: f64,
    /// The unit of the numbers.
    pub unit: Unit,
    /// The value in the fastest round.
    pub best: f64,
    /// The value in the slowest round.
    pub worst: f64,
    /// The number of rounds.
    pub rounds: usize,
}

/// Returns the requested limits for `sides` processes.
fn limits(sides: usize, figures: &[String]) -> Vec<Limit> {
    let mut limits = catalogue(sides);
    limits.retain(|limit| select::wanted(figures, limit.name));
    limits
}

/// Measures the requested limits with `sides` processes.
///
/// # Errors
/// Fails if one of the processes fails.
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

/// Runs one of the processes. They are ranks only to the launcher, because Conduit itself does not
/// run in them.
pub(crate) fn serve(order: &Order) -> anyhow::Result<()> {
    let rank = std::env::var("PMI_RANK").context("PMI_RANK")?.parse()?;
    let mut limits = limits(order.sides, &order.figures);
    job::as_side(&order.memory, rank, order.sides, |side| {
        Ok(survey(side, &mut limits, order.plan)?)
    })
}

/// Reads all `limits` as often as `plan` has good rounds. Collective. Returns the readings on side
/// 0, and an empty list on the others. Limits that need more cores than are available are removed
/// from `limits`.
///
/// # Errors
/// Fails on all sides if an error occurs on any side.
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

/// Summarises the times of a limit, in seconds per operation. Returns `None` if there are none.
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
