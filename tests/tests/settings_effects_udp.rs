//! The effects of the engine's settings, over UDP: the portals on fragments that are delivered in
//! order, so that the effects of a single call or poll can be counted.

use conduit_core::settings::Settings;
use conduit_core::threads::Seq;
use conduit_portals::transport::PortalsConfig;
use conduit_tests::fabric::{Disorder, Fabric, FabricTransport};
use conduit_udp::job::Udp;

#[path = "settings_effects/cases.rs"]
mod cases;

type End = Udp<Seq, FabricTransport>;

const NETWORK: &str = "udp";

fn start(ranks: u32, settings: &Settings) -> Vec<End> {
    let defaults = PortalsConfig::default();
    let config = PortalsConfig {
        inject_size: if settings.inject {
            defaults.inject_size
        } else {
            0
        },
        region_bytes: 16 << 20,
        max_managed: settings.chunk,
        ..defaults
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
