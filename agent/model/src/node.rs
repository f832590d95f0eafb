//! A node: one channel, and the requests of its processes.

use std::collections::VecDeque;

use agent::Code;
use agent::host::{Attempt, Event, Host, Memory, Message, NoMemory, Operation, Outcome, Place};

use crate::Fault;

/// The memory of a message.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Bytes(pub(crate) Vec<u8>);

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
}

/// A node. Its channel's descriptor is one byte.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Node {
    fault: Fault,
    /// The channel's messages with their receipts, or `None` once it is destroyed.
    pub(crate) channel: Option<VecDeque<(Message<Bytes>, Option<u64>)>>,
    pub(crate) capacity: usize,
    pub(crate) events: VecDeque<Event<Bytes>>,
    pub(crate) completed: Vec<(u64, Outcome<Bytes>)>,
    /// Hints of the messages that were put into the channel.
    pub(crate) deposited: Vec<u64>,
}

impl Node {
    pub(crate) fn new(fault: Fault, capacity: usize) -> Self {
        Self {
            fault,
            channel: Some(VecDeque::new()),
            capacity,
            events: VecDeque::new(),
            completed: Vec::new(),
            deposited: Vec::new(),
        }
    }

    /// Takes a message for a process.
    pub(crate) fn take(&mut self) -> Option<Message<Bytes>> {
        let (message, receipt) = self.channel.as_mut()?.pop_front()?;
        self.events.extend(receipt.map(Event::Received));
        Some(message)
    }

    /// Destroys the channel and its messages.
    pub(crate) fn destroy(&mut self) {
        let lost = self.channel.take().into_iter().flatten();
        self.events
            .extend(lost.filter_map(|(_, receipt)| receipt.map(Event::Discarded)));
    }
}

impl Host for Node {
    type Memory = Bytes;
    type Channel = ();

    fn next(&mut self, sends: bool) -> Option<Event<Bytes>> {
        let at = self.events.iter().position(|event| {
            let Event::Request(request) = event else {
                return true;
            };
            sends || !matches!(request.operation, Operation::Send { .. })
        })?;
        let mut event = self.events.remove(at)?;
        if self.fault == Fault::ForgetsPorts
            && let Event::Request(request) = &mut event
            && let Operation::Send { handle, .. } = &mut request.operation
        {
            // Gives each message its own port.
            *handle = request.id.into();
        }
        Some(event)
    }

    fn complete(&mut self, request: u64, outcome: Outcome<Bytes>) {
        if self.fault == Fault::CompletesTwice {
            self.completed.push((request, Outcome::Sent));
        }
        self.completed.push((request, outcome));
    }

    fn allocate(&mut self, bytes: usize, _: Place<'_>) -> Result<Bytes, NoMemory> {
        Ok(Bytes(vec![0; bytes]))
    }

    fn attach(&mut self, descriptor: &[u8]) -> Result<(), Code> {
        match (descriptor, &self.channel) {
            ([_], Some(_)) => Ok(()),
            ([_], None) => Err(Code::OBJECT_DESTROYED),
            _ => Err(Code::INVALID_ARGUMENT),
        }
    }

    fn send(
        &mut self,
        (): &mut (),
        message: &mut Option<Message<Bytes>>,
        receipt: Option<u64>,
    ) -> Attempt<()> {
        let Some(channel) = &mut self.channel else {
            return Attempt::Failed(Code::OBJECT_DESTROYED);
        };
        if channel.len() >= self.capacity {
            return Attempt::Blocked(Code::CHANNEL_FULL);
        }
        let message = message.take().expect("a message not sent before");
        if self.fault == Fault::LosesMessages {
            return Attempt::Done(());
        }
        self.deposited.push(message.hints);
        channel.push_back((message, receipt));
        Attempt::Done(())
    }

    fn get(&mut self, (): &mut ()) -> Attempt<Message<Bytes>> {
        if self.channel.is_none() {
            return Attempt::Failed(Code::OBJECT_DESTROYED);
        }
        self.take()
            .map_or(Attempt::Blocked(Code::CHANNEL_EMPTY), Attempt::Done)
    }

    /// Waits until the channel has at least `mask` messages.
    fn poll(&mut self, (): &mut (), mask: u16) -> Attempt<(u64, Code)> {
        let Some(channel) = &self.channel else {
            return Attempt::Failed(Code::OBJECT_DESTROYED);
        };
        match channel.len() >= mask.into() {
            true => Attempt::Done((channel.len() as u64, Code::SUCCESS)),
            false => Attempt::Blocked(Code::CHANNEL_EMPTY),
        }
    }
}
