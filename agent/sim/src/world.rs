//! A world of nodes with their agents, and its clock.

use std::collections::BTreeSet;

use agent::host::{Limit, Message, Nanos, Operation, Request, ReturnMode};
use agent::{AgentMachine, Dragonfly, Held, Limits, Node};

use crate::siblings::{DELAY, Table};
use crate::{Delays, End, Host, Net};

/// A live agent.
struct Agent {
    machine: AgentMachine<Host>,
    network: Network,
    /// Whether it had work in the last pass.
    is_busy: bool,
    /// The number of network changes that it has noticed or will notice.
    changes: u64,
}

impl Agent {
    /// Returns when the agent has work next.
    fn due(&self, node: u32, net: &Net) -> Option<Nanos> {
        let due = [self.machine.due(), self.network.end().due(), net.next(node)];
        due.into_iter().flatten().min()
    }
}

enum Network {
    Direct(End),
    Dragonfly(Box<Dragonfly<End>>),
}

impl Network {
    fn end(&self) -> &End {
        match self {
            Self::Direct(end) => end,
            Self::Dragonfly(dragonfly) => dragonfly.network(),
        }
    }
}

/// All nodes. If they have several agents each, agents are numbered consecutively within a node,
/// and an agent talks to those at the same position in the other nodes.
pub struct World {
    /// The nodes as their agents see them, including dead agents.
    pub hosts: Vec<Host>,
    agents: Vec<Option<Agent>>,
    /// The number of agents per node.
    of_node: u32,
    tables: Vec<Table>,
    /// Live agents that make no progress at present.
    paused: BTreeSet<u32>,
    /// Dead agents, whose memory is freed only when their siblings know of the death.
    dead: Vec<(Nanos, Agent)>,
    /// The network.
    pub net: Net,
    limits: Limits,
    dragonfly: bool,
    /// The minimum step of the clock in nanoseconds. All events within a step are handled in one
    /// pass over the nodes.
    pub grain: Nanos,
    now: Nanos,
    seed: u64,
    steps: u64,
}

impl World {
    /// Creates nodes with the given memory and one agent each.
    pub fn new(nodes: u32, memory: usize, limits: Limits, delays: Delays, seed: u64) -> Self {
        Self::start_all((nodes, 1), memory, limits, delays, seed, false)
    }

    /// Creates nodes with the given memory and several agents each.
    pub fn with_agents(
        counts: (u32, u32),
        memory: usize,
        limits: Limits,
        delays: Delays,
        seed: u64,
    ) -> Self {
        Self::start_all(counts, memory, limits, delays, seed, false)
    }

    /// Creates nodes with one agent each, connected by a [dragonfly](agent::dragonfly).
    pub fn dragonfly(nodes: u32, memory: usize, limits: Limits, delays: Delays, seed: u64) -> Self {
        Self::start_all((nodes, 1), memory, limits, delays, seed, true)
    }

    fn start_all(
        (nodes, of_node): (u32, u32),
        memory: usize,
        limits: Limits,
        delays: Delays,
        seed: u64,
        dragonfly: bool,
    ) -> Self {
        let hosts = (0..nodes).flat_map(|_| {
            let first = Host::new(memory);
            let others = (1..of_node).map(|agent| first.beside(agent));
            let others: Vec<_> = others.collect();
            std::iter::once(first).chain(others)
        });
        let mut world = Self {
            hosts: hosts.collect(),
            agents: (0..nodes * of_node).map(|_| None).collect(),
            of_node,
            tables: (0..nodes)
                .map(|node| Table::new(seed ^ u64::from(node)))
                .collect(),
            paused: BTreeSet::new(),
            dead: Vec::new(),
            net: Net::new(delays, seed),
            limits,
            dragonfly,
            grain: 1,
            now: 0,
            seed,
            steps: 0,
        };
        for agent in 0..nodes * of_node {
            world.start(agent);
        }
        world
    }

    /// Returns the time.
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// Returns the host id of a node.
    pub fn host_id(node: u32) -> u64 {
        0xabc0 + u64::from(node)
    }

    /// Sends a message from a process of an agent to channel 0 of a node, through a handle. `id` is
    /// the number of the request and of the message.
    pub fn send(
        &mut self,
        (agent, handle): (u32, u128),
        to: u32,
        id: u64,
        bytes: Vec<u8>,
        mode: ReturnMode,
        limit: Limit,
    ) {
        let host = &mut self.hosts[agent as usize];
        let memory = host.memory(bytes);
        host.ask(Request {
            id,
            node: Self::host_id(to),
            channel: [0].into(),
            process: 0,
            limit,
            operation: Operation::Send {
                handle,
                message: Message {
                    memory,
                    hints: id,
                    client: 0,
                },
                mode,
                destination: None,
            },
        });
    }

    /// Starts an agent.
    pub fn start(&mut self, agent: u32) {
        let (node, place) = (agent / self.of_node, agent % self.of_node);
        let nodes = (0..self.tables.len() as u32).map(|node| Node {
            host: Self::host_id(node),
            address: (node * self.of_node + place).to_le_bytes().to_vec(),
        });
        let nodes: Vec<Node> = nodes.collect();
        if self.of_node > 1 {
            let others = (0..self.of_node).filter(|other| *other != place);
            let table = &self.tables[node as usize];
            self.hosts[agent as usize].seat = Some(table.start(place, others));
        }
        // A different seed in each incarnation.
        let seed = self.seed ^ u64::from(agent) << 32 ^ self.steps << 48;
        let end = self.net.start(agent);
        let network = match self.dragonfly {
            false => Network::Direct(end),
            true => {
                let addresses = nodes.iter().map(|node| &node.address[..]);
                let dragonfly = Dragonfly::new(end, node, addresses, seed);
                Network::Dragonfly(Box::new(dragonfly.expect("addresses of nodes")))
            }
        };
        self.hosts[agent as usize].renew();
        self.agents[agent as usize] = Some(Agent {
            machine: AgentMachine::new(node, nodes, self.limits.clone(), seed),
            network,
            is_busy: true,
            changes: 0,
        });
    }

    /// Kills an agent.
    pub fn kill(&mut self, agent: u32) {
        let dead = self.agents[agent as usize].take();
        self.net.kill(agent);
        if self.of_node > 1 {
            self.tables[(agent / self.of_node) as usize].kill(agent % self.of_node);
            self.dead
                .extend(dead.map(|agent| (self.now + DELAY, agent)));
        }
    }

    /// Ends an agent properly.
    pub fn stop(&mut self, agent: u32) {
        let number = agent as usize;
        if let Some(stopped) = &mut self.agents[number] {
            let host = &mut self.hosts[number];
            match &mut stopped.network {
                Network::Direct(end) => stopped.machine.leave(host, end),
                Network::Dragonfly(dragonfly) => stopped.machine.leave(host, &mut **dragonfly),
            }
        }
        self.kill(agent);
    }

    /// Suspends an agent.
    pub fn pause(&mut self, agent: u32) {
        self.paused.insert(agent);
    }

    /// Resumes an agent.
    pub fn resume(&mut self, agent: u32) {
        self.paused.remove(&agent);
    }

    /// Returns the resources that an agent holds.
    pub fn held(&self, agent: u32) -> Held {
        let agent = self.agents[agent as usize].as_ref();
        agent.map_or(Held::default(), |agent| agent.machine.held())
    }

    /// Returns how many bytes an agent has to pass on to others.
    pub fn waiting(&self, agent: u32) -> usize {
        let agent = self.agents[agent as usize].as_ref();
        agent.map_or(0, |agent| match &agent.network {
            Network::Direct(_) => 0,
            Network::Dragonfly(dragonfly) => dragonfly.waiting(),
        })
    }

    /// Returns an agent's machine, if the agent is alive.
    pub fn machine(&self, agent: u32) -> Option<&AgentMachine<Host>> {
        self.agents[agent as usize]
            .as_ref()
            .map(|agent| &agent.machine)
    }

    /// Lets all agents make progress, and calls `check` for each.
    fn pass(&mut self, check: &mut impl FnMut(u32, &Held)) -> bool {
        self.steps += 1;
        assert!(self.steps < 5_000_000, "the world never comes to rest");
        let mut did = false;
        self.net.set_now(self.now);
        for table in &self.tables {
            table.set_now(self.now);
        }
        for (number, agent) in (0..).zip(&mut self.agents) {
            let Some(agent) = agent.as_mut().filter(|_| !self.paused.contains(&number)) else {
                continue;
            };
            let changes = self.net.changes();
            let is_due = || {
                let due = agent.due(number, &self.net);
                due.is_some_and(|due| due <= self.now)
            };
            // Siblings may have sent messages.
            if self.of_node == 1
                && !agent.is_busy
                && agent.changes == changes
                && !self.hosts[number as usize].has_events()
                && !is_due()
            {
                continue;
            }
            agent.changes = changes;
            let (machine, host) = (&mut agent.machine, &mut self.hosts[number as usize]);
            agent.is_busy = match &mut agent.network {
                Network::Direct(end) => machine.progress(self.now, host, end),
                Network::Dragonfly(dragonfly) => machine.progress(self.now, host, &mut **dragonfly),
            };
            did |= agent.is_busy;
            check(number, &agent.machine.held());
        }
        self.dead.retain(|(until, _)| *until > self.now);
        did
    }

    fn go_on(&mut self, at: Nanos) {
        self.now = at.max(self.now + 1).next_multiple_of(self.grain);
    }

    /// Returns the time of the next event.
    fn next(&self) -> Option<Nanos> {
        let agents = (0..).zip(&self.agents);
        let due = agents.filter_map(|(number, agent)| {
            let agent = agent.as_ref().filter(|_| !self.paused.contains(&number))?;
            let table = &self.tables[(number / self.of_node) as usize];
            let told = table.next(number % self.of_node);
            agent.due(number, &self.net).into_iter().chain(told).min()
        });
        let dead = self.dead.iter().map(|(until, _)| *until);
        due.chain(dead).min()
    }

    /// Lets time pass without any progress.
    pub fn wait(&mut self, until: Nanos) {
        self.now = self.now.max(until);
        self.net.set_now(self.now);
    }

    /// Runs until the given time and returns `true`, or until no work is left and returns `false`.
    pub fn run(&mut self, until: Nanos, mut check: impl FnMut(u32, &Held)) -> bool {
        loop {
            if self.pass(&mut check) {
                continue;
            }
            match self.next() {
                Some(at) if at <= until => self.go_on(at),
                Some(_) => {
                    self.now = until;
                    self.net.set_now(until);
                    return true;
                }
                None => return false,
            }
        }
    }

    /// Runs until a condition holds and returns `true`, or until no work is left and returns
    /// `false`.
    pub fn reach(&mut self, mut is_so: impl FnMut(&Self) -> bool) -> bool {
        loop {
            let did = self.pass(&mut |_, _| {});
            if is_so(self) {
                return true;
            }
            match self.next() {
                _ if did => {}
                Some(at) => self.go_on(at),
                None => return false,
            }
        }
    }
}
