//! Settings with small limits, so that tests reach the limits.

use conduit_core::settings::Settings;
use conduit_shm::job::ShmConfig;

/// Returns settings with few and small chunks.
pub fn settings() -> Settings {
    Settings {
        chunk: 1024,
        sb_chunks: 64,
        rpl_chunks: 16,
        // Ranks never yield, because the other ranks run on the same thread and progress with each
        // poll.
        spin: Some(u32::MAX),
        ..Settings::default()
    }
}

/// Returns settings in which every limit has the smallest accepted value.
pub fn least() -> Settings {
    Settings {
        msg_limit: 12,
        num_tmpmd: 1,
        sb_chunks: 2,
        rpl_chunks: 1,
        safe_limit: 1,
        am_limit: 1,
        sys_limit: 1,
        cred_per_node: Some(4),
        banked_credits: Some(0),
        ..settings()
    }
}

/// Returns settings with so few credits and such short epochs that credits move all the time.
pub fn restless() -> Settings {
    Settings {
        cred_per_node: Some(6),
        banked_credits: Some(0),
        epoch_duration: 5,
        ..settings()
    }
}

/// Returns the network configuration for jobs that use [`settings()`].
pub fn network() -> ShmConfig {
    ShmConfig {
        region_bytes: 8 << 20,
        queue_bytes: 64 << 20,
        inject_size: 1024,
        max_managed: 1024,
        ..ShmConfig::default()
    }
}

/// Returns settings that each make the engine work differently over a network without windows.
pub fn without_windows() -> [Settings; 5] {
    [
        settings(),
        Settings {
            inject: false,
            ..settings()
        },
        Settings {
            packed_long: false,
            ..settings()
        },
        least(),
        restless(),
    ]
}
