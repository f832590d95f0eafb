//! A node as each of its agents sees it: its channels, its memory, and the requests of its
//! processes.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use agent::Code;
use agent::host::{
    self, Attempt, Event, Memory, Message, NoMemory, Outcome, Place, Request, Siblings,
};

use crate::siblings::Seat;

/// The state that the agents of a node share.
#[derive(Debug, Default)]
struct Node {
    /// Bytes of memory in use.
    used: usize,
    /// The allocations by name.
    memory: HashMap<u64, Vec<u8>>,
    /// The last name given to an allocation.
    named: u64,
    channels: HashMap<u8, Channel>,
    /// Receipts of sent messages, by agent.
    receipts: HashMap<u32, VecDeque<Event<Pool>>>,
}

/// A channel.
#[derive(Debug, Default)]
struct Channel {
    capacity: usize,
    /// Messages with their senders and requested receipts.
    messages: VecDeque<(Message<Pool>, u32, Option<u64>)>,
}

impl Node {
    /// Queues the receipt of a message for the agent that sent it, if that agent requested one.
    fn receipt(&mut self, agent: u32, event: Option<Event<Pool>>) {
        self.receipts.entry(agent).or_default().extend(event);
    }
}

/// An allocation of a node.
#[derive(Debug)]
pub struct Pool {
    node: Arc<Mutex<Node>>,
    name: u64,
    length: usize,
    /// Whether another agent frees it.
    is_imported: bool,
}

impl PartialEq for Pool {
    fn eq(&self, other: &Self) -> bool {
        self.bytes() == other.bytes()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if !self.is_imported {
            let mut node = lock(&self.node);
            node.used -= self.length;
            node.memory.remove(&self.name);
        }
    }
}

impl Pool {
    /// Returns a copy of the bytes.
    ///
    /// # Panics
    /// Panics if the memory was freed.
    pub fn bytes(&self) -> Vec<u8> {
        lock(&self.node).memory[&self.name].clone()
    }
}

impl Memory for Pool {
    fn length(&self) -> usize {
        self.length
    }
    /// Fills `into` with garbage if another agent has freed this memory.
    fn read(&self, offset: usize, into: &mut [u8]) {
        match lock(&self.node).memory.get(&self.name) {
            Some(bytes) => into.copy_from_slice(&bytes[offset..][..into.len()]),
            None if self.is_imported => into.fill(0xee),
            None => panic!("the agent's own memory {} was freed", self.name),
        }
    }
    /// # Panics
    /// Panics if the memory was freed.
    fn write(&mut self, offset: usize, bytes: &[u8]) {
        let mut node = lock(&self.node);
        let memory = node.memory.get_mut(&self.name);
        let memory = memory.expect("the memory has not been freed");
        memory[offset..][..bytes.len()].copy_from_slice(bytes);
    }
    fn export(&self) -> Option<Box<[u8]>> {
        Some(self.name.to_le_bytes().into())
    }
    fn is_own(&self) -> bool {
        !self.is_imported
    }
}

fn lock(node: &Mutex<Node>) -> MutexGuard<'_, Node> {
    node.lock().expect("no holder has panicked")
}

/// A node, as one of its agents sees it.
#[derive(Debug, Default)]
pub struct Host {
    node: Arc<Mutex<Node>>,
    agent: u32,
    /// The node's memory limit in bytes.
    size: usize,
    asked: VecDeque<Event<Pool>>,
    pub(crate) seat: Option<Seat>,
    /// The channel and hints of each message that the agent has put into a channel.
    pub sent: Vec<(u8, u64)>,
    /// The id and outcome of each completed request, in order of completion.
    pub completed: Vec<(u64, Outcome<Pool>)>,
}

impl Host {
    /// Creates a node with `size` bytes of memory, as its first agent sees it.
    pub fn new(size: usize) -> Self {
        Self {
            size,
            ..Self::default()
        }
    }

    /// Returns another agent's view of this node.
    pub(crate) fn beside(&self, agent: u32) -> Self {
        Self {
            node: Arc::clone(&self.node),
            agent,
            size: self.size,
            ..Self::default()
        }
    }

    /// Returns the number of bytes of memory in use.
    pub fn used(&self) -> usize {
        lock(&self.node).used
    }

    /// Allocates memory that holds `bytes`, even beyond the node's limit.
    pub fn memory(&self, bytes: Vec<u8>) -> Pool {
        let mut node = lock(&self.node);
        node.named += 1;
        let (name, length) = (node.named, bytes.len());
        node.used += length;
        node.memory.insert(name, bytes);
        Pool {
            node: Arc::clone(&self.node),
            name,
            length,
            is_imported: false,
        }
    }

    /// Creates a channel, whose number is its descriptor.
    pub fn create(&mut self, number: u8, capacity: usize) {
        let channel = Channel {
            capacity,
            messages: VecDeque::new(),
        };
        let before = lock(&self.node).channels.insert(number, channel);
        drop(before);
    }

    /// Changes a channel's capacity. Returns whether the channel exists.
    pub fn widen(&mut self, number: u8, capacity: usize) -> bool {
        let mut node = lock(&self.node);
        let channel = node.channels.get_mut(&number);
        channel.is_some_and(|channel| {
            channel.capacity = capacity;
            true
        })
    }

    /// Puts a message from a local process into a channel, even beyond the channel's capacity. Does
    /// nothing if the channel does not exist.
    pub fn put(&mut self, number: u8, memory: Pool) {
        let message = Message {
            memory,
            hints: 0,
            client: 0,
        };
        if let Some(channel) = lock(&self.node).channels.get_mut(&number) {
            channel.messages.push_back((message, self.agent, None));
        }
    }

    /// Destroys a channel and its messages.
    pub fn destroy(&mut self, number: u8) {
        let channel = lock(&self.node).channels.remove(&number);
        for (message, agent, receipt) in channel.into_iter().flat_map(|channel| channel.messages) {
            drop(message);
            lock(&self.node).receipt(agent, receipt.map(Event::Discarded));
        }
    }

    /// Submits a request on behalf of a process of the node.
    pub fn ask(&mut self, request: Request<Pool>) {
        self.asked.push_back(Event::Request(request));
    }

    /// Drops the events that the agent has not taken, like a gateway whose agent was replaced, and
    /// returns the ids of the requests among them.
    pub fn forget(&mut self) -> Vec<u64> {
        lock(&self.node).receipts.remove(&self.agent);
        let forgotten = self.asked.drain(..).filter_map(|event| match event {
            Event::Request(request) => Some(request.id),
            _ => None,
        });
        forgotten.collect()
    }

    /// Replaces the agent with one that knows nothing of the messages in the channels.
    pub(crate) fn renew(&mut self) {
        let mut node = lock(&self.node);
        let channels = node.channels.values_mut();
        for (_, sender, receipt) in channels.flat_map(|channel| &mut channel.messages) {
            if *sender == self.agent {
                *receipt = None;
            }
        }
        node.receipts.remove(&self.agent);
    }

    /// Reports to the agent that the requester has abandoned a request.
    pub fn abandon(&mut self, request: u64) {
        self.asked.push_back(Event::Abandoned(request));
    }

    /// Takes the next message from a channel on behalf of a process of the node.
    pub fn take(&mut self, number: u8) -> Option<Message<Pool>> {
        let mut node = lock(&self.node);
        let channel = node.channels.get_mut(&number)?;
        let (message, agent, receipt) = channel.messages.pop_front()?;
        node.receipt(agent, receipt.map(Event::Received));
        Some(message)
    }

    /// Returns whether the agent has events to take.
    pub fn has_events(&self) -> bool {
        let node = lock(&self.node);
        let receipts = node.receipts.get(&self.agent);
        !self.asked.is_empty() || receipts.is_some_and(|receipts| !receipts.is_empty())
    }
}

impl host::Host for Host {
    type Memory = Pool;
    type Channel = u8;

    fn next(&mut self, sends: bool) -> Option<Event<Pool>> {
        let is_free = |event: &Event<Pool>| match event {
            Event::Request(request) => {
                sends || !matches!(request.operation, host::Operation::Send { .. })
            }
            _ => true,
        };
        let receipt = || lock(&self.node).receipts.get_mut(&self.agent)?.pop_front();
        if let Some(receipt) = receipt() {
            return Some(receipt);
        }
        let at = self.asked.iter().position(is_free)?;
        self.asked.remove(at)
    }

    fn complete(&mut self, request: u64, outcome: Outcome<Pool>) {
        self.completed.push((request, outcome));
    }

    fn allocate(&mut self, bytes: usize, _: Place<'_>) -> Result<Pool, NoMemory> {
        if bytes > self.size {
            return Err(NoMemory::Ever(Code::OUT_OF_SPACE));
        }
        if self.used() + bytes > self.size {
            return Err(NoMemory::Now);
        }
        Ok(self.memory(vec![0; bytes]))
    }

    fn import(&mut self, name: &[u8]) -> Result<Pool, Code> {
        let name = name.try_into().map(u64::from_le_bytes);
        let name = name.map_err(|_| Code::INVALID_ARGUMENT)?;
        let node = lock(&self.node);
        let memory = node.memory.get(&name).ok_or(Code::OBJECT_DESTROYED)?;
        Ok(Pool {
            node: Arc::clone(&self.node),
            name,
            length: memory.len(),
            is_imported: true,
        })
    }

    fn siblings(&mut self) -> Option<&mut dyn Siblings> {
        Some(self.seat.as_mut()?)
    }

    fn attach(&mut self, descriptor: &[u8]) -> Result<u8, Code> {
        match descriptor {
            [number] if lock(&self.node).channels.contains_key(number) => Ok(*number),
            [_] => Err(Code::OBJECT_DESTROYED),
            _ => Err(Code::INVALID_ARGUMENT),
        }
    }

    fn send(
        &mut self,
        channel: &mut u8,
        message: &mut Option<Message<Pool>>,
        receipt: Option<u64>,
    ) -> Attempt<()> {
        let number = *channel;
        let mut node = lock(&self.node);
        let Some(channel) = node.channels.get_mut(&number) else {
            return Attempt::Failed(Code::OBJECT_DESTROYED);
        };
        if channel.messages.len() >= channel.capacity {
            return Attempt::Blocked(Code::CHANNEL_FULL);
        }
        let message = message
            .take()
            .expect("the message has not been sent before");
        self.sent.push((number, message.hints));
        channel.messages.push_back((message, self.agent, receipt));
        Attempt::Done(())
    }

    fn get(&mut self, channel: &mut u8) -> Attempt<Message<Pool>> {
        let number = *channel;
        if !lock(&self.node).channels.contains_key(&number) {
            return Attempt::Failed(Code::OBJECT_DESTROYED);
        }
        let message = self.take(number);
        message.map_or(Attempt::Blocked(Code::CHANNEL_EMPTY), Attempt::Done)
    }

    /// Succeeds if the channel holds at least `mask` messages.
    fn poll(&mut self, channel: &mut u8, mask: u16) -> Attempt<(u64, Code)> {
        let node = lock(&self.node);
        let Some(channel) = node.channels.get(channel) else {
            return Attempt::Failed(Code::OBJECT_DESTROYED);
        };
        let count = channel.messages.len();
        match count >= mask.into() {
            true => Attempt::Done((count as u64, Code::SUCCESS)),
            false => Attempt::Blocked(Code::CHANNEL_EMPTY),
        }
    }
}
