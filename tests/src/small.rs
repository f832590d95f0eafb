//! Small settings and memory, so that tests meet the limits.

use conduit_core::settings::Settings;
use conduit_portals::shm::ShmConfig;

/// Few chunks, which are small.
pub fn settings() -> Settings {
    Settings {
        chunk: 1024,
        sb_chunks: 64,
        rpl_chunks: 16,
        // Others go on with each poll; there is nobody to yield to.
        spin: Some(u32::MAX),
        ..Settings::default()
    }
}

/// The network that goes with [`settings`].
pub fn network() -> ShmConfig {
    ShmConfig {
        region_bytes: 8 << 20,
        queue_bytes: 64 << 20,
        inject_size: 1024,
        max_managed: 1024,
        ..ShmConfig::default()
    }
}
