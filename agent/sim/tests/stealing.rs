//! Nodes with several agents, one of which has all the work.

use agent::host::{Host as _, Limit, Memory, Outcome, ReturnMode};
use agent::{Code, Held, Limits, Transfer};
use agent_sim::{Delays, Pool, World};

use crate::worlds::{MS, US, content};

/// The number of agents per node. The second node's agents are numbered after those of the first.
const AGENTS: u32 = 3;
/// The length of a message, and the number of messages that fit in a node's memory.
const LENGTH: usize = 128 << 10;
const MESSAGES: u64 = 24;

fn limits(transfer: Transfer) -> Limits {
    Limits {
        ejection: 128 << 10,
        injection: 128 << 10,
        backlog: 256 << 10,
        strip: 16 << 10,
        transfer,
        ..Limits::default()
    }
}

/// Creates a world in which messages wait at the first node's first agent for a channel of the
/// second node.
fn world(limits: Limits, messages: u64, length: usize, seed: u64) -> World {
    let delays = Delays {
        picos_per_byte: 1_000,
        ..Delays::default()
    };
    let memory = 2 * length * MESSAGES as usize;
    let mut world = World::with_agents((2, AGENTS), memory, limits.clone(), delays, seed);
    world.hosts[AGENTS as usize].create(0, MESSAGES as usize);
    // The agents of each node discover each other.
    run(&mut world, &limits, MS);
    for id in 0..messages {
        let bytes = content(id, length);
        world.send((0, 1), 1, id, bytes, ReturnMode::Deposited, Limit::Never);
    }
    world
}

fn run(world: &mut World, limits: &Limits, until: u64) -> bool {
    world.run(until, |agent, held| {
        assert!(held.ejection <= limits.ejection, "agent {agent}: {held:?}");
        assert!(
            held.injection <= limits.injection,
            "agent {agent}: {held:?}"
        );
    })
}

/// Returns the messages that arrived and the outcomes of all requests, both in order.
fn finish(world: &mut World, limits: &Limits) -> (Vec<u64>, Vec<(u64, Outcome<Pool>)>) {
    let finished = finish_with_errors(world, limits);
    for agent in 0..2 * AGENTS {
        let counters = world.machine(agent).map(|machine| machine.counters());
        assert_eq!(counters.unwrap_or_default().protocol_errors, 0);
    }
    finished
}

fn finish_with_errors(world: &mut World, limits: &Limits) -> (Vec<u64>, Vec<(u64, Outcome<Pool>)>) {
    assert!(
        !run(world, limits, 60_000 * MS),
        "the world never comes to rest"
    );
    let mut came = Vec::new();
    while let Some(message) = world.hosts[AGENTS as usize].take(0) {
        let id = message.hints;
        assert_eq!(message.memory.bytes(), content(id, message.memory.length()));
        came.push(id);
    }
    assert!(came.is_sorted(), "{came:?}");
    let ended = std::mem::take(&mut world.hosts[0].completed);
    for agent in 0..2 * AGENTS {
        assert_eq!(world.held(agent), Held::default(), "agent {agent}");
        assert_eq!(world.hosts[agent as usize].used(), 0, "agent {agent}");
    }
    (came, ended)
}

fn stolen(world: &World) -> Vec<u64> {
    let agents = AGENTS..2 * AGENTS;
    let stolen = agents.map(|agent| world.machine(agent).map_or(0, |m| m.counters().stolen));
    stolen.collect()
}

#[test]
fn idle_agents_take_part_of_a_backlog_and_all_comes_once_and_in_order() {
    for transfer in [Transfer::Rma, Transfer::PointToPoint] {
        let limits = limits(transfer);
        let mut alone = world(
            Limits {
                backlog: u64::MAX,
                ..limits.clone()
            },
            MESSAGES,
            LENGTH,
            1,
        );
        let mut together = world(limits.clone(), MESSAGES, LENGTH, 1);
        let times = [&mut alone, &mut together].map(|world| {
            let (came, ended) = finish(world, &limits);
            assert_eq!(came, (0..MESSAGES).collect::<Vec<_>>());
            let sent: Vec<_> = (0..MESSAGES).map(|id| (id, Outcome::Sent)).collect();
            assert_eq!(ended, sent);
            world.now()
        });
        assert_eq!(stolen(&alone), [0; AGENTS as usize]);
        let stolen = stolen(&together);
        assert_eq!(stolen[0], 0);
        assert!(stolen[1] > 5 && stolen[2] > 5, "{stolen:?}");
        // Each agent has almost a third of the work.
        assert!(times[1] * 2 < times[0], "{times:?}");
    }
}

#[test]
fn a_small_backlog_stays() {
    let limits = limits(Transfer::Rma);
    let mut world = world(limits.clone(), 2, LENGTH, 1);
    let (came, _) = finish(&mut world, &limits);
    assert_eq!(came, [0, 1]);
    assert_eq!(stolen(&world), [0; AGENTS as usize]);
}

/// An agent dies at any time: the thief, the owner, the source's agent, or the thief's peer on the
/// source's node.
#[test]
fn whoever_dies_meanwhile_nothing_comes_twice_or_wrong_and_nothing_hangs() {
    let limits = limits(Transfer::Rma);
    let (owner, source) = (AGENTS, 0);
    for (dies, also) in [
        (AGENTS + 1, None),
        (owner, None),
        (source, None),
        (1, None),
        (1, Some(AGENTS + 1)),
        (source, Some(owner)),
        (owner, Some(AGENTS + 1)),
    ] {
        for at in (0..3_000).step_by(100) {
            let mut world = world(limits.clone(), MESSAGES, LENGTH, at);
            run(&mut world, &limits, MS + at * US);
            for agent in [Some(dies), also].into_iter().flatten() {
                world.kill(agent);
                world.hosts[agent as usize].forget();
                world.start(agent);
            }
            let (came, ended) = finish(&mut world, &limits);
            let both = [Some(dies), also];
            let breaks = both.contains(&Some(owner)) || both.contains(&Some(source));
            if !breaks {
                assert_eq!(came, (0..MESSAGES).collect::<Vec<_>>(), "{both:?} at {at}");
                assert!(ended.iter().all(|(_, outcome)| *outcome == Outcome::Sent));
            }
            for (id, outcome) in ended {
                let is_sound = match outcome {
                    Outcome::Sent => came.contains(&id),
                    outcome => outcome == Outcome::Failed(Code::FAILURE),
                };
                assert!(is_sound, "message {id}, {both:?} at {at}");
            }
        }
    }
}

/// The source's agent has lost its memory, and the owner does not know this yet when the thieves'
/// peers read the memory's present content.
#[test]
fn what_was_read_from_memory_that_was_given_back_is_not_delivered() {
    let limits = Limits {
        // Parts take long to transfer.
        injection: 16 << 10,
        ..limits(Transfer::Rma)
    };
    let mut misled = 0;
    for at in (0..1_000).step_by(20) {
        let mut world = world(limits.clone(), MESSAGES, LENGTH, at);
        run(&mut world, &limits, MS + at * US);
        let peers = 1..AGENTS;
        peers.clone().for_each(|peer| world.pause(peer));
        // Everything arrives except the parts that the thieves have.
        run(&mut world, &limits, 20 * MS);
        let before: u64 = stolen(&world).iter().sum();
        world.kill(0);
        run(&mut world, &limits, 21 * MS);
        peers.for_each(|peer| world.resume(peer));
        finish(&mut world, &limits);
        misled += stolen(&world).iter().sum::<u64>() - before;
    }
    assert!(misled > 0);
}

/// The owner pulls a part that does not arrive.
#[test]
fn late_parts_are_taken_back() {
    let limits = limits(Transfer::Rma);
    let mut world = world(limits.clone(), MESSAGES, LENGTH, 1);
    let peers = 1..AGENTS;
    peers.clone().for_each(|peer| world.pause(peer));
    run(&mut world, &limits, 2_000 * MS);
    let ended = std::mem::take(&mut world.hosts[0].completed);
    assert_eq!(ended.len(), MESSAGES as usize);
    peers.for_each(|peer| world.resume(peer));
    let (came, _) = finish(&mut world, &limits);
    assert_eq!(came, (0..MESSAGES).collect::<Vec<_>>());
    assert_eq!(stolen(&world), [0; AGENTS as usize]);
}

/// A thief ends properly: the owner pulls the parts that it had.
#[test]
fn a_thief_that_leaves_gives_back_what_it_has() {
    let limits = limits(Transfer::Rma);
    for at in (0..1_500).step_by(50) {
        let mut world = world(limits.clone(), MESSAGES, LENGTH, at);
        run(&mut world, &limits, MS + at * US);
        world.stop(AGENTS + 1);
        world.start(AGENTS + 1);
        let (came, _) = finish(&mut world, &limits);
        assert_eq!(came, (0..MESSAGES).collect::<Vec<_>>());
    }
}

/// An agent that receives a malformed message ends the exchange with that sibling, takes back its
/// parts once it has released them, and meets it again.
#[test]
fn a_sibling_that_makes_no_sense_is_parted_from() {
    let limits = limits(Transfer::Rma);
    let nonsense: [&[u8]; 4] = [&[9], &[3], &[6, 1, 9, 0, 0, 0], &[2]];
    for (at, nonsense) in (0..600).step_by(10).zip(nonsense.iter().cycle()) {
        let mut world = world(limits.clone(), MESSAGES, LENGTH, at);
        run(&mut world, &limits, MS + at * US);
        let thief = &mut world.hosts[AGENTS as usize + 1];
        // The queue is full at times.
        while !thief.siblings().is_some_and(|all| all.send(0, nonsense)) {}
        let (came, _) = finish_with_errors(&mut world, &limits);
        assert_eq!(came, (0..MESSAGES).collect::<Vec<_>>());
        let owner = world.machine(AGENTS).map(|machine| machine.counters());
        assert_eq!(owner.unwrap_or_default().protocol_errors, 1);
        assert!(stolen(&world)[1] > 0);
    }
}
