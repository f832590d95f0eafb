//! Worlds of a few nodes and agents, with random operations and deaths: every request ends once,
//! messages arrive once and in order, nothing is held at the end, and no budget is exceeded at any
//! time.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use agent::dragonfly::WINDOW;
use agent::host::{Limit, Message, Operation, Outcome, Request, ReturnMode};
use agent::{Code, Limits, Transfer};
use agent_sim::{Delays, Pool, World};
use proptest::prelude::*;

pub(crate) const US: u64 = 1_000;
pub(crate) const MS: u64 = 1_000_000;

#[derive(Debug, Clone)]
enum Act {
    Send {
        handle: u8,
        length: usize,
        mode: ReturnMode,
    },
    Get,
    Poll(u16),
    /// A process on the channel's own node takes a message.
    Take,
    Abandon(usize),
    Kill,
    /// Cuts the link between two nodes, or mends it if it is cut.
    Cut,
    Destroy,
}

#[derive(Debug, Clone)]
struct Step {
    after: u64,
    from: u32,
    to: u32,
    channel: u8,
    limit: Option<u64>,
    act: Act,
}

#[derive(Debug, Clone)]
struct Case {
    nodes: u32,
    /// Agents per node.
    agents: u32,
    dragonfly: bool,
    capacity: usize,
    limits: Limits,
    seed: u64,
    steps: Vec<Step>,
}

fn act(faults: bool, long: u32) -> impl Strategy<Value = Act> {
    let length = prop_oneof![5 => 8usize..300, 3 => 300usize..4000, long => 4000usize..400_000];
    let mode = prop_oneof![
        Just(ReturnMode::Immediately),
        Just(ReturnMode::Buffered),
        Just(ReturnMode::Deposited),
        Just(ReturnMode::Received),
        Just(ReturnMode::None)
    ];
    let weight = u32::from(faults);
    prop_oneof![
        12 => (0u8..3, length, mode).prop_map(|(handle, length, mode)| Act::Send { handle, length, mode }),
        6 => Just(Act::Get),
        1 => (0u16..4).prop_map(Act::Poll),
        5 => Just(Act::Take),
        1 => (0usize..50).prop_map(Act::Abandon),
        weight => Just(Act::Kill),
        weight => Just(Act::Cut),
        weight => Just(Act::Destroy),
    ]
}

/// Generates cases with at most `agents` agents per node, or with a dragonfly.
fn case(faults: bool, agents: u32, dragonfly: bool) -> impl Strategy<Value = Case> {
    let nodes = match dragonfly {
        false => 1u32..4,
        true => 4u32..12,
    };
    (nodes, 1..=agents).prop_flat_map(move |(nodes, agents)| {
        let limit = prop_oneof![
            1 => Just(Some(0)),
            3 => (1u64..20_000).prop_map(|us| Some(us * US)),
            2 => Just(None)
        ];
        let step = (
            prop_oneof![3 => Just(0), 1 => 0u64..300 * US],
            0..nodes * agents,
            0..nodes * agents,
            0u8..2,
            limit,
            act(faults, if agents > 1 { 20 } else { 1 }),
        )
            .prop_map(|(after, from, to, channel, limit, act)| Step {
                after,
                from,
                to,
                channel,
                limit,
                act,
            });
        let limits = (
            prop_oneof![Just(1u64 << 14), Just(1 << 18), Just(8 << 20)],
            prop_oneof![Just(1u64 << 13), Just(8 << 20)],
            prop_oneof![Just(1u32 << 13), Just(1 << 18)],
            any::<bool>(),
            1u32..40,
            1u32..8,
            prop_oneof![Just(1u64 << 12), Just(1 << 16), Just(u64::MAX)],
            prop_oneof![Just(0), Just(20_000 * US), Just(300_000_000 * US)],
        )
            .prop_map(
                |(budget, eager, strip, rma, requests, ports, backlog, connect)| Limits {
                    ejection: budget,
                    getmsg: budget,
                    injection: budget,
                    eager,
                    strip,
                    transfer: match rma {
                        true => Transfer::Rma,
                        false => Transfer::PointToPoint,
                    },
                    requests,
                    ports,
                    backlog,
                    connect,
                    ..Limits::default()
                },
            );
        (
            Just(nodes),
            1usize..5,
            limits,
            any::<u64>(),
            prop::collection::vec(step, 1..120),
        )
            .prop_map(move |(nodes, capacity, limits, seed, steps)| Case {
                nodes,
                agents,
                dragonfly,
                capacity,
                limits,
                seed,
                steps,
            })
    })
}

/// Returns a message's bytes, which are determined by its number.
pub(crate) fn content(id: u64, length: usize) -> Vec<u8> {
    let mut bytes = id.to_le_bytes().to_vec();
    bytes.extend((8..length).map(|at| (id as usize * 31 + at) as u8));
    bytes
}

struct Checker {
    world: World,
    agents: u32,
    asked: BTreeMap<u64, Step>,
    /// The messages that came out, by node and channel.
    out: HashMap<(u32, u8), Vec<u64>>,
    ended: BTreeMap<u64, Result<(), Code>>,
    killed: BTreeSet<u32>,
    cut: BTreeSet<(u32, u32)>,
    was_cut: bool,
    destroyed: bool,
    limits: Limits,
}

impl Checker {
    fn came_out(&mut self, node: u32, channel: u8, message: &Message<Pool>) {
        let bytes = message.memory.bytes();
        let id = u64::from_le_bytes(bytes[..8].try_into().unwrap());
        assert_eq!(bytes, content(id, bytes.len()), "message {id}");
        assert_eq!((message.hints, message.client), (id, 7));
        self.out.entry((node, channel)).or_default().push(id);
    }

    fn step(&mut self, id: u64, step: &Step) {
        let now = self.world.now();
        let operation = match &step.act {
            Act::Take => {
                if let Some(message) = self.world.hosts[step.to as usize].take(step.channel) {
                    self.came_out(step.to / self.agents, step.channel, &message);
                }
                return;
            }
            Act::Abandon(which) => {
                if let Some(&id) = self.asked.keys().nth(*which) {
                    let from = self.asked[&id].from;
                    self.world.hosts[from as usize].abandon(id);
                }
                return;
            }
            Act::Kill => {
                self.world.kill(step.to);
                self.world.hosts[step.to as usize].forget();
                self.killed.insert(step.to);
                // Restarting an agent empties its gateway.
                for (&id, asked) in &self.asked {
                    if asked.from == step.to {
                        self.ended.entry(id).or_insert(Err(Code::FAILURE));
                    }
                }
                self.world.start(step.to);
                return;
            }
            Act::Cut => {
                let link = (step.from.min(step.to), step.from.max(step.to));
                self.was_cut = true;
                if self.cut.remove(&link) {
                    self.world.net.mend(link.0, link.1);
                } else {
                    self.cut.insert(link);
                    self.world.net.cut(link.0, link.1);
                }
                return;
            }
            Act::Destroy => {
                self.destroyed = true;
                self.world.hosts[step.to as usize].destroy(step.channel);
                return;
            }
            Act::Send {
                handle,
                length,
                mode,
            } => {
                let memory = self.world.hosts[step.from as usize].memory(content(id, *length));
                Operation::Send {
                    handle: u128::from(*handle) + u128::from(step.from) * 10,
                    message: Message {
                        memory,
                        hints: id,
                        client: 7,
                    },
                    mode: *mode,
                    destination: None,
                }
            }
            Act::Get => Operation::Get,
            Act::Poll(mask) => Operation::Poll { mask: *mask },
        };
        self.asked.insert(id, step.clone());
        self.world.hosts[step.from as usize].ask(Request {
            id,
            node: World::host_id(step.to / self.agents),
            channel: [step.channel].into(),
            process: id % 2,
            limit: match step.limit {
                Some(0) => Limit::Once,
                Some(time) => Limit::At(now + time),
                None => Limit::Never,
            },
            operation,
        });
    }

    fn run(&mut self, until: u64) -> bool {
        let limits = self.limits.clone();
        let nodes = self.world.hosts.len() as u64;
        let goes_on = self.world.run(until, |_, held| {
            let one = u64::from(limits.strip);
            assert!(held.ejection <= limits.ejection.max(one), "{held:?}");
            assert!(held.injection <= limits.injection.max(one), "{held:?}");
            assert!(held.getmsg < limits.getmsg + 400_000, "{held:?}");
            assert!(held.eager <= limits.eager.max(nodes * 2048), "{held:?}");
        });
        // Items passed on for neighbours, and items for nodes that are not neighbours.
        let bound = (nodes.isqrt() + 1) * 2 * WINDOW as u64 + nodes * 10_000;
        for node in 0..self.world.hosts.len() {
            let waiting = self.world.waiting(node as u32) as u64;
            assert!(waiting <= bound, "node {node}: {waiting}");
            for (id, outcome) in std::mem::take(&mut self.world.hosts[node].completed) {
                let asked = &self.asked[&id];
                assert_eq!(asked.from, node as u32);
                let (to, channel) = (asked.to / self.agents, asked.channel);
                let result = match outcome {
                    Outcome::Got(message) => {
                        self.came_out(to, channel, &message);
                        Ok(())
                    }
                    Outcome::Sent | Outcome::Polled(..) => Ok(()),
                    Outcome::Failed(code) => {
                        assert_ne!(code, Code::SUCCESS);
                        Err(code)
                    }
                };
                let before = self.ended.insert(id, result);
                assert!(before.is_none(), "request {id} ended twice");
            }
        }
        goes_on
    }
}

fn check(case: &Case) {
    let memory = 4 << 20;
    let world = match case.dragonfly {
        false => World::with_agents,
        true => |(nodes, _): (u32, u32), memory, limits, delays, seed| {
            World::dragonfly(nodes, memory, limits, delays, seed)
        },
    };
    let world = world(
        (case.nodes, case.agents),
        memory,
        case.limits.clone(),
        Delays::default(),
        case.seed,
    );
    let mut checker = Checker {
        world,
        agents: case.agents,
        asked: BTreeMap::new(),
        out: HashMap::new(),
        ended: BTreeMap::new(),
        killed: BTreeSet::new(),
        cut: BTreeSet::new(),
        was_cut: false,
        destroyed: false,
        limits: case.limits.clone(),
    };
    for node in 0..case.nodes {
        for channel in 0..2 {
            let host = &mut checker.world.hosts[(node * case.agents) as usize];
            host.create(channel, case.capacity);
        }
    }
    // Agents of a node discover each other.
    let mut now = MS;
    for (id, step) in (1..).zip(&case.steps) {
        now += step.after;
        checker.run(now);
        checker.step(id, step);
    }
    for (a, b) in std::mem::take(&mut checker.cut) {
        checker.world.net.mend(a, b);
    }
    // Waiting requests get what they wait for, or are given up.
    let mut rounds = 0;
    loop {
        now += 5 * MS;
        let goes_on = checker.run(now);
        for node in 0..case.nodes {
            for channel in 0..2 {
                let agent = (node * case.agents) as usize;
                while let Some(message) = checker.world.hosts[agent].take(channel) {
                    checker.came_out(node, channel, &message);
                }
            }
        }
        rounds += 1;
        let left: Vec<u64> = checker
            .asked
            .keys()
            .filter(|id| !checker.ended.contains_key(id))
            .copied()
            .collect();
        if rounds > 20 {
            for &id in &left {
                let from = checker.asked[&id].from;
                checker.world.hosts[from as usize].abandon(id);
            }
        }
        if !goes_on && left.is_empty() && !checker.world.hosts.iter().any(|h| h.has_events()) {
            break;
        }
        assert!(rounds < 60, "requests never end: {left:?}");
    }
    let out: BTreeSet<u64> = checker.out.values().flatten().copied().collect();
    let count: usize = checker.out.values().map(Vec::len).sum();
    assert_eq!(
        out.len(),
        count,
        "a message arrived twice: {:?}",
        checker.out
    );
    for host in &checker.world.hosts {
        let mut last = HashMap::new();
        for (channel, id) in &host.sent {
            let step = &checker.asked[id];
            let Act::Send { handle, .. } = step.act else {
                panic!("message {id} was not sent");
            };
            let before = last.insert((*channel, step.from, handle), id);
            assert!(before.is_none_or(|before| before < id), "{before:?} {id}");
        }
    }
    for (id, step) in &checker.asked {
        let result = checker.ended[id];
        let is_calm = checker.killed.is_empty() && !checker.was_cut && !checker.destroyed;
        if let Act::Send { mode, .. } = step.act
            && is_calm
        {
            let must = match (mode, result) {
                (ReturnMode::Deposited | ReturnMode::Received, Ok(())) => Some(true),
                // Too late, but the message may be there.
                (ReturnMode::Received, Err(Code::TIMEOUT)) => None,
                (ReturnMode::Deposited, Err(_)) | (_, Err(_)) => Some(false),
                (_, Ok(())) if step.limit.is_none() => Some(true),
                (_, Ok(())) => None,
            };
            if let Some(must) = must {
                let sent: Vec<_> = checker.world.hosts.iter().map(|h| &h.sent).collect();
                assert_eq!(
                    out.contains(id),
                    must,
                    "message {id}, {mode:?}: {result:?} {:?} {sent:?} {:?} {:?}",
                    checker.out,
                    checker.world.held(0),
                    [0, 1].map(|n| checker.world.machine(n).map(|m| m.counters()))
                );
            }
        }
    }
    for node in 0..case.nodes * case.agents {
        let held = checker.world.held(node);
        assert_eq!(held, agent::Held::default(), "node {node}");
        let counters = checker.world.machine(node).unwrap().counters();
        assert_eq!(counters.protocol_errors, 0, "node {node}");
        assert_eq!(checker.world.hosts[node as usize].used(), 0, "node {node}");
        assert_eq!(checker.world.waiting(node), 0, "node {node}");
    }
}

/// Consumed eager messages are reported, so that their room becomes available again.
#[test]
fn short_messages_stay_eager() {
    let limits = Limits {
        eager: 8192,
        ..Limits::default()
    };
    let mut world = World::new(2, 1 << 20, limits, Delays::default(), 1);
    world.hosts[1].create(0, 4);
    for id in 0..1000 {
        let bytes = content(id, 500);
        world.send((0, 1), 1, id, bytes, ReturnMode::Deposited, Limit::Never);
        world.run(u64::MAX, |_, _| {});
        let completed = std::mem::take(&mut world.hosts[0].completed);
        assert_eq!(completed, [(id, Outcome::Sent)]);
        assert!(world.hosts[1].take(0).is_some());
    }
    let counters = world.machine(0).expect("a live agent").counters();
    assert_eq!((counters.strips, counters.entries), (0, 1000));
}

/// Memory for only one of the long messages. If later ones took all of it, the next in turn would
/// never arrive.
#[test]
fn long_messages_of_one_handle_come_with_little_memory() {
    const LENGTH: usize = 100_000;
    for seed in 0..16 {
        let memory = LENGTH + LENGTH / 5;
        let limits = Limits::default();
        let mut world = World::new(2, 64 * LENGTH, limits, Delays::default(), seed);
        world.hosts[1] = agent_sim::Host::new(memory);
        world.hosts[1].create(0, 2);
        for id in 0..20 {
            let length = if id % 4 == 3 { LENGTH } else { LENGTH / 3 };
            let bytes = content(id, length);
            world.send((0, 1), 1, id, bytes, ReturnMode::Immediately, Limit::Never);
        }
        for _ in 0..40 {
            let until = world.now() + 10_000 * US;
            world.run(until, |_, _| {});
            while world.hosts[1].take(0).is_some() {}
        }
        assert_eq!(world.hosts[1].sent.len(), 20, "seed {seed}");
    }
}

/// Directly, and from 0 to 8 through 2 and 6.
#[test]
fn an_agent_that_starts_late_is_waited_for_and_time_outs_hold_meanwhile() {
    const MS: u64 = 1000 * US;
    let send = |world: &mut World, id, to, limit| {
        let bytes = content(id, 500);
        world.send((0, 1), to, id, bytes, ReturnMode::Deposited, limit);
    };
    let run = |world: &mut World, until| {
        world.run(until, |_, _| {});
        let mut completed = std::mem::take(&mut world.hosts[0].completed);
        completed.sort_by_key(|(id, _)| *id);
        completed
    };
    for dragonfly in [false, true] {
        let limits = Limits {
            connect: 5000 * MS,
            ..Limits::default()
        };
        let (delays, memory) = (Delays::default(), 1 << 20);
        let (mut world, late) = match dragonfly {
            false => (World::new(2, memory, limits, delays, 1), vec![1]),
            true => (
                World::dragonfly(9, memory, limits, delays, 1),
                vec![2, 6, 8],
            ),
        };
        let to = late[late.len() - 1];
        for &node in &late {
            world.kill(node);
        }
        world.hosts[to as usize].create(0, 9);
        send(&mut world, 1, to, Limit::Never);
        send(&mut world, 2, to, Limit::At(300 * MS));
        assert_eq!(run(&mut world, 299 * MS), []);
        let over = Outcome::Failed(Code::TIMEOUT);
        assert_eq!(run(&mut world, 301 * MS), [(2, over)]);
        for &node in &late {
            let until = world.now() + 800 * MS;
            assert_eq!(run(&mut world, until), [], "{dragonfly} {node}");
            world.start(node);
        }
        assert_eq!(run(&mut world, u64::MAX), [(1, Outcome::Sent)]);
        assert_eq!(world.hosts[to as usize].sent.len(), 1);
        // An agent that was there before is not waited for.
        world.kill(to);
        send(&mut world, 3, to, Limit::Never);
        let begin = world.now();
        let gone = || Outcome::Failed(Code::FAILURE);
        assert_eq!(run(&mut world, u64::MAX), [(3, gone())]);
        assert!(world.now() - begin < 5000 * MS);
        // An agent that never starts is waited for only up to the limit.
        let node = 1;
        world.kill(0);
        world.kill(node);
        world.start(0);
        send(&mut world, 4, node, Limit::Never);
        let until = world.now() + 4999 * MS;
        assert_eq!(run(&mut world, until), [], "{dragonfly} {node}");
        assert_eq!(run(&mut world, u64::MAX), [(4, gone())]);
        assert_eq!(world.held(0), agent::Held::default());
    }
}

/// Three nodes send a long message to a fourth one, which pulls them side by side, strip by strip.
#[test]
fn long_messages_come_in_strips_from_all_nodes_in_an_order_that_differs() {
    const STRIPS: u64 = 32;
    let mut first = BTreeSet::new();
    for seed in 0..32 {
        let limits = Limits {
            ejection: 1 << 20,
            strip: 128 << 10,
            ..Limits::default()
        };
        let length = STRIPS as usize * limits.strip as usize;
        let mut world = World::new(4, 16 << 20, limits, Delays::default(), seed);
        world.hosts[0].create(0, 3);
        for node in 1..4 {
            let bytes = content(0, length);
            let (mode, limit) = (ReturnMode::Deposited, Limit::Never);
            world.send((node, node.into()), 0, node.into(), bytes, mode, limit);
        }
        while world.hosts[0].sent.is_empty() {
            let until = world.now() + US;
            world.run(until, |_, _| {});
        }
        first.insert(world.hosts[0].sent[0].1);
        for node in 1..4 {
            let strips = world.machine(node).map_or(0, |m| m.counters().strips);
            // The first message's announcement gave it a head start of eight strips.
            assert!(strips > STRIPS / 4, "node {node} has sent {strips}");
        }
    }
    assert!(first.len() > 1, "always {first:?}");
}

proptest! {
    #[test]
    fn calm_worlds(case in case(false, 1, false)) {
        check(&case);
    }

    #[test]
    fn calm_dragonflies(case in case(false, 1, true)) {
        check(&case);
    }

    #[test]
    fn dragonflies_with_deaths(case in case(true, 1, true)) {
        check(&case);
    }

    #[test]
    fn worlds_with_deaths(case in case(true, 1, false)) {
        check(&case);
    }

    #[test]
    fn worlds_of_several_agents_a_node(case in case(true, 3, false)) {
        check(&case);
    }
}
