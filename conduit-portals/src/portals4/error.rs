//! Errors of the network over Portals 4.

use conduit_core::bootstrap::BootstrapError;
use conduit_core::ni::{NiError, Rank};

/// Why the network could not be started.
#[derive(Debug, thiserror::Error)]
pub enum Portals4Error {
    /// The exchange at job start failed.
    #[error(transparent)]
    Bootstrap(#[from] BootstrapError),
    /// There is no libportals, or none that can be used.
    #[error("portals4 start on rank {rank}: {reason} (setting CONDUIT_PORTALS4_LIBRARY)")]
    Library {
        /// This rank.
        rank: Rank,
        /// What was looked for, and why that will not do.
        reason: String,
    },
    /// The library has refused a call.
    #[error("portals4 start: {0}")]
    Refused(#[from] NiError),
    /// What a peer says of itself can't be read.
    #[error("portals4 start: rank {rank} can't read what rank {peer} says of itself")]
    Peer {
        /// This rank.
        rank: Rank,
        /// The peer.
        peer: Rank,
    },
    /// Another rank could not start.
    #[error("portals4 start: rank {peer} failed: {reason}")]
    PeerFailed {
        /// The rank that failed.
        peer: Rank,
        /// Its own error.
        reason: String,
    },
}
