//! The initiator's side: what peers have told.

use conduit_core::ni::{MeId, MeOptions, Rank};

use super::told::OPERATIONS;
use crate::matching::{EntryId, PT_INDICES};
use crate::transport::inbound::Nonsense;
use crate::transport::interface::Remote;
use crate::transport::link::Owed;
use crate::transport::state::Portals;
use crate::transport::wire;

/// An entry of a peer's.
#[derive(Debug)]
struct Known {
    direct: wire::Direct,
    /// Operations on it.
    under_way: u32,
    /// Its owner wants it back.
    withdrawn: bool,
}

/// What one peer has told: at most one entry of each index.
#[derive(Debug, Default)]
struct Peer(Vec<Known>);

impl Peer {
    fn at(&self, entry: MeId) -> Option<usize> {
        self.0.iter().position(|known| known.direct.entry == entry)
    }
}

/// What an operation asks for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted {
    pub(super) peer: Rank,
    pub(super) index: u8,
    /// A put, a get or an atomic.
    pub(super) option: MeOptions,
    pub(super) match_bits: u64,
    pub(super) offset: u64,
    pub(super) length: usize,
}

/// What peers have told.
#[derive(Debug, Default)]
pub(crate) struct Direct {
    /// The transport reaches memory directly.
    pub(crate) enabled: bool,
    /// By rank; empty as long as nobody has told anything.
    peers: Vec<Option<Box<Peer>>>,
}

impl Direct {
    /// Whether any peer has told anything.
    #[inline]
    pub(crate) fn knows(&self) -> bool {
        !self.peers.is_empty()
    }

    /// The entry that takes an operation for certain, and where in it.
    #[inline]
    pub(super) fn find(&self, wanted: &Wanted) -> Option<(MeId, Remote)> {
        let peer = self.peers.get(wanted.peer as usize)?.as_ref()?;
        let known = peer
            .0
            .iter()
            .find(|known| EntryId::of(known.direct.entry).0 == wanted.index)?;
        let direct = &known.direct;
        let bits = (wanted.match_bits ^ direct.match_bits) & !direct.ignore_bits;
        let end = wanted.offset.checked_add(wanted.length as u64)?;
        let fits = bits == 0
            && direct.options.contains(wanted.option)
            && end <= direct.length
            && !known.withdrawn;
        // No overflow: less than the entry's end, which is no more than `u64::MAX`.
        fits.then(|| {
            let remote = Remote {
                key: direct.remote.key,
                address: direct.remote.address + wanted.offset,
            };
            (direct.entry, remote)
        })
    }

    /// An operation on an entry begins.
    pub(super) fn begin(&mut self, peer: Rank, entry: MeId) {
        if let Some(Some(peer)) = self.peers.get_mut(peer as usize)
            && let Some(at) = peer.at(entry)
        {
            peer.0[at].under_way += 1;
        }
    }

    /// Forgets what a peer has told.
    pub(super) fn forget(&mut self, peer: Rank) {
        if let Some(peer) = self.peers.get_mut(peer as usize) {
            *peer = None;
        }
    }
}

impl Portals {
    /// A peer tells of an entry.
    pub(crate) fn direct_told(
        &mut self,
        peer: Rank,
        direct: &wire::Direct,
    ) -> Result<(), Nonsense> {
        let (index, _) = EntryId::of(direct.entry);
        let options = direct.options;
        let end = direct.remote.address.checked_add(direct.length);
        if !self.direct.enabled
            || peer == self.rank
            || usize::from(index) >= PT_INDICES
            || !OPERATIONS.contains(options)
            || end.is_none()
        {
            return Err(Nonsense);
        }
        // One that leaves takes nothing more.
        if self.links.get(peer).ok_or(Nonsense)?.left {
            return Ok(());
        }
        if self.direct.peers.is_empty() {
            self.direct.peers.resize_with(self.size as usize, || None);
        }
        let peer = self.direct.peers.get_mut(peer as usize).ok_or(Nonsense)?;
        let peer = peer.get_or_insert_default();
        let same = |known: &Known| EntryId::of(known.direct.entry).0 == index;
        if peer.0.iter().any(same) {
            return Err(Nonsense);
        }
        crate::compact::push(
            &mut peer.0,
            Known {
                direct: *direct,
                under_way: 0,
                withdrawn: false,
            },
        );
        Ok(())
    }

    /// A peer wants an entry back.
    pub(crate) fn withdraw_arrives(&mut self, from: Rank, entry: MeId) -> Result<(), Nonsense> {
        // What it had told is forgotten.
        if self.links.get(from).is_some_and(|link| link.left) {
            return Ok(());
        }
        let Some(Some(peer)) = self.direct.peers.get_mut(from as usize) else {
            return Err(Nonsense);
        };
        let at = peer.at(entry).ok_or(Nonsense)?;
        if std::mem::replace(&mut peer.0[at].withdrawn, true) {
            return Err(Nonsense);
        }
        self.give_back(from, entry);
        Ok(())
    }

    /// A direct operation has ended.
    pub(crate) fn direct_ended(&mut self, target: Rank, entry: MeId) {
        // Forgotten of a peer that is gone.
        if let Some(Some(peer)) = self.direct.peers.get_mut(target as usize)
            && let Some(at) = peer.at(entry)
        {
            peer.0[at].under_way -= 1;
            if peer.0[at].withdrawn {
                self.give_back(target, entry);
            }
        }
    }

    /// Gives an entry back that its owner wants, if nothing is under way on it.
    #[cold]
    fn give_back(&mut self, to: Rank, entry: MeId) {
        let Some(place) = self.direct.peers.get_mut(to as usize) else {
            return;
        };
        let Some(peer) = place else {
            return;
        };
        let Some(at) = peer.at(entry).filter(|&at| peer.0[at].under_way == 0) else {
            return;
        };
        peer.0.swap_remove(at);
        if peer.0.is_empty() {
            *place = None;
        }
        self.owe(to, Owed::Withdrawn(entry));
    }
}
