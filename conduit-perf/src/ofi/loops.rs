//! The bare limits: what is done with a bare endpoint.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};

use crate::Error;
use crate::piece::Piece;
use crate::side::Side;

use super::OVER;
use super::bare::{Bare, End};

/// An endpoint that several limits use, one after the other.
pub(super) type Shared = Rc<RefCell<Bare>>;

/// Messages of so many bytes to and fro. An operation is a full round trip.
pub(super) struct PingPong {
    pub(super) bare: Shared,
    pub(super) size: usize,
}

impl Piece for PingPong {
    fn run(&mut self, side: &Side<'_>, count: u64) -> Result<Duration, Error> {
        let bare = &mut *self.bare.borrow_mut();
        let first = bare.received;
        side.meet()?;
        let start = Instant::now();
        for trip in 1..=count {
            if side.rank() == 0 {
                bare.send(side, self.size)?;
            }
            bare.until(side, |bare| bare.received >= first + trip)?;
            if side.rank() == 1 {
                bare.send(side, self.size)?;
            }
        }
        let time = start.elapsed();
        bare.quiet(side)?;
        Ok(time)
    }
}

/// Writes of so many bytes from the same memory to the same place, several under way. An operation is one.
pub(super) struct Writes {
    pub(super) bare: Shared,
    pub(super) size: usize,
    pub(super) end: End,
}

impl Piece for Writes {
    fn run(&mut self, side: &Side<'_>, count: u64) -> Result<Duration, Error> {
        let bare = &mut *self.bare.borrow_mut();
        let source = bare.source.with(|source| source.as_mut_ptr());
        let over = side.area().word(OVER)?;
        over.store(0, Relaxed);
        side.meet()?;
        let start = Instant::now();
        let mut time = Duration::ZERO;
        if side.rank() == 0 {
            for _ in 0..count {
                bare.write(side, source, self.size, self.end)?;
            }
            if self.end == End::Sent {
                // Behind the others on the same connection: all are there when this one is.
                bare.write(side, source, 8, End::Seen)?;
            }
            bare.until(side, |bare| bare.pending == 0)?;
            time = start.elapsed();
            over.store(1, Release);
        } else {
            bare.until(side, |_| over.load(Acquire) == 1)?;
        }
        bare.quiet(side)?;
        Ok(time)
    }
}
