//! A part of a job as a job of its own, for networks that reach only that part.

use conduit_core::bootstrap::{Bootstrap, BootstrapError};
use conduit_core::ni::Rank;

/// The side channel of some ranks of a job, numbered in their order. All ranks of the job make the same calls, each for its
/// own part.
pub(super) struct Neighbours<'a> {
    all: &'a mut dyn Bootstrap,
    ranks: &'a [Rank],
    own: u32,
}

impl<'a> Neighbours<'a> {
    /// `ranks` ascend and have this rank among them.
    pub(super) fn new(all: &'a mut dyn Bootstrap, ranks: &'a [Rank]) -> Self {
        let rank = all.rank();
        let own = ranks.iter().take_while(|other| **other < rank).count() as u32;
        Self { all, ranks, own }
    }
}

impl Bootstrap for Neighbours<'_> {
    fn rank(&self) -> u32 {
        self.own
    }
    fn size(&self) -> u32 {
        self.ranks.len() as u32
    }
    fn allgather(&mut self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, BootstrapError> {
        let mut all = self.all.allgather(bytes)?;
        let own = |rank: &Rank| all.get_mut(*rank as usize).map(std::mem::take);
        Ok(self.ranks.iter().filter_map(own).collect())
    }
    fn barrier(&mut self) -> Result<(), BootstrapError> {
        self.all.barrier()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Everybody says the same.
    struct Same(u32, u32);

    impl Bootstrap for Same {
        fn rank(&self) -> u32 {
            self.0
        }
        fn size(&self) -> u32 {
            self.1
        }
        fn allgather(&mut self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, BootstrapError> {
            let say = |rank| [&[rank as u8][..], bytes].concat();
            Ok((0..self.1).map(say).collect())
        }
        fn barrier(&mut self) -> Result<(), BootstrapError> {
            Ok(())
        }
    }

    #[test]
    fn the_ranks_of_a_part_have_its_numbers() {
        let mut all = Same(4, 6);
        let mut part = Neighbours::new(&mut all, &[1, 2, 4]);
        assert_eq!((part.rank(), part.size()), (2, 3));
        assert_eq!(
            part.allgather(b"x").unwrap(),
            [[1, b'x'], [2, b'x'], [4, b'x']]
        );
    }
}
