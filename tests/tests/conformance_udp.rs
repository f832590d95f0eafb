//! Every case of the conformance suite for the network over UDP.

use std::marker::PhantomData;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use conduit_core::threads::{Mode, Par, Seq};
use conduit_tests::conformance::trials::{add, add_with_chaos};
use conduit_tests::conformance::{Network, Patience};
use conduit_udp::Carrier;
use conduit_udp::portals::fabric::{Disorder, Fabric, FabricTransport};
use conduit_udp::portals::{PortalsConfig, Udp};
use conduit_udp::socket::Options;
use conduit_udp::start::{UdpConfig, in_process};
use libtest_mimic::{Arguments, Trial};

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
    };
    let all = [
        ("plain", plain, config.clone()),
        ("disorder_1", disorder(1), config.clone()),
        ("disorder_2", disorder(2), config),
        ("tight", plain, tight.clone()),
        ("tight_disorder", narrow, tight),
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

/// On loopback, as it is and with packets as on Ethernet.
fn sockets<M: Mode>() -> Vec<Sockets<M>> {
    let options = |mtu| Options {
        address: IpAddr::V4(Ipv4Addr::LOCALHOST),
        scope: 0,
        port: 0,
        mtu: Some(mtu),
        // Many jobs at once.
        send_buffer: 1 << 20,
        receive_buffer: 1 << 20,
        offload: true,
    };
    let config = |mtu| UdpConfig {
        portals: PortalsConfig {
            region_bytes: 64 << 20,
            ..PortalsConfig::default()
        },
        // Ranks that are left alone have to acknowledge all the same.
        attend: Some(Duration::from_millis(1)),
        ..UdpConfig::new(options(mtu), "localhost".to_owned())
    };
    let all = [("ethernet", config(1500)), ("loopback", config(65_535))];
    all.map(|(settings, config)| Sockets {
        settings,
        config,
        mode: PhantomData,
    })
    .into()
}

fn main() {
    let arguments = Arguments::from_args();
    let mut trials = Vec::<Trial>::new();
    for network in portals::<Seq>() {
        add_with_chaos(&mut trials, network);
    }
    for network in portals::<Par>() {
        add(&mut trials, network);
    }
    for network in sockets::<Seq>() {
        add_with_chaos(&mut trials, network);
    }
    for network in sockets::<Par>() {
        add(&mut trials, network);
    }
    libtest_mimic::run(&arguments, trials).exit();
}
