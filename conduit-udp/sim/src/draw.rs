//! Draws a scenario from a seed.

use conduit_udp::protocol::Nanos;
use sim::random::{Rng, magnitude, mix, pick};
use sim::{MS, US};

use crate::scenario::{
    Directions, Fault, FragmentHandler, Host, Path, Pattern, Phase, Protocol, Scenario, Sizes,
};
use crate::seal::SealKind;

/// The approximate number of bytes that all ranks send in a scenario.
const BUDGET: u64 = 600 << 10;

impl Scenario {
    /// Returns the scenario of a seed. The same seed always gives the same scenario, as long as
    /// this function is not changed.
    pub fn from_seed(seed: u64) -> Self {
        let random = &mut Rng::with_seed(mix(seed));
        let ranks = pick(random, &[2, 2, 2, 2, 3, 3, 4, 5, 8, 16]);
        let path = path(random);
        let protocol = protocol(random);
        let host = host(random, ranks, &protocol);
        let handler = handler(random, &protocol);
        let faults = faults(random, ranks, &path, &protocol);
        let phases = phases(random, ranks, &protocol, &faults);
        let seal = if random.u8(..8) == 0 {
            pick(random, &[SealKind::Authenticate, SealKind::Encrypt])
        } else {
            SealKind::Hash
        };
        let mut protocol = protocol;
        // The idle time is mostly so short that links become idle during traffic.
        protocol.idle_time = match random.u8(..8) {
            0 => 0,
            1 => protocol.idle_time,
            2 => 1,
            _ => magnitude(random, 10 * US, 100 * MS),
        };
        protocol.open_links = pick(random, &[1, 2, 1024, 1024]);
        Self {
            seed,
            ranks,
            path,
            host,
            protocol,
            handler,
            phases,
            faults,
            seal,
        }
    }
}

fn path(random: &mut Rng) -> Path {
    let latency = magnitude(random, 2 * US, 2 * MS);
    let mut path = Path::perfect(latency);
    path.loss = match random.u8(..10) {
        0..3 => 0.0,
        3..5 => 0.001 + random.f64() * 0.01,
        5..8 => random.f64() * 0.1,
        _ => random.f64() * 0.3,
    };
    if path.loss < 0.05 && random.u8(..4) == 0 {
        path.burst = 2.0 + random.f64() * 10.0;
    }
    if random.u8(..2) == 0 {
        path.jitter = magnitude(random, US, 20 * latency);
        path.jittered = pick(random, &[0.01, 0.1, 0.5, 1.0]);
    }
    if random.u8(..5) == 0 {
        path.ack_loss = pick(random, &[0.1, 0.5, 0.9, 1.0]);
    }
    if random.u8(..3) == 0 {
        path.duplicate = pick(random, &[0.01, 0.1, 0.5, 1.0]);
    }
    if random.u8(..3) == 0 {
        path.corrupt = pick(random, &[0.001, 0.01, 0.1]);
    }
    if random.u8(..3) == 0 {
        path.replay = pick(random, &[0.001, 0.01, 0.1]);
        path.replay_after = magnitude(random, 100 * US, 2000 * MS);
    }
    if random.u8(..4) == 0 {
        path.forge = pick(random, &[0.001, 0.01, 0.1]);
    }
    path.faulty = pick(
        random,
        &[
            Directions::Both,
            Directions::Both,
            Directions::Up,
            Directions::Down,
        ],
    );
    path
}

fn protocol(random: &mut Rng) -> Protocol {
    let usual = Protocol::usual();
    let dead_time = random.u64(800..4000) * MS;
    let wrap = 1u64 << 24;
    Protocol {
        packet: pick(random, &[1024, 1472, 1472, 1472, 1452, 4096, 8972, 65_507]),
        window: pick(random, &[1, 2, 8, 64, 65, 1000, 4096, 4096, 4096]),
        initial_window: pick(random, &[1, 4, 64, 64, 64]),
        dead_time,
        mtu_timeout: dead_time,
        probe_interval: dead_time / 40,
        idle_time: usual.idle_time,
        open_links: usual.open_links,
        ack_delay: pick(random, &[0, 50 * US, 50 * US, MS]),
        min_timeout: pick(random, &[100 * US, MS, MS, 5 * MS]),
        delay_target: pick(random, &[usual.delay_target, 100 * US]),
        link_fragments: pick(random, &[1, 4, 64, 256]),
        link_commands: pick(random, &[1 << 10, 4 << 10, 64 << 10, 256 << 10]),
        link_early: pick(random, &[0, 4 << 10, 64 << 10, 1 << 20, 1 << 20]),
        early: pick(random, &[0, 16 << 10, 1 << 20, 16 << 20, 16 << 20]),
        socket_buffer: pick(random, &[64 << 10, 208 << 10, 1 << 20, 4 << 20]),
        first_sequence: match random.u8(..4) {
            0 => 0,
            1 => wrap - random.u64(..300),
            2 => wrap / 2 - random.u64(..300),
            _ => wrap * random.u64(1..1 << 20) - random.u64(..3000),
        },
    }
}

fn host(random: &mut Rng, ranks: u32, protocol: &Protocol) -> Host {
    // Every queue has room for a full-sized probe to every peer. The probes are sent together, so a
    // smaller queue would always drop the same ones.
    let least = (ranks as usize + 2) * protocol.packet;
    // The socket's real capacity may be less than the protocol's setting.
    let told = protocol.socket_buffer.max(4 * protocol.packet);
    let socket = if random.u8(..4) == 0 { told / 4 } else { told };
    let bandwidth = match random.u8(..4) {
        0 => 0,
        _ => magnitude(random, 10_000_000, 5_000_000_000),
    };
    let queue = |random: &mut Rng| magnitude(random, 16 << 10, 4 << 20) as usize + least;
    Host {
        bandwidth,
        uplink_queue: queue(random),
        downlink_queue: queue(random),
        socket: socket.max(least),
        receive_time: magnitude(random, 100, 10_000),
        send_time: magnitude(random, 100, 5_000),
        transmit_buffer: pick(random, &[1, 65_536, 65_536, 262_144]).max(protocol.packet),
        batch: pick(random, &[1, 8, 64]),
    }
}

fn handler(random: &mut Rng, protocol: &Protocol) -> FragmentHandler {
    FragmentHandler {
        room: pick(random, &[4 << 10, 64 << 10, 1 << 20, 16 << 20, 16 << 20])
            .max(2 * protocol.packet),
        speed: match random.u8(..3) {
            0 => magnitude(random, 1_000_000, 1_000_000_000),
            _ => 0,
        },
        refuse: pick(random, &[0.0, 0.0, 0.0, 0.01, 0.3]),
    }
}

/// Draws two different ranks.
fn two(random: &mut Rng, ranks: u32) -> (u32, u32) {
    let from = random.u32(..ranks);
    (from, (from + random.u32(1..ranks)) % ranks)
}

fn faults(random: &mut Rng, ranks: u32, path: &Path, protocol: &Protocol) -> Vec<Fault> {
    let dead = protocol.dead_time;
    let begin = match random.u8(..4) {
        0 => 0,
        1 => magnitude(random, US, 10 * MS),
        2 => magnitude(random, MS, 100 * MS),
        _ => random.u64(..dead),
    };
    let (from, to) = two(random, ranks);
    let rank = from;
    // Choose between outages that are certainly survived and outages that certainly are not.
    let part = if path.loss > 0.15 || path.corrupt > 0.05 {
        0.2
    } else {
        0.4
    };
    let short = magnitude(random, 10 * US, (dead as f64 * part) as u64);
    let end = match random.u8(..4) {
        0 => Some(begin + 4 * dead + random.u64(..dead)),
        1 => None,
        _ => Some(begin + short),
    };
    match random.u8(..20) {
        0..8 => vec![],
        8 | 9 => vec![Fault::BlackHole {
            from,
            to,
            begin,
            end,
        }],
        10 => vec![
            Fault::BlackHole {
                from,
                to,
                begin,
                end,
            },
            Fault::BlackHole {
                from: to,
                to: from,
                begin,
                end,
            },
        ],
        11 => vec![Fault::LinkDown { rank, begin, end }],
        12 => {
            let gap = dead * 2;
            (0..4)
                .map(|time| begin + time * gap)
                .map(|begin| Fault::LinkDown {
                    rank,
                    begin,
                    end: Some(begin + short),
                })
                .collect()
        }
        13 => vec![Fault::Asleep { rank, begin, end }],
        14 => vec![Fault::Asleep {
            rank,
            begin,
            end: Some(begin + short),
        }],
        15 | 16 => vec![Fault::Busy {
            rank,
            begin,
            end: begin + magnitude(random, MS, 3 * dead),
        }],
        17 => vec![Fault::SmallMtu {
            from,
            to,
            bytes: random.usize(protocol.packet / 2..protocol.packet),
        }],
        18 => vec![Fault::Restart { rank, at: begin }],
        _ => vec![Fault::RestartAll { at: begin }],
    }
}

fn phases(random: &mut Rng, ranks: u32, protocol: &Protocol, faults: &[Fault]) -> Vec<Phase> {
    let mut phases = Vec::new();
    let mut begin: Nanos = 0;
    let count = random.u64(1..4);
    for _ in 0..count {
        phases.push(phase(random, ranks, begin, BUDGET / count));
        begin += match random.u8(..4) {
            0 => magnitude(random, US, 10 * MS),
            1 => magnitude(random, MS, protocol.dead_time),
            2 => magnitude(random, protocol.dead_time, 2 * protocol.dead_time),
            _ => magnitude(random, 10 * US, 100 * MS),
        };
    }
    // Some traffic follows all faults.
    if let Some(last) = faults.iter().map(Fault::last).max() {
        let begin = last.max(begin) + random.u64(..MS);
        phases.push(phase(random, ranks, begin, BUDGET / 4));
    }
    phases
}

fn phase(random: &mut Rng, ranks: u32, begin: Nanos, budget: u64) -> Phase {
    let pattern = pick(
        random,
        &[
            Pattern::OneWay,
            Pattern::Pairs,
            Pattern::Pairs,
            Pattern::Ring,
            Pattern::AllToAll,
            Pattern::ManyToOne,
            Pattern::OneToMany,
            Pattern::Random,
        ],
    );
    let sizes = pick(
        random,
        &[
            Sizes::Tiny,
            Sizes::Packet,
            Sizes::Large,
            Sizes::Mixed,
            Sizes::Mixed,
            Sizes::Full,
        ],
    );
    let size = match sizes {
        Sizes::Tiny | Sizes::Short => 200,
        Sizes::Packet | Sizes::Full => 1200,
        Sizes::Mixed => 8_000,
        Sizes::Large => 30_000,
        Sizes::Stream => 1 << 20,
    };
    let flows = match pattern {
        Pattern::OneWay => ranks / 2,
        Pattern::Pairs | Pattern::Ring | Pattern::Random => ranks,
        Pattern::AllToAll => ranks * (ranks - 1),
        Pattern::ManyToOne | Pattern::OneToMany => ranks - 1,
    };
    let most = (budget / size / u64::from(flows.max(1))).max(2);
    Phase {
        begin,
        pattern,
        fragments: magnitude(random, 1, most) as u32 + 1,
        sizes,
        gap: if random.u8(..2) == 0 {
            0
        } else {
            magnitude(random, 100, 2 * MS)
        },
        burst: pick(random, &[1, 1, 8, 1000]),
    }
}
