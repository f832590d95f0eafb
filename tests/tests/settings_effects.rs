//! What the engine's settings do, over shared memory without windows.

use conduit_core::threads::Seq;
use conduit_portals::shm::{Shm, ShmConfig, in_process};

#[path = "settings_effects/cases.rs"]
mod cases;

type End = Shm<Seq>;

fn start(ranks: u32) -> Vec<End> {
    let config = ShmConfig {
        windows: false,
        inject_size: 0,
        region_bytes: 8 << 20,
        queue_bytes: 64 << 20,
        max_managed: cases::CHUNK,
        ..ShmConfig::default()
    };
    in_process(ranks, &config).expect("the network starts")
}
