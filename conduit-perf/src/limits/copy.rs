//! Copies by one core between its own memory and the mapping: what a put or get of many bytes into mapped memory can't beat.

use std::cell::RefCell;
use std::hint::black_box;
use std::rc::Rc;
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

/// A core's own memory, shared by a limit and the figure beside it: which cache sets and pages it lies in makes some
/// percent of a bandwidth, steadily, so two pieces with memory of their own are not compared.
#[derive(Clone, Debug)]
pub struct Private(Rc<RefCell<Vec<u8>>>);

impl Private {
    /// `size` bytes.
    #[must_use]
    pub fn new(size: usize) -> Self {
        let bytes = (0..size).map(|byte| byte as u8).collect();
        Self(Rc::new(RefCell::new(bytes)))
    }

    /// Bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.0.borrow().len()
    }

    /// Lets `f` use the bytes. Uses do not nest.
    pub fn with<T>(&self, f: impl FnOnce(&mut [u8]) -> T) -> T {
        f(&mut self.0.borrow_mut())
    }
}

/// Copies of `size` bytes by side 0, always the same bytes, so hot in its caches as far as they fit. The size is only
/// known at run time, as it is to a put.
#[derive(Debug)]
pub struct Copy {
    direction: Direction,
    private: Private,
}

impl Copy {
    /// Prepares copies of all of `private`.
    #[must_use]
    pub fn new(direction: Direction, private: Private) -> Self {
        Self { direction, private }
    }
}

impl Piece for Copy {
    fn run(&mut self, side: &Side<'_>, count: u64) -> Result<Duration, Error> {
        let size = self.private.size();
        let mapped = side.area().work(0, size)?.as_ptr();
        // Stays where it is: nothing changes a `Private`'s size.
        let private = self.private.with(<[u8]>::as_mut_ptr);
        let (from, to) = match self.direction {
            Direction::In => (private.cast_const(), mapped),
            Direction::Out => (mapped.cast_const(), private),
        };
        let (from, to, size) = black_box((from, to, size));
        side.meet()?;
        let start = Instant::now();
        if side.rank() == 0 {
            for _ in 0..count {
                // SAFETY: `private` has `size` bytes of its own that nobody else borrows meanwhile, `work` checked `size` bytes of the mapping, and no
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
            let copy = |direction, private: &Private| Copy::new(direction, private.clone());
            let (source, destination) = (Private::new(1000), Private::new(1000));
            destination.with(|bytes| bytes.fill(0));
            copy(Direction::In, &source).run(side, 3).expect("in");
            side.meet().expect("meet");
            copy(Direction::Out, &destination)
                .run(side, 1)
                .expect("out");
            if side.rank() == 0 {
                source.with(|sent| destination.with(|got| assert_eq!(sent, got)));
            }
        });
    }
}
