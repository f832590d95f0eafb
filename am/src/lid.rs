//! Pairing of a long's header with its data.
//!
//! A long whose data does not fit its header's message is two messages, which may arrive in either order. Both carry the
//! sender's LID ("long id"); the half that comes first waits in the receiver's [`LidCache`] for the other.

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
/// A hash table with open addressing (linear probing, entries moved up on removal), twice as large as its capacity, so
/// that searches end soon; it never grows.
#[derive(Clone, Debug)]
pub struct LidCache<T> {
    /// A power of two of them; at least half are always empty.
    slots: Box<[Slot<T>]>,
    capacity: usize,
    len: usize,
}

#[derive(Clone, Debug)]
enum Slot<T> {
    Empty,
    /// The key, and the header's part if it is the header that waits.
    Waiting(u64, Option<T>),
}

const fn key(source: Rank, lid: u32) -> u64 {
    (source as u64) << 32 | (lid & LID_MASK) as u64
}

impl<T> LidCache<T> {
    /// A cache in which up to `capacity` halves can wait.
    ///
    /// As each long with separate data costs its sender two credits, half of the credits lent, plus one for each chunk
    /// that a reply may come to, is always enough.
    #[must_use]
    pub fn new(capacity: usize) -> LidCache<T> {
        let slots = (capacity.max(1) * 2).next_power_of_two();
        LidCache {
            slots: (0..slots).map(|_| Slot::Empty).collect(),
            capacity,
            len: 0,
        }
    }

    /// Most halves that can wait.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.capacity
    }

    /// Halves that wait now.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether none waits.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The header of long `lid` from `source` has arrived; `header` is what its handler will need.
    pub fn arrive_header(&mut self, source: Rank, lid: u32, header: T) -> Pairing<T> {
        self.arrive(key(source, lid), Some(header))
    }

    /// The data of long `lid` from `source` has arrived.
    pub fn arrive_data(&mut self, source: Rank, lid: u32) -> Pairing<T> {
        self.arrive(key(source, lid), None)
    }

    fn arrive(&mut self, key: u64, half: Option<T>) -> Pairing<T> {
        let mut at = self.home(key);
        loop {
            match &self.slots[at] {
                Slot::Empty => break,
                Slot::Waiting(found, _) if *found != key => at = self.after(at),
                Slot::Waiting(_, waiting) if waiting.is_some() == half.is_some() => {
                    return Pairing::Duplicate(half);
                }
                Slot::Waiting(..) => {
                    let waiting = self.remove(at);
                    return match half.or(waiting) {
                        Some(header) => Pairing::Ready(header),
                        None => Pairing::Duplicate(None),
                    };
                }
            }
        }
        if self.len == self.capacity {
            return Pairing::Full(half);
        }
        self.slots[at] = Slot::Waiting(key, half);
        self.len += 1;
        Pairing::Wait
    }

    /// Forgets all halves from `source`, which is known to be gone, and says how many there were.
    pub fn forget(&mut self, source: Rank) -> usize {
        let before = self.len;
        let mut at = 0;
        while at < self.slots.len() {
            match self.slots[at] {
                // Another may have moved up to this place, so look at it again.
                Slot::Waiting(key, _) if (key >> 32) as Rank == source => drop(self.remove(at)),
                _ => at += 1,
            }
        }
        before - self.len
    }

    /// Empties the slot and moves up those behind it that were displaced by it (Knuth's algorithm R), so that no search
    /// stops too early.
    fn remove(&mut self, at: usize) -> Option<T> {
        let removed = std::mem::replace(&mut self.slots[at], Slot::Empty);
        self.len -= 1;
        let mask = self.slots.len() - 1;
        let (mut hole, mut at) = (at, at);
        loop {
            at = self.after(at);
            let Slot::Waiting(key, _) = self.slots[at] else {
                break;
            };
            // May move to the hole unless its home lies cyclically behind the hole.
            let displaced = at.wrapping_sub(self.home(key)) & mask;
            if displaced >= at.wrapping_sub(hole) & mask {
                self.slots.swap(hole, at);
                hole = at;
            }
        }
        match removed {
            Slot::Waiting(_, half) => half,
            Slot::Empty => None,
        }
    }

    fn home(&self, key: u64) -> usize {
        // Fibonacci hashing: the high bits of the product depend on all bits of the key.
        (key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize & (self.slots.len() - 1)
    }

    fn after(&self, at: usize) -> usize {
        (at + 1) & (self.slots.len() - 1)
    }
}
