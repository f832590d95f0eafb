//! Failures of the start.

use std::net::IpAddr;

use conduit_core::bootstrap::BootstrapError;
use conduit_core::ni::Rank;
use seal::{ExchangeError, PeerError};

use crate::socket::SocketError;

/// Why the network could not be started.
#[derive(Debug, thiserror::Error)]
pub enum UdpError {
    /// The exchange at job start failed.
    #[error(transparent)]
    Bootstrap(#[from] BootstrapError),
    /// The socket could not be opened.
    #[error("udp start on rank {rank}: {error}")]
    Socket {
        /// This rank.
        rank: Rank,
        /// Why.
        error: SocketError,
    },
    /// Keys can't be exchanged.
    #[error("udp start on rank {rank}: {error}")]
    Exchange {
        /// This rank.
        rank: Rank,
        /// Why.
        error: ExchangeError,
    },
    /// The operating system refused.
    #[error("udp start on rank {rank}: {operation}: {reason}")]
    System {
        /// This rank.
        rank: Rank,
        /// What was asked.
        operation: &'static str,
        /// The system's words.
        reason: String,
    },
    /// Two ranks can't reach each other.
    #[error(
        "udp start: rank {rank} has the address {ours}, rank {peer} on host {host} has {theirs}: one is IPv4 and one is \
         IPv6 (setting CONDUIT_UDP_INTERFACE)"
    )]
    Family {
        /// This rank.
        rank: Rank,
        /// Its address.
        ours: String,
        /// The other rank.
        peer: Rank,
        /// Its host.
        host: String,
        /// Its address.
        theirs: String,
    },
    /// Two hosts have the same address.
    #[error(
        "udp start on rank {rank}: {ranks} have the address {address}, which belongs to a network \
         inside each host; choose another by CONDUIT_UDP_INTERFACE. This host has {offered}"
    )]
    SameAddress {
        /// This rank.
        rank: Rank,
        /// A rank of each host, with the host's name.
        ranks: String,
        /// The address.
        address: IpAddr,
        /// The interfaces of this rank's host.
        offered: String,
    },
    /// A peer keeps all ranks from starting.
    #[error("udp start: {0}")]
    Peer(#[from] PeerError),
}
