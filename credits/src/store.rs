//! Where the state of all peers is kept.

use std::collections::HashMap;
use std::fmt::Debug;
use std::hash::{BuildHasherDefault, Hasher};

/// Which peers a state machine is for: all of them, or one of several equal parts, so that threads which talk to different
/// peers need not share a lock. Rank `r` belongs to part `r` modulo the number of parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Part {
    number: u32,
    /// Binary logarithm of the number of parts.
    shift: u32,
}

impl Part {
    /// All peers.
    pub const WHOLE: Part = Part {
        number: 0,
        shift: 0,
    };

    /// All `parts` parts.
    ///
    /// # Panics
    /// When `parts` is no power of two.
    pub fn all(parts: u32) -> impl ExactSizeIterator<Item = Part> {
        assert!(parts.is_power_of_two(), "{parts} parts");
        let shift = parts.trailing_zeros();
        (0..parts).map(move |number| Part { number, shift })
    }

    /// How many of `ranks` ranks belong to the part.
    #[must_use]
    pub const fn len(self, ranks: u32) -> u32 {
        let step = 1 << self.shift;
        ranks.saturating_sub(self.number).div_ceil(step)
    }

    /// The place of a rank within its part.
    #[inline]
    #[must_use]
    pub const fn place(self, rank: u32) -> u32 {
        rank >> self.shift
    }

    /// The rank at a place of the part.
    #[inline]
    #[must_use]
    pub const fn rank(self, place: u32) -> u32 {
        place << self.shift | self.number
    }
}

/// An array with a value for each place, all the same at the start.
pub trait Store: Debug + Clone {
    /// What is kept for each peer.
    type Value: Copy;

    /// `len` copies of `initial`.
    fn new(len: u32, initial: Self::Value) -> Self;

    /// The value at a place; the initial one beyond the end.
    fn get(&self, place: u32) -> Self::Value;

    /// The value at a place, to be changed.
    ///
    /// # Panics
    /// Beyond the end.
    fn get_mut(&mut self, place: u32) -> &mut Self::Value;
}

/// A real array: what a rank of a job uses.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Dense<T> {
    values: Box<[T]>,
    initial: T,
}

impl<T: Copy + Debug> Store for Dense<T> {
    type Value = T;

    fn new(len: u32, initial: T) -> Self {
        Dense {
            values: vec![initial; len as usize].into_boxed_slice(),
            initial,
        }
    }

    #[inline]
    fn get(&self, place: u32) -> T {
        self.values
            .get(place as usize)
            .copied()
            .unwrap_or(self.initial)
    }

    #[inline]
    fn get_mut(&mut self, place: u32) -> &mut T {
        &mut self.values[place as usize]
    }
}

/// Memory only for the places that have been changed: what a simulation of very many ranks uses.
#[derive(Clone, Debug)]
pub struct Sparse<T> {
    values: HashMap<u32, T, BuildHasherDefault<PlaceHasher>>,
    initial: T,
    len: u32,
}

/// Spreads the bits of a place by one multiplication. Nobody chooses places in order to make them collide, so the
/// standard library's defence against that, which takes a third of a simulation's time, is not needed.
#[derive(Clone, Copy, Debug, Default)]
struct PlaceHasher(u64);

impl Hasher for PlaceHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u32(byte.into()));
    }

    #[inline]
    fn write_u32(&mut self, place: u32) {
        // 2^64 over the golden ratio. The table takes bits from both ends of the hash; the low ones of a product depend on
        // the low ones of the place alone, hence the rotation.
        self.0 = (self.0 ^ u64::from(place))
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(32);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl<T> Sparse<T> {
    /// How many places take memory.
    #[must_use]
    pub fn used(&self) -> usize {
        self.values.len()
    }
}

impl<T: Copy + Debug> Store for Sparse<T> {
    type Value = T;

    fn new(len: u32, initial: T) -> Self {
        Sparse {
            values: HashMap::default(),
            initial,
            len,
        }
    }

    #[inline]
    fn get(&self, place: u32) -> T {
        self.values.get(&place).copied().unwrap_or(self.initial)
    }

    #[inline]
    fn get_mut(&mut self, place: u32) -> &mut T {
        assert!(place < self.len, "place {place} of {}", self.len);
        self.values.entry(place).or_insert(self.initial)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_rank_has_a_place_of_its_own(ranks in 1u32..5_000, shift in 0u32..7) {
            let mut seen = vec![false; ranks as usize];
            for part in Part::all(1 << shift) {
                for place in 0..part.len(ranks) {
                    let rank = part.rank(place);
                    prop_assert_eq!(part.place(rank), place);
                    prop_assert!(!std::mem::replace(&mut seen[rank as usize], true));
                }
            }
            prop_assert!(seen.iter().all(|seen| *seen));
        }

        #[test]
        fn sparse_and_dense_are_the_same(changes in prop::collection::vec((0u32..50, any::<u16>()), 0..100)) {
            let (mut dense, mut sparse) = (Dense::new(50, 7u16), Sparse::new(50, 7u16));
            for &(place, value) in &changes {
                *dense.get_mut(place) = value;
                *sparse.get_mut(place) = value;
            }
            for place in 0..60 {
                prop_assert_eq!(dense.get(place), sparse.get(place));
            }
        }
    }
}
