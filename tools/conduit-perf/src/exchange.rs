//! The side channel between two sides before their network works: the memory that they share.

use conduit_core::bootstrap::{Bootstrap, BootstrapError};

use crate::Error;
use crate::side::Side;

/// Maximum bytes of one contribution.
const MOST: usize = 64 << 10;
/// Bytes of the length before each contribution.
const COUNT: usize = 8;

/// The side channel of a job whose ranks are the sides.
pub(crate) struct Exchange<'s, 'a>(pub(crate) &'s Side<'a>);

impl Exchange<'_, '_> {
    /// Returns the contributions of all sides, by side.
    pub(crate) fn all(&self, own: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
        let side = self.0;
        if own.len() > MOST {
            return Err(Error::AreaTooSmall {
                need: own.len(),
                have: MOST,
            });
        }
        let place = |rank| side.area().work(rank * (COUNT + MOST), COUNT + MOST);
        let here = place(side.rank())?;
        // No side still uses these bytes for the previous exchange.
        side.meet()?;
        // SAFETY: the bytes are within the work area, at this side's place; the others read them
        // after they have met.
        unsafe {
            here.cast::<u64>().write_unaligned(own.len() as u64);
            let bytes = here.add(COUNT);
            bytes
                .as_ptr()
                .copy_from_nonoverlapping(own.as_ptr(), own.len());
        }
        side.meet()?;
        let mut all = Vec::with_capacity(side.sides());
        for rank in 0..side.sides() {
            let there = place(rank)?;
            // SAFETY: the bytes are within the work area; their side has written them and waits.
            let said = unsafe {
                let count = there.cast::<u64>().read_unaligned() as usize;
                std::slice::from_raw_parts(there.add(COUNT).as_ptr(), count.min(MOST)).to_vec()
            };
            all.push(said);
        }
        side.meet()?;
        Ok(all)
    }
}

impl Bootstrap for Exchange<'_, '_> {
    fn rank(&self) -> u32 {
        self.0.rank() as u32
    }
    fn size(&self) -> u32 {
        self.0.sides() as u32
    }
    fn allgather(&mut self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, BootstrapError> {
        let rank = self.rank();
        self.all(bytes).map_err(|error| BootstrapError {
            rank,
            operation: "allgather",
            reason: error.to_string(),
        })
    }
    fn barrier(&mut self) -> Result<(), BootstrapError> {
        let rank = self.rank();
        self.0.meet().map_err(|error| BootstrapError {
            rank,
            operation: "barrier",
            reason: error.to_string(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::in_threads;

    #[test]
    fn each_side_hears_all() {
        let heard = in_threads(2, |side| {
            let own = vec![side.rank() as u8; 3 + side.rank()];
            let first = Exchange(side).all(&own).unwrap();
            assert!(Exchange(side).all(&vec![0; MOST + 1]).is_err());
            (first, Exchange(side).allgather(&[]).unwrap())
        });
        for (first, second) in heard {
            assert_eq!(first, [vec![0; 3], vec![1; 4]]);
            assert_eq!(second, [Vec::<u8>::new(), Vec::new()]);
        }
    }
}
