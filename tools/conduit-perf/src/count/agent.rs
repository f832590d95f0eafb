//! Messages through the agents of two nodes over shared memory. Counts cover everything from a
//! process's request to its completion. Each node is simulated, with one channel and the requests
//! of one process.

use std::collections::VecDeque;

use agent::host::{
    Attempt, Event, Host, Limit, Memory, Message, Nanos, NoMemory, Operation, Outcome, Place,
    Request, ReturnMode,
};
use agent::{AgentMachine, Code, Limits};
use anyhow::{bail, ensure};
use conduit_portals::transport::open::OpenTransport;
use networks::open::{Choice, Family, Network, Settings};

use super::sections::Sections;

/// The sizes of the messages in bytes.
const SIZES: [usize; 2] = [16, 1024];
/// The simulated time between two calls of `progress`.
const STEP: Nanos = 1_000;
/// The number of calls of `progress` after which an unfinished request is an error. Normally, a few
/// calls suffice.
const STEPS: u32 = 100_000;

/// A node's memory.
struct Bytes(Vec<u8>);

impl Memory for Bytes {
    fn length(&self) -> usize {
        self.0.len()
    }
    fn read(&self, offset: usize, into: &mut [u8]) {
        into.copy_from_slice(&self.0[offset..][..into.len()]);
    }
    fn write(&mut self, offset: usize, bytes: &[u8]) {
        self.0[offset..][..bytes.len()].copy_from_slice(bytes);
    }
    fn is_own(&self) -> bool {
        true
    }
}

/// A node with one channel.
#[derive(Default)]
struct Node {
    asked: VecDeque<Event<Bytes>>,
    channel: VecDeque<Message<Bytes>>,
    completed: VecDeque<Outcome<Bytes>>,
}

impl Host for Node {
    type Memory = Bytes;
    type Channel = ();

    fn next(&mut self, sends: bool) -> Option<Event<Bytes>> {
        match sends {
            true => self.asked.pop_front(),
            false => None,
        }
    }
    fn complete(&mut self, _: u64, outcome: Outcome<Bytes>) {
        self.completed.push_back(outcome);
    }
    fn allocate(&mut self, bytes: usize, _: Place<'_>) -> Result<Bytes, NoMemory> {
        Ok(Bytes(vec![0; bytes]))
    }
    fn attach(&mut self, _: &[u8]) -> Result<(), Code> {
        Ok(())
    }
    fn send(
        &mut self,
        (): &mut (),
        message: &mut Option<Message<Bytes>>,
        receipt: Option<u64>,
    ) -> Attempt<()> {
        self.channel.extend(message.take());
        self.asked.extend(receipt.map(Event::Received));
        Attempt::Done(())
    }
    fn get(&mut self, (): &mut ()) -> Attempt<Message<Bytes>> {
        let message = self.channel.pop_front();
        message.map_or(Attempt::Blocked(Code::CHANNEL_EMPTY), Attempt::Done)
    }
    fn poll(&mut self, (): &mut (), _: u16) -> Attempt<(u64, Code)> {
        Attempt::Done((self.channel.len() as u64, Code::SUCCESS))
    }
}

struct Agent {
    machine: AgentMachine<Node>,
    node: Node,
    network: Network,
}

/// Two nodes and the simulated time.
struct Pair {
    near: Agent,
    far: Agent,
    now: Nanos,
}

impl Pair {
    fn start() -> anyhow::Result<Self> {
        let choice = Choice {
            near: true,
            far: None,
            host: None,
            subnet: None,
            family: Family::Any,
            key: None,
        };
        let open = || networks::open::open(&choice, &Settings::default());
        let networks = [open()?, open()?];
        let nodes = [0, 1].map(|number| agent::Node {
            host: number as u64,
            address: networks[number].address().to_vec(),
        });
        let [near, far] = networks;
        let agent = |own, network| Agent {
            machine: AgentMachine::new(own, nodes.to_vec(), Limits::default(), 1),
            node: Node::default(),
            network,
        };
        Ok(Self {
            near: agent(0, near),
            far: agent(1, far),
            now: 1,
        })
    }

    /// Performs a request of the near node's process on the far node's channel, and returns the
    /// outcome.
    fn ask(&mut self, operation: Operation<Bytes>) -> anyhow::Result<Outcome<Bytes>> {
        self.near.node.asked.push_back(Event::Request(Request {
            id: 1,
            node: 1,
            channel: [0].into(),
            process: 1,
            limit: Limit::Never,
            operation,
        }));
        for _ in 0..STEPS {
            self.now += STEP;
            for agent in [&mut self.near, &mut self.far] {
                let Agent {
                    machine,
                    node,
                    network,
                } = agent;
                machine.progress(self.now, node, network);
            }
            if let Some(outcome) = self.near.node.completed.pop_front() {
                return Ok(outcome);
            }
        }
        bail!("a request did not complete")
    }

    /// Sends a message, waits until it is in the channel, and removes it.
    fn send(&mut self, size: usize) -> anyhow::Result<()> {
        let send = Operation::Send {
            handle: 1,
            message: message(size),
            mode: ReturnMode::Deposited,
            destination: None,
        };
        ensure!(
            matches!(self.ask(send)?, Outcome::Sent),
            "a message was not sent"
        );
        let found = self.far.node.channel.pop_front();
        ensure!(
            found.is_some_and(|found| found.memory.length() == size),
            "a message did not arrive"
        );
        Ok(())
    }

    /// Puts a message into the far node's channel, and gets it from the near node.
    fn get(&mut self, size: usize) -> anyhow::Result<()> {
        self.far.node.channel.push_back(message(size));
        ensure!(
            matches!(self.ask(Operation::Get)?, Outcome::Got(_)),
            "the get returned no message"
        );
        Ok(())
    }
}

fn message(size: usize) -> Message<Bytes> {
    Message {
        memory: Bytes(vec![1; size]),
        hints: 0,
        client: 0,
    }
}

/// Repeats sends and gets of each size.
///
/// # Errors
/// Fails if shared memory cannot be set up, or if a request fails.
pub(super) fn repeat(sections: &mut Sections<'_>) -> anyhow::Result<()> {
    let mut pair = Pair::start()?;
    for size in SIZES {
        sections.run(&format!("send-{size}"), |count| {
            (0..count).try_for_each(|_| pair.send(size))
        })?;
        sections.run(&format!("get-{size}"), |count| {
            (0..count).try_for_each(|_| pair.get(size))
        })?;
    }
    Ok(())
}
