//! Failures of starting the shared-memory network.

use conduit_core::bootstrap::BootstrapError;
use conduit_core::ni::Rank;

/// Why the network could not be started.
#[derive(Debug, thiserror::Error)]
pub enum ShmError {
    /// The exchange at job start failed.
    #[error(transparent)]
    Bootstrap(#[from] BootstrapError),
    /// A setting is out of its range.
    #[error("shm start: {setting} is {value}, accepted is {least} to {most}")]
    Setting {
        /// The setting of [`ShmConfig`](super::ShmConfig).
        setting: &'static str,
        /// What it was.
        value: u64,
        /// The least accepted value.
        least: u64,
        /// The greatest accepted value.
        most: u64,
    },
    /// Two ranks run with different settings.
    #[error("shm start: {setting} is {ours} on rank {rank} and {theirs} on rank {peer}")]
    SettingDiffers {
        /// The setting, or "version".
        setting: String,
        /// This rank.
        rank: Rank,
        /// Its value.
        ours: String,
        /// The other rank.
        peer: Rank,
        /// The other's value, "missing" if it has none.
        theirs: String,
    },
    /// A peer's memory can't be had, or isn't what it should be.
    #[error("shm start: rank {rank} can't use the memory of rank {peer}: {reason}")]
    Peer {
        /// This rank.
        rank: Rank,
        /// The peer.
        peer: Rank,
        /// What is wrong.
        reason: String,
    },
    /// The operating system refused.
    #[error("shm start on rank {rank}: {operation}: {reason}")]
    System {
        /// This rank.
        rank: Rank,
        /// What was asked.
        operation: &'static str,
        /// The system's words.
        reason: String,
    },
    /// Another rank could not start.
    #[error("shm start: rank {peer} failed: {reason}")]
    PeerFailed {
        /// The rank that failed.
        peer: Rank,
        /// Its own error.
        reason: String,
    },
}
