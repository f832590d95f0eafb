//! Errors of the network over libfabric.

use conduit_core::bootstrap::BootstrapError;
use conduit_core::ni::Rank;
use seal::{ExchangeError, PeerError};

/// Why the network could not be started. Each error names the rank and the setting that may help.
#[derive(Debug, thiserror::Error)]
pub enum OfiError {
    /// The exchange at job start failed.
    #[error(transparent)]
    Bootstrap(#[from] BootstrapError),
    /// Keys can't be exchanged.
    #[error("ofi start on rank {rank}: {error}")]
    Exchange {
        /// This rank.
        rank: Rank,
        /// Why.
        error: ExchangeError,
    },
    /// There is no libfabric.
    #[error("ofi start on rank {rank}: {reason} (setting CONDUIT_OFI_LIBRARY)")]
    Library {
        /// This rank.
        rank: Rank,
        /// What was looked for, and why that will not do.
        reason: String,
    },
    /// No provider offers what is asked for.
    #[error("ofi start on rank {rank}: {reason}; there is {offered} (settings {settings})")]
    Provider {
        /// This rank.
        rank: Rank,
        /// What was asked for.
        reason: String,
        /// What can be had.
        offered: String,
        /// What can be set.
        settings: &'static str,
    },
    /// The library has refused a call.
    #[error("ofi start on rank {rank}, provider {provider}: {operation}: {reason}")]
    Refused {
        /// This rank.
        rank: Rank,
        /// Whose offer was taken.
        provider: String,
        /// libfabric's name of the call.
        operation: &'static str,
        /// The library's words.
        reason: String,
    },
    /// Two ranks can't talk to each other.
    #[error(
        "ofi start: rank {rank} has {ours}, rank {peer} on host {host} has {theirs}: all ranks need the same \
         (settings CONDUIT_OFI_PROVIDER, CONDUIT_OFI_LIBRARY)"
    )]
    Differs {
        /// This rank.
        rank: Rank,
        /// Its provider and library.
        ours: String,
        /// The other rank.
        peer: Rank,
        /// Its host.
        host: String,
        /// Its provider and library.
        theirs: String,
    },
    /// A peer keeps all ranks from starting.
    #[error("ofi start: {0}")]
    Peer(#[from] PeerError),
}
