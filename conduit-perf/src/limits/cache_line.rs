//! The round trip of a cache line between two cores: the floor under every message in shared memory.

use std::sync::atomic::{AtomicU64, Ordering::*};
use std::time::{Duration, Instant};

use crate::Error;
use crate::piece::Piece;
use crate::side::Side;

/// Through how many lines the two sides talk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lines {
    /// One line that both sides write: the line's owner changes once per direction.
    One,
    /// A line per direction, as queues have: the reader's copy is taken away before each write.
    Two,
}

/// Round trips between sides 0 and 1 that spin; other sides stand by. An operation is a full round trip.
#[derive(Clone, Copy, Debug)]
pub struct CacheLine(pub Lines);

impl Piece for CacheLine {
    fn run(&mut self, side: &Side<'_>, count: u64) -> Result<Duration, Error> {
        let there = side.area().word(0)?;
        let back = match self.0 {
            Lines::One => there,
            Lines::Two => side.area().word(1)?,
        };
        round_trips(side, count, there, back, |word, value| {
            side.spin_until("a cache line", || word.load(Acquire) == value)
        })
    }
}

/// Sends 1, 3, 5… over `there` and awaits 2, 4, 6… over `back`, waiting with `wait(word, value)`.
pub(super) fn round_trips(
    side: &Side<'_>,
    count: u64,
    there: &AtomicU64,
    back: &AtomicU64,
    wait: impl Fn(&AtomicU64, u64) -> Result<(), Error>,
) -> Result<Duration, Error> {
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
                wait(back, 2 * trip + 2)?;
            }
        }
        1 => {
            for trip in 0..count {
                wait(there, 2 * trip + 1)?;
                back.store(2 * trip + 2, Release);
            }
        }
        _ => {}
    }
    Ok(start.elapsed())
}
