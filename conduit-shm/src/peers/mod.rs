//! The network in shared memory between processes of a host that were not started together
//! ([`OpenTransport`](conduit_portals::transport::open::OpenTransport)).
//!
//! A process is reached by the abstract name of a Unix socket (`address`). The process that
//! connects hands over a file with four rings, and each side its *front page*, which says which of
//! its peers have something for it (`memory`, `handshake`). From then on records go through the
//! rings (`record`, `session`), and the socket has two tasks: it wakes a peer that sleeps, and its
//! end says that the peer is gone.
//!
//! **Promises.** Nothing has a name in any file system, so nothing is left behind however a process
//! ends. Both sides are the same user's, by the system's word; others are refused. What a peer says
//! and writes is checked, so that it can't make this process access memory outside of the rings,
//! nor wait for it. It can end the session, delay wake-ups, or change a record while that is handed
//! over.
//!
//! **Costs.** A session takes one descriptor, two mappings and about 1 KiB of private memory on
//! each side, and 132 KiB of addresses that both share. A process polls the rings of a few peers,
//! those that have sent last, and learns of the others by its front page (`receive`,
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

/// This process's end of the network. See the [module](self).
pub struct Local {
    address: Box<[u8]>,
    host: u64,
    user: u32,
    /// Bytes of the rings of pairs that this process makes.
    ring: usize,
    /// What peers try to copy, in memory of its own. `None`: they shall not.
    probe: Option<Box<u64>>,
    /// `None` after [`leave`](conduit_portals::transport::open::OpenTransport::leave).
    listener: Option<OwnedFd>,
    /// The listener is not looked at for a while: there are no descriptors for who connects.
    is_listener_paused: bool,
    /// Given up for a moment to refuse somebody when there are no others.
    spare: Option<OwnedFd>,
    /// Over the listener and the sockets of all peers.
    epoll: Arc<OwnedFd>,
    front: FrontPage,
    front_file: OwnedFd,
    peers: Peers,
    /// Those that have connected and not said yet who they are, oldest first.
    strangers: VecDeque<(u32, OwnedFd)>,
    /// Told to sockets, so that their events can be told apart.
    generation: u32,
    watched: Vec<Watched>,
    /// Peers to be drained with the next pass, besides those that are watched.
    pending: Vec<Rank>,
    /// Peers with fragments to be read.
    sending: Vec<Rank>,
    /// Peers whose rings were too full.
    wanting: Vec<Rank>,
    /// Peers with a handshake that could not go on.
    retrying: Vec<Rank>,
    /// Peers of whose failure the handler has not been told.
    failing: Vec<Rank>,
    found: Found,
    is_asleep: bool,
    standing: Standing,
}

impl Local {
    /// Whether an address is of this host and user, and so of a process that may be reached.
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
