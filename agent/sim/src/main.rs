//! `agent-sim`: figures of node agents in simulated time.

use std::collections::BTreeSet;
use std::process::ExitCode;

use agent::Limits;
use agent::host::{Limit, Message, Nanos, Operation, Outcome, Request, ReturnMode};
use agent_sim::{Delays, Load, World};

const US: Nanos = 1_000;
const MS: Nanos = 1_000 * US;
/// The longest time that a process computes between two messages.
const COMPUTES: Nanos = 20 * US;

const USAGE: &str = "\
agent-sim packing   how entries are packed: processes of one node that each send 64 bytes to another node, wait
                    until they are deposited, and compute for up to 20 us, by the rule that says when a buffer goes
agent-sim incast    processes of many nodes that do so to one node, with and without a dragonfly of nodes
agent-sim stealing  messages of 4 MiB from one node to another one, each with an agent for each of its network interfaces:
                    the time until all have come, and bytes per second, if agents take from each other and if not, by
                    the share of the first agents
";

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some("packing") => packing(),
        Some("incast") => incast(),
        Some("stealing") => stealing(),
        _ => {
            print!("{USAGE}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// What is simulated.
struct Setup {
    nodes: u32,
    /// Of each node but 0.
    processes: u64,
    limits: Limits,
    dragonfly: bool,
    time: Nanos,
}

/// What a run gives.
struct Figures {
    /// Messages a second.
    rate: f64,
    /// Microseconds from request to answer.
    latency: f64,
    /// Entries in a buffer, and bytes.
    entries: f64,
    bytes: f64,
    /// Nodes that have sent to node 0.
    degree: usize,
    /// What was under way to node 0 at once.
    load: Load,
}

/// Processes on each of nodes 1 on send to channels of node 0, for a while.
fn run(setup: &Setup) -> Figures {
    let &Setup {
        nodes,
        processes,
        ref limits,
        dragonfly,
        time,
    } = setup;
    let delays = Delays {
        jitter: 2 * US,
        per_fragment: 500,
        ..Delays::default()
    };
    let make = match dragonfly {
        false => World::new,
        true => World::dragonfly,
    };
    let mut world = make(nodes, 64 << 20, limits.clone(), delays, 1);
    world.grain = 100;
    for channel in 0..=255 {
        world.hosts[0].create(channel, 1 << 20);
    }
    let mut asked: Vec<Nanos> = Vec::new();
    let ask = |world: &mut World, asked: &mut Vec<Nanos>, node: u32, process: u64| {
        let host = &mut world.hosts[node as usize];
        let memory = host.memory(vec![1; 64]);
        let id = asked.len() as u64;
        host.ask(Request {
            id: id << 16 | process,
            node: World::host_id(0),
            // Fits: the remainder of 256.
            channel: [(process % 256) as u8].into(),
            process,
            limit: Limit::Never,
            operation: Operation::Send {
                handle: u128::from(node) << 64 | u128::from(process),
                message: Message {
                    memory,
                    hints: 0,
                    client: 0,
                },
                mode: ReturnMode::Deposited,
                destination: None,
            },
        });
        asked.push(world.now());
    };
    // Processes compute between messages, for times of their own.
    let mut random = fastrand::Rng::with_seed(1);
    let mut computes = BTreeSet::new();
    for node in 1..nodes {
        computes.extend((0..processes).map(|process| (random.u64(0..COMPUTES), node, process)));
    }
    let (mut done, mut waited) = (0u64, 0);
    while world.now() < time {
        while let Some(&(at, node, process)) = computes.first()
            && at <= world.now()
        {
            computes.pop_first();
            ask(&mut world, &mut asked, node, process);
        }
        let until = (world.now() + US).min(time);
        if !world.run(until, |_, _| {}) {
            world.wait(until);
        }
        for channel in 0..=255 {
            while world.hosts[0].take(channel).is_some() {}
        }
        for node in 1..nodes {
            for (id, outcome) in std::mem::take(&mut world.hosts[node as usize].completed) {
                assert_eq!(outcome, Outcome::Sent);
                done += 1;
                // Fits: it was counted.
                waited += world.now() - asked[(id >> 16) as usize];
                let until = world.now() + random.u64(0..COMPUTES);
                computes.insert((until, node, id & 0xffff));
            }
        }
    }
    let counters = world
        .machine(1)
        .map(|machine| machine.counters())
        .unwrap_or_default();
    let buffers = counters.buffers.max(1) as f64;
    Figures {
        rate: done as f64 / (time as f64 / 1e9),
        latency: waited as f64 / done.max(1) as f64 / US as f64,
        entries: counters.entries as f64 / buffers,
        bytes: counters.bytes as f64 / buffers,
        degree: world.net.degree(0),
        load: world.net.load(0),
    }
}

fn packing() {
    // A buffer that is full, or that the next entry doesn't fit into, goes under each rule.
    let rules = [
        ("idle network, or 50 us", true, 50 * US),
        ("idle network, or 10 us", true, 10 * US),
        ("idle network", true, Nanos::MAX / 2),
        ("at once", false, 0),
        ("10 us", false, 10 * US),
        ("50 us", false, 50 * US),
        ("200 us", false, 200 * US),
    ];
    println!(
        "a buffer goes         | processes | messages/s | us each | entries a buffer | bytes a buffer"
    );
    for (name, idle, age) in rules {
        for processes in [1, 4, 16, 64] {
            let figures = run(&Setup {
                nodes: 2,
                processes,
                limits: Limits {
                    age,
                    idle,
                    ..Limits::default()
                },
                dragonfly: false,
                time: 5_000 * US,
            });
            println!(
                "{name:<21} | {processes:9} | {:10.0} | {:7.1} | {:16.2} | {:14.0}",
                figures.rate, figures.latency, figures.entries, figures.bytes
            );
        }
    }
}

fn incast() {
    println!(
        "nodes | dragonfly | messages/s | us each | send to node 0 | fragments to it at once | bytes to it at once"
    );
    for nodes in [16, 64, 256, 1024] {
        for dragonfly in [false, true] {
            let figures = run(&Setup {
                nodes,
                processes: 4,
                limits: Limits::default(),
                dragonfly,
                time: 2_000 * US,
            });
            println!(
                "{nodes:5} | {:9} | {:10.0} | {:7.1} | {:14} | {:23} | {:19}",
                if dragonfly { "yes" } else { "no" },
                figures.rate,
                figures.latency,
                figures.degree,
                figures.load.fragments,
                figures.load.most_bytes
            );
        }
    }
}

/// The time until all messages have come, and parts that were stolen.
fn skewed(agents: u32, share: u64, backlog: u64) -> (Nanos, u64) {
    let delays = Delays {
        latency: 2 * US,
        jitter: US,
        // 100 Gb/s into each interface.
        picos_per_byte: 80,
        ..Delays::default()
    };
    let limits = Limits {
        backlog,
        ..Limits::default()
    };
    let memory = 2 * MESSAGES as usize * LENGTH;
    let mut world = World::with_agents((2, agents), memory, limits, delays, 1);
    // Fits: there are few.
    world.hosts[agents as usize].create(0, MESSAGES as usize);
    // The agents of each node get to know each other.
    world.run(MS, |_, _| {});
    for id in 0..MESSAGES {
        let others = u64::from(agents) - 1;
        let agent = match id * 100 < share * MESSAGES || others == 0 {
            true => 0,
            false => 1 + id % others,
        };
        let host = &mut world.hosts[agent as usize];
        let memory = host.memory(vec![1; LENGTH]);
        host.ask(Request {
            id,
            node: World::host_id(1),
            channel: [0].into(),
            process: id,
            limit: Limit::Never,
            operation: Operation::Send {
                handle: id.into(),
                message: Message {
                    memory,
                    hints: 0,
                    client: 0,
                },
                mode: ReturnMode::Deposited,
                destination: None,
            },
        });
    }
    let begin = world.now();
    let mut done = 0;
    while done < MESSAGES {
        let until = world.now() + 5 * US;
        world.run(until, |_, _| {});
        for host in &mut world.hosts {
            done += host.completed.drain(..).count() as u64;
        }
    }
    let machines = (0..2 * agents).filter_map(|agent| world.machine(agent));
    let stolen = machines.map(|machine| machine.counters().stolen).sum();
    (world.now() - begin, stolen)
}

const MESSAGES: u64 = 64;
const LENGTH: usize = 4 << 20;

fn stealing() {
    println!("agents | share % | alone: ms |  GB/s | together: ms |  GB/s | parts stolen");
    let rate = |time: Nanos| (MESSAGES * LENGTH as u64) as f64 / time as f64;
    for agents in [1, 2, 4] {
        for share in [100, 70, 100 / u64::from(agents)] {
            let (alone, _) = skewed(agents, share, u64::MAX);
            let (together, parts) = skewed(agents, share, Limits::default().backlog);
            println!(
                "{agents:6} | {share:7} | {:9.2} | {:5.1} | {:12.2} | {:5.1} | {parts:12}",
                alone as f64 / MS as f64,
                rate(alone),
                together as f64 / MS as f64,
                rate(together),
            );
            if agents == 1 {
                break;
            }
        }
    }
}
