//! Tables of peers that come and go. The tables assign numbers to peers, and shrink when peers
//! leave.

use std::borrow::Borrow;
use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

use conduit_core::ni::Rank;

use crate::compact::{shrink, shrink_map};

/// A table of numbered values. A new value gets the lowest free number.
#[derive(Debug, Clone)]
pub struct Table<T> {
    entries: Vec<Option<T>>,
    /// The free numbers below the end of `entries`.
    free: BTreeSet<u32>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            free: BTreeSet::new(),
        }
    }
}

impl<T> Table<T> {
    /// Adds a value and returns its number.
    pub fn add(&mut self, value: T) -> u32 {
        let number = self.free.pop_first().unwrap_or(self.end());
        match self.entries.get_mut(number as usize) {
            Some(entry) => *entry = Some(value),
            None => self.entries.push(Some(value)),
        }
        number
    }

    /// Removes a value and frees its number.
    pub fn remove(&mut self, number: u32) -> Option<T> {
        let value = self.entries.get_mut(number as usize)?.take()?;
        self.free.insert(number);
        while let Some(None) = self.entries.last() {
            self.entries.pop();
            self.free.pop_last();
        }
        shrink(&mut self.entries);
        Some(value)
    }

    /// Returns the value with this number.
    #[inline]
    pub fn get(&self, number: u32) -> Option<&T> {
        self.entries.get(number as usize)?.as_ref()
    }

    /// Returns the value with this number.
    #[inline]
    pub fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.entries.get_mut(number as usize)?.as_mut()
    }

    /// Returns the number of values.
    pub fn count(&self) -> u32 {
        self.end() - self.free.len() as u32
    }

    /// Returns the number after the highest one in use.
    pub fn end(&self) -> u32 {
        self.entries.len() as u32
    }

    /// Returns all numbers in use.
    pub fn numbers(&self) -> impl Iterator<Item = u32> {
        (0..)
            .zip(&self.entries)
            .filter(|(_, entry)| entry.is_some())
            .map(|(number, _)| number)
    }

    /// Returns the memory used in bytes, without memory that values point to.
    pub fn memory(&self) -> usize {
        self.entries.capacity() * size_of::<Option<T>>() + self.free.len() * 2 * size_of::<u32>()
    }
}

/// A peer that has a number.
#[derive(Debug, Clone)]
pub struct Peer<A, T> {
    /// The peer's address.
    pub address: A,
    /// The state that the network keeps for the peer.
    pub state: T,
}

/// A table of peers, which can be found by number and by address.
#[derive(Debug, Clone)]
pub struct Peers<A, T> {
    table: Table<Peer<A, T>>,
    by_address: HashMap<A, Rank>,
    limit: u32,
}

impl<A: Clone + Eq + Hash, T> Peers<A, T> {
    /// Creates tables for up to `limit` peers. The limit is clamped to 2^24, so larger numbers
    /// never belong to peers.
    pub fn new(limit: u32) -> Self {
        Self {
            table: Table::default(),
            by_address: HashMap::new(),
            limit: limit.min(1 << 24),
        }
    }

    /// Returns the maximum number of peers that can have numbers at once.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// Returns whether the limit is reached.
    pub fn is_full(&self) -> bool {
        self.count() >= self.limit
    }

    /// Returns the number of peers in the table.
    pub fn count(&self) -> u32 {
        self.table.count()
    }

    /// Returns the first number above those of all peers.
    pub fn end(&self) -> u32 {
        self.table.end()
    }

    /// Returns the number of the peer with this address.
    #[inline]
    pub fn find<B: Eq + Hash + ?Sized>(&self, address: &B) -> Option<Rank>
    where
        A: Borrow<B>,
    {
        self.by_address.get(address).copied()
    }

    /// Returns the address of a peer.
    #[inline]
    pub fn address(&self, peer: Rank) -> Option<&A> {
        Some(&self.table.get(peer)?.address)
    }

    /// Returns the state kept for a peer.
    #[inline]
    pub fn state(&self, peer: Rank) -> Option<&T> {
        Some(&self.table.get(peer)?.state)
    }

    /// Returns the state kept for a peer.
    pub fn state_mut(&mut self, peer: Rank) -> Option<&mut T> {
        Some(&mut self.table.get_mut(peer)?.state)
    }

    /// Returns the numbers of all peers.
    pub fn numbers(&self) -> impl Iterator<Item = Rank> {
        self.table.numbers()
    }

    /// Assigns a number to an address that has none. Returns `None` if the limit is reached.
    pub fn add(&mut self, address: A, state: T) -> Option<Rank> {
        if self.is_full() {
            return None;
        }
        let peer = self.table.add(Peer {
            address: address.clone(),
            state,
        });
        self.by_address.insert(address, peer);
        Some(peer)
    }

    /// Removes a peer and frees its number.
    pub fn remove(&mut self, peer: Rank) -> Option<Peer<A, T>> {
        let removed = self.table.remove(peer)?;
        self.by_address.remove(&removed.address);
        shrink_map(&mut self.by_address);
        Some(removed)
    }

    /// Returns the memory used in bytes, without memory that addresses and states point to.
    pub fn memory(&self) -> usize {
        self.table.memory() + self.by_address.capacity() * (size_of::<(A, Rank)>() + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn each_address_has_its_own_number_until_it_is_removed(steps in prop::collection::vec((any::<bool>(), 1u16..60), 1..300)) {
            let (mut peers, mut reference) = (Peers::<u16, u8>::new(40), BTreeMap::new());
            for (adds, port) in steps {
                prop_assert_eq!(peers.find(&port), reference.get(&port).copied());
                match (peers.find(&port), adds) {
                    (None, true) => match peers.add(port, 0) {
                        Some(peer) => {
                            prop_assert!(reference.values().all(|&other| other != peer));
                            prop_assert_eq!(peers.state(peer), Some(&0));
                            reference.insert(port, peer);
                        }
                        None => prop_assert_eq!(reference.len(), 40),
                    },
                    (Some(peer), false) => {
                        prop_assert!(peers.remove(peer).is_some_and(|peer| peer.address == port));
                        prop_assert_eq!(peers.state(peer), None);
                        reference.remove(&port);
                    }
                    _ => {}
                }
                let numbers: Vec<_> = peers.numbers().collect();
                let mut expected: Vec<_> = reference.values().copied().collect();
                expected.sort();
                prop_assert_eq!(&numbers, &expected);
                prop_assert_eq!(peers.count() as usize, expected.len());
                prop_assert_eq!(peers.end(), expected.last().map_or(0, |last| last + 1));
            }
        }
    }

    #[test]
    fn the_memory_goes_with_the_peers() {
        let mut peers = Peers::<u16, u64>::new(u32::MAX);
        for port in 1..=10_000 {
            peers.add(port, 0);
        }
        assert!(peers.memory() > 10_000 * 30);
        for peer in 0..10_000 {
            peers.remove(peer);
        }
        assert!(peers.memory() < 2_000, "{}", peers.memory());
    }
}
