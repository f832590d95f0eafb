//! The target's side: its plain entries, and who was told of them.

use conduit_core::ni::{MatchEntry, MeEvents, MeId, MeMemory, MeOptions, Rank, RegionId};

use crate::matching::EntryId;
use crate::transport::inbound::Nonsense;
use crate::transport::interface::Remote;
use crate::transport::link::Owed;
use crate::transport::state::Portals;
use crate::transport::wire::{self, Header};

/// What can be asked of an entry.
pub(super) const OPERATIONS: MeOptions = MeOptions::PUT
    .union(MeOptions::GET)
    .union(MeOptions::ATOMIC);

/// A set of ranks: a bit each, up to the highest that has been in it.
#[derive(Debug, Default)]
struct Ranks {
    bits: Vec<u64>,
    count: u32,
}

impl Ranks {
    fn insert(&mut self, rank: Rank) -> bool {
        let at = (rank / 64) as usize;
        if at >= self.bits.len() {
            self.bits.resize(at + 1, 0);
        }
        let bit = 1 << (rank % 64);
        let is_new = self.bits[at] & bit == 0;
        self.bits[at] |= bit;
        self.count += u32::from(is_new);
        is_new
    }

    fn contains(&self, rank: Rank) -> bool {
        let bits = self.bits.get((rank / 64) as usize);
        bits.is_some_and(|bits| bits & 1 << (rank % 64) != 0)
    }

    fn remove(&mut self, rank: Rank) -> bool {
        let was_in = self.contains(rank);
        if was_in {
            self.bits[(rank / 64) as usize] &= !(1 << (rank % 64));
            self.count -= 1;
        }
        was_in
    }

    fn iter(&self) -> impl Iterator<Item = Rank> {
        let words = (0..).zip(&self.bits).filter(|(_, bits)| **bits != 0);
        words.flat_map(|(at, bits)| {
            (0..64)
                .filter(move |bit| bits & 1 << bit != 0)
                .map(move |bit| at * 64 + bit)
        })
    }
}

/// An entry that peers may reach directly; see the [module](super).
#[derive(Debug)]
pub(crate) struct Plain {
    /// What they are told.
    pub(crate) direct: wire::Direct,
    /// Who was told, and may use it.
    told: Ranks,
    /// They were asked to stop, and nobody is told any more.
    withdrawn: bool,
}

impl Plain {
    /// An entry that is to be the first in its list, if it is plain; it has no name yet. `remote`: where peers reach a region.
    pub(crate) fn of(
        entry: &MatchEntry,
        remote: impl FnOnce(RegionId) -> Option<Remote>,
    ) -> Option<Self> {
        let MeMemory::Region {
            region,
            offset,
            len,
        } = entry.memory
        else {
            return None;
        };
        // One of the overflow list stands behind all that come later.
        let other = MeOptions::USE_ONCE | MeOptions::OVERFLOW;
        if entry.source.is_some()
            || entry.options.intersects(other)
            || entry.events.contains(MeEvents::OPERATION)
        {
            return None;
        }
        let remote = remote(region)?;
        Some(Self {
            direct: wire::Direct {
                entry: MeId(0),
                options: entry.options.intersection(OPERATIONS),
                match_bits: entry.match_bits,
                ignore_bits: entry.ignore_bits,
                remote: Remote {
                    key: remote.key,
                    address: remote.address.checked_add(offset as u64)?,
                },
                length: len as u64,
            },
            told: Ranks::default(),
            withdrawn: false,
        })
    }
}

impl Portals {
    pub(super) fn plain(&mut self, entry: MeId) -> Option<&mut Plain> {
        let index = self.indices.get_mut(usize::from(EntryId::of(entry).0))?;
        let plain = index.plain.as_mut();
        plain.filter(|plain| plain.direct.entry == entry)
    }

    /// A peer's message has matched an entry: the peer may do the next one directly.
    #[inline]
    pub(crate) fn tell_of(&mut self, peer: Rank, index: u8, id: EntryId) {
        if self.direct.enabled {
            self.tell_of_plain(peer, id.me(index));
        }
    }

    fn tell_of_plain(&mut self, peer: Rank, entry: MeId) {
        if peer == self.rank || self.leaving {
            return;
        }
        let gone = |links: &mut crate::transport::link::Links| {
            links
                .get(peer)
                .is_none_or(|link| link.left || link.failure.is_some())
        };
        let Some(plain) = self.plain(entry) else {
            return;
        };
        if plain.withdrawn || plain.told.contains(peer) || gone(&mut self.links) {
            return;
        }
        if let Some(plain) = self.plain(entry) {
            plain.told.insert(peer);
        }
        self.counters.told_direct += 1;
        self.owe(peer, Owed::Direct(entry));
    }

    /// What a peer is told of an entry; `None` if it has left meanwhile, and so has the entry.
    pub(crate) fn telling_of(&mut self, entry: MeId) -> Option<Header> {
        self.plain(entry).map(|plain| Header::Direct(plain.direct))
    }

    /// An entry is to be unlinked: peers are asked to stop using it directly. Whether some still may.
    pub(crate) fn withdraw(&mut self, entry: MeId) -> bool {
        let Some(plain) = self.plain(entry) else {
            return false;
        };
        if plain.told.count == 0 {
            return false;
        }
        if !std::mem::replace(&mut plain.withdrawn, true) {
            for peer in plain.told.iter().collect::<Vec<_>>() {
                self.owe(peer, Owed::Withdraw(entry));
            }
        }
        true
    }

    /// A peer no longer uses an entry directly.
    pub(crate) fn withdrawn_arrives(&mut self, peer: Rank, entry: MeId) -> Result<(), Nonsense> {
        // Of one that has left this was not awaited.
        if self.links.get(peer).is_some_and(|link| link.left) {
            return Ok(());
        }
        let plain = self.plain(entry).filter(|plain| plain.withdrawn);
        match plain.is_some_and(|plain| plain.told.remove(peer)) {
            true => Ok(()),
            false => Err(Nonsense),
        }
    }

    /// A peer has failed or leaves: it reaches nothing here any more, nor is it reached directly.
    #[cold]
    pub(crate) fn direct_gone(&mut self, peer: Rank) {
        self.direct.forget(peer);
        for plain in self.indices.iter_mut().filter_map(|i| i.plain.as_mut()) {
            plain.told.remove(peer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn ranks_are_a_set(steps in prop::collection::vec((any::<bool>(), 0u32..300), 0..200)) {
            let (mut ranks, mut reference) = (Ranks::default(), BTreeSet::new());
            for (inserts, rank) in steps {
                match inserts {
                    true => prop_assert_eq!(ranks.insert(rank), reference.insert(rank)),
                    false => prop_assert_eq!(ranks.remove(rank), reference.remove(&rank)),
                }
                prop_assert_eq!(ranks.count as usize, reference.len());
            }
            prop_assert!(ranks.iter().eq(reference.iter().copied()));
        }
    }

    #[test]
    fn only_what_needs_no_owner_is_plain() {
        let entry = MatchEntry {
            memory: MeMemory::Region {
                region: RegionId(3),
                offset: 100,
                len: 50,
            },
            match_bits: 1,
            ignore_bits: 2,
            source: None,
            options: OPERATIONS | MeOptions::TRUNCATE,
            events: MeEvents::LINK,
            tag: 0,
        };
        let exposed = |id| {
            let remote = Remote {
                key: 9,
                address: 1 << 40,
            };
            (id == RegionId(3)).then_some(remote)
        };
        let plain = Plain::of(&entry, exposed).expect("plain");
        assert_eq!(plain.direct.remote.address, (1 << 40) + 100);
        assert_eq!(
            (plain.direct.length, plain.direct.options),
            (50, OPERATIONS)
        );
        let others = [
            MatchEntry {
                memory: MeMemory::Nothing,
                ..entry
            },
            MatchEntry {
                source: Some(1),
                ..entry
            },
            MatchEntry {
                options: OPERATIONS | MeOptions::USE_ONCE,
                ..entry
            },
            MatchEntry {
                options: OPERATIONS | MeOptions::OVERFLOW,
                ..entry
            },
            MatchEntry {
                events: MeEvents::all(),
                ..entry
            },
        ];
        for other in others {
            assert!(Plain::of(&other, exposed).is_none(), "{other:?}");
        }
        assert!(Plain::of(&entry, |_| None).is_none(), "not exposed");
        // An address that would wrap.
        let high = |_| {
            Some(Remote {
                key: 0,
                address: u64::MAX,
            })
        };
        assert!(Plain::of(&entry, high).is_none());
    }
}
