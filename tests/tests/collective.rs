//! Collective operations through the engine, of teams that are created and destroyed, several at
//! once, over networks of every kind.

use std::rc::Rc;

use conduit_core::collectives::{CollectiveKind as Moves, DataType, ReduceOp, Team, TeamId};
use conduit_core::collectives::{CollectiveSync, Join, Reduction};
use conduit_core::engine::Engine;
use conduit_core::kernel::{Completion, Handle};
use conduit_core::ni::Ni;
use conduit_core::settings::Settings;
use conduit_core::threads::Seq;
use conduit_shm::job::{Shm, ShmConfig, in_process};
use conduit_tests::chaos::{Chaos, Disorder};
use conduit_tests::composite::{self, Hosts};
use conduit_tests::model::Limits;
use conduit_tests::model::turns::{self, InTurn, Meeting};
use conduit_tests::small::{least, network, settings};
use conduit_tests::udp;
use conduit_udp::job::{self, UdpConfig};
use conduit_udp::socket::FaultConfig;

type Rank = Engine<InTurn, Seq>;

/// The limit of turns of all ranks together, far above what any job here needs.
const TURNS: u64 = 20_000_000;
const OPERATIONS: usize = 30;
/// The maximum number of teams at a time.
const TEAMS: usize = 6;

#[derive(Clone, Copy)]
enum CollectiveKind {
    Moves(Moves),
    Sum {
        to: Option<u32>,
    },
    /// A reduction of elements of this many bytes, by a function.
    Xor {
        to: Option<u32>,
        element: usize,
    },
}

#[derive(Clone)]
struct Operation {
    kind: CollectiveKind,
    /// The length of an operand; for exchanges and similar operations, of a block.
    bytes: usize,
    in_place: bool,
    sync: CollectiveSync,
    /// The job's ranks that are members.
    members: Rc<[u32]>,
}

fn bytes_of(number: usize, seed: u32, bytes: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(number as u64 * 1000 + u64::from(seed));
    std::iter::repeat_with(|| random.u8(..))
        .take(bytes)
        .collect()
}

impl Operation {
    fn draw(random: &mut fastrand::Rng, members: Rc<[u32]>) -> Self {
        let root = random.u32(..members.len() as u32);
        let to = random.bool().then_some(root);
        // From a word to several parts; elements up to more than a message.
        let count = [1, 3, 200, 3000, 20_000][random.usize(..5)];
        let in_place = random.bool();
        let sync = CollectiveSync {
            before: random.u32(..3) == 0,
            after: random.u32(..3) == 0,
        };
        let (kind, bytes) = match random.u32(..7) {
            0 => (
                CollectiveKind::Moves(Moves::Broadcast { root }),
                count * random.usize(1..8),
            ),
            1 => (CollectiveKind::Moves(Moves::Scatter { root }), count),
            2 => (CollectiveKind::Moves(Moves::Gather { root }), count),
            3 => (CollectiveKind::Moves(Moves::GatherAll), count),
            4 => (CollectiveKind::Moves(Moves::Exchange), count),
            5 => (CollectiveKind::Sum { to }, count * 8),
            _ => {
                let element = [1, 24, 3000][random.usize(..3)];
                let count = if element > 100 { count.min(40) } else { count };
                (CollectiveKind::Xor { to, element }, count * element)
            }
        };
        Self {
            kind,
            bytes,
            in_place,
            sync,
            members,
        }
    }

    /// Returns the operand of a rank of the team, whether the operation uses it or not.
    fn operand(&self, number: usize, rank: u32) -> Vec<u8> {
        let blocks = match self.kind {
            CollectiveKind::Moves(Moves::Exchange | Moves::Scatter { .. }) => self.members.len(),
            _ => 1,
        };
        bytes_of(number, rank, self.bytes * blocks)
    }

    /// Returns the result at a rank of the team.
    fn expected(&self, number: usize, rank: u32) -> Vec<u8> {
        let size = self.members.len() as u32;
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
        let own = rank as usize * self.bytes..(rank as usize + 1) * self.bytes;
        match self.kind {
            CollectiveKind::Moves(Moves::Broadcast { root }) => self.operand(number, root),
            CollectiveKind::Moves(Moves::Scatter { root }) => {
                self.operand(number, root)[own].to_vec()
            }
            CollectiveKind::Moves(Moves::Exchange) => operands
                .flat_map(|given| given[own.clone()].to_vec())
                .collect(),
            CollectiveKind::Moves(_) => operands.flatten().collect(),
            CollectiveKind::Sum { .. } => operands.reduce(sum).unwrap(),
            CollectiveKind::Xor { .. } => operands.reduce(xor).unwrap(),
        }
    }

    /// Returns the only rank that gets the result, or `None` if all do.
    fn to(&self) -> Option<u32> {
        match self.kind {
            CollectiveKind::Moves(Moves::Gather { root }) => Some(root),
            CollectiveKind::Moves(_) => None,
            CollectiveKind::Sum { to } | CollectiveKind::Xor { to, .. } => to,
        }
    }
}

/// An operation in flight; its memory stays in place until the handle has been waited for.
struct UnderWay {
    number: usize,
    operation: Operation,
    team: Team,
    handle: Handle,
    source: Vec<u8>,
    result: Vec<u8>,
}

impl UnderWay {
    fn start(
        engine: &Rank,
        number: usize,
        team: Team,
        operation: Operation,
    ) -> Result<Self, String> {
        let source = operation.operand(number, team.rank);
        let in_place = match operation.kind {
            CollectiveKind::Moves(Moves::Broadcast { .. })
            | CollectiveKind::Sum { .. }
            | CollectiveKind::Xor { .. } => operation.in_place,
            CollectiveKind::Moves(_) => false,
        };
        let mut result = match in_place {
            true => source.clone(),
            false => vec![0xee; operation.expected(number, team.rank).len()],
        };
        let to = result.as_mut_ptr();
        let mut from = source.as_ptr();
        if in_place {
            from = to.cast_const();
        }
        // A gather's own block may be in place.
        let gathers = match operation.kind {
            CollectiveKind::Moves(Moves::GatherAll) => true,
            CollectiveKind::Moves(Moves::Gather { root }) => root == team.rank,
            _ => false,
        };
        if gathers && operation.in_place {
            let block = team.rank as usize * operation.bytes;
            result[block..][..source.len()].copy_from_slice(&source);
            from = to.wrapping_add(block);
        }
        let (id, bytes, by_handle) = (team.id, operation.bytes, Completion::Handle);
        // SAFETY: the vectors live in `UnderWay`, unused until the handle has been waited for.
        let handle = unsafe {
            match operation.kind {
                CollectiveKind::Moves(kind) => engine.collectives().move_nb(
                    id,
                    kind,
                    to,
                    from,
                    bytes,
                    operation.sync,
                    by_handle,
                ),
                CollectiveKind::Sum { to: root } => {
                    let how = Reduction::Known(DataType::U64, ReduceOp::Add);
                    engine
                        .collectives()
                        .reduce_nb(id, root, to, from, bytes / 8, how, by_handle)
                }
                CollectiveKind::Xor { to: root, element } => {
                    let function = Box::new(move |left: &[u8], right: &mut [u8]| {
                        assert!(left.len() == right.len() && left.len().is_multiple_of(element));
                        right
                            .iter_mut()
                            .zip(left)
                            .for_each(|(right, left)| *right ^= left);
                    });
                    let how = Reduction::Custom {
                        element,
                        function,
                        in_order: number.is_multiple_of(2),
                    };
                    engine.collectives().reduce_nb(
                        id,
                        root,
                        to,
                        from,
                        bytes / element,
                        how,
                        by_handle,
                    )
                }
            }
        };
        let handle = handle.map_err(|error| error.to_string())?;
        Ok(Self {
            number,
            operation,
            team,
            handle,
            source,
            result,
        })
    }

    fn finish(self, engine: &Rank) -> Result<(), String> {
        let Self {
            number,
            operation,
            team,
            handle,
            source,
            result,
        } = self;
        engine
            .rma()
            .wait(handle)
            .map_err(|error| error.to_string())?;
        drop(source);
        let gets = operation.to().is_none_or(|to| to == team.rank);
        if gets && result != operation.expected(number, team.rank) {
            return Err(format!("operation {number}: wrong result"));
        }
        Ok(())
    }
}

/// The teams of a job, as all ranks know them: the members, and the team itself if this rank is
/// one.
struct Teams(Vec<(Rc<[u32]>, Option<Team>)>);

impl Teams {
    fn new(engine: &Rank) -> Self {
        let all = engine.collectives().team(TeamId::JOB).unwrap();
        Self(vec![((0..engine.size()).collect(), Some(all))])
    }

    fn members(&self, team: usize) -> Rc<[u32]> {
        self.0[team].0.clone()
    }

    /// Makes new teams of an existing team's ranks; `random` draws the same on all ranks.
    fn make(&mut self, engine: &Rank, random: &mut fastrand::Rng) -> Result<(), String> {
        let from = random.usize(..self.0.len());
        let members = self.members(from);
        let by_lists = random.bool();
        let colors: Vec<u32> = members.iter().map(|_| random.u32(..4)).collect();
        let keys: Vec<i32> = members.iter().map(|_| random.i32(-2..3)).collect();
        let mut made = Vec::new();
        // Color 0 stands for ranks in none of the new teams.
        for color in 1..4 {
            let with = (0..members.len()).filter(|&at| colors[at] == color);
            let mut with: Vec<usize> = with.collect();
            with.sort_by_key(|&at| keys[at]);
            let ranks: Rc<[u32]> = with.iter().map(|&at| members[at]).collect();
            made.push(ranks);
        }
        let Some(parent) = &self.0[from].1 else {
            let some = made.into_iter().filter(|ranks| !ranks.is_empty());
            self.0.extend(some.map(|ranks| (ranks, None)));
            return Ok(());
        };
        let place = parent.rank as usize;
        let join = match colors[place] {
            0 => Join::None,
            color if by_lists => Join::Members(&made[color as usize - 1]),
            color => {
                let key = keys[place];
                Join::Color { color, key }
            }
        };
        let mut team = engine
            .collectives()
            .team_create(parent.id, join)
            .map_err(|error| error.to_string())?;
        for ranks in made.iter().filter(|ranks| !ranks.is_empty()) {
            let own = ranks
                .contains(&engine.rank())
                .then(|| team.take().expect("a member has the team"));
            if let Some(own) = &own {
                let ours = (0..own.size).filter_map(|rank| own.to_job(rank));
                assert!(ours.eq(ranks.iter().copied()));
                assert_eq!(own.to_job(own.rank), Some(engine.rank()));
            }
            self.0.push((ranks.clone(), own));
        }
        assert!(team.is_none(), "the team doesn't include this rank");
        Ok(())
    }

    /// Destroys teams until few are left; the first one stays.
    fn leave(&mut self, engine: &Rank) -> Result<(), String> {
        while self.0.len() > TEAMS {
            let (_, team) = self.0.remove(1);
            if let Some(team) = team {
                engine
                    .collectives()
                    .team_destroy(team.id)
                    .map_err(|error| error.to_string())?;
                assert!(engine.collectives().team(team.id).is_err());
            }
        }
        Ok(())
    }
}

fn one_rank(
    end: InTurn,
    mut meeting: Meeting,
    settings: &Settings,
    seed: u64,
) -> Result<(), String> {
    let text = |error: conduit_core::kernel::Error| error.to_string();
    let engine = Rank::start(end, &mut meeting, settings).map_err(text)?;
    // All ranks run the same operations, but wait for them in different ways.
    let mut common = fastrand::Rng::with_seed(seed);
    let mut own = fastrand::Rng::with_seed(seed + 1 + u64::from(engine.rank()));
    let mut under_way = Vec::new();
    let mut teams = Teams::new(&engine);
    for number in 0..OPERATIONS {
        for _ in 0..own.usize(..20) {
            engine.poll().map_err(text)?;
        }
        if common.u32(..4) == 0 {
            teams.make(&engine, &mut common)?;
        }
        if teams.0.len() > TEAMS {
            for next in under_way.drain(..) {
                UnderWay::finish(next, &engine)?;
            }
            teams.leave(&engine)?;
        }
        let of = common.usize(..teams.0.len());
        let operation = Operation::draw(&mut common, teams.members(of));
        if let Some(team) = teams.0[of].1.clone() {
            under_way.push(UnderWay::start(&engine, number, team, operation)?);
        }
        while !under_way.is_empty() && own.u32(..4) == 0 {
            let next: UnderWay = under_way.swap_remove(own.usize(..under_way.len()));
            next.finish(&engine)?;
        }
    }
    for next in under_way {
        next.finish(&engine)?;
    }
    // Before and after the outstanding replies, because others may need this rank's polls.
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

/// Runs jobs of several sizes over the networks that `make` starts for a number of ranks and a
/// seed.
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

/// Over UDP's portals on fragments delivered in disorder, with and without direct access.
#[test]
fn over_udp_in_disorder() {
    for settings in [settings(), least()] {
        for direct in [false, true] {
            over(&settings, TURNS, |ranks, seed| {
                udp::in_disorder(ranks, seed, direct)
            });
        }
    }
}

#[test]
fn a_team_is_not_left_during_an_operation() {
    let ends = in_process::<Seq>(2, &network()).expect("the network starts");
    let ran = turns::run(ends, 1, TURNS, |end, mut meeting| {
        let text = |error: conduit_core::kernel::Error| error.to_string();
        let engine = Rank::start(end, &mut meeting, &settings()).map_err(text)?;
        let join = Join::Color { color: 1, key: 0 };
        let team = engine
            .collectives()
            .team_create(TeamId::JOB, join)
            .map_err(text)?;
        let team = team.expect("all have the same color").id;
        if engine.rank() == 0 {
            // Rank 0 is the root: it sends nothing before rank 1 has started the barrier.
            let started = engine.collectives().barrier_nb(team).map_err(text)?;
            assert!(engine.collectives().team_destroy(team).is_err());
            engine.barriers().team_barrier().map_err(text)?;
            engine.rma().wait(started).map_err(text)?;
        } else {
            engine.barriers().team_barrier().map_err(text)?;
            engine.collectives().team_meet("test", team).map_err(text)?;
        }
        engine.collectives().team_destroy(team).map_err(text)?;
        let mut fault = Ok(());
        meeting.leave(|| fault = engine.poll().map_err(text));
        fault
    });
    ran.unwrap();
}

/// The collectives' own requests have no order either.
#[test]
fn with_requests_shuffled() {
    let settings = Settings {
        shuffle: Some(1),
        ..settings()
    };
    run(&settings, &network(), None);
    run(&settings, &network(), Some(Disorder::seeded(0)));
}

/// On sockets of this host, with and without packet faults.
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
            job::in_process::<Seq>(ranks, &config).expect("the network starts")
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
