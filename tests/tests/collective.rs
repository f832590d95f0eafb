//! Broadcasts and reductions through the engine, with several under way at once, over networks of every kind.

use conduit_core::collective::{DataType, ReduceOp};
use conduit_core::engine::{Engine, Handle, JOB_TEAM, Reduction};
use conduit_core::ni::Ni;
use conduit_core::settings::Settings;
use conduit_core::threads::Seq;
use conduit_portals::shm::{Shm, ShmConfig, in_process};
use conduit_portals::transport::fabric::{self, Fabric};
use conduit_tests::chaos::{Chaos, Disorder};
use conduit_tests::composite::{self, Hosts};
use conduit_tests::model::Limits;
use conduit_tests::model::turns::{self, InTurn, Meeting};
use conduit_tests::small::{least, network, settings};
use conduit_tests::udp;
use conduit_udp::Udp;
use conduit_udp::socket::FaultConfig;
use conduit_udp::start::{self, UdpConfig};

type Rank<N> = Engine<InTurn<N>, Seq>;

/// Turns that all ranks may take together, far above what any job here needs.
const TURNS: u64 = 20_000_000;
const OPERATIONS: usize = 30;

#[derive(Clone, Copy)]
enum Kind {
    Broadcast {
        root: u32,
    },
    Sum {
        to: Option<u32>,
    },
    /// Of elements of this many bytes, by a function.
    Xor {
        to: Option<u32>,
        element: usize,
    },
}

#[derive(Clone, Copy)]
struct Operation {
    kind: Kind,
    bytes: usize,
    in_place: bool,
}

impl Operation {
    fn draw(random: &mut fastrand::Rng, size: u32) -> Self {
        let root = random.u32(..size);
        let to = random.bool().then_some(root);
        // From a word to several parts; elements up to more than a message.
        let count = [1, 3, 200, 3000, 20_000][random.usize(..5)];
        let in_place = random.bool();
        let (kind, bytes) = match random.u32(..3) {
            0 => (Kind::Broadcast { root }, count * random.usize(1..8)),
            1 => (Kind::Sum { to }, count * 8),
            _ => {
                let element = [1, 24, 3000][random.usize(..3)];
                let count = if element > 100 { count.min(40) } else { count };
                (Kind::Xor { to, element }, count * element)
            }
        };
        Self {
            kind,
            bytes,
            in_place,
        }
    }

    fn operand(&self, number: usize, rank: u32) -> Vec<u8> {
        let mut random = fastrand::Rng::with_seed(number as u64 * 1000 + u64::from(rank));
        std::iter::repeat_with(|| random.u8(..))
            .take(self.bytes)
            .collect()
    }

    fn expected(&self, number: usize, size: u32) -> Vec<u8> {
        let operands = (0..size).map(|rank| self.operand(number, rank));
        let sum = |left: Vec<u8>, right: Vec<u8>| {
            let words = left.as_chunks().0.iter().zip(right.as_chunks().0);
            words
                .flat_map(|(left, right)| {
                    u64::from_ne_bytes(*left)
                        .wrapping_add(u64::from_ne_bytes(*right))
                        .to_ne_bytes()
                })
                .collect()
        };
        let xor = |left: Vec<u8>, right: Vec<u8>| {
            left.iter()
                .zip(&right)
                .map(|(left, right)| left ^ right)
                .collect()
        };
        match self.kind {
            Kind::Broadcast { root } => self.operand(number, root),
            Kind::Sum { .. } => operands.reduce(sum).unwrap(),
            Kind::Xor { .. } => operands.reduce(xor).unwrap(),
        }
    }

    /// The rank alone that gets the result, or all.
    fn to(&self) -> Option<u32> {
        match self.kind {
            Kind::Broadcast { .. } => None,
            Kind::Sum { to } | Kind::Xor { to, .. } => to,
        }
    }
}

/// One under way: its memory stays where it is until the handle has been waited for.
struct UnderWay {
    number: usize,
    operation: Operation,
    handle: Handle,
    source: Vec<u8>,
    result: Vec<u8>,
}

impl UnderWay {
    fn start<N: Ni>(engine: &Rank<N>, number: usize, operation: Operation) -> Result<Self, String> {
        let source = operation.operand(number, engine.rank());
        let mut result = if operation.in_place {
            source.clone()
        } else {
            vec![0xee; operation.bytes]
        };
        let to = result.as_mut_ptr();
        let from = if operation.in_place {
            to.cast_const()
        } else {
            source.as_ptr()
        };
        // SAFETY: the vectors live in `UnderWay`, unused until the handle has been waited for.
        let handle = unsafe {
            match operation.kind {
                Kind::Broadcast { root } => {
                    engine.broadcast_nb(JOB_TEAM, root, to, from, operation.bytes)
                }
                Kind::Sum { to: root } => {
                    let how = Reduction::Known(DataType::U64, ReduceOp::Add);
                    engine.reduce_nb(JOB_TEAM, root, to, from, operation.bytes / 8, how)
                }
                Kind::Xor { to: root, element } => {
                    let function = Box::new(move |left: &[u8], right: &mut [u8]| {
                        assert!(left.len() == right.len() && left.len().is_multiple_of(element));
                        right
                            .iter_mut()
                            .zip(left)
                            .for_each(|(right, left)| *right ^= left);
                    });
                    let how = Reduction::Custom { element, function };
                    engine.reduce_nb(JOB_TEAM, root, to, from, operation.bytes / element, how)
                }
            }
        };
        let handle = handle.map_err(|error| error.to_string())?;
        Ok(Self {
            number,
            operation,
            handle,
            source,
            result,
        })
    }

    fn finish<N: Ni>(self, engine: &Rank<N>) -> Result<(), String> {
        let Self {
            number,
            operation,
            handle,
            source,
            result,
        } = self;
        engine.wait(handle).map_err(|error| error.to_string())?;
        drop(source);
        let gets = operation.to().is_none_or(|to| to == engine.rank());
        if gets && result != operation.expected(number, engine.size()) {
            return Err(format!("operation {number}: another result"));
        }
        Ok(())
    }
}

fn one_rank<N: Ni + 'static>(
    end: InTurn<N>,
    mut meeting: Meeting,
    settings: &Settings,
    seed: u64,
) -> Result<(), String> {
    let text = |error: conduit_core::engine::Error| error.to_string();
    let engine = Rank::start(end, &mut meeting, settings).map_err(text)?;
    // What is done is the same on all ranks; how it is waited for is not.
    let mut common = fastrand::Rng::with_seed(seed);
    let mut own = fastrand::Rng::with_seed(seed + 1 + u64::from(engine.rank()));
    let mut under_way = Vec::new();
    for number in 0..OPERATIONS {
        for _ in 0..own.usize(..20) {
            engine.poll().map_err(text)?;
        }
        let operation = Operation::draw(&mut common, engine.size());
        under_way.push(UnderWay::start(&engine, number, operation)?);
        while !under_way.is_empty() && own.u32(..4) == 0 {
            let next: UnderWay = under_way.swap_remove(own.usize(..under_way.len()));
            next.finish(&engine)?;
        }
    }
    for next in under_way {
        next.finish(&engine)?;
    }
    // Before and after what is still to be answered, as others may need it.
    for _ in 0..2 {
        let mut fault = Ok(());
        meeting.leave(|| fault = engine.poll().map_err(text));
        fault?;
        while !engine.is_quiet().map_err(text)? {
            engine.poll().map_err(text)?;
        }
    }
    Ok(())
}

/// Jobs of some sizes over the networks that `make` makes from ranks and seed.
fn over<N: Ni + 'static>(settings: &Settings, turns: u64, make: impl Fn(u32, u64) -> Vec<N>) {
    for (ranks, seed) in [(1, 1), (2, 2), (3, 3), (5, 4), (8, 5)] {
        let settings = settings.clone();
        let ran = turns::run(make(ranks, seed), seed, turns, move |end, meeting| {
            one_rank(end, meeting, &settings, seed)
        });
        ran.unwrap_or_else(|reason| panic!("{ranks} ranks, seed {seed}: {reason}"));
    }
}

fn run(settings: &Settings, network: &ShmConfig, disorder: Option<Disorder>) {
    let ends = |ranks| in_process::<Seq>(ranks, network).expect("the network starts");
    match disorder {
        None => over(settings, TURNS, |ranks, _| ends(ranks)),
        Some(disorder) => over(settings, TURNS, |ranks, seed| {
            Chaos::job(ends(ranks), Disorder { seed, ..disorder })
        }),
    }
}

#[test]
fn where_peers_are_mapped() {
    run(&settings(), &network(), None);
}

#[test]
fn by_messages() {
    let settings = Settings {
        windows: false,
        ..settings()
    };
    run(
        &settings,
        &ShmConfig {
            windows: false,
            ..network()
        },
        None,
    );
}

#[test]
fn with_as_little_as_settings_allow() {
    let settings = Settings {
        windows: false,
        inject: false,
        ..least()
    };
    let network = ShmConfig {
        windows: false,
        inject_size: 0,
        staging_pieces: 1,
        ..network()
    };
    run(&settings, &network, None);
}

#[test]
fn over_several_hosts() {
    for hosts in Hosts::ALL {
        for (ranks, seed) in [(2, 2), (5, 4), (8, 5)] {
            let near = |ranks| in_process(ranks, &network()).map_err(|error| error.to_string());
            let ends =
                composite::job::<Shm<Seq>, Seq>(ranks, hosts, near).expect("the networks start");
            let ran = turns::run(ends, seed, TURNS, move |end, meeting| {
                one_rank(end, meeting, &settings(), seed)
            });
            ran.unwrap_or_else(|reason| panic!("{hosts:?}, {ranks} ranks, seed {seed}: {reason}"));
        }
    }
}

/// Over UDP: the portals on fragments that are handed over in disorder, without and with direct access.
#[test]
fn over_udp_in_disorder() {
    for settings in [settings(), least()] {
        for direct in [false, true] {
            over(&settings, TURNS, |ranks, seed| {
                let fabric = Fabric::new(ranks);
                let disorder = fabric::Disorder {
                    seed: Some(seed),
                    refuse: 5,
                    packet: 300,
                    link_fragments: 16,
                    direct,
                    ..fabric::Disorder::default()
                };
                (0..ranks)
                    .map(|rank| {
                        let transport = fabric.transport(rank, disorder);
                        Udp::<Seq, _>::new(transport, rank, ranks, &udp::small_portals())
                    })
                    .collect()
            });
        }
    }
}

/// What they send among themselves has no order either.
#[test]
fn with_requests_shuffled() {
    let settings = Settings {
        shuffle: Some(1),
        ..settings()
    };
    run(&settings, &network(), None);
    run(&settings, &network(), Some(Disorder::seeded(0)));
}

/// On sockets of this host, without and with packets that suffer.
#[test]
fn over_sockets() {
    for suffer in [false, true] {
        over(&settings(), Limits::TIME.turns, |ranks, seed| {
            let config = UdpConfig {
                portals: udp::small_portals(),
                faults: match suffer {
                    true => udp::faults(seed as u32),
                    false => FaultConfig::default(),
                },
                ..udp::config(1500)
            };
            start::in_process::<Seq>(ranks, &config).expect("the network starts")
        });
    }
}

#[test]
fn in_disorder() {
    run(&settings(), &network(), Some(Disorder::seeded(0)));
    let settings = Settings {
        windows: false,
        ..settings()
    };
    run(
        &settings,
        &ShmConfig {
            windows: false,
            ..network()
        },
        Some(Disorder::seeded(0)),
    );
}
