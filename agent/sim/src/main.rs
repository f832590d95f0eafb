//! `agent-sim`: figures of node agents in simulated time.

use std::process::ExitCode;

use agent::Limits;
use agent::host::{Limit, Message, Nanos, Operation, Outcome, Request, ReturnMode};
use agent_sim::{Delays, World};

const US: Nanos = 1_000;

const USAGE: &str = "\
agent-sim packing   how entries are packed: processes of one node that each send 64 bytes to another node and wait
                    until they are deposited, by the age after which a buffer goes that is not full
agent-sim incast    processes of many nodes that do so to one node: what waits for it
";

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some("packing") => packing(),
        Some("incast") => incast(),
        _ => {
            print!("{USAGE}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// What a run gives.
struct Figures {
    /// Messages a second.
    rate: f64,
    /// Microseconds from request to answer.
    latency: f64,
    /// Entries in a buffer.
    entries: f64,
    /// Fragments that were under way to node 0 at once, at most.
    most: usize,
    /// Bytes of eager messages that it held.
    held: u64,
}

/// `processes` on each of nodes 1 on send to channels of node 0, for a while.
fn run(nodes: u32, processes: u64, limits: Limits) -> Figures {
    const TIME: Nanos = 20_000 * US;
    let delays = Delays {
        jitter: 2 * US,
        ..Delays::default()
    };
    let mut world = World::new(nodes, 64 << 20, limits, delays, 1);
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
    for node in 1..nodes {
        for process in 0..processes {
            ask(&mut world, &mut asked, node, process);
        }
    }
    let (mut done, mut waited, mut held) = (0u64, 0, 0);
    while world.now() < TIME {
        let until = world.now() + US;
        world.run(until, |node, now| {
            if node == 0 {
                held = held.max(now.eager);
            }
        });
        for channel in 0..=255 {
            while world.hosts[0].take(channel).is_some() {}
        }
        for node in 1..nodes {
            for (id, outcome) in std::mem::take(&mut world.hosts[node as usize].completed) {
                assert_eq!(outcome, Outcome::Sent);
                done += 1;
                // Fits: it was counted.
                waited += world.now() - asked[(id >> 16) as usize];
                ask(&mut world, &mut asked, node, id & 0xffff);
            }
        }
    }
    let counters = world
        .machine(1)
        .map(|machine| machine.counters())
        .unwrap_or_default();
    Figures {
        rate: done as f64 / (TIME as f64 / 1e9),
        latency: waited as f64 / done.max(1) as f64 / US as f64,
        entries: counters.entries as f64 / counters.buffers.max(1) as f64,
        most: world.net.most_to(0),
        held,
    }
}

fn packing() {
    println!("age µs | processes | messages/s | µs each | entries a buffer");
    for age in [0, 10, 50, 200] {
        for processes in [1, 4, 16, 64] {
            let limits = Limits {
                age: age * US,
                ..Limits::default()
            };
            let figures = run(2, processes, limits);
            println!(
                "{age:6} | {processes:9} | {:10.0} | {:7.1} | {:16.2}",
                figures.rate, figures.latency, figures.entries
            );
        }
    }
}

fn incast() {
    println!(
        "nodes | messages/s | µs each | fragments to node 0 at once | bytes of eager messages there"
    );
    for nodes in [2, 16, 64] {
        let figures = run(nodes, 4, Limits::default());
        println!(
            "{nodes:5} | {:10.0} | {:7.1} | {:27} | {:29}",
            figures.rate, figures.latency, figures.most, figures.held
        );
    }
}
