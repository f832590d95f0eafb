//! UDP as the tests use it, on sockets of this host and optionally with packet faults.

use std::net::Ipv4Addr;
use std::time::Duration;

use crate::fabric::{Disorder, Fabric, FabricTransport};
use conduit_core::settings::Settings;
use conduit_core::threads::Seq;
use conduit_portals::transport::PortalsConfig;
use conduit_udp::job::Udp;
use conduit_udp::job::UdpConfig;
use conduit_udp::socket::{FaultConfig, Options};
use settings::Percent;

/// Returns a configuration for ranks on the loopback interface. It suits tests that run many jobs
/// at once. `mtu` is the length of the largest IP packet in bytes.
pub fn config(mtu: usize) -> UdpConfig {
    let options = Options {
        address: Ipv4Addr::LOCALHOST.into(),
        scope: 0,
        ports: Options::ANY_PORT,
        mtu: Some(mtu),
        send_buffer: 1 << 20,
        receive_buffer: 1 << 20,
        offload: true,
    };
    UdpConfig {
        portals: PortalsConfig {
            region_bytes: 64 << 20,
            ..PortalsConfig::default()
        },
        // Ranks that make no calls must still acknowledge packets, so a thread attends to them.
        attend: Some(Duration::from_millis(1)),
        ..UdpConfig::new(options, "localhost".to_owned())
    }
}

/// Returns a configuration whose limits are as small as those of
/// [`small::settings`](crate::small::settings).
pub fn small_portals() -> PortalsConfig {
    PortalsConfig {
        region_bytes: 8 << 20,
        max_managed: 1024,
        inject_size: 1024,
        ..PortalsConfig::default()
    }
}

/// Returns the same configuration as [`small_portals`], with or without injects as the engine's
/// settings say.
pub fn with_inject(settings: &Settings) -> PortalsConfig {
    let portals = small_portals();
    PortalsConfig {
        inject_size: if settings.inject {
            portals.inject_size
        } else {
            0
        },
        ..portals
    }
}

/// Starts a job over a fabric, which delivers fragments in disorder, instead of over sockets.
/// `direct` tells whether ranks have direct access.
pub fn in_disorder(ranks: u32, seed: u64, direct: bool) -> Vec<Udp<Seq, FabricTransport>> {
    let fabric = Fabric::new(ranks);
    let disorder = Disorder {
        seed: Some(seed),
        refuse: 5,
        packet: 300,
        link_fragments: 16,
        direct,
        ..Disorder::default()
    };
    let end = |rank| {
        Udp::new(
            fabric.transport(rank, disorder),
            rank,
            ranks,
            &small_portals(),
        )
    };
    (0..ranks).map(end).collect()
}

/// Returns a configuration with faults of every kind, at low rates.
pub fn faults(seed: u32) -> FaultConfig {
    FaultConfig {
        seed,
        loss: Percent::of(5),
        duplicates: Percent::of(3),
        corruption: Percent::of(1),
        reorder: Percent::of(5),
        delay: 20_000,
    }
}

/// The settings of a job that cause the same faults.
pub const FAULTS: [(&str, &str); 5] = [
    ("CONDUIT_UDP_LOSS", "5"),
    ("CONDUIT_UDP_DUPLICATES", "3"),
    ("CONDUIT_UDP_CORRUPTION", "1"),
    ("CONDUIT_UDP_REORDER", "5"),
    ("CONDUIT_UDP_DELAY", "20"),
];
