//! The effects of the engine's settings, over shared memory.

use conduit_core::settings::Settings;
use conduit_core::threads::Seq;
use conduit_shm::job::{Shm, ShmConfig, in_process};

#[path = "settings_effects/cases.rs"]
mod cases;

type End = Shm<Seq>;

const NETWORK: &str = "shm";

fn start(ranks: u32, settings: &Settings) -> Vec<End> {
    let config = ShmConfig {
        windows: settings.windows,
        inject_size: if settings.inject { settings.chunk } else { 0 },
        region_bytes: 16 << 20,
        queue_bytes: 64 << 20,
        max_managed: settings.chunk,
        ..ShmConfig::default()
    };
    in_process(ranks, &config).expect("the network starts")
}
