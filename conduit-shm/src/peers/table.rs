//! The table of peers that have numbers. It grows and shrinks with the number of peers.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use conduit_core::ni::Rank;
use slab::Slab;

use conduit_portals::transport::fragment::Failure;

use super::memory::Pair;
use super::session::Session;

/// The capacity below which a table does not shrink.
const MIN_SHRINK: usize = 64;

/// An attempt by this process to set up a session.
#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) socket: OwnedFd,
    /// Distinguishes this attempt's events from those of other attempts.
    pub(super) generation: u32,
    pub(super) pair: Pair,
    pub(super) pair_file: OwnedFd,
    /// Whether the socket is connected, so that the peer will find the attempt when it accepts
    /// connections.
    pub(super) is_connected: bool,
    /// Whether the Hello has been sent.
    pub(super) is_sent: bool,
    /// The number of earlier attempts that were refused in favour of the peer's own.
    pub(super) duplicates: u32,
}

/// The state of the session with a peer.
#[derive(Debug)]
pub(super) enum PeerState {
    /// There is no session.
    Idle,
    /// There is no session, and the reason has yet to be reported to the handler.
    Failing(Failure),
    /// A handshake is under way.
    Connecting(Box<Attempt>),
    /// There is a session.
    Open(Box<Session>),
}

#[derive(Debug)]
pub(super) struct Peer {
    pub(super) address: Arc<[u8]>,
    pub(super) state: PeerState,
}

#[derive(Debug)]
pub(super) struct Peers {
    /// The peers, by number.
    table: Slab<Peer>,
    numbers: HashMap<Arc<[u8]>, Rank>,
    limit: u32,
}

impl Peers {
    /// Creates a table for up to `limit` peers.
    pub(super) fn new(limit: u32) -> Self {
        Self {
            table: Slab::new(),
            numbers: HashMap::new(),
            limit,
        }
    }

    /// Returns the maximum number of peers in the table.
    pub(super) fn limit(&self) -> u32 {
        self.limit
    }

    /// Returns the number of the peer with this address.
    pub(super) fn find(&self, address: &[u8]) -> Option<Rank> {
        self.numbers.get(address).copied()
    }

    /// Assigns a number below the limit to an address that has none. Returns `None` if all numbers
    /// are in use.
    pub(super) fn add(&mut self, address: &[u8]) -> Option<Rank> {
        if self.table.len() >= self.limit as usize {
            return None;
        }
        let address: Arc<[u8]> = address.into();
        // The cast is lossless: the slab fills its gaps before it grows, so the number is below the
        // limit.
        let number = self.table.insert(Peer {
            address: address.clone(),
            state: PeerState::Idle,
        }) as Rank;
        self.numbers.insert(address, number);
        Some(number)
    }

    pub(super) fn remove(&mut self, number: Rank) -> Option<Peer> {
        let peer = self.table.try_remove(number as usize)?;
        self.numbers.remove(&peer.address);
        if self.table.capacity() >= MIN_SHRINK && self.table.len() < self.table.capacity() / 4 {
            self.table.shrink_to_fit();
            self.numbers.shrink_to(2 * self.numbers.len());
        }
        Some(peer)
    }

    #[inline]
    pub(super) fn get(&self, number: Rank) -> Option<&Peer> {
        self.table.get(number as usize)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, number: Rank) -> Option<&mut Peer> {
        self.table.get_mut(number as usize)
    }

    #[inline]
    pub(super) fn session(&self, number: Rank) -> Option<&Session> {
        match &self.get(number)?.state {
            PeerState::Open(session) => Some(session),
            _ => None,
        }
    }

    #[inline]
    pub(super) fn session_mut(&mut self, number: Rank) -> Option<&mut Session> {
        match &mut self.get_mut(number)?.state {
            PeerState::Open(session) => Some(session),
            _ => None,
        }
    }

    /// Returns all sessions with their peers' numbers.
    pub(super) fn sessions(&self) -> impl Iterator<Item = (Rank, &Session)> {
        self.table
            .iter()
            .filter_map(|(number, peer)| match &peer.state {
                PeerState::Open(session) => Some((number as Rank, &**session)),
                _ => None,
            })
    }

    pub(super) fn all_mut(&mut self) -> impl Iterator<Item = &mut Peer> {
        self.table.iter_mut().map(|(_, peer)| peer)
    }

    /// Returns the number of entries for which the table has room.
    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.table.capacity()
    }
}
