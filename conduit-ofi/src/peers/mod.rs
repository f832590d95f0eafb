//! libfabric as a network of processes that come and go ([`OpenOfi`]).
//!
//! Frames have the format of a job's frames ([`wire`](crate::wire)) and travel over links that are
//! added and removed. Each link belongs to one session or one handshake, or carries an answer to an
//! unknown process. The peer is informed of the link's number, and names it in its frames. An
//! address is inserted into the address vector when a link needs it, and is removed with the last
//! link that uses it.
//!
//! Peers get no access to memory: the endpoint is opened for messages only (without `FI_RMA`), and
//! bulk data travels in fragments. Fragments are copied into the network's buffers, because a peer
//! may be closed at any time and libfabric cannot cancel operations in flight.
//!
//! **Guarantees.** Different sessions under a peer's number do not mix. If the process at the
//! address restarts, the peer is reported as failed before the new session uses the number. With a
//! secret, this process keeps no state for processes without it.
//!
//! **Costs.** Before the first fragment, a handshake takes two round trips (module `handshake`).
//! Every fragment is copied. [`OpenConfig::max_peers`] bounds the memory.

mod address;
mod config;
mod handshake;
mod links;
mod message;
mod sessions;
#[cfg(test)]
mod tests;
mod transport;

use conduit_core::ni::Rank;
use conduit_portals::peers::{Peers, Table};
use conduit_portals::transport::fragment::Failure;
use conduit_portals::transport::open::ConnectError;
use seal::{Secret, SessionSealer};

use crate::wire::liveness::Nanos;
use crate::wire::objects::{Objects, Refusal};
use crate::wire::sessions::Sessions;
use crate::wire::{OfiEndpoint, Parts, WireCounters};

pub use config::{OpenConfig, OpenError};

use address::Addressing;
use handshake::Handshake;
use links::{Handles, LinkUse, NONE, PeerLinks};
use message::is_handshake;

/// The counters of an open network, apart from those of its [wire](WireCounters).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OpenCounters {
    /// The number of sessions begun.
    pub sessions: u64,
    /// The number of handshake messages left unanswered. They came from processes with another
    /// secret, were meant for another address, or were outdated or malformed.
    pub strangers: u64,
    /// The number of processes refused because the maximum number of peers was reached.
    pub turned_away: u64,
}

/// A process's end of libfabric as an open network. See the [module](self).
pub struct OpenOfi {
    wire: OfiEndpoint<Sessions>,
    handshake: Handshake,
    addressing: Addressing,
    handles: Handles,
    peers: Peers<Box<[u8]>, PeerLinks>,
    links: Table<LinkUse>,
    /// The link over which each peer's fragments can be sent, or [`NONE`].
    ready: Vec<u32>,
    /// The peer of each link's session, possibly with [`PENDING`](peers::PENDING), or [`NONE`].
    owners: Vec<Rank>,
    /// The links of sessions that are to replace others.
    pending: Vec<u32>,
    /// The failed links, each with the reason.
    ended: Vec<(u32, Failure)>,
    /// The peers with which no session could be begun, each with the reason.
    failed: Vec<(Rank, Failure)>,
    /// The links that are removed once everything on them has been sent.
    leaving: Vec<u32>,
    /// The number of links in `leaving` that carry answers to unknown processes.
    answers: u32,
    /// The earliest time at which something other than the wire is due.
    next_tick: Nanos,
    counters: OpenCounters,
}

/// The time after which an unanswered handshake message is sent again. It doubles with each
/// repetition. Repetitions are necessary because libfabric delivers reliably only as long as its
/// connections last.
const RETRY: Nanos = 100_000_000;

impl OpenOfi {
    /// Opens this process's end of the network.
    ///
    /// # Errors
    /// Returns an [`OpenError`] that names the provider, the refused call and the setting.
    pub fn start(config: &OpenConfig) -> Result<Self, OpenError> {
        let library = config
            .library
            .load()
            .map_err(|reason| OpenError::Library { reason })?;
        let offer = config::choose(&library, config)?;
        let provider = offer.provider();
        let format = offer.address_format();
        let error = |operation, reason: String, error| OpenError::Refused {
            provider: provider.clone(),
            operation,
            reason,
            error,
            place: match config.host.as_deref() {
                None | Some("") => String::new(),
                Some(host) => format!(" (host \"{host}\")"),
            },
        };
        let refused = |refusal: Refusal| {
            let number = i32::try_from(refusal.error).map(i32::saturating_abs);
            error(refusal.operation, refusal.reason(&library), number.ok())
        };
        let frame = config.wire.clone().bounded().frame;
        let objects = Objects::open(offer, frame).map_err(refused)?;
        let raw = objects.address().map_err(refused)?;
        let too_long = || error("fi_getname", "the address is too long".to_owned(), None);
        let addressing = Addressing::new(provider.clone(), format, &raw).ok_or_else(too_long)?;
        let protection = config.protection();
        let sealer = |secret| {
            let seed = Secret::random()
                .map_err(|reason| error("random numbers", reason.to_string(), None))?;
            Ok(SessionSealer::new(
                secret,
                protection.unwrap_or_default(),
                &seed,
            ))
        };
        let own = sealer(config.secret.as_ref())?;
        let parts = Parts {
            objects,
            scope: Sessions::new(is_handshake),
            seal: protection.map(|_| sealer(None)).transpose()?,
            arrival_bytes: 0,
        };
        let dead_time = config.wire.clone().bounded().dead_time.as_nanos();
        let dead_time = Nanos::try_from(dead_time).unwrap_or(Nanos::MAX);
        let wire = OfiEndpoint::new(parts, &config.wire).map_err(refused)?;
        Ok(Self {
            handshake: Handshake::new(addressing.own(), own, RETRY, dead_time),
            wire,
            addressing,
            handles: Handles::default(),
            peers: Peers::new(config.max_peers.max(1)),
            links: Table::default(),
            ready: Vec::new(),
            owners: Vec::new(),
            pending: Vec::new(),
            ended: Vec::new(),
            failed: Vec::new(),
            leaving: Vec::new(),
            answers: 0,
            next_tick: Nanos::MAX,
            counters: OpenCounters::default(),
        })
    }

    /// Returns the current counters of the wire.
    pub fn wire_counters(&self) -> WireCounters {
        self.wire.counters()
    }

    /// Returns the current counters of sessions and refused processes.
    pub fn counters(&self) -> OpenCounters {
        self.counters
    }

    /// Returns the provider and its domain.
    pub fn offer(&self) -> &crate::provider::Offer {
        self.wire.offer()
    }

    /// Returns the number of peers to which a number is assigned, and the number of addresses in
    /// libfabric's address vector.
    pub fn known(&self) -> (u32, usize) {
        (self.peers.count(), self.handles.count())
    }

    /// Returns the number of bytes that the tables of peers and links occupy, without operations in
    /// flight.
    pub fn memory(&self) -> usize {
        self.peers.memory()
            + self.links.memory()
            + self.ready.capacity() * size_of::<u32>()
            + self.owners.capacity() * size_of::<Rank>()
            + self.handles.memory()
            + self.handshake.memory()
            + self.wire.memory()
    }

    /// Returns a process's number and whether the number is new. Assigns a number if the process
    /// has none.
    fn number_of(&mut self, address: &[u8]) -> Result<(Rank, bool), ConnectError> {
        if let Some(peer) = self.peers.find(address) {
            return Ok((peer, false));
        }
        let peer = self.peers.add(address.into(), PeerLinks::NONE);
        let peer = peer.ok_or(ConnectError::Exhausted {
            limit: self.peers.limit(),
            setting: "CONDUIT_NA_MAX_PEERS",
        })?;
        // The cast is lossless, because numbers are below the maximum number of peers.
        self.ready.resize(self.peers.end() as usize, NONE);
        Ok((peer, true))
    }
}

impl std::fmt::Debug for OpenOfi {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenOfi")
            .field("address", &self.addressing.to_text(self.addressing.own()))
            .field("peers", &self.peers.count())
            .field("links", &self.links.count())
            .field("counters", &self.counters)
            .field("wire", &self.wire)
            .finish_non_exhaustive()
    }
}
