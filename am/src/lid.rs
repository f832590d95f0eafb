//! Pairing of a long's header with its data.
//!
//! A long whose data does not fit its header's message is two messages, which may arrive in either order. Both carry the
//! sender's LID ("long id"); the half that comes first waits in the receiver's [`LidCache`] for the other.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::{LID_MASK, NO_LID, Rank};

/// A sender's LIDs: 24 bits, never [`NO_LID`], starting over after 2^24 − 1.
///
/// One generator serves all targets and both roles. A LID comes back only after all others have been used, far more than
/// a sender's chunks let it have under way.
#[derive(Clone, Debug)]
pub struct LidGenerator {
    last: u32,
}

impl LidGenerator {
    /// Starts with LID 1.
    #[inline]
    #[must_use]
    pub const fn new() -> LidGenerator {
        LidGenerator { last: NO_LID }
    }

    /// The next LID.
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

/// What the arrival of one half of a long leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Pairing<T> {
    /// The other half is not there yet; this one is kept.
    Wait,
    /// Both halves are there: run the handler with what came with the header.
    Ready(T),
    /// No room to wait. Cannot happen if all senders keep to their credits and the capacity was chosen after them, see
    /// [`LidCache::new`]. A header comes back to the caller.
    Full(Option<T>),
    /// The same half has arrived before: a fault of the sender. A header comes back to the caller.
    Duplicate(Option<T>),
}

/// The halves of longs that wait for the other half.
///
/// A map that grows with what waits, up to its capacity: in a large job the capacity, which follows from the credits of
/// all peers, is far more than ever waits at once.
#[derive(Clone, Debug)]
pub struct LidCache<T> {
    /// By source and LID; the header's part if it is the header that waits.
    waiting: HashMap<(Rank, u32), Option<T>>,
    capacity: usize,
}

impl<T> LidCache<T> {
    /// A cache in which up to `capacity` halves can wait. No memory is taken before one does.
    ///
    /// As each long with separate data costs its sender two credits, half of the credits lent, plus one for each chunk
    /// that a reply may come to, is always enough.
    #[must_use]
    pub fn new(capacity: usize) -> LidCache<T> {
        LidCache {
            waiting: HashMap::new(),
            capacity,
        }
    }

    /// Most halves that can wait.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.capacity
    }

    /// Halves that wait now.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The header of long `lid` from `source` has arrived; `header` is what its handler will need.
    pub fn arrive_header(&mut self, source: Rank, lid: u32, header: T) -> Pairing<T> {
        self.arrive(source, lid, Some(header))
    }

    /// The data of long `lid` from `source` has arrived.
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

    /// Forgets all halves from `source`, which is known to be gone, and says how many there were.
    pub fn forget(&mut self, source: Rank) -> usize {
        let before = self.waiting.len();
        self.waiting.retain(|&(from, _), _| from != source);
        before - self.waiting.len()
    }
}
