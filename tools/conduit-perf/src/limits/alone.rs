//! The limits of a single core working on the mapping: copies, a store or a load of a word, an
//! atomic addition. No put, get or remote atomic on mapped memory can be faster.

use std::cell::RefCell;
use std::hint::black_box;
use std::rc::Rc;
use std::sync::atomic::{Ordering::SeqCst, compiler_fence};
use std::time::{Duration, Instant};

use crate::Error;
use crate::piece::Piece;
use crate::side::Side;

/// The direction of a transfer, as seen by side 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From private memory into the mapping, like a put.
    In,
    /// From the mapping into private memory, like a get.
    Out,
}

/// A core's own memory, shared by a limit and its figure. The cache sets and pages in which it lies
/// consistently change a bandwidth by some percent, so pieces with separate memory are not
/// comparable.
#[derive(Clone, Debug)]
pub struct Private(Rc<RefCell<Vec<u8>>>);

impl Private {
    /// Allocates `size` bytes.
    #[must_use]
    pub fn new(size: usize) -> Self {
        let bytes = (0..size).map(|byte| byte as u8).collect();
        Self(Rc::new(RefCell::new(bytes)))
    }

    /// Returns the number of bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.0.borrow().len()
    }

    /// Calls `f` with the bytes. Calls must not nest.
    pub fn with<T>(&self, f: impl FnOnce(&mut [u8]) -> T) -> T {
        f(&mut self.0.borrow_mut())
    }
}

/// Measures the time of side 0's operations, each of which receives its number; the other sides
/// stand by.
#[inline(always)]
fn alone(side: &Side<'_>, count: u64, operation: impl FnMut(u64)) -> Result<Duration, Error> {
    side.meet()?;
    let start = Instant::now();
    if side.rank() == 0 {
        (0..count).for_each(operation);
    }
    Ok(start.elapsed())
}

/// Copies all of `private`, always the same bytes, so they stay in the core's caches as far as they
/// fit. The size is known only at run time, as for a put.
pub fn copy(direction: Direction, private: Private) -> impl Piece {
    move |side: &Side<'_>, count| {
        let size = private.size();
        let mapped = side.area().work(0, size)?.as_ptr();
        // The bytes do not move, because a `Private`'s size never changes.
        let own = private.with(<[u8]>::as_mut_ptr);
        let (from, to) = match direction {
            Direction::In => (own.cast_const(), mapped),
            Direction::Out => (mapped.cast_const(), own),
        };
        let (from, to, size) = black_box((from, to, size));
        alone(side, count, |_| {
            // SAFETY: `private` has `size` bytes of its own that are not borrowed elsewhere
            // meanwhile, `work` checked `size` bytes of the mapping, and no other side accesses the
            // work area during this piece.
            unsafe { std::ptr::copy_nonoverlapping(from, to, size) };
            // Every copy must happen and none may be merged with the next; the fence costs no
            // instruction.
            compiler_fence(SeqCst);
        })
    }
}

/// Stores or loads eight bytes at an address that is known only at run time and always the same, so
/// that they stay in the core's first cache. The other end is a register, as for a program that
/// puts a word or has just got it.
pub fn word(direction: Direction) -> impl Piece {
    move |side: &Side<'_>, count| {
        let mapped = side.area().work(0, size_of::<u64>())?.as_ptr();
        let mapped = black_box(mapped.cast::<u64>());
        match direction {
            Direction::In => alone(side, count, |value| {
                // SAFETY: `work` checked the range, which begins at a page, and no other side
                // accesses the work area during this piece. Volatile, because every store must
                // happen.
                unsafe { mapped.write_volatile(value) };
            }),
            Direction::Out => alone(side, count, |_| {
                // SAFETY: `work` checked the range, and no other side accesses the work area;
                // any eight bytes are a valid number.
                let _ = unsafe { mapped.read_volatile() };
            }),
        }
    }
}

/// Adds atomically to a word that stays in the core's cache.
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
            // SAFETY: the word is in the work area, and no side writes it any more.
            assert_eq!(unsafe { word.read() }, 2);
        });
    }
}
