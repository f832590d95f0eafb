//! What is set for the portals.

use std::time::Duration;

/// Limits and sizes of an [`SoftPortals`](super::SoftPortals). The same on all ranks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortalsConfig {
    /// Bytes of all regions of a rank together.
    pub region_bytes: usize,
    /// Bytes of the largest put or get.
    pub max_message: usize,
    /// Bytes of the largest put to a locally managed entry, up to [`MAX_MANAGED`].
    pub max_managed: usize,
    /// Bytes of the largest inject, up to [`PortalsConfig::max_managed`].
    pub inject_size: usize,
    /// Bytes of injects that are under way at once and longer than a tiny fragment.
    pub inject_bytes: usize,
    /// Bytes for messages that have arrived and were not delivered yet, shared out among all peers; each has a share of two of
    /// the largest managed messages at least.
    pub arrival_bytes: usize,
    /// Operations that a peer may have under way here at most: sent, and not yet delivered to this rank's user.
    pub window: u16,
    /// Operations of this rank, to all peers, that are under way at once.
    pub operations: u32,
    /// A rank that leaves waits until its peers have what it has sent, and gives up when for so long nothing more of it has reached
    /// them; with zero it doesn't wait, nor say that it leaves.
    pub linger: Duration,
    /// Atomics on entries over regions are done by the network, where it can: an entry that is first of its list, and tells of nothing.
    /// Who sets this knows that nobody does atomics on words of those entries but through this network, and through these
    /// entries: neither a processor nor another network sees them in one step.
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
            window: 1024,
            operations: 1 << 16,
            linger: Duration::from_secs(2),
            native_atomics: false,
        }
    }
}

impl PortalsConfig {
    /// The same with every limit inside its bounds.
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
