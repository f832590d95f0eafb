//! The tables of an open network: peers and links by number, libfabric's handles by address.

use std::collections::{BTreeSet, HashMap};

use conduit_core::ni::Rank;
use conduit_portals::transport::fragment::Failure;
use libfabric_sys::fi_addr_t;

use crate::wire::liveness::Nanos;
use crate::wire::objects::{Objects, Refusal};

/// No number.
pub(super) const NONE: u32 = u32::MAX;

/// Gives out numbers, always the smallest, so that tables by number can shrink.
#[derive(Debug, Default)]
struct Numbers {
    free: BTreeSet<u32>,
    end: u32,
}

impl Numbers {
    fn take(&mut self) -> u32 {
        self.free.pop_first().unwrap_or_else(|| {
            self.end += 1;
            self.end - 1
        })
    }

    fn give(&mut self, number: u32) {
        self.free.insert(number);
        while self.end > 0 && self.free.last() == Some(&(self.end - 1)) {
            self.free.pop_last();
            self.end -= 1;
        }
    }
}

/// Values by number.
#[derive(Debug)]
pub(super) struct Table<T> {
    numbers: Numbers,
    entries: Vec<Option<T>>,
    count: u32,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self {
            numbers: Numbers::default(),
            entries: Vec::new(),
            count: 0,
        }
    }
}

impl<T> Table<T> {
    /// Adds a value; returns its number.
    pub(super) fn add(&mut self, value: T) -> u32 {
        let number = self.numbers.take();
        let at = number as usize;
        if at >= self.entries.len() {
            self.entries.resize_with(at + 1, || None);
        }
        self.entries[at] = Some(value);
        self.count += 1;
        number
    }

    /// Removes a value, and frees its number.
    pub(super) fn remove(&mut self, number: u32) -> Option<T> {
        let value = self.entries.get_mut(number as usize)?.take()?;
        self.numbers.give(number);
        self.entries.truncate(self.numbers.end as usize);
        shrink(&mut self.entries);
        self.count -= 1;
        Some(value)
    }

    #[inline]
    pub(super) fn get(&self, number: u32) -> Option<&T> {
        self.entries.get(number as usize)?.as_ref()
    }

    #[inline]
    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.entries.get_mut(number as usize)?.as_mut()
    }

    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// The first number above all that are in use.
    pub(super) fn end(&self) -> u32 {
        self.numbers.end
    }

    pub(super) fn memory(&self) -> usize {
        self.entries.capacity() * size_of::<Option<T>>()
    }

    /// All numbers in use.
    pub(super) fn numbers(&self) -> Vec<u32> {
        // Fits: numbers.
        let used = |&at: &u32| self.entries[at as usize].is_some();
        (0..self.numbers.end).filter(used).collect()
    }
}

/// Frees most of the memory that a table doesn't need any more.
pub(super) fn shrink<T>(table: &mut Vec<T>) {
    const FEW: usize = 16;
    if table.capacity() > FEW && table.len() < table.capacity() / 4 {
        table.shrink_to(2 * table.len());
    }
}

/// A process that has a number here.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) address: Box<[u8]>,
    /// The link of its session, and that of an attempt to begin one; or [`NONE`], as below.
    pub(super) session: u32,
    pub(super) attempt: u32,
    /// The link of a session that is to replace the other one.
    pub(super) pending: u32,
}

/// A link's owner with this flag: the peer of a session that replaces another one when the peer was
/// heard. There are never so many peers.
pub(super) const PENDING: u32 = 1 << 31;
/// With it: the process is the same as before.
pub(super) const SAME: u32 = 1 << 30;

/// Why a session has ended for another one.
pub(super) fn replaced(is_same: bool) -> Failure {
    Failure::Network(match is_same {
        true => "has given up the session, and begun another",
        false => "was restarted",
    })
}

/// What a link is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A handshake that this process has begun.
    Attempt,
    /// An answer to a stranger.
    Answer,
    /// A session with this peer.
    Session(Rank),
    /// A session with this peer, which replaces the other one when the peer was heard.
    Pending(Rank),
    /// Nothing any more: what was sent last goes out.
    Ending,
}

/// A link.
#[derive(Debug)]
pub(super) struct LinkUse {
    pub(super) address: Box<[u8]>,
    pub(super) purpose: Purpose,
    /// When it was added, or began to end.
    pub(super) since: Nanos,
    /// How often libfabric said that nothing can be sent to it.
    pub(super) errors: u8,
}

// What `docs/ofi.md` says of memory.
const _: () = assert!(size_of::<Option<Peer>>() + size_of::<Option<LinkUse>>() <= 80);

/// libfabric's handles of addresses, each as long as something uses it.
#[derive(Debug, Default)]
pub(super) struct Handles {
    by_address: HashMap<Box<[u8]>, (fi_addr_t, u32)>,
}

impl Handles {
    /// The handle of an address, which libfabric reads as `raw`.
    pub(super) fn take(
        &mut self,
        objects: &Objects,
        address: &[u8],
        raw: &[u8],
    ) -> Result<fi_addr_t, Refusal> {
        if let Some((handle, users)) = self.by_address.get_mut(address) {
            *users += 1;
            return Ok(*handle);
        }
        let handle = objects.insert(raw)?;
        self.by_address.insert(address.into(), (handle, 1));
        Ok(handle)
    }

    /// One user less.
    pub(super) fn give(&mut self, objects: &Objects, address: &[u8]) {
        let Some((handle, users)) = self.by_address.get_mut(address) else {
            return;
        };
        *users -= 1;
        if *users == 0 {
            objects.remove(*handle);
            self.by_address.remove(address);
            shrink_map(&mut self.by_address);
        }
    }

    pub(super) fn count(&self) -> usize {
        self.by_address.len()
    }

    pub(super) fn memory(&self) -> usize {
        self.by_address.capacity() * size_of::<(Box<[u8]>, fi_addr_t, u32)>()
    }
}

/// Frees most of the memory that a map doesn't need any more.
pub(super) fn shrink_map<K: std::hash::Hash + Eq, V>(map: &mut HashMap<K, V>) {
    const FEW: usize = 16;
    if map.capacity() > FEW && map.len() < map.capacity() / 4 {
        map.shrink_to(2 * map.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_reused_and_the_table_shrinks() {
        let mut table = Table::default();
        for number in 0..1000 {
            assert_eq!(table.add(number), number);
        }
        for number in (0..1000).filter(|number| number % 10 != 3) {
            assert_eq!(table.remove(number), Some(number));
            assert_eq!(table.remove(number), None);
        }
        assert_eq!((table.count(), table.end()), (100, 994));
        assert_eq!(table.add(7), 0);
        for number in table.numbers() {
            table.remove(number);
        }
        assert_eq!((table.count(), table.end()), (0, 0));
        assert!(table.entries.capacity() <= 16);
    }
}
