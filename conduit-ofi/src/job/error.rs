//! Errors of the network over libfabric.

use conduit_core::ni::Rank;
use pmi::bootstrap::BootstrapError;
use seal::{ExchangeError, PeerError};

/// The reason why the network could not be started. Each error names the rank, and the setting that
/// may help if there is one.
#[derive(Debug, thiserror::Error)]
pub enum OfiError {
    /// The bootstrap could not exchange data between the ranks.
    #[error(transparent)]
    Bootstrap(#[from] BootstrapError),
    /// The key exchange failed.
    #[error("ofi start on rank {rank}: {error}")]
    Exchange {
        /// This rank.
        rank: Rank,
        /// The reason.
        error: ExchangeError,
    },
    /// No usable libfabric was found.
    #[error("ofi start on rank {rank}: {reason} (setting CONDUIT_OFI_LIBRARY)")]
    Library {
        /// This rank.
        rank: Rank,
        /// The libraries tried, and why they are unusable.
        reason: String,
    },
    /// No provider meets the requirements.
    #[error("ofi start on rank {rank}: {reason}; available: {offered} (settings {settings})")]
    Provider {
        /// This rank.
        rank: Rank,
        /// The requirements.
        reason: String,
        /// The available providers.
        offered: String,
        /// The relevant settings.
        settings: &'static str,
    },
    /// libfabric refused a call.
    #[error("ofi start on rank {rank}, provider {provider}: {operation}: {reason}")]
    Refused {
        /// This rank.
        rank: Rank,
        /// The chosen provider.
        provider: String,
        /// The call's name in libfabric.
        operation: &'static str,
        /// libfabric's error text.
        reason: String,
    },
    /// Two ranks have incompatible providers or libraries.
    #[error(
        "ofi start: rank {rank} has {ours}, but rank {peer} on host {host} has {theirs}; must be the same on all ranks \
         (settings CONDUIT_OFI_PROVIDER, CONDUIT_OFI_LIBRARY)"
    )]
    Differs {
        /// This rank.
        rank: Rank,
        /// This rank's provider and library.
        ours: String,
        /// The other rank.
        peer: Rank,
        /// The other rank's host.
        host: String,
        /// The other rank's provider and library.
        theirs: String,
    },
    /// Another rank has failed or sent invalid information, so no rank starts.
    #[error("ofi start: {0}")]
    Peer(#[from] PeerError),
}
