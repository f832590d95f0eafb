//! Errors that can occur while the shared-memory network starts.

use conduit_core::ni::Rank;
use pmi::bootstrap::BootstrapError;

/// The reason why the network could not be started.
#[derive(Debug, thiserror::Error)]
pub enum ShmError {
    /// The exchange at job start failed.
    #[error(transparent)]
    Bootstrap(#[from] BootstrapError),
    /// A setting is out of its range.
    #[error("shm start: {setting} is {value}, accepted: {least} to {most}")]
    Setting {
        /// The name of the setting, a field of [`ShmConfig`](super::ShmConfig).
        setting: &'static str,
        /// The setting's value.
        value: u64,
        /// The smallest accepted value.
        least: u64,
        /// The largest accepted value.
        most: u64,
    },
    /// Two ranks run with different settings.
    #[error("shm start: {setting} is {ours} on rank {rank} and {theirs} on rank {peer}")]
    SettingDiffers {
        /// The name of the setting, or "version".
        setting: String,
        /// This rank.
        rank: Rank,
        /// This rank's value.
        ours: String,
        /// The other rank.
        peer: Rank,
        /// The other rank's value, or "missing" if it has none.
        theirs: String,
    },
    /// A peer's memory could not be obtained, or is not as expected.
    #[error("shm start: rank {rank} cannot use the memory of rank {peer}: {reason}")]
    Peer {
        /// This rank.
        rank: Rank,
        /// The peer.
        peer: Rank,
        /// A description of the problem.
        reason: String,
    },
    /// The operating system refused an operation.
    #[error("shm start on rank {rank}: {operation}: {reason}")]
    System {
        /// This rank.
        rank: Rank,
        /// The operation that was refused.
        operation: &'static str,
        /// The system's message.
        reason: String,
    },
    /// Another rank could not start.
    #[error("shm start: rank {peer} failed: {reason}")]
    PeerFailed {
        /// The rank that failed.
        peer: Rank,
        /// That rank's own error.
        reason: String,
    },
}
