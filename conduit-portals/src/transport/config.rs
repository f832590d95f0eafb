//! The configuration of the portals.

use std::time::Duration;

pub use ::lanes::Settings as LaneSettings;

use super::window::WINDOWS;

/// Limits and sizes of a [`SoftPortals`](super::SoftPortals). All ranks must use equal
/// configurations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortalsConfig {
    /// Total size of a rank's regions in bytes.
    pub region_bytes: usize,
    /// Length of the largest put or get in bytes.
    pub max_message: usize,
    /// Length of the largest put to a locally managed entry in bytes, at most [`MAX_MANAGED`].
    pub max_managed: usize,
    /// Length of the largest inject in bytes, at most [`PortalsConfig::max_managed`].
    pub inject_size: usize,
    /// The maximum number of bytes in flight at once in injects that are longer than a tiny
    /// fragment.
    pub inject_bytes: usize,
    /// Number of bytes for messages that have arrived and are not delivered yet, shared among all
    /// peers. Each peer's share has room for at least two of the largest managed messages.
    pub arrival_bytes: usize,
    /// The lanes of a rank, which are wide windows for the peers that send it most; `size` is the
    /// number of bytes in each of a peer's four windows. Lanes are used only where all peers'
    /// shares of `arrival_bytes` are minimal.
    pub lanes: LaneSettings,
    /// The maximum number of operations from a peer that may be in flight or waiting for delivery
    /// to this rank's user.
    pub window: u16,
    /// The maximum number of operations of this rank, to all peers, that are in flight at once.
    pub operations: u32,
    /// A rank that leaves waits until its peers have received everything it sent, and gives up
    /// after this time without progress. If this time is zero, the rank neither waits nor announces
    /// that it leaves.
    pub linger: Duration,
    /// Whether the network, if it can, performs the atomics on exportable entries. Such atomics are
    /// not atomic with respect to those of processors and other networks, so set this only if all
    /// atomics on words of such entries go through this network and these entries.
    pub native_atomics: bool,
}

/// The largest [`PortalsConfig::max_managed`].
pub const MAX_MANAGED: usize = 256 << 10;
/// The largest [`PortalsConfig::max_message`].
const MAX_MESSAGE: usize = 256 << 20;
/// The largest [`PortalsConfig::operations`].
pub(crate) const MAX_OPERATIONS: u32 = 1 << 18;

impl Default for PortalsConfig {
    fn default() -> Self {
        Self {
            region_bytes: 1 << 36,
            max_message: 1 << 20,
            max_managed: 66 << 10,
            inject_size: 8 << 10,
            inject_bytes: 4 << 20,
            arrival_bytes: 64 << 20,
            lanes: Self::lanes(2 << 20, 64 << 20),
            window: 1024,
            operations: 1 << 16,
            linger: Duration::from_secs(2),
            native_atomics: false,
        }
    }
}

impl PortalsConfig {
    /// Returns lane settings with `window` bytes in each of a peer's four windows, and with as many
    /// lanes as fit into `arrivals` bytes.
    pub fn lanes(window: usize, arrivals: usize) -> LaneSettings {
        let most = if window > 0 { ::lanes::ROWS } else { 0 };
        let all = LaneSettings {
            slots: most as u16,
            size: window.try_into().unwrap_or(u32::MAX),
            ..LaneSettings::default()
        };
        all.within((arrivals / WINDOWS) as u64)
    }

    /// Clamps every limit to its bounds.
    pub(crate) fn bounded(mut self) -> Self {
        self.max_message = self.max_message.clamp(64 << 10, MAX_MESSAGE);
        self.max_managed = self.max_managed.clamp(1 << 10, MAX_MANAGED);
        self.inject_size = self.inject_size.min(self.max_managed);
        self.inject_bytes = self.inject_bytes.max(2 * self.inject_size);
        self.window = self.window.clamp(2, 1 << 14);
        self.operations = self.operations.clamp(64, MAX_OPERATIONS);
        self
    }
}
