//! What the engine's settings do, over UDP: the portals on fragments that are handed over in order, so that what one call or one
//! poll does can be counted.

use conduit_core::threads::Seq;
use conduit_udp::Udp;
use soft_portals::PortalsConfig;
use soft_portals::fabric::{Disorder, Fabric, FabricTransport};

#[path = "settings_effects/cases.rs"]
mod cases;

type End = Udp<Seq, FabricTransport>;

fn start(ranks: u32) -> Vec<End> {
    let config = PortalsConfig {
        inject_size: 0,
        region_bytes: 8 << 20,
        max_managed: cases::CHUNK,
        ..PortalsConfig::default()
    };
    let fabric = Fabric::new(ranks);
    let order = Disorder {
        seed: None,
        refuse: 0,
        packet: 1400,
        link_fragments: 256,
        ..Disorder::default()
    };
    (0..ranks)
        .map(|rank| Udp::new(fabric.transport(rank, order), rank, ranks, &config))
        .collect()
}
