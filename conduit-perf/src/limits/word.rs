//! One store to the mapping, or one load from it, of eight bytes at an address that is known at run time: all that a small put
//! or get into mapped memory has to do.

use std::hint::black_box;
use std::time::{Duration, Instant};

use crate::Error;
use crate::limits::copy::Direction;
use crate::piece::Piece;
use crate::side::Side;

/// Stores or loads of a word by side 0, always the same one, so that it stays in the core's first cache. The other half of
/// the way is a register, which is where a program has a word that it puts or has just got.
#[derive(Clone, Copy, Debug)]
pub struct Word(pub Direction);

impl Piece for Word {
    fn run(&mut self, side: &Side<'_>, count: u64) -> Result<Duration, Error> {
        let mapped = black_box(
            side.area()
                .work(0, size_of::<u64>())?
                .as_ptr()
                .cast::<u64>(),
        );
        side.meet()?;
        let start = Instant::now();
        if side.rank() == 0 {
            match self.0 {
                Direction::In => (0..count).for_each(|value| {
                    // SAFETY: `work` checked the range, which begins at a page, and no other side touches the work area
                    // during this piece. Volatile: each store has to happen.
                    unsafe { mapped.write_volatile(value) };
                }),
                Direction::Out => (0..count).for_each(|_| {
                    // SAFETY: as above; any eight bytes are a number.
                    let _ = unsafe { mapped.read_volatile() };
                }),
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
    fn the_last_word_stays_in_the_mapping() {
        in_threads(2, |side| {
            Word(Direction::In).run(side, 3).expect("in");
            side.meet().expect("meet");
            Word(Direction::Out).run(side, 3).expect("out");
            let word = side.area().work(0, 8).expect("work").as_ptr().cast::<u64>();
            // SAFETY: in the work area, which nobody writes any more.
            assert_eq!(unsafe { word.read() }, 2);
        });
    }
}
