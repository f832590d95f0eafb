//! Pairing of a long's header with its data.
//!
//! A long whose data does not fit into its header's message travels as two messages, which may
//! arrive in either order. Both carry the sender's LID ("long id"). The half that arrives first
//! waits in the receiver's [`LidCache`] for the other.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::{LID_MASK, NO_LID, Rank};

/// A generator of a sender's LIDs: 24 bits, never [`NO_LID`], wrapping to 1 after 2^24 − 1.
///
/// One generator serves all targets and both roles. A LID is reused only after all others have been
/// used. There are far more LIDs than longs that the sender's chunks allow in flight.
#[derive(Clone, Debug)]
pub struct LidGenerator {
    last: u32,
}

impl LidGenerator {
    /// Creates a generator whose first LID is 1.
    #[inline]
    #[must_use]
    pub const fn new() -> LidGenerator {
        LidGenerator { last: NO_LID }
    }

    /// Returns the next LID.
    #[inline]
    pub const fn generate(&mut self) -> u32 {
        self.last = (self.last & LID_MASK) % LID_MASK + 1;
        self.last
    }
}

impl Default for LidGenerator {
    fn default() -> LidGenerator {
        LidGenerator::new()
    }
}

/// The outcome of the arrival of one half of a long.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Pairing<T> {
    /// The other half has not arrived; this one is kept.
    Wait,
    /// Both halves have arrived: run the handler with the header's data.
    Ready(T),
    /// There is no room to keep this half. This cannot happen if all senders keep to their credits
    /// and the capacity was derived from those credits; see [`LidCache::new`]. Returns the header's
    /// data to the caller.
    Full(Option<T>),
    /// The same half has arrived before, which is the sender's error. Returns the header's data to
    /// the caller.
    Duplicate(Option<T>),
}

/// The halves of longs that are waiting for their other half.
///
/// The map grows with the number of waiting halves, up to its capacity. In a large job the
/// capacity, which follows from the credits of all peers, far exceeds the number that ever waits at
/// once.
#[derive(Clone, Debug)]
pub struct LidCache<T> {
    /// The waiting halves by source and LID. A value is the header's data if the header is waiting,
    /// and `None` if the long's data is.
    waiting: HashMap<(Rank, u32), Option<T>>,
    capacity: usize,
}

impl<T> LidCache<T> {
    /// Creates a cache for up to `capacity` waiting halves. Allocates nothing until the first one
    /// waits.
    ///
    /// Each long with separate data costs its sender two credits. A capacity of half the credits
    /// lent, plus one for each chunk that a reply may go to, is therefore always enough.
    #[must_use]
    pub fn new(capacity: usize) -> LidCache<T> {
        LidCache {
            waiting: HashMap::new(),
            capacity,
        }
    }

    /// Returns the maximum number of waiting halves.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.capacity
    }

    /// Returns the number of waiting halves.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Returns whether no half waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Records the arrival of the header of long `lid` from `source`; `header` is what its handler
    /// will need.
    pub fn arrive_header(&mut self, source: Rank, lid: u32, header: T) -> Pairing<T> {
        self.arrive(source, lid, Some(header))
    }

    /// Records the arrival of the data of long `lid` from `source`.
    pub fn arrive_data(&mut self, source: Rank, lid: u32) -> Pairing<T> {
        self.arrive(source, lid, None)
    }

    fn arrive(&mut self, source: Rank, lid: u32, half: Option<T>) -> Pairing<T> {
        let room = self.waiting.len() < self.capacity;
        match self.waiting.entry((source, lid & LID_MASK)) {
            Entry::Occupied(first) if first.get().is_some() == half.is_some() => {
                Pairing::Duplicate(half)
            }
            Entry::Occupied(first) => match half.or(first.remove()) {
                Some(header) => Pairing::Ready(header),
                None => Pairing::Duplicate(None),
            },
            Entry::Vacant(place) if room => {
                place.insert(half);
                Pairing::Wait
            }
            Entry::Vacant(_) => Pairing::Full(half),
        }
    }

    /// Drops all halves from `source`, which is known to be gone, and returns their number.
    pub fn forget(&mut self, source: Rank) -> usize {
        let before = self.waiting.len();
        self.waiting.retain(|&(from, _), _| from != source);
        before - self.waiting.len()
    }
}
