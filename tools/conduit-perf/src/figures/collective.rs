//! Barriers.

use std::time::Instant;

use crate::bench::{Bench, failed};
use crate::compare::Comparison;
use crate::figure::Target;
use crate::limits::round_trip::Lines;
use crate::limits::{self, Limit};
use crate::side::Side;

/// Two ranks, each signalled by the other over its own line: both halves of a round trip at the
/// same time, so half of one, plus half as much again for everything else.
const PAIR: Option<Target> = Some(Target::AtMost(0.75));
/// Microseconds; a time slice of the scheduler is milliseconds.
const CROWD: Option<Target> = Some(Target::Nanoseconds(100_000.0));

/// Compares the barrier of two ranks with a core each.
pub(super) fn barrier(bench: &Bench, _: usize) -> Option<Comparison<'_>> {
    compare(bench, "barrier", limits::cache_line(Lines::Two), PAIR)
}

/// Compares the barrier of two ranks on one core.
pub(super) fn one_core_barrier(bench: &Bench, _: usize) -> Option<Comparison<'_>> {
    compare(bench, "one-core-barrier", limits::yield_round_trip(), None)
}

/// Compares the barrier of several ranks on each core.
pub(super) fn crowd_barrier(bench: &Bench, _: usize) -> Option<Comparison<'_>> {
    compare(bench, "crowd-barrier", limits::counter_barrier(), CROWD)
}

fn compare<'b>(
    bench: &'b Bench,
    name: &'static str,
    limit: Limit,
    target: Option<Target>,
) -> Option<Comparison<'b>> {
    // A barrier needs all ranks of the job, but in a pair of a larger job the others do not take
    // part.
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
