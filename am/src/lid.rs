//! The pairing of a long's header with the long's data.
//!
//! If the data of a long does not fit into the message of its header, the long travels as two
//! messages, which may arrive in either order. Both carry the sender's LID ("long id"). The half
//! that arrives first waits in the receiver's [`LidCache`] for the other half.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::{LID_MASK, NO_LID, Rank};

/// A generator of a sender's LIDs. A LID has 24 bits and is never [`NO_LID`]; after 2^24 − 1 the
/// LIDs wrap to 1.
///
/// One generator serves all targets and both roles. A LID is reused only after all other LIDs have
/// been used. The number of LIDs far exceeds the number of longs that the sender's chunks allow in
/// flight.
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
    /// The other half has not arrived. The cache keeps this half.
    Wait,
    /// Both halves have arrived. The caller must run the handler with this data, which came with
    /// the header.
    Ready(T),
    /// There is no room to keep this half. This cannot happen if all senders keep to their credits
    /// and the capacity was derived from these credits; see [`LidCache::new`]. If this half is the
    /// header, the value is what the caller passed with it.
    Full(Option<T>),
    /// The same half has arrived before, which is an error of the sender. If this half is the
    /// header, the value is what the caller passed with it.
    Duplicate(Option<T>),
}

/// The halves of longs that are waiting for their other halves.
///
/// The map grows with the number of waiting halves, up to its capacity. The capacity follows from
/// the credits of all peers, so in a large job it far exceeds the number of halves that ever wait
/// at once.
#[derive(Clone, Debug)]
pub struct LidCache<T> {
    /// The waiting halves by source and LID. A value is what the caller passed with the header if
    /// the header is waiting, and `None` if the data is waiting.
    waiting: HashMap<(Rank, u32), Option<T>>,
    capacity: usize,
}

impl<T> LidCache<T> {
    /// Creates a cache for up to `capacity` waiting halves. Allocates no memory until the first
    /// half waits.
    ///
    /// A long with separate data costs its sender two credits. Half the number of credits lent,
    /// plus the number of chunks to which replies may go, is therefore always a sufficient
    /// capacity.
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

    /// Returns whether no half is waiting.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Records the arrival of the header of long `lid` from `source`. `header` is what the handler
    /// will need from it.
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

    /// Drops all halves from `source`, which must be known to have ended, and returns the number of
    /// halves dropped.
    pub fn forget(&mut self, source: Rank) -> usize {
        let before = self.waiting.len();
        self.waiting.retain(|&(from, _), _| from != source);
        before - self.waiting.len()
    }
}
