//! The addresses of processes.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use conduit_core::ni::Rank;
use conduit_portals::transport::open::OpenTransport;

use crate::class::{Network, Shared};
use crate::machine::SELF;

/// The address of this or another process, to which messages and transfers go.
///
/// The class remembers the peer as long as an `Addr` of the peer exists. An address can outlive its
/// peer. Sends to the address then fail, or reach the next process that is started at this address.
pub struct Addr<N: OpenTransport = Network> {
    class: Arc<Shared<N>>,
    peer: Rank,
}

impl<N: OpenTransport> Addr<N> {
    /// Creates an address of a peer. The machine must already have counted a reference for this
    /// address.
    pub(crate) fn new(class: Arc<Shared<N>>, peer: Rank) -> Self {
        Self { class, peer }
    }

    pub(crate) fn is_of(&self, class: &Arc<Shared<N>>) -> bool {
        Arc::ptr_eq(&self.class, class)
    }

    pub(crate) fn peer(&self) -> Rank {
        self.peer
    }

    /// Returns whether this is the process's own address.
    pub fn is_own(&self) -> bool {
        self.peer == SELF
    }

    /// Returns the address as bytes that every process understands.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.class.engine.look(|inner| match self.peer {
            SELF => inner.network.address().to_vec(),
            peer => inner.network.peer_address(peer).unwrap_or_default(),
        })
    }
}

/// Prints the address in the form accepted by lookup: `<protocol>://…`, without NA's `conduit+`.
impl<N: OpenTransport> fmt::Display for Addr<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.to_bytes();
        let text = self
            .class
            .engine
            .look(|inner| inner.network.address_to_text(&bytes));
        let protocol = self.class.protocol.name();
        write!(f, "{protocol}://{}", text.unwrap_or_default())
    }
}

impl<N: OpenTransport> Clone for Addr<N> {
    fn clone(&self) -> Self {
        self.class
            .engine
            .look(|inner| inner.machine.hold(self.peer));
        Self::new(Arc::clone(&self.class), self.peer)
    }
}

impl<N: OpenTransport> Drop for Addr<N> {
    fn drop(&mut self) {
        if self.peer != SELF {
            self.class
                .engine
                .look(|inner| inner.machine.release(self.peer));
        }
    }
}

/// Compares the peers. A process that is known by several addresses counts as several peers.
impl<N: OpenTransport> PartialEq for Addr<N> {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.class, &other.class) && self.peer == other.peer
    }
}

impl<N: OpenTransport> Eq for Addr<N> {}

impl<N: OpenTransport> Hash for Addr<N> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.peer.hash(state);
    }
}

impl<N: OpenTransport> fmt::Debug for Addr<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Addr({self})")
    }
}
