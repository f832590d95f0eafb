//! Nodes with their agents, and the time.

use agent::host::Nanos;
use agent::{Held, Limits, Machine, Node};

use crate::{Delays, End, Host, Net};

/// A node that is there.
struct Agent {
    machine: Machine<Host>,
    end: End,
}

/// All nodes.
pub struct World {
    /// The nodes, whether their agents are there or not.
    pub hosts: Vec<Host>,
    agents: Vec<Option<Agent>>,
    /// The network.
    pub net: Net,
    limits: Limits,
    now: Nanos,
    seed: u64,
    steps: u64,
}

impl World {
    /// So many nodes, each with so much memory, and an agent.
    pub fn new(nodes: u32, memory: usize, limits: Limits, delays: Delays, seed: u64) -> Self {
        let mut world = Self {
            hosts: (0..nodes).map(|_| Host::new(memory)).collect(),
            agents: (0..nodes).map(|_| None).collect(),
            net: Net::new(delays, seed),
            limits,
            now: 0,
            seed,
            steps: 0,
        };
        for node in 0..nodes {
            world.start(node);
        }
        world
    }

    /// The time.
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// The agent's host id of a node.
    pub fn host_id(node: u32) -> u64 {
        0xabc0 + u64::from(node)
    }

    /// A node's agent is started.
    pub fn start(&mut self, node: u32) {
        let nodes = (0..self.hosts.len() as u32).map(|node| Node {
            host: Self::host_id(node),
            address: node.to_le_bytes().to_vec(),
        });
        let seed = self.seed ^ u64::from(node) << 32;
        self.agents[node as usize] = Some(Agent {
            machine: Machine::new(node, nodes.collect(), self.limits.clone(), seed),
            end: self.net.start(node),
        });
    }

    /// A node's agent dies.
    pub fn kill(&mut self, node: u32) {
        self.agents[node as usize] = None;
        self.net.kill(node);
    }

    /// What a node's agent holds.
    pub fn held(&self, node: u32) -> Held {
        let agent = self.agents[node as usize].as_ref();
        agent.map_or(Held::default(), |agent| agent.machine.held())
    }

    /// The agent of a node.
    pub fn machine(&self, node: u32) -> Option<&Machine<Host>> {
        self.agents[node as usize]
            .as_ref()
            .map(|agent| &agent.machine)
    }

    /// All agents do what they can, and `check` looks at each.
    fn pass(&mut self, check: &mut impl FnMut(u32, &Held)) -> bool {
        self.steps += 1;
        assert!(self.steps < 5_000_000, "it goes round in circles");
        let mut did = false;
        for node in 0..self.agents.len() {
            let Some(agent) = &mut self.agents[node] else {
                continue;
            };
            self.net.set_now(self.now);
            did |= agent
                .machine
                .progress(self.now, &mut self.hosts[node], &mut agent.end);
            check(node as u32, &agent.machine.held());
        }
        did
    }

    /// When something happens next.
    fn next(&self) -> Option<Nanos> {
        let agents = (0..).zip(&self.agents);
        let due = agents.filter_map(|(node, agent)| {
            let agent = agent.as_ref()?;
            let due = [agent.machine.due(), agent.end.due(), self.net.next(node)];
            due.into_iter().flatten().min()
        });
        due.min()
    }

    /// Goes on until this time, or until nothing is left to be done; `false` then.
    pub fn run(&mut self, until: Nanos, mut check: impl FnMut(u32, &Held)) -> bool {
        loop {
            if self.pass(&mut check) {
                continue;
            }
            match self.next() {
                Some(at) if at <= until => self.now = at.max(self.now + 1),
                Some(_) => {
                    self.now = until;
                    self.net.set_now(until);
                    return true;
                }
                None => return false,
            }
        }
    }

    /// Goes on until something is so; `false`: it never is, for nothing is left to be done.
    pub fn reach(&mut self, mut is_so: impl FnMut(&Self) -> bool) -> bool {
        loop {
            let did = self.pass(&mut |_, _| {});
            if is_so(self) {
                return true;
            }
            match self.next() {
                _ if did => {}
                Some(at) => self.now = at.max(self.now + 1),
                None => return false,
            }
        }
    }
}
