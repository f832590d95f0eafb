//! A barrier of any number of processes: one counter that all add to and then watch, yielding. What remains for a
//! real barrier to do beyond this is to know its name and to survive a rank that dies.

use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};

use crate::Error;
use crate::piece::Piece;
use crate::side::Side;

/// Barriers of all sides. An operation is one barrier.
#[derive(Clone, Copy, Debug)]
pub struct CounterBarrier;

impl Piece for CounterBarrier {
    fn run(&mut self, side: &Side<'_>, count: u64) -> Result<Duration, Error> {
        let arrivals = side.area().word(0)?;
        if side.rank() == 0 {
            arrivals.store(0, Relaxed);
        }
        side.meet()?;
        let start = Instant::now();
        for barrier in 1..=count {
            let all = barrier * side.sides() as u64;
            arrivals.fetch_add(1, AcqRel);
            side.wait("the others at a barrier", || arrivals.load(Acquire) >= all)?;
        }
        Ok(start.elapsed())
    }
}
