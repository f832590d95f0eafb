//! The initiator's side: the entries that peers have advertised.

use conduit_core::ni::{MeId, MeOptions, Rank};

use super::exported::OPERATIONS;
use crate::matching::{EntryId, PT_INDICES};
use crate::transport::control::Control;
use crate::transport::inbound::ProtocolError;
use crate::transport::interface::Remote;
use crate::transport::state::Portals;
use crate::transport::wire;

/// An imported entry of a peer.
#[derive(Debug)]
struct Imported {
    advertisement: wire::Advertisement,
    /// Number of operations in flight on the entry.
    under_way: u32,
    /// Whether the entry's owner has withdrawn it.
    withdrawn: bool,
}

/// The imported entries of a peer, at most one per index.
#[derive(Debug, Default)]
struct PeerImports(Vec<Imported>);

impl PeerImports {
    fn at(&self, entry: MeId) -> Option<usize> {
        self.0
            .iter()
            .position(|imported| imported.advertisement.entry == entry)
    }
}

/// The target's side of an operation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Request {
    pub(super) peer: Rank,
    pub(super) index: u8,
    /// A put, a get or an atomic.
    pub(super) option: MeOptions,
    pub(super) match_bits: u64,
    pub(super) offset: u64,
    pub(super) length: usize,
}

/// The entries that peers have advertised.
#[derive(Debug, Default)]
pub(crate) struct DirectAccess {
    /// Whether the transport has direct access.
    pub(crate) enabled: bool,
    /// The imports from each rank; empty until the first advertisement.
    peers: Vec<Option<Box<PeerImports>>>,
}

impl DirectAccess {
    #[inline]
    pub(crate) fn has_imports(&self) -> bool {
        !self.peers.is_empty()
    }

    /// Returns the entry that is certain to take an operation, and the operation's address within
    /// the entry.
    #[inline]
    pub(super) fn find(&self, request: &Request) -> Option<(MeId, Remote)> {
        let peer = self.peers.get(request.peer as usize)?.as_ref()?;
        let imported = peer
            .0
            .iter()
            .find(|imported| EntryId::of(imported.advertisement.entry).0 == request.index)?;
        let direct = &imported.advertisement;
        let bits = (request.match_bits ^ direct.match_bits) & !direct.ignore_bits;
        let end = request.offset.checked_add(request.length as u64)?;
        let fits = bits == 0
            && direct.options.contains(request.option)
            && end <= direct.length
            && !imported.withdrawn;
        // Cannot overflow: the sum is less than the entry's end, which is at most `u64::MAX`.
        fits.then(|| {
            let remote = Remote {
                key: direct.remote.key,
                address: direct.remote.address + request.offset,
            };
            (direct.entry, remote)
        })
    }

    /// Counts an operation on an entry.
    pub(super) fn begin(&mut self, peer: Rank, entry: MeId) {
        if let Some(Some(peer)) = self.peers.get_mut(peer as usize)
            && let Some(at) = peer.at(entry)
        {
            peer.0[at].under_way += 1;
        }
    }

    /// Drops the imports from a peer.
    pub(super) fn forget(&mut self, peer: Rank) {
        if let Some(peer) = self.peers.get_mut(peer as usize) {
            *peer = None;
        }
    }
}

impl Portals {
    /// Handles a peer's advertisement of an entry.
    pub(crate) fn advertise_arrives(
        &mut self,
        peer: Rank,
        direct: &wire::Advertisement,
    ) -> Result<(), ProtocolError> {
        let (index, _) = EntryId::of(direct.entry);
        let options = direct.options;
        let end = direct.remote.address.checked_add(direct.length);
        if !self.direct.enabled
            || peer == self.rank
            || usize::from(index) >= PT_INDICES
            || !OPERATIONS.contains(options)
            || end.is_none()
        {
            return Err(ProtocolError);
        }
        // A peer that leaves accepts no more operations.
        if self.links.get(peer).ok_or(ProtocolError)?.left.is_some() {
            return Ok(());
        }
        if self.direct.peers.is_empty() {
            self.direct.peers.resize_with(self.size as usize, || None);
        }
        let peer = self
            .direct
            .peers
            .get_mut(peer as usize)
            .ok_or(ProtocolError)?;
        let peer = peer.get_or_insert_default();
        let same = |imported: &Imported| EntryId::of(imported.advertisement.entry).0 == index;
        if peer.0.iter().any(same) {
            return Err(ProtocolError);
        }
        crate::compact::push(
            &mut peer.0,
            Imported {
                advertisement: *direct,
                under_way: 0,
                withdrawn: false,
            },
        );
        Ok(())
    }

    /// Handles a peer's withdrawal of an entry.
    pub(crate) fn withdraw_arrives(
        &mut self,
        from: Rank,
        entry: MeId,
    ) -> Result<(), ProtocolError> {
        // The peer's imports were dropped when it left.
        if self.links.get(from).is_some_and(|link| link.left.is_some()) {
            return Ok(());
        }
        let Some(Some(peer)) = self.direct.peers.get_mut(from as usize) else {
            return Err(ProtocolError);
        };
        let at = peer.at(entry).ok_or(ProtocolError)?;
        if std::mem::replace(&mut peer.0[at].withdrawn, true) {
            return Err(ProtocolError);
        }
        self.confirm_withdrawal(from, entry);
        Ok(())
    }

    /// Records the end of a direct operation.
    pub(crate) fn direct_ended(&mut self, target: Rank, entry: MeId) {
        // The imports from a peer that is gone were dropped.
        if let Some(Some(peer)) = self.direct.peers.get_mut(target as usize)
            && let Some(at) = peer.at(entry)
        {
            peer.0[at].under_way -= 1;
            if peer.0[at].withdrawn {
                self.confirm_withdrawal(target, entry);
            }
        }
    }

    /// Replies to the withdrawal of an entry, if no operation on it is in flight.
    #[cold]
    fn confirm_withdrawal(&mut self, to: Rank, entry: MeId) {
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
        self.queue_control(to, Control::Withdrawn(entry));
    }
}
