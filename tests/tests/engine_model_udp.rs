//! Random schedules against the reference model, over UDP: on the portals alone, with fragments
//! delivered in disorder, and on sockets of this host, with and without packet faults.
//!
//! `PROPTEST_CASES=1000 cargo test -p conduit-tests --release --test engine engine_model_udp::` is
//! the long run.

use std::time::Duration;

use conduit_core::ni::{AtomicOp, AtomicType, Ni};
use conduit_core::settings::Settings;
use conduit_core::threads::{Mode, Par, Seq};
use conduit_portals::transport::{LaneSettings, PortalsConfig};
use conduit_tests::chaos::{self, Chaos};
use conduit_tests::fabric::{Atomics, Disorder, Fabric, FabricTransport};
use conduit_tests::model::given_up::check_given_up;
use conduit_tests::model::schedule::{Action, Fetch, Ids, Round, Schedule, Step};
use conduit_tests::model::{Limits, check, check_drawn};
use conduit_tests::small::without_windows;
use conduit_tests::udp::{self, with_inject};
use conduit_udp::job::Carrier;
use conduit_udp::job::Udp;
use conduit_udp::job::{UdpConfig, in_process};
use conduit_udp::socket::FaultConfig;

/// The number of schedules per configuration of the portals, unless `PROPTEST_CASES` is set.
const CASES: u32 = 24;
/// The same over sockets, where each takes longer.
const SOCKET_CASES: u32 = 4;
/// The attempts to shrink a failing schedule.
const SHRINKS: u32 = 200;

/// A fabric may delay fragments for some turns.
const FABRIC: Limits = Limits {
    turns: 2_000_000,
    polls: 20_000,
};

fn on_fabric<M: Mode>(
    schedule: &Schedule,
    portals: &PortalsConfig,
    direct: Option<Atomics>,
) -> Vec<Udp<M, FabricTransport>> {
    on_fabric_of(schedule.ranks, schedule.seed, portals, direct)
}

fn on_fabric_of<M: Mode>(
    ranks: u32,
    seed: u64,
    portals: &PortalsConfig,
    direct: Option<Atomics>,
) -> Vec<Udp<M, FabricTransport>> {
    let fabric = Fabric::new(ranks);
    let disorder = Disorder {
        seed: Some(seed),
        refuse: 5,
        packet: 300,
        link_fragments: 16,
        direct: direct.is_some(),
        atomics: direct.unwrap_or(Atomics::None),
        ..Disorder::default()
    };
    let portals = PortalsConfig {
        native_atomics: direct.is_some(),
        ..portals.clone()
    };
    (0..ranks)
        .map(|rank| {
            let transport = fabric.transport(rank, disorder);
            Udp::new(transport, rank, ranks, &portals)
        })
        .collect()
}

fn check_on_fabric(
    schedule: &Schedule,
    settings: &Settings,
    portals: &PortalsConfig,
    direct: Option<Atomics>,
) -> Result<(), String> {
    match schedule.is_parallel() {
        false => {
            let ends = on_fabric::<Seq>(schedule, portals, direct);
            check::<_, Seq>(schedule, settings, ends, FABRIC)
        }
        true => {
            let ends = on_fabric::<Par>(schedule, portals, direct);
            check::<_, Par>(schedule, settings, ends, FABRIC)
        }
    }
}

fn over_fabric(portals: impl Fn(&Settings) -> PortalsConfig, direct: Option<Atomics>) {
    for settings in without_windows() {
        let portals = portals(&settings);
        check_drawn(CASES, SHRINKS, |schedule| {
            check_on_fabric(schedule, &settings, &portals, direct)
        });
    }
}

fn with_little_room(settings: &Settings) -> PortalsConfig {
    PortalsConfig {
        window: 4,
        arrival_bytes: 0,
        inject_bytes: 0,
        operations: 64,
        ..with_inject(settings)
    }
}

#[test]
fn fragments_in_disorder() {
    over_fabric(with_inject, None);
}

#[test]
fn fragments_in_disorder_and_little_room() {
    over_fabric(with_little_room, None);
}

/// A wide window moves to another rank as soon as that one has sent more.
#[test]
fn fragments_in_disorder_and_lanes_that_change_hands() {
    let restless = LaneSettings {
        slots: 1,
        interval: 1,
        samples: 1,
        threshold: 1,
        factor: 1,
        deviations: 0,
        hold: 0,
        ..LaneSettings::default()
    };
    let portals = |settings: &Settings| PortalsConfig {
        arrival_bytes: 0,
        lanes: LaneSettings {
            size: 512 << 10,
            ..restless.clone()
        },
        ..with_inject(settings)
    };
    over_fabric(portals, None);
}

#[test]
fn fragments_in_disorder_and_direct_access() {
    over_fabric(with_inject, Some(Atomics::None));
}

#[test]
fn fragments_in_disorder_and_direct_access_and_little_room() {
    over_fabric(with_little_room, Some(Atomics::None));
}

#[test]
fn fragments_in_disorder_and_atomics_of_the_network() {
    over_fabric(with_inject, Some(Atomics::All));
}

#[test]
fn fragments_in_disorder_and_few_atomics_of_the_network_and_little_room() {
    over_fabric(with_little_room, Some(Atomics::Few));
}

/// All ranks add to one word, including its owner, which must not use its processor if the others
/// use the network's atomics.
#[test]
fn atomics_of_the_owner_and_of_its_peers() {
    let [settings, ..] = without_windows();
    for ty in AtomicType::ALL {
        for direct in [Atomics::Few, Atomics::All] {
            for seed in 0..8 {
                // A poll passes the turn to other ranks.
                let step = |at: u16| Step {
                    action: match at % 2 {
                        0 => Action::Atomic(AtomicOp::Add, ty, Fetch::No),
                        _ => Action::Poll,
                    },
                    target: 0,
                    place: 0,
                    own: at,
                    len: 1,
                };
                let round = Round {
                    steps: vec![(0..40).map(step).collect(); 3],
                    ids: Ids::Anonymous,
                    quiesces: false,
                };
                let schedule = Schedule {
                    ranks: 3,
                    seed,
                    // The first round advertises the word's address to all ranks.
                    rounds: vec![round.clone(), round],
                };
                check_on_fabric(&schedule, &settings, &with_inject(&settings), Some(direct))
                    .unwrap_or_else(|error| panic!("{ty:?}, {direct:?}, seed {seed}: {error}"));
            }
        }
    }
}

fn on_sockets(
    schedule: &Schedule,
    settings: &Settings,
    faults: FaultConfig,
) -> Vec<Udp<Seq, Carrier>> {
    let config = UdpConfig {
        portals: with_inject(settings),
        faults,
        ..udp::config(1500)
    };
    in_process(schedule.ranks, &config).expect("the network starts")
}

fn over_sockets<N: Ni + 'static>(make: impl Fn(&Schedule, &Settings) -> Vec<N>) {
    for settings in without_windows() {
        check_drawn(SOCKET_CASES, SHRINKS, |schedule| {
            check::<_, Seq>(schedule, &settings, make(schedule, &settings), Limits::TIME)
        });
    }
}

#[test]
fn sockets() {
    over_sockets(|schedule, settings| on_sockets(schedule, settings, FaultConfig::default()));
}

#[test]
fn sockets_whose_packets_suffer() {
    // Another packet has a fault in each schedule.
    over_sockets(|schedule, settings| {
        on_sockets(schedule, settings, udp::faults(schedule.seed as u32))
    });
}

#[test]
fn sockets_whose_packets_suffer_under_chaos() {
    over_sockets(|schedule, settings| {
        let ends = on_sockets(schedule, settings, udp::faults(schedule.seed as u32));
        Chaos::job(ends, chaos::Disorder::seeded(schedule.seed))
    });
}

/// A call fails while its fragments or direct accesses are in flight.
#[test]
fn what_is_given_up_is_left_alone() {
    let [settings, ..] = without_windows();
    for direct in [None, Some(Atomics::None)] {
        check_given_up(&settings, FABRIC, |seed| {
            on_fabric_of::<Seq>(3, seed, &with_inject(&settings), direct)
        });
    }
    let polls = Limits {
        polls: 3000,
        ..Limits::TIME
    };
    for faults in [FaultConfig::default(), udp::faults(3)] {
        check_given_up(&settings, polls, |_| {
            let config = UdpConfig {
                portals: PortalsConfig {
                    linger: Duration::ZERO,
                    ..with_inject(&settings)
                },
                faults,
                // Without this thread, a rank that makes no calls does not answer either.
                attend: None,
                ..udp::config(1500)
            };
            in_process::<Seq>(3, &config).expect("the network starts")
        });
    }
}
