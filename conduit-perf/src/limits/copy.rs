//! Copies by one core between its own memory and the mapping: what a put or get into mapped memory can't beat.

use std::hint::black_box;
use std::sync::atomic::{Ordering::SeqCst, compiler_fence};
use std::time::{Duration, Instant};

use crate::Error;
use crate::piece::Piece;
use crate::side::Side;

/// Which way bytes go, as seen by side 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From private memory into the mapping, as a put.
    In,
    /// From the mapping into private memory, as a get.
    Out,
}

/// Copies of `size` bytes by side 0, always the same bytes, so hot in its caches as far as they fit. The size is only
/// known at run time, as it is to a put: an 8-byte copy is a call of `memcpy`, not one instruction.
#[derive(Debug)]
pub struct Copy {
    direction: Direction,
    private: Vec<u8>,
}

impl Copy {
    /// Prepares copies of `size` bytes.
    #[must_use]
    pub fn new(direction: Direction, size: usize) -> Self {
        Self {
            direction,
            private: (0..size).map(|byte| byte as u8).collect(),
        }
    }
}

impl Piece for Copy {
    fn run(&mut self, side: &Side<'_>, count: u64) -> Result<Duration, Error> {
        let size = self.private.len();
        let mapped = side.area().work(0, size)?.as_ptr();
        let private = self.private.as_mut_ptr();
        let (from, to) = match self.direction {
            Direction::In => (private.cast_const(), mapped),
            Direction::Out => (mapped.cast_const(), private),
        };
        let (from, to, size) = black_box((from, to, size));
        side.meet()?;
        let start = Instant::now();
        if side.rank() == 0 {
            for _ in 0..count {
                // SAFETY: `private` has `size` bytes of its own, `work` checked `size` bytes of the mapping, and no
                // other side touches the work area during this piece.
                unsafe { std::ptr::copy_nonoverlapping(from, to, size) };
                // Each copy has to happen, none may be merged with the next; costs no instruction.
                compiler_fence(SeqCst);
            }
        }
        Ok(start.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::in_threads;

    #[test]
    fn bytes_go_in_and_come_out() {
        in_threads(2, |side| {
            Copy::new(Direction::In, 1000).run(side, 3).expect("in");
            side.meet().expect("meet");
            let mut out = Copy::new(Direction::Out, 1000);
            out.private.fill(0);
            out.run(side, 1).expect("out");
            if side.rank() == 0 {
                assert_eq!(out.private, Copy::new(Direction::In, 1000).private);
            }
        });
    }
}
