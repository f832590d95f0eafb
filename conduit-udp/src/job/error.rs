//! The errors of a failed start.

use std::net::IpAddr;

use conduit_core::ni::Rank;
use pmi::bootstrap::BootstrapError;
use seal::{ExchangeError, PeerError};

use crate::socket::SocketError;

/// The reason why the network could not be started.
#[derive(Debug, thiserror::Error)]
pub enum UdpError {
    /// The bootstrap could not exchange data between the ranks.
    #[error(transparent)]
    Bootstrap(#[from] BootstrapError),
    /// The socket could not be opened.
    #[error("udp start on rank {rank}: {error}")]
    Socket {
        /// This rank.
        rank: Rank,
        /// The reason.
        error: SocketError,
    },
    /// The key exchange could not be prepared.
    #[error("udp start on rank {rank}: {error}")]
    Exchange {
        /// This rank.
        rank: Rank,
        /// The reason.
        error: ExchangeError,
    },
    /// The operating system refused an operation.
    #[error("udp start on rank {rank}: {operation}: {reason}")]
    System {
        /// This rank.
        rank: Rank,
        /// The operation.
        operation: &'static str,
        /// The system's error text.
        reason: String,
    },
    /// Two ranks cannot reach each other, because their address families differ.
    #[error(
        "udp start: rank {rank} has the address {ours}, but rank {peer} on host {host} has {theirs}; \
         all ranks must use IPv4 or all IPv6 (setting CONDUIT_UDP_INTERFACE)"
    )]
    Family {
        /// This rank.
        rank: Rank,
        /// This rank's address.
        ours: String,
        /// The other rank.
        peer: Rank,
        /// The other rank's host.
        host: String,
        /// The other rank's address.
        theirs: String,
    },
    /// Two hosts have the same address.
    #[error(
        "udp start on rank {rank}: {ranks} have the same address {address}, which belongs to a network \
         inside each host; set CONDUIT_UDP_INTERFACE to another interface. This host has {offered}"
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
    /// A peer has failed or sent invalid information, so no rank starts.
    #[error("udp start: {0}")]
    Peer(#[from] PeerError),
}
