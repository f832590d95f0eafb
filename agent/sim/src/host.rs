//! A node: its channels, its memory, and what its processes ask for.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use agent::Code;
use agent::host::{self, Attempt, Event, Memory, Message, NoMemory, Outcome, Place, Request};

/// Memory of a node's pool.
#[derive(Debug)]
pub struct Pool {
    bytes: Vec<u8>,
    used: Arc<AtomicUsize>,
}

impl PartialEq for Pool {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.used.fetch_sub(self.bytes.len(), Ordering::Relaxed);
    }
}

impl Pool {
    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl Memory for Pool {
    fn length(&self) -> usize {
        self.bytes.len()
    }
    fn read(&self, offset: usize, into: &mut [u8]) {
        into.copy_from_slice(&self.bytes[offset..][..into.len()]);
    }
    fn write(&mut self, offset: usize, bytes: &[u8]) {
        self.bytes[offset..][..bytes.len()].copy_from_slice(bytes);
    }
}

/// A channel.
#[derive(Debug, Default)]
struct Channel {
    capacity: usize,
    messages: VecDeque<(Message<Pool>, Option<u64>)>,
}

/// A node.
#[derive(Debug, Default)]
pub struct Host {
    used: Arc<AtomicUsize>,
    /// Bytes of its memory.
    size: usize,
    channels: HashMap<u8, Channel>,
    asked: VecDeque<Event<Pool>>,
    /// Messages that were put into channels, by the channel and what their sender's hints were.
    pub sent: Vec<(u8, u64)>,
    /// What was completed: requests' numbers and outcomes, in their order.
    pub completed: Vec<(u64, Outcome<Pool>)>,
}

impl Host {
    /// A node with so many bytes of memory.
    pub fn new(size: usize) -> Self {
        Self {
            size,
            ..Self::default()
        }
    }

    /// Bytes of its memory in use.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Memory with these bytes; the node has it, however much is used.
    pub fn memory(&self, bytes: Vec<u8>) -> Pool {
        self.used.fetch_add(bytes.len(), Ordering::Relaxed);
        Pool {
            bytes,
            used: Arc::clone(&self.used),
        }
    }

    /// A channel with its number as descriptor.
    pub fn create(&mut self, number: u8, capacity: usize) {
        self.channels.insert(
            number,
            Channel {
                capacity,
                messages: VecDeque::new(),
            },
        );
    }

    /// A channel, if it is there, has room for so many messages from now on; whether it is there.
    pub fn widen(&mut self, number: u8, capacity: usize) -> bool {
        let channel = self.channels.get_mut(&number);
        channel.is_some_and(|channel| {
            channel.capacity = capacity;
            true
        })
    }

    /// A process of the node puts a message into a channel that is there, however full it is.
    pub fn put(&mut self, number: u8, memory: Pool) {
        let message = Message {
            memory,
            hints: 0,
            client: 0,
        };
        if let Some(channel) = self.channels.get_mut(&number) {
            channel.messages.push_back((message, None));
        }
    }

    /// Destroys a channel with what is in it.
    pub fn destroy(&mut self, number: u8) {
        let channel = self.channels.remove(&number);
        let lost = channel.into_iter().flat_map(|channel| channel.messages);
        self.asked
            .extend(lost.filter_map(|(_, receipt)| receipt.map(Event::Discarded)));
    }

    /// A process of the node asks for something.
    pub fn ask(&mut self, request: Request<Pool>) {
        self.asked.push_back(Event::Request(request));
    }

    /// What was asked and not taken is forgotten, as by a gateway whose agent is another one now: the requests' numbers.
    pub fn forget(&mut self) -> Vec<u64> {
        let forgotten = self.asked.drain(..).filter_map(|event| match event {
            Event::Request(request) => Some(request.id),
            _ => None,
        });
        forgotten.collect()
    }

    /// Whoever has asked for this is gone.
    pub fn abandon(&mut self, request: u64) {
        self.asked.push_back(Event::Abandoned(request));
    }

    /// A process of the node takes a message.
    pub fn take(&mut self, number: u8) -> Option<Message<Pool>> {
        let (message, receipt) = self.channels.get_mut(&number)?.messages.pop_front()?;
        self.asked.extend(receipt.map(Event::Received));
        Some(message)
    }

    /// Whether the agent has something to take.
    pub fn has_events(&self) -> bool {
        !self.asked.is_empty()
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

    fn attach(&mut self, descriptor: &[u8]) -> Result<u8, Code> {
        match descriptor {
            [number] if self.channels.contains_key(number) => Ok(*number),
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
        let Some(channel) = self.channels.get_mut(&number) else {
            return Attempt::Failed(Code::OBJECT_DESTROYED);
        };
        if channel.messages.len() >= channel.capacity {
            return Attempt::Blocked(Code::CHANNEL_FULL);
        }
        let message = message.take().expect("it was not sent before");
        self.sent.push((number, message.hints));
        channel.messages.push_back((message, receipt));
        Attempt::Done(())
    }

    fn get(&mut self, channel: &mut u8) -> Attempt<Message<Pool>> {
        let number = *channel;
        if !self.channels.contains_key(&number) {
            return Attempt::Failed(Code::OBJECT_DESTROYED);
        }
        let message = self.take(number);
        message.map_or(Attempt::Blocked(Code::CHANNEL_EMPTY), Attempt::Done)
    }

    /// The mask: at least so many messages are there.
    fn poll(&mut self, channel: &mut u8, mask: u16) -> Attempt<(u64, Code)> {
        let Some(channel) = self.channels.get(channel) else {
            return Attempt::Failed(Code::OBJECT_DESTROYED);
        };
        let count = channel.messages.len();
        match count >= mask.into() {
            true => Attempt::Done((count as u64, Code::SUCCESS)),
            false => Attempt::Blocked(Code::CHANNEL_EMPTY),
        }
    }
}
