//! An atomic addition by one core to a word of the mapping that stays in its cache: what a remote atomic on mapped
//! memory can't beat.

use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};

use crate::Error;
use crate::piece::Piece;
use crate::side::Side;

/// Additions by side 0. An operation is one `fetch_add`.
#[derive(Clone, Copy, Debug)]
pub struct FetchAdd;

impl Piece for FetchAdd {
    fn run(&mut self, side: &Side<'_>, count: u64) -> Result<Duration, Error> {
        let word = side.area().word(0)?;
        side.meet()?;
        let start = Instant::now();
        if side.rank() == 0 {
            for _ in 0..count {
                std::hint::black_box(word.fetch_add(1, SeqCst));
            }
        }
        Ok(start.elapsed())
    }
}
