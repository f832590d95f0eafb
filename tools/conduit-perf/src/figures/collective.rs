//! The figures of barriers.

use std::time::Instant;

use crate::bench::{Bench, failed};
use crate::compare::Comparison;
use crate::figure::Target;
use crate::limits::round_trip::Lines;
use crate::limits::{self, Limit};
use crate::side::Side;

/// The target for two ranks. Each signals the other through a line of its own, so the two halves of
/// a round trip happen at the same time. A barrier should take that half of a round trip, plus half
/// as much again for everything else.
const PAIR: Option<Target> = Some(Target::AtMost(0.75));
/// The target for several ranks per core, which is far shorter than a time slice of the scheduler.
const CROWD: Option<Target> = Some(Target::Nanoseconds(100_000.0));

/// Compares the barrier of two ranks on separate cores.
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
    // A barrier needs all ranks of the job, but if a pair of a larger job is measured, the other
    // ranks do not take part.
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
