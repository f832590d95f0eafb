//! Errors of the network over Portals 4.

use conduit_core::ni::{NiError, Rank};
use pmi::bootstrap::BootstrapError;

/// The reason why the network could not be started.
#[derive(Debug, thiserror::Error)]
pub enum Portals4Error {
    /// The exchange at job start failed.
    #[error(transparent)]
    Bootstrap(#[from] BootstrapError),
    /// No usable libportals was found.
    #[error("portals4 start on rank {rank}: {reason} (setting CONDUIT_PORTALS4_LIBRARY)")]
    Library {
        /// This rank.
        rank: Rank,
        /// The library and the reason why it can't be used.
        reason: String,
    },
    /// The library has refused a call.
    #[error("portals4 start: {0}")]
    Refused(#[from] NiError),
    /// A peer's bootstrap information can't be read.
    #[error("portals4 start: rank {rank} can't read the bootstrap information of rank {peer}")]
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
        /// The error of the failed rank.
        reason: String,
    },
}
