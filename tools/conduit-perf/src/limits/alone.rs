//! The limits of a single core that works on the mapping, which are copies, a store or a load of a
//! word, and an atomic addition. No put, get or remote atomic on mapped memory can be faster.

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

/// A core's own memory, shared by a limit and its figure. The cache sets and pages in which the
/// memory lies change a bandwidth by some percent for as long as it exists, so pieces with separate
/// memory are not comparable.
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

/// Measures the time of `count` operations on side 0. Each operation receives its number. The other
/// sides stand by.
#[inline(always)]
fn alone(side: &Side<'_>, count: u64, operation: impl FnMut(u64)) -> Result<Duration, Error> {
    side.meet()?;
    let start = Instant::now();
    if side.rank() == 0 {
        (0..count).for_each(operation);
    }
    Ok(start.elapsed())
}

/// Returns copies of all bytes of `private`. They are always the same bytes, so they stay in the
/// core's caches as far as they fit. The size is known only at run time, as for a put.
pub fn copy(direction: Direction, private: Private) -> impl Piece {
    move |side: &Side<'_>, count| {
        let size = private.size();
        let mapped = side.area().work(0, size)?.as_ptr();
        // The pointer stays valid, because the bytes of a `Private` never move: its size never
        // changes.
        let own = private.with(<[u8]>::as_mut_ptr);
        let (from, to) = match direction {
            Direction::In => (own.cast_const(), mapped),
            Direction::Out => (mapped.cast_const(), own),
        };
        let (from, to, size) = black_box((from, to, size));
        alone(side, count, |_| {
            // SAFETY: `own` points to the `size` bytes of `private`, which are not borrowed
            // elsewhere during the copy. `work` checked that the `size` bytes at `mapped` are in
            // the work area, and no other side accesses that area during this piece.
            unsafe { std::ptr::copy_nonoverlapping(from, to, size) };
            // The fence ensures that every copy happens and that none is merged with the next one.
            // It costs no instruction.
            compiler_fence(SeqCst);
        })
    }
}

/// Returns stores or loads of eight bytes. Their address is known only at run time and is always
/// the same, so the bytes stay in the core's first cache. The other end is a register, as in a
/// program that puts a word or uses a word that it has just got.
pub fn word(direction: Direction) -> impl Piece {
    move |side: &Side<'_>, count| {
        let mapped = side.area().work(0, size_of::<u64>())?.as_ptr();
        let mapped = black_box(mapped.cast::<u64>());
        match direction {
            Direction::In => alone(side, count, |value| {
                // SAFETY: `work` checked that the eight bytes are in the work area, which begins at
                // a page, so they are aligned. No other side accesses the work area during this
                // piece. The write is volatile because every store must happen.
                unsafe { mapped.write_volatile(value) };
            }),
            Direction::Out => alone(side, count, |_| {
                // SAFETY: `work` checked that the eight bytes are in the work area, which begins at
                // a page, so they are aligned. No other side accesses the work area during this
                // piece, and any eight bytes are a valid number.
                let _ = unsafe { mapped.read_volatile() };
            }),
        }
    }
}

/// Measures atomic additions to a word that stays in the core's cache.
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
            // SAFETY: `work` checked that the word is in the work area, which begins at a page, and
            // no side writes the word any more.
            assert_eq!(unsafe { word.read() }, 2);
        });
    }
}
