//! Two processes that share one core: what handing the core over costs, by `sched_yield` and by futex.

use std::sync::atomic::{AtomicU32, Ordering::*};
use std::time::{Duration, Instant};

use rustix::thread::futex;

use super::cache_line::round_trips;
use crate::Error;
use crate::piece::Piece;
use crate::side::Side;

/// Round trips between sides 0 and 1 that yield while they wait. An operation is a full round trip, two hand-overs.
#[derive(Clone, Copy, Debug)]
pub struct YieldRoundTrip;

impl Piece for YieldRoundTrip {
    fn run(&mut self, side: &Side<'_>, count: u64) -> Result<Duration, Error> {
        let (there, back) = (side.area().word(0)?, side.area().word(1)?);
        round_trips(side, count, there, back, |word, value| {
            side.yield_until("the other process", || word.load(Acquire) == value)
        })
    }
}

/// Round trips between sides 0 and 1 that sleep in the kernel while they wait. An operation is a full round trip.
#[derive(Clone, Copy, Debug)]
pub struct FutexRoundTrip;

impl Piece for FutexRoundTrip {
    fn run(&mut self, side: &Side<'_>, count: u64) -> Result<Duration, Error> {
        let (there, back) = (side.area().futex(0)?, side.area().futex(1)?);
        if side.rank() == 0 {
            there.store(0, Relaxed);
            back.store(0, Relaxed);
        }
        side.meet()?;
        let start = Instant::now();
        for trip in 0..count {
            // Only equality with the awaited value counts, so wrapping is harmless.
            let value = (trip as u32).wrapping_add(1);
            match side.rank() {
                0 => {
                    post(there, value)?;
                    sleep_until(side, back, value)?;
                }
                1 => {
                    sleep_until(side, there, value)?;
                    post(back, value)?;
                }
                _ => break,
            }
        }
        Ok(start.elapsed())
    }
}

fn post(word: &AtomicU32, value: u32) -> Result<(), Error> {
    word.store(value, Release);
    // Not a private futex: the sleeper is another process.
    futex::wake(word, futex::Flags::empty(), 1).map_err(Error::system("futex wake"))?;
    Ok(())
}

fn sleep_until(side: &Side<'_>, word: &AtomicU32, value: u32) -> Result<(), Error> {
    /// Time asleep between two looks at whether the other side is still there.
    const NAP: futex::Timespec = futex::Timespec {
        tv_sec: 0,
        tv_nsec: 100_000_000,
    };
    let mut since = None;
    loop {
        let seen = word.load(Acquire);
        if seen == value {
            return Ok(());
        }
        match futex::wait(word, futex::Flags::empty(), seen, Some(&NAP)) {
            // Woken, or the word changed before the kernel looked: look again.
            Ok(()) | Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::TIMEDOUT) => side.check("a futex", &mut since)?,
            Err(error) => return Err(Error::system("futex wait")(error)),
        }
    }
}
