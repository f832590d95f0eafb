//! The side channel between two sides before their network works: the memory that they share.

use pmi::bootstrap::{Bootstrap, BootstrapError};

use crate::Error;
use crate::side::Side;

/// Maximum bytes of one contribution.
const MOST: usize = 64 << 10;
/// Bytes of the length before each contribution.
const COUNT: usize = 8;

/// The side channel of a job whose ranks are the sides.
#[derive(Debug)]
pub(crate) struct Exchange<'s, 'a> {
    side: &'s Side<'a>,
    /// The bytes that this side has put since the last fence.
    put: Vec<u8>,
    /// The contributions of all sides before the last fence, by side.
    all: Vec<Vec<u8>>,
    fences: u64,
}

impl<'s, 'a> Exchange<'s, 'a> {
    pub(crate) fn new(side: &'s Side<'a>) -> Self {
        Self {
            side,
            put: Vec::new(),
            all: Vec::new(),
            fences: 0,
        }
    }
    /// Returns the contributions of all sides, by side.
    pub(crate) fn all(&self, own: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
        let side = self.side;
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
        self.side.rank() as u32
    }
    fn size(&self) -> u32 {
        self.side.sides() as u32
    }
    fn put(&mut self, _: &str, bytes: &[u8]) -> Result<(), BootstrapError> {
        self.put = bytes.to_vec();
        Ok(())
    }
    /// Returns what the side has put before the last fence, under whichever key.
    fn get(&mut self, rank: u32, _: &str) -> Result<Vec<u8>, BootstrapError> {
        Ok(self.all.get(rank as usize).cloned().unwrap_or_default())
    }
    fn fence(&mut self) -> Result<(), BootstrapError> {
        let put = std::mem::take(&mut self.put);
        let all = self.all(&put);
        self.all = all.map_err(|error| BootstrapError {
            rank: self.rank(),
            operation: "fence",
            reason: error.to_string(),
        })?;
        self.fences += 1;
        Ok(())
    }
    fn fences(&self) -> u64 {
        self.fences
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
            let first = Exchange::new(side).all(&own).unwrap();
            assert!(Exchange::new(side).all(&vec![0; MOST + 1]).is_err());
            (first, Exchange::new(side).allgather(&[]).unwrap())
        });
        for (first, second) in heard {
            assert_eq!(first, [vec![0; 3], vec![1; 4]]);
            assert_eq!(second, [Vec::<u8>::new(), Vec::new()]);
        }
    }
}
