//! The target's side: its exportable entries, and the peers that have imported them.

use conduit_core::ni::{MatchEntry, MeEvents, MeId, MeMemory, MeOptions, Rank, RegionId};

use crate::matching::EntryId;
use crate::transport::control::Control;
use crate::transport::inbound::ProtocolError;
use crate::transport::interface::Remote;
use crate::transport::state::Portals;
use crate::transport::wire::{self, Header};

/// The operations that an entry may permit.
pub(super) const OPERATIONS: MeOptions = MeOptions::PUT
    .union(MeOptions::GET)
    .union(MeOptions::ATOMIC);

/// A set of ranks as bits, up to the highest rank that was ever in it.
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

/// An exportable entry; see the [module](super).
#[derive(Debug)]
pub(crate) struct Exported {
    pub(crate) advertisement: wire::Advertisement,
    /// Peers that may access the entry directly.
    importers: Ranks,
    /// Whether the entry is being withdrawn, and is not advertised any more.
    withdrawn: bool,
}

impl Exported {
    /// Creates the state of an entry that is about to be the first of its list, if the entry is
    /// exportable. The entry has no id yet. `remote` returns the address of an exposed region.
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
        // An entry on the overflow list is not exportable, because later entries may precede it.
        let other = MeOptions::USE_ONCE | MeOptions::OVERFLOW;
        if entry.source.is_some()
            || entry.options.intersects(other)
            || entry.events.contains(MeEvents::OPERATION)
        {
            return None;
        }
        let remote = remote(region)?;
        Some(Self {
            advertisement: wire::Advertisement {
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
            importers: Ranks::default(),
            withdrawn: false,
        })
    }
}

impl Portals {
    pub(super) fn exported(&mut self, entry: MeId) -> Option<&mut Exported> {
        let index = self.indices.get_mut(usize::from(EntryId::of(entry).0))?;
        let exported = index.exported.as_mut();
        exported.filter(|exported| exported.advertisement.entry == entry)
    }

    /// Advertises an entry, if it is exportable, to a peer whose message has matched it.
    #[inline]
    pub(crate) fn advertise(&mut self, peer: Rank, index: u8, id: EntryId) {
        if self.direct.enabled {
            self.advertise_exported(peer, id.me(index));
        }
    }

    fn advertise_exported(&mut self, peer: Rank, entry: MeId) {
        if peer == self.rank || self.leaving {
            return;
        }
        let exported = self.exported(entry);
        if exported.is_none_or(|e| e.withdrawn || e.importers.contains(peer))
            || !self.links.get(peer).is_some_and(|link| link.is_up())
        {
            return;
        }
        if let Some(exported) = self.exported(entry) {
            exported.importers.insert(peer);
        }
        self.counters.advertised += 1;
        self.queue_control(peer, Control::Advertise(entry));
    }

    /// Returns the message that advertises an entry, or `None` if the message is obsolete because
    /// the entry is gone.
    pub(crate) fn advertisement(&mut self, entry: MeId) -> Option<Header> {
        self.exported(entry)
            .map(|exported| Header::Advertise(exported.advertisement))
    }

    /// Asks the peers that have imported an entry to stop accessing it. Returns whether any peer
    /// may still access the entry.
    pub(crate) fn withdraw(&mut self, entry: MeId) -> bool {
        let Some(exported) = self.exported(entry) else {
            return false;
        };
        if exported.importers.count == 0 {
            return false;
        }
        if !std::mem::replace(&mut exported.withdrawn, true) {
            for peer in exported.importers.iter().collect::<Vec<_>>() {
                self.queue_control(peer, Control::Withdraw(entry));
            }
        }
        true
    }

    /// Records that a peer no longer accesses an entry directly.
    pub(crate) fn withdrawn_arrives(
        &mut self,
        peer: Rank,
        entry: MeId,
    ) -> Result<(), ProtocolError> {
        // A peer that has left is no longer an importer.
        if self.links.get(peer).is_some_and(|link| link.left.is_some()) {
            return Ok(());
        }
        let exported = self.exported(entry).filter(|exported| exported.withdrawn);
        match exported.is_some_and(|exported| exported.importers.remove(peer)) {
            true => Ok(()),
            false => Err(ProtocolError),
        }
    }

    /// Ends direct access in both directions with a peer that has failed or leaves.
    #[cold]
    pub(crate) fn forget_direct(&mut self, peer: Rank) {
        self.direct.forget(peer);
        for exported in self.indices.iter_mut().filter_map(|i| i.exported.as_mut()) {
            exported.importers.remove(peer);
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
        let exported = Exported::of(&entry, exposed).expect("exportable");
        assert_eq!(exported.advertisement.remote.address, (1 << 40) + 100);
        assert_eq!(
            (
                exported.advertisement.length,
                exported.advertisement.options
            ),
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
            assert!(Exported::of(&other, exposed).is_none(), "{other:?}");
        }
        assert!(Exported::of(&entry, |_| None).is_none(), "not exposed");
        // An address that would wrap around.
        let high = |_| {
            Some(Remote {
                key: 0,
                address: u64::MAX,
            })
        };
        assert!(Exported::of(&entry, high).is_none());
    }
}
