//! `agent-sim` produces figures of node agents in simulated time.

use std::collections::BTreeSet;
use std::io;

use agent::Limits;
use agent::host::{Limit, Message, Nanos, Operation, Outcome, Request, ReturnMode};
use agent_sim::{Delays, Load, World};
use clap::{Parser, Subcommand};
use serde::Serialize;
use sim::command::{TableFormat, whole};
use sim::{MS, US};

/// The longest time that a process computes between two messages.
const COMPUTES: Nanos = 20 * US;

/// Prints figures of node agents in simulated time
#[derive(Debug, Parser)]
#[command(name = "agent-sim", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// The packing of entries, by the rule that decides when a buffer is sent
    ///
    /// Processes of one node each send 64 bytes to another node, wait until they are deposited, and
    /// compute for up to 20 µs.
    Packing(TableFormat),
    /// Many nodes whose processes do the same to one node, with and without a dragonfly
    Incast {
        /// The numbers of nodes
        #[arg(long, value_delimiter = ',', default_value = "16,64,256,1024",
              value_parser = clap::value_parser!(u32).range(2..=65_536))]
        nodes: Vec<u32>,
        #[command(flatten)]
        format: TableFormat,
    },
    /// The time to send messages of 4 MiB, with and without stealing, by the share of the first
    /// agents
    ///
    /// The messages go from one node to another. Each node has an agent for each of its network
    /// interfaces.
    Stealing(TableFormat),
}

fn main() -> io::Result<()> {
    match Cli::parse().command {
        Command::Packing(format) => packing(format),
        Command::Incast { nodes, format } => incast(&nodes, format),
        Command::Stealing(format) => stealing(format),
    }
}

/// The simulated setup.
struct Setup {
    nodes: u32,
    /// Processes on each node but node 0.
    processes: u64,
    limits: Limits,
    dragonfly: bool,
    time: Nanos,
}

/// The results of a run.
#[derive(Serialize)]
struct Figures {
    /// Messages per second.
    rate: f64,
    /// Microseconds from request to completion.
    latency: f64,
    /// Entries and bytes per buffer.
    entries: f64,
    bytes: f64,
    /// The number of nodes that have sent to node 0.
    degree: usize,
    /// The maximum load in flight to node 0.
    load: Load,
}

/// Lets processes on all nodes but node 0 send to channels of node 0 for a while.
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
            // Fits: the remainder modulo 256.
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
    // Processes compute between messages, for random times.
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
                // Fits: the id is an index.
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

/// The figures of a run, with the setting in its row.
#[derive(Serialize)]
struct Row {
    setting: &'static str,
    nodes: u32,
    processes: u64,
    #[serde(flatten)]
    figures: Figures,
}

fn packing(format: TableFormat) -> io::Result<()> {
    // Under every rule, a full buffer or one without room for the next entry is sent.
    let rules = [
        (
            "on an idle network, or after 50 µs (as built)",
            true,
            50 * US,
        ),
        ("on an idle network, or after 10 µs", true, 10 * US),
        ("on an idle network", true, Nanos::MAX / 2),
        ("at once", false, 0),
        ("after 10 µs", false, 10 * US),
        ("after 50 µs", false, 50 * US),
    ];
    let mut rows = Vec::new();
    for (setting, idle, age) in rules {
        for processes in [1, 16, 64] {
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
            rows.push(Row {
                setting,
                nodes: 2,
                processes,
                figures,
            });
        }
    }
    let header = [
        "a buffer goes",
        "processes",
        "messages/s",
        "µs each",
        "entries a buffer",
        "bytes a buffer",
    ];
    let cells = |row: &Row| {
        [
            row.setting.to_owned(),
            row.processes.to_string(),
            whole(row.figures.rate),
            format!("{:.1}", row.figures.latency),
            format!("{:.1}", row.figures.entries),
            whole(row.figures.bytes),
        ]
    };
    format.write(&mut io::stdout(), &rows, header, rows.iter().map(cells))
}

fn incast(nodes: &[u32], format: TableFormat) -> io::Result<()> {
    let mut rows = Vec::new();
    for &nodes in nodes {
        for (setting, dragonfly) in [("no", false), ("yes", true)] {
            let figures = run(&Setup {
                nodes,
                processes: 4,
                limits: Limits::default(),
                dragonfly,
                time: 2_000 * US,
            });
            rows.push(Row {
                setting,
                nodes,
                processes: 4,
                figures,
            });
        }
    }
    let header = [
        "nodes",
        "dragonfly",
        "messages/s",
        "µs each",
        "nodes that send to node 0",
        "most fragments under way to it",
        "most bytes",
    ];
    let cells = |row: &Row| {
        let Figures { degree, load, .. } = &row.figures;
        [
            whole(row.nodes.into()),
            row.setting.to_owned(),
            whole(row.figures.rate),
            whole(row.figures.latency),
            whole(*degree as f64),
            whole(load.fragments as f64),
            whole(load.most_bytes as f64),
        ]
    };
    format.write(&mut io::stdout(), &rows, header, rows.iter().map(cells))
}

/// Returns the time until all messages have arrived, and the number of stolen parts.
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
    // Fits: there are few messages.
    world.hosts[agents as usize].create(0, MESSAGES as usize);
    // The agents of each node discover each other.
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

/// The time to send messages without stealing and with it.
#[derive(Serialize)]
struct Skewed {
    agents: u32,
    /// The percentage of the messages that the first agent sends.
    share: u64,
    alone: Nanos,
    together: Nanos,
    stolen: u64,
}

fn stealing(format: TableFormat) -> io::Result<()> {
    let mut rows = Vec::new();
    for agents in [1, 2, 4] {
        let mut shares = vec![100, 70, 100 / u64::from(agents)];
        shares.truncate(if agents == 1 { 1 } else { 3 });
        for share in shares {
            let (alone, _) = skewed(agents, share, u64::MAX);
            let (together, stolen) = skewed(agents, share, Limits::default().backlog);
            rows.push(Skewed {
                agents,
                share,
                alone,
                together,
                stolen,
            });
        }
    }
    let header = [
        "agents",
        "by the first",
        "alone: ms",
        "GB/s",
        "together: ms",
        "GB/s",
        "parts stolen",
    ];
    let cells = |row: &Skewed| {
        let ms = |time: Nanos| format!("{:.2}", time as f64 / MS as f64);
        let rate = |time: Nanos| format!("{:.1}", (MESSAGES * LENGTH as u64) as f64 / time as f64);
        [
            row.agents.to_string(),
            format!("{} %", row.share),
            ms(row.alone),
            rate(row.alone),
            ms(row.together),
            rate(row.together),
            row.stolen.to_string(),
        ]
    };
    format.write(&mut io::stdout(), &rows, header, rows.iter().map(cells))
}
