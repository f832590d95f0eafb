//! The bare limits, which are operations of a bare endpoint.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};

use crate::bare::Endpoint;
use crate::piece::Piece;
use crate::side::Side;

use super::bare::{Bare, End};
use super::{OVER, UNDER_WAY};

/// An endpoint that several limits use, one after the other.
pub(super) type Shared = Rc<RefCell<Bare>>;

/// Returns messages of `size` bytes back and forth. An operation is a full round trip.
pub(super) fn ping_pong(bare: Shared, size: usize) -> impl Piece {
    move |side: &Side<'_>, count| bare.borrow_mut().round_trips(side, size, count)
}

/// Returns writes of `size` bytes from the same memory to the same destination, several of which
/// are under way at once. An operation is one write.
pub(super) fn writes(bare: Shared, size: usize, end: End) -> impl Piece {
    move |side: &Side<'_>, count| {
        let bare = &mut *bare.borrow_mut();
        let source = bare.source.with(|source| source.as_mut_ptr());
        let over = side.area().word(OVER)?;
        over.store(0, Relaxed);
        side.meet()?;
        let start = Instant::now();
        let mut time = Duration::ZERO;
        if side.rank() == 0 {
            bare.stream(side, count, UNDER_WAY, |bare| {
                bare.write(side, source, size, end)
            })?;
            if end == End::Sent {
                // This write follows the other writes on the same connection, so when it has
                // arrived, all have arrived.
                bare.stream(side, 1, UNDER_WAY, |bare| {
                    bare.write(side, source, 8, End::Seen)
                })?;
            }
            bare.drain(side)?;
            time = start.elapsed();
            over.store(1, Release);
        } else {
            bare.until(side, |_| over.load(Acquire) == 1)?;
        }
        bare.rest(side)?;
        Ok(time)
    }
}
