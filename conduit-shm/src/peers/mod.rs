//! The shared-memory network between processes of a host that were not started together
//! ([`OpenTransport`](conduit_portals::transport::open::OpenTransport)).
//!
//! A process is reached by the abstract name of a Unix socket (`address`). The connecting process
//! hands over a file with four rings. Each side hands over its *front page*, which shows which of
//! its peers have sent something (`memory`, `handshake`). From then on, records go through the
//! rings (`record`, `session`). The socket then has two tasks: packets on the socket wake a
//! sleeping peer, and its end of file shows that the peer is gone.
//!
//! **Guarantees.** Nothing has a name in a file system, so a process leaves nothing behind, no
//! matter how it ends. The kernel attests that both sides belong to the same user; other users are
//! refused. Everything that a peer sends or writes is checked, so a peer can neither make this
//! process access memory outside of the rings nor make it wait. A faulty peer can only end the
//! session, delay wake-ups, or change a record while it is being handed over.
//!
//! **Costs.** A session takes one descriptor, two mappings and about 1 KiB of private memory on
//! each side, and 132 KiB of shared address space. A process polls the rings of the few peers that
//! sent most recently, and learns of the others from its front page (`receive`,
//! `crate::ready_set`).

mod address;
mod config;
mod copy;
mod error;
mod handshake;
mod memory;
mod open;
mod packet;
mod receive;
mod record;
mod session;
mod socket;
mod start;
mod table;
#[cfg(test)]
mod tests;
mod transport;

pub use config::{LocalConfig, MAX_NAME, MAX_PEERS, MAX_RING, MIN_RING};
pub use error::LocalError;

use std::collections::VecDeque;
use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use conduit_core::fork::Standing;
use conduit_core::ni::Rank;

use memory::FrontPage;
use receive::{Found, Watched};
use table::Peers;

/// This process's end of the network; see the [module](self).
pub struct Local {
    address: Box<[u8]>,
    host: u64,
    user: u32,
    /// The size in bytes of each ring of the pairs that this process creates.
    ring: usize,
    /// A word in its own allocation, which a peer copies to find out whether it can copy this
    /// process's memory. `None` if peers must not copy this process's memory.
    probe: Option<Box<u64>>,
    /// The socket on which peers connect, or `None` after
    /// [`leave`](conduit_portals::transport::open::OpenTransport::leave).
    listener: Option<OwnedFd>,
    /// Whether the listener is ignored for a while, because no descriptors are left for new
    /// connections.
    is_listener_paused: bool,
    /// A spare descriptor, released temporarily to refuse a connection when none are left.
    spare: Option<OwnedFd>,
    /// An epoll instance that watches the listener and the sockets of all peers.
    epoll: Arc<OwnedFd>,
    front: FrontPage,
    front_file: OwnedFd,
    peers: Peers,
    /// Accepted connections on which no Hello has arrived yet, with their generations. The oldest
    /// connection comes first.
    strangers: VecDeque<(u32, OwnedFd)>,
    /// The generation of the latest socket. A socket's events carry its generation, so that stale
    /// events can be recognised.
    generation: u32,
    watched: Vec<Watched>,
    /// Peers to drain in the next pass, besides the watched peers.
    pending: Vec<Rank>,
    /// Peers to which queued fragments have yet to be written.
    sending: Vec<Rank>,
    /// Peers whose ring had no room for a record and is not known to have room again.
    wanting: Vec<Rank>,
    /// Peers whose handshake could not continue and is to be retried.
    retrying: Vec<Rank>,
    /// Peers whose failure has not been reported to the handler.
    failing: Vec<Rank>,
    found: Found,
    is_asleep: bool,
    standing: Standing,
}

impl Local {
    /// Returns whether an address belongs to this host and user, which means that its process may
    /// be reachable.
    pub fn is_near(&self, address: &[u8]) -> bool {
        let user = |address| {
            let (host, socket) = address::decode(address).ok()?;
            Some((host, socket.split_once('.')?.0))
        };
        user(address).is_some_and(|found| user(&self.address) == Some(found))
    }
}

impl fmt::Debug for Local {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Local")
            .field("address", &address::to_text(&self.address))
            .finish_non_exhaustive()
    }
}
