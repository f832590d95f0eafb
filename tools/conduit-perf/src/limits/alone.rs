//! What one core does alone with the mapping: copies, a store or a load of a word, an atomic addition. No put, get or remote
//! atomic on mapped memory can beat it.

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

/// Times operations of side 0, which get their number; the other sides stand by.
#[inline(always)]
fn alone(side: &Side<'_>, count: u64, operation: impl FnMut(u64)) -> Result<Duration, Error> {
    side.meet()?;
    let start = Instant::now();
    if side.rank() == 0 {
        (0..count).for_each(operation);
    }
    Ok(start.elapsed())
}

/// Copies of all of `private`, always the same bytes, so hot in the core's caches as far as they fit. The size is only known
/// at run time, as it is to a put.
pub fn copy(direction: Direction, private: Private) -> impl Piece {
    move |side: &Side<'_>, count| {
        let size = private.size();
        let mapped = side.area().work(0, size)?.as_ptr();
        // Stays where it is: nothing changes a `Private`'s size.
        let own = private.with(<[u8]>::as_mut_ptr);
        let (from, to) = match direction {
            Direction::In => (own.cast_const(), mapped),
            Direction::Out => (mapped.cast_const(), own),
        };
        let (from, to, size) = black_box((from, to, size));
        alone(side, count, |_| {
            // SAFETY: `private` has `size` bytes of its own that nobody else borrows meanwhile, `work` checked `size` bytes
            // of the mapping, and no other side touches the work area during this piece.
            unsafe { std::ptr::copy_nonoverlapping(from, to, size) };
            // Each copy has to happen, none may be merged with the next; costs no instruction.
            compiler_fence(SeqCst);
        })
    }
}

/// Stores or loads of eight bytes at an address that is known at run time, always the same, so that they stay in the core's
/// first cache. The other half of the way is a register, which is where a program has a word that it puts or has just got.
pub fn word(direction: Direction) -> impl Piece {
    move |side: &Side<'_>, count| {
        let mapped = side.area().work(0, size_of::<u64>())?.as_ptr();
        let mapped = black_box(mapped.cast::<u64>());
        match direction {
            Direction::In => alone(side, count, |value| {
                // SAFETY: `work` checked the range, which begins at a page, and no other side touches the work area during
                // this piece. Volatile: each store has to happen.
                unsafe { mapped.write_volatile(value) };
            }),
            Direction::Out => alone(side, count, |_| {
                // SAFETY: as above; any eight bytes are a number.
                let _ = unsafe { mapped.read_volatile() };
            }),
        }
    }
}

/// Atomic additions to a word that stays in the core's cache.
pub fn fetch_add(side: &Side<'_>, count: u64) -> Result<Duration, Error> {
    let word = side.area().word(0)?;
    alone(side, count, |_| {
        black_box(word.fetch_add(1, SeqCst));
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::in_threads;

    #[test]
    fn bytes_go_in_and_come_out() {
        in_threads(2, |side| {
            let copy = |direction, private: &Private| copy(direction, private.clone());
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

    #[test]
    fn the_last_word_stays_in_the_mapping() {
        in_threads(2, |side| {
            word(Direction::In).run(side, 3).expect("in");
            side.meet().expect("meet");
            word(Direction::Out).run(side, 3).expect("out");
            let word = side.area().work(0, 8).expect("work").as_ptr().cast::<u64>();
            // SAFETY: in the work area, which nobody writes any more.
            assert_eq!(unsafe { word.read() }, 2);
        });
    }
}
