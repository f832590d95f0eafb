//! The storage for the state of all peers.

use std::fmt::Debug;

/// A part of a rank's peers: all of them, or one of several equal parts. A state machine manages
/// one part. If there are several, threads that talk to different peers need not share a lock. Rank
/// `r` belongs to part `r` modulo the number of parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Part {
    number: u32,
    /// The binary logarithm of the number of parts.
    shift: u32,
}

impl Part {
    /// The part that contains all peers.
    pub const WHOLE: Part = Part {
        number: 0,
        shift: 0,
    };

    /// Returns all parts of a division into `parts` parts.
    ///
    /// # Panics
    /// Panics if `parts` is not a power of two.
    pub fn all(parts: u32) -> impl ExactSizeIterator<Item = Part> {
        assert!(parts.is_power_of_two(), "{parts} parts");
        let shift = parts.trailing_zeros();
        (0..parts).map(move |number| Part { number, shift })
    }

    /// Returns how many of `ranks` ranks belong to the part.
    #[must_use]
    pub const fn len(self, ranks: u32) -> u32 {
        let step = 1 << self.shift;
        ranks.saturating_sub(self.number).div_ceil(step)
    }

    /// Returns the place of `rank`, which must belong to the part, within the part.
    #[inline]
    #[must_use]
    pub const fn place(self, rank: u32) -> u32 {
        rank >> self.shift
    }

    /// Returns the rank at a place of the part.
    #[inline]
    #[must_use]
    pub const fn rank(self, place: u32) -> u32 {
        place << self.shift | self.number
    }
}

/// An array with a value for each place. All values are equal at the start.
pub trait Store: Debug + Clone {
    /// The state of one peer.
    type Value: Copy;

    /// Creates `len` copies of `initial`.
    fn new(len: u32, initial: Self::Value) -> Self;

    /// Returns the value at a place, or the initial value if the place is beyond the end.
    fn get(&self, place: u32) -> Self::Value;

    /// Returns a mutable reference to the value at a place.
    ///
    /// # Panics
    /// Panics if the place is beyond the end.
    fn get_mut(&mut self, place: u32) -> &mut Self::Value;
}

/// A plain array, which the ranks of a job use.
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

/// A store that uses memory only for places that have been accessed mutably, for simulations of
/// very many ranks.
///
/// It is an open-addressing table that stores places and values together. In a simulation, hardly
/// any entry is in a cache when it is needed, so the number of cache lines that an access touches
/// determines its cost. Here, that number is one or two.
#[derive(Clone, Debug)]
pub struct Sparse<T> {
    /// The slots. Their number is 0 or a power of two, and at least a quarter of them are
    /// [`EMPTY`](Self::EMPTY).
    slots: Box<[(u32, T)]>,
    used: u32,
    initial: T,
    len: u32,
}

impl<T: Copy> Sparse<T> {
    /// The number in slots that belong to no place. No place has this number, because there are at
    /// most as many places as ranks.
    const EMPTY: u32 = u32::MAX;

    /// Returns the number of places that take memory.
    #[must_use]
    pub fn used(&self) -> usize {
        self.used as usize
    }

    /// Returns the slot of a place or, if it has none, the slot where it belongs. There must be
    /// slots.
    #[inline]
    fn slot(&self, place: u32) -> usize {
        let mask = self.slots.len() - 1;
        // The factor is 2^32 over the golden ratio, so the high bits of the product depend on all
        // bits of the place. A better hash is not needed, because no adversary chooses the places.
        let spread =
            place.wrapping_mul(0x9e37_79b9) >> (u32::BITS - self.slots.len().trailing_zeros());
        let mut slot = spread as usize & mask;
        while self.slots[slot].0 != place && self.slots[slot].0 != Self::EMPTY {
            slot = (slot + 1) & mask;
        }
        slot
    }

    #[cold]
    fn grow(&mut self) {
        let len = (self.slots.len() * 2).max(4);
        let more = vec![(Self::EMPTY, self.initial); len].into_boxed_slice();
        let before = std::mem::replace(&mut self.slots, more);
        for (place, value) in before {
            if place != Self::EMPTY {
                let slot = self.slot(place);
                self.slots[slot] = (place, value);
            }
        }
    }

    /// Assigns a slot to a place that has none. Returns that slot.
    #[cold]
    fn insert(&mut self, place: u32) -> usize {
        if (self.used() + 1) * 4 > self.slots.len() * 3 {
            self.grow();
        }
        self.used += 1;
        let slot = self.slot(place);
        self.slots[slot] = (place, self.initial);
        slot
    }
}

impl<T: Copy + Debug> Store for Sparse<T> {
    type Value = T;

    fn new(len: u32, initial: T) -> Self {
        Sparse {
            slots: Box::default(),
            used: 0,
            initial,
            len,
        }
    }

    #[inline]
    fn get(&self, place: u32) -> T {
        if self.slots.is_empty() {
            return self.initial;
        }
        // If the place has no slot, this reads an empty one, which has the initial value.
        self.slots[self.slot(place)].1
    }

    #[inline]
    fn get_mut(&mut self, place: u32) -> &mut T {
        assert!(place < self.len, "place {place} of {}", self.len);
        let slot = (!self.slots.is_empty()).then(|| self.slot(place));
        let slot = match slot {
            Some(slot) if self.slots[slot].0 == place => slot,
            _ => self.insert(place),
        };
        &mut self.slots[slot].1
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
