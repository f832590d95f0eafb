//! Every case of the conformance suite for the network over UDP.

use std::marker::PhantomData;

use conduit_core::threads::{Mode, Par, Seq};
use conduit_portals::transport::PortalsConfig;
use conduit_portals::transport::fabric::{Atomics, Disorder, Fabric, FabricTransport};
use conduit_tests::conformance::trials::{add, add_with_chaos};
use conduit_tests::conformance::{Network, Patience};
use conduit_tests::udp;
use conduit_udp::Carrier;
use conduit_udp::Udp;
use conduit_udp::start::{UdpConfig, in_process};
use libtest_mimic::Trial;

/// The portals without the protocol: fragments are handed over in this process.
struct Portals<M> {
    settings: &'static str,
    disorder: Disorder,
    config: PortalsConfig,
    // The mode is a parameter only.
    mode: PhantomData<fn() -> M>,
}

impl<M> Clone for Portals<M> {
    fn clone(&self) -> Self {
        Self {
            config: self.config.clone(),
            ..*self
        }
    }
}

impl<M: Mode> Network for Portals<M> {
    type Ni = Udp<M, FabricTransport>;
    fn name(&self) -> String {
        format!("portals::{}::{}", M::NAME, self.settings)
    }
    fn start(&self, ranks: u32) -> Result<Vec<Self::Ni>, String> {
        let fabric = Fabric::new(ranks);
        Ok((0..ranks)
            .map(|rank| {
                let transport = fabric.transport(rank, self.disorder);
                Udp::new(transport, rank, ranks, &self.config)
            })
            .collect())
    }
}

/// On transports that use what freedom they have, and with the least room.
fn portals<M: Mode>() -> Vec<Portals<M>> {
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
    all.map(|(settings, disorder, config)| Portals {
        settings,
        disorder,
        config,
        mode: PhantomData,
    })
    .into()
}

/// Over sockets of this host, all ranks in this process.
struct Sockets<M> {
    settings: &'static str,
    config: UdpConfig,
    // The mode is a parameter only.
    mode: PhantomData<fn() -> M>,
}

impl<M> Clone for Sockets<M> {
    fn clone(&self) -> Self {
        Self {
            config: self.config.clone(),
            ..*self
        }
    }
}

impl<M: Mode> Network for Sockets<M> {
    type Ni = Udp<M, Carrier>;
    fn name(&self) -> String {
        format!("udp::{}::{}", M::NAME, self.settings)
    }
    fn start(&self, ranks: u32) -> Result<Vec<Self::Ni>, String> {
        in_process(ranks, &self.config).map_err(|error| error.to_string())
    }
    fn patience(&self) -> Patience {
        Patience {
            // Time has to pass between them: for acknowledgements, and for packets that are sent again.
            rounds: 10_000_000,
            settle: 1000,
            pause: None,
        }
    }
}

/// On loopback: packets as on Ethernet, packets as large as they can be, and packets that suffer.
fn sockets<M: Mode>() -> [Sockets<M>; 3] {
    let lossy = UdpConfig {
        faults: udp::faults(1),
        ..udp::config(1500)
    };
    let all = [
        ("ethernet", udp::config(1500)),
        ("loopback", udp::config(65_535)),
        ("faults", lossy),
    ];
    all.map(|(settings, config)| Sockets {
        settings,
        config,
        mode: PhantomData,
    })
}

/// Adds all of these.
pub(crate) fn add_all(trials: &mut Vec<Trial>) {
    for network in portals::<Seq>() {
        add_with_chaos(trials, network);
    }
    for network in portals::<Par>() {
        add(trials, network);
    }
    let [ethernet, loopback, faults] = sockets::<Seq>();
    add_with_chaos(trials, ethernet);
    add_with_chaos(trials, loopback);
    add(trials, faults);
    let [ethernet, loopback, faults] = sockets::<Par>();
    add_with_chaos(trials, ethernet);
    add(trials, loopback);
    add_with_chaos(trials, faults);
}
