//! The peers that have numbers.

use std::collections::{BTreeSet, HashMap};

use conduit_core::ni::Rank;

use super::address::Address;

#[derive(Debug, Clone)]
struct Row<T> {
    address: Address,
    state: T,
}

/// Peers by number and by address. Free numbers are given again, the lowest first, so that the
/// table shrinks when peers go.
#[derive(Debug, Clone)]
pub(super) struct Peers<T> {
    rows: Vec<Option<Row<T>>>,
    by_address: HashMap<Address, Rank>,
    /// Numbers below the table's size that nobody has.
    free: BTreeSet<Rank>,
    limit: u32,
}

impl<T: Default> Peers<T> {
    pub(super) fn new(limit: u32) -> Self {
        Self {
            rows: Vec::new(),
            by_address: HashMap::new(),
            free: BTreeSet::new(),
            // Larger numbers are not those of peers.
            limit: limit.min(1 << 24),
        }
    }

    pub(super) fn limit(&self) -> u32 {
        self.limit
    }

    /// All numbers are below it.
    pub(super) fn size(&self) -> u32 {
        self.rows.len() as u32
    }

    pub(super) fn is_full(&self) -> bool {
        self.by_address.len() >= self.limit as usize
    }

    #[inline]
    pub(super) fn find(&self, address: &Address) -> Option<Rank> {
        self.by_address.get(address).copied()
    }

    #[inline]
    pub(super) fn address(&self, peer: Rank) -> Option<&Address> {
        Some(&self.rows.get(peer as usize)?.as_ref()?.address)
    }

    #[inline]
    pub(super) fn state(&self, peer: Rank) -> Option<&T> {
        Some(&self.rows.get(peer as usize)?.as_ref()?.state)
    }

    pub(super) fn state_mut(&mut self, peer: Rank) -> Option<&mut T> {
        Some(&mut self.rows.get_mut(peer as usize)?.as_mut()?.state)
    }

    pub(super) fn numbers(&self) -> impl Iterator<Item = Rank> {
        (0..)
            .zip(&self.rows)
            .filter(|(_, row)| row.is_some())
            .map(|(peer, _)| peer)
    }

    /// Gives an address, which has none, a number. `None`: there are as many peers as there may be.
    pub(super) fn add(&mut self, address: Address) -> Option<Rank> {
        if self.is_full() {
            return None;
        }
        let row = Some(Row {
            address,
            state: T::default(),
        });
        let peer = match self.free.pop_first() {
            Some(peer) => {
                self.rows[peer as usize] = row;
                peer
            }
            None => {
                self.rows.push(row);
                self.size() - 1
            }
        };
        self.by_address.insert(address, peer);
        Some(peer)
    }

    /// The number is free from now on.
    pub(super) fn remove(&mut self, peer: Rank) {
        let Some(row) = self.rows.get_mut(peer as usize).and_then(Option::take) else {
            return;
        };
        self.by_address.remove(&row.address);
        self.free.insert(peer);
        while let Some(None) = self.rows.last() {
            self.rows.pop();
            let size = self.size();
            self.free.remove(&size);
        }
        let used = self.rows.len();
        if used < self.rows.capacity() / 4 {
            self.rows.shrink_to(2 * used);
        }
        if self.by_address.len() < self.by_address.capacity() / 4 {
            self.by_address.shrink_to(2 * self.by_address.len());
        }
    }

    /// Bytes of memory, without what states point to.
    pub(super) fn memory(&self) -> usize {
        self.rows.capacity() * size_of::<Option<Row<T>>>()
            + self.by_address.capacity() * (size_of::<(Address, Rank)>() + 1)
            + self.free.len() * 2 * size_of::<Rank>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn address(port: u16) -> Address {
        Address::of([10, 0, 0, 1].into(), port)
    }

    proptest! {
        #[test]
        fn each_address_has_its_own_number_until_it_is_removed(steps in prop::collection::vec((any::<bool>(), 1u16..60), 1..300)) {
            let (mut peers, mut reference) = (Peers::<u8>::new(40), BTreeMap::new());
            for (adds, port) in steps {
                let address = address(port);
                prop_assert_eq!(peers.find(&address), reference.get(&port).copied());
                match (peers.find(&address), adds) {
                    (None, true) => match peers.add(address) {
                        Some(peer) => {
                            prop_assert!(reference.values().all(|&other| other != peer));
                            prop_assert_eq!(peers.state(peer), Some(&0));
                            reference.insert(port, peer);
                        }
                        None => prop_assert_eq!(reference.len(), 40),
                    },
                    (Some(peer), false) => {
                        peers.remove(peer);
                        prop_assert_eq!(peers.state(peer), None);
                        reference.remove(&port);
                    }
                    _ => {}
                }
                let numbers: Vec<_> = peers.numbers().collect();
                let mut expected: Vec<_> = reference.values().copied().collect();
                expected.sort();
                prop_assert_eq!(&numbers, &expected);
                prop_assert_eq!(peers.size(), expected.last().map_or(0, |last| last + 1));
            }
        }
    }

    #[test]
    fn the_memory_goes_with_the_peers() {
        let mut peers = Peers::<u64>::new(u32::MAX);
        for port in 1..=10_000 {
            peers.add(address(port));
        }
        assert!(peers.memory() > 10_000 * 40);
        for peer in 0..10_000 {
            peers.remove(peer);
        }
        assert!(peers.memory() < 2_000, "{}", peers.memory());
    }
}
