//! Round trips between two sides, and barriers among any number of sides. Their times are the
//! limits for messages and barriers.

use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};

use crate::Error;
use crate::piece::Piece;
use crate::side::Side;

/// The number of lines through which the two sides communicate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lines {
    /// One line that both sides write. The line's owner changes once per direction.
    One,
    /// One line per direction, as in queues. Each write first invalidates the reader's copy.
    Two,
}

/// Round trips between sides 0 and 1, which spin, or yield if they share a core. Other sides stand
/// by. An operation is a full round trip.
#[derive(Clone, Copy, Debug)]
pub struct RoundTrips(pub Lines);

impl Piece for RoundTrips {
    fn run(&mut self, side: &Side<'_>, count: u64) -> Result<Duration, Error> {
        let there = side.area().word(0)?;
        let back = match self.0 {
            Lines::One => there,
            Lines::Two => side.area().word(1)?,
        };
        if side.rank() == 0 {
            there.store(0, Relaxed);
            back.store(0, Relaxed);
        }
        side.meet()?;
        let start = Instant::now();
        match side.rank() {
            0 => {
                for trip in 0..count {
                    there.store(2 * trip + 1, Release);
                    side.wait("an answer", || back.load(Acquire) == 2 * trip + 2)?;
                }
            }
            1 => {
                for trip in 0..count {
                    side.wait("a request", || there.load(Acquire) == 2 * trip + 1)?;
                    back.store(2 * trip + 2, Release);
                }
            }
            _ => {}
        }
        Ok(start.elapsed())
    }
}

/// Runs barriers of all sides with one counter that all increment and then watch. An operation is
/// one barrier. A real barrier does more: it checks the barrier's name and copes with the death of
/// a rank.
pub fn counter_barrier(side: &Side<'_>, count: u64) -> Result<Duration, Error> {
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
