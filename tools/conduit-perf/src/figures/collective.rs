//! Barriers.

use std::time::Instant;

use crate::bench::{Bench, failed};
use crate::compare::Comparison;
use crate::figure::Target;
use crate::limits::round_trip::Lines;
use crate::limits::{self, Limit};
use crate::side::Side;

/// Two ranks, each told by the other over a line of its own: a round trip's two halves at the same time, so half of one, and half
/// as much again for all else.
const PAIR: Option<Target> = Some(Target::AtMost(0.75));
/// Microseconds; a slice of the scheduler's is milliseconds.
const CROWD: Option<Target> = Some(Target::Nanoseconds(100_000.0));

/// Two ranks on a core each.
pub(super) fn barrier(bench: &Bench, _: usize) -> Option<Comparison<'_>> {
    compare(bench, "barrier", limits::cache_line(Lines::Two), PAIR)
}

/// Two ranks on one core.
pub(super) fn one_core_barrier(bench: &Bench, _: usize) -> Option<Comparison<'_>> {
    compare(bench, "one-core-barrier", limits::yield_round_trip(), None)
}

/// Several ranks on each core.
pub(super) fn crowd_barrier(bench: &Bench, _: usize) -> Option<Comparison<'_>> {
    compare(bench, "crowd-barrier", limits::counter_barrier(), CROWD)
}

fn compare<'b>(
    bench: &'b Bench,
    name: &'static str,
    limit: Limit,
    target: Option<Target>,
) -> Option<Comparison<'b>> {
    // All of a job's ranks have to come, and of a pair in a larger job the others don't.
    if bench.home + 1 < bench.conduit.size() {
        return None;
    }
    let piece = move |side: &Side<'_>, count| {
        side.meet()?;
        let start = Instant::now();
        for _ in 0..count {
            bench.conduit.barrier().map_err(failed(name))?;
        }
        Ok(start.elapsed())
    };
    Some(Comparison::new(name, 0, limit, target, piece))
}
