//! Every case of the conformance suite for the network over UDP.

use conduit_core::threads::{Mode, Par, Seq};
use conduit_portals::transport::PortalsConfig;
use conduit_tests::conformance::Setup;
use conduit_tests::conformance::trials::{add, add_with_chaos};
use conduit_tests::fabric::{Atomics, Disorder, Fabric, FabricTransport};
use conduit_tests::udp;
use conduit_udp::job::Udp;
use conduit_udp::job::{UdpConfig, in_process};
use libtest_mimic::Trial;

/// The portals without the protocol: fragments are delivered within this process, by transports
/// that use the freedom of their contract, and with the least room.
fn portals<M: Mode>() -> Vec<Setup> {
    let plain = Disorder::default();
    let config = PortalsConfig {
        region_bytes: 64 << 20,
        ..PortalsConfig::default()
    };
    let tight = PortalsConfig {
        window: 64,
        arrival_bytes: 0,
        inject_bytes: 0,
        operations: 64,
        ..config.clone()
    };
    let disorder = |seed| Disorder {
        seed: Some(seed),
        refuse: 10,
        ..plain
    };
    let narrow = Disorder {
        seed: Some(3),
        refuse: 3,
        packet: 100,
        link_fragments: 2,
        ..plain
    };
    let direct = |disorder| Disorder {
        direct: true,
        ..disorder
    };
    let atomics = |disorder, atomics| Disorder {
        atomics,
        ..disorder
    };
    let native = PortalsConfig {
        native_atomics: true,
        ..config.clone()
    };
    let native_tight = PortalsConfig {
        native_atomics: true,
        ..tight.clone()
    };
    let all = [
        ("plain", plain, config.clone()),
        ("disorder_1", disorder(1), config.clone()),
        ("disorder_2", disorder(2), config.clone()),
        ("tight", plain, tight.clone()),
        ("tight_disorder", narrow, tight.clone()),
        ("direct", direct(plain), config.clone()),
        ("direct_disorder", direct(disorder(4)), config),
        ("direct_tight", direct(narrow), tight.clone()),
        (
            "native_all",
            atomics(direct(plain), Atomics::All),
            native.clone(),
        ),
        (
            "native_all_disorder",
            atomics(direct(disorder(5)), Atomics::All),
            native,
        ),
        (
            "native_few_tight",
            atomics(direct(narrow), Atomics::Few),
            native_tight,
        ),
    ];
    let setup = |(settings, disorder, config): (&str, Disorder, PortalsConfig)| {
        let start = move |ranks| {
            let fabric = Fabric::new(ranks);
            let rank = |rank| Udp::new(fabric.transport(rank, disorder), rank, ranks, &config);
            let ends: Vec<Udp<M, FabricTransport>> = (0..ranks).map(rank).collect();
            Ok::<_, String>(ends)
        };
        Setup::new(format!("portals::{}::{settings}", M::NAME), start)
    };
    all.map(setup).into()
}

/// Over sockets of this host, with all ranks in this process: packets as on Ethernet, packets of
/// the largest size, and packet faults.
fn sockets<M: Mode>() -> [Setup; 3] {
    let lossy = UdpConfig {
        faults: udp::faults(1),
        ..udp::config(1500)
    };
    let all = [
        ("ethernet", udp::config(1500)),
        ("loopback", udp::config(65_535)),
        ("faults", lossy),
    ];
    all.map(|(settings, config)| {
        let name = format!("udp::{}::{settings}", M::NAME);
        Setup::new(name, move |ranks| in_process::<M>(ranks, &config)).patient()
    })
}

/// Adds all of these tests.
pub(crate) fn add_all(trials: &mut Vec<Trial>) {
    for network in portals::<Seq>() {
        add_with_chaos(trials, network);
    }
    for network in portals::<Par>() {
        add(trials, network.sampled());
    }
    let [ethernet, loopback, faults] = sockets::<Seq>();
    add_with_chaos(trials, ethernet);
    add_with_chaos(trials, loopback);
    add(trials, faults);
    let [ethernet, loopback, faults] = sockets::<Par>().map(Setup::sampled);
    add_with_chaos(trials, ethernet);
    add(trials, loopback);
    add_with_chaos(trials, faults);
}
