//! A channel: a bounded queue of messages.

use std::collections::{BTreeSet, VecDeque};

use agent::Code;
use agent::host::{Attempt, Event, Message};

use crate::pool::{Memory, SHORT};

/// A channel's default capacity, in messages.
pub const DEFAULT_CAPACITY: u32 = 100;
/// The default maximum size, in bytes, of a message that is kept in the channel's own memory.
pub const DEFAULT_BLOCK: u32 = 1024;

/// Dragon's numbers for the states that a client can poll for.
pub(crate) mod mask {
    pub(crate) const IN: u16 = 1;
    pub(crate) const OUT: u16 = 2;
    pub(crate) const IN_OR_OUT: u16 = 3;
    pub(crate) const EMPTY: u16 = 4;
    pub(crate) const FULL: u16 = 5;
    pub(crate) const SIZE: u16 = 6;
    pub(crate) const CAPACITY: u16 = 8;
}

/// A channel; see the [module](self). Methods that add or remove messages append the resulting
/// events to a list that the caller passes.
#[derive(Debug)]
pub(crate) struct Queue {
    capacity: usize,
    /// The maximum size, in bytes, of messages that are kept in the channel's own memory. Messages
    /// of up to [`SHORT`] bytes are always kept there. Longer messages stay in their pool.
    block: usize,
    /// The messages, each with the receipt to report once it has been received, if any.
    messages: VecDeque<(Message<Memory>, Option<u64>)>,
    /// The numbers of the watchers to notify of the channel's next change.
    watchers: BTreeSet<u32>,
}

pub(crate) type Events = VecDeque<Event<Memory>>;

impl Queue {
    pub(crate) fn new(capacity: u32, block: u32) -> Self {
        Self {
            capacity: capacity as usize,
            block: block as usize,
            messages: VecDeque::new(),
            watchers: BTreeSet::new(),
        }
    }

    /// Returns the maximum total size, in bytes, of the messages in the channel's own memory.
    pub(crate) fn reserve(&self) -> u64 {
        self.capacity as u64 * self.block.max(SHORT) as u64
    }

    pub(crate) fn watch(&mut self, number: u32) {
        self.watchers.insert(number);
    }

    fn changed(&mut self, events: &mut Events) {
        let watchers = std::mem::take(&mut self.watchers);
        events.extend(watchers.into_iter().map(Event::Changed));
    }

    /// Moves the message into the channel if there is room; otherwise, leaves it in `message`.
    pub(crate) fn send(
        &mut self,
        message: &mut Option<Message<Memory>>,
        receipt: Option<u64>,
        events: &mut Events,
    ) -> Attempt<()> {
        if self.messages.len() >= self.capacity {
            return Attempt::Blocked(Code::CHANNEL_FULL);
        }
        // An earlier call has already taken the message.
        let Some(mut message) = message.take() else {
            return Attempt::Failed(Code::INVALID_ARGUMENT);
        };
        message.memory = message.memory.deposited(self.block);
        self.messages.push_back((message, receipt));
        self.changed(events);
        Attempt::Done(())
    }

    /// Removes the oldest message.
    pub(crate) fn get(&mut self, events: &mut Events) -> Attempt<Message<Memory>> {
        let Some((message, receipt)) = self.messages.pop_front() else {
            return Attempt::Blocked(Code::CHANNEL_EMPTY);
        };
        events.extend(receipt.map(Event::Received));
        self.changed(events);
        Attempt::Done(message)
    }

    /// Checks whether the channel is in the state that `mask` selects. The value is the capacity
    /// for [`mask::CAPACITY`], the remaining capacity for [`mask::OUT`], and otherwise the number
    /// of messages.
    pub(crate) fn poll(&self, mask: u16) -> Attempt<(u64, Code)> {
        let count = self.messages.len();
        let room = self.capacity - count;
        let (holds, value, otherwise) = match mask {
            mask::IN => (count > 0, count, Code::CHANNEL_EMPTY),
            mask::OUT => (room > 0, room, Code::CHANNEL_FULL),
            mask::IN_OR_OUT | mask::SIZE => (true, count, Code::SUCCESS),
            mask::EMPTY => (count == 0, count, Code::CHANNEL_FULL),
            mask::FULL => (room == 0, count, Code::CHANNEL_EMPTY),
            mask::CAPACITY => (true, self.capacity, Code::SUCCESS),
            _ => return Attempt::Failed(Code::INVALID_ARGUMENT),
        };
        match holds {
            true => Attempt::Done((value as u64, Code::SUCCESS)),
            false => Attempt::Blocked(otherwise),
        }
    }

    /// Destroys the channel and its messages.
    pub(crate) fn destroy(mut self, events: &mut Events) {
        let receipts = self.messages.iter().filter_map(|(_, receipt)| *receipt);
        events.extend(receipts.map(Event::Discarded));
        self.changed(events);
    }
}

#[cfg(test)]
mod tests {
    use agent::host::{Memory as _, NoMemory};
    use proptest::prelude::*;

    use super::*;
    use crate::pool::Pool;

    #[derive(Debug, Clone)]
    enum Step {
        Send { length: usize, receipt: bool },
        Get,
        Poll(u16),
        Watch(u32),
    }

    fn steps() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0usize..5000, any::<bool>()).prop_map(|(length, receipt)| Step::Send { length, receipt }),
            3 => Just(Step::Get),
            2 => (0u16..10).prop_map(Step::Poll),
            1 => (0u32..5).prop_map(Step::Watch),
        ]
    }

    #[derive(Debug, PartialEq)]
    enum Told {
        Received(u64),
        Discarded(u64),
        Changed(u32),
    }

    fn told(events: &mut Events) -> Vec<Told> {
        let told = |event| match event {
            Event::Received(receipt) => Told::Received(receipt),
            Event::Discarded(receipt) => Told::Discarded(receipt),
            Event::Changed(number) => Told::Changed(number),
            other => unreachable!("not a channel's event: {other:?}"),
        };
        events.drain(..).map(told).collect()
    }

    fn content(number: u64, length: usize) -> Vec<u8> {
        (0..length)
            .map(|at| (number as usize * 7 + at) as u8)
            .collect()
    }

    fn bytes(message: &Message<Memory>) -> Vec<u8> {
        let mut bytes = vec![0; message.memory.length()];
        message.memory.read(0, &mut bytes);
        bytes
    }

    proptest! {
        /// Compares the channel with a queue of vectors.
        #[test]
        fn a_channel_is_a_bounded_queue(
            capacity in 1u32..6,
            block in prop_oneof![Just(0u32), Just(100), Just(1024), Just(3000)],
            steps in prop::collection::vec(steps(), 0..200),
        ) {
            let pool = Pool::new(64 << 10, false).unwrap();
            let mut queue = Queue::new(capacity, block);
            let mut reference: VecDeque<(u64, Vec<u8>, Option<u64>)> = VecDeque::new();
            let (mut watchers, mut events) = (BTreeSet::new(), Events::new());
            let (mut expected, full) = (Vec::<Told>::new(), capacity as usize);
            for (number, step) in (0u64..).zip(steps) {
                let mut has_changed = false;
                match step {
                    Step::Send { length, receipt } => {
                        let sent = content(number, length);
                        let receipt = receipt.then_some(number);
                        let mut memory = match Memory::allocate(length, &pool) {
                            Ok(memory) => memory,
                            Err(error) => {
                                prop_assert_eq!(error, NoMemory::Now);
                                continue;
                            }
                        };
                        memory.write(0, &sent);
                        let mut message = Some(Message { memory, hints: number, client: 1 });
                        let attempt = queue.send(&mut message, receipt, &mut events);
                        if reference.len() < full {
                            prop_assert!(attempt == Attempt::Done(()) && message.is_none());
                            reference.push_back((number, sent, receipt));
                            has_changed = true;
                        } else {
                            prop_assert_eq!(attempt, Attempt::Blocked(Code::CHANNEL_FULL));
                            prop_assert!(message.is_some());
                        }
                    }
                    Step::Get => match (queue.get(&mut events), reference.pop_front()) {
                        (Attempt::Done(message), Some((number, sent, receipt))) => {
                            prop_assert_eq!(message.hints, number);
                            prop_assert_eq!(bytes(&message), sent);
                            expected.extend(receipt.map(Told::Received));
                            has_changed = true;
                        }
                        (Attempt::Blocked(Code::CHANNEL_EMPTY), None) => {}
                        other => prop_assert!(false, "{:?}", other),
                    },
                    Step::Poll(mask) => {
                        let count = reference.len();
                        let holds = match mask {
                            1 => Some((count > 0, count)),
                            2 => Some((count < full, full - count)),
                            3 | 6 => Some((true, count)),
                            4 => Some((count == 0, 0)),
                            5 => Some((count == full, count)),
                            8 => Some((true, full)),
                            _ => None,
                        };
                        match (queue.poll(mask), holds) {
                            (Attempt::Done(answer), Some((true, value))) => {
                                prop_assert_eq!(answer, (value as u64, Code::SUCCESS));
                            }
                            (Attempt::Blocked(_), Some((false, _)))
                            | (Attempt::Failed(Code::INVALID_ARGUMENT), None) => {}
                            other => prop_assert!(false, "{:?}", other),
                        }
                    }
                    Step::Watch(number) => {
                        queue.watch(number);
                        watchers.insert(number);
                    }
                }
                if has_changed {
                    expected.extend(std::mem::take(&mut watchers).into_iter().map(Told::Changed));
                }
                prop_assert_eq!(told(&mut events), std::mem::take(&mut expected));
            }
            queue.destroy(&mut events);
            let lost = reference.iter().filter_map(|(.., receipt)| receipt.map(Told::Discarded));
            expected.extend(lost);
            expected.extend(watchers.into_iter().map(Told::Changed));
            prop_assert_eq!(told(&mut events), expected);
            // All memory of the pool must be free again: it has room for two blocks of the maximum
            // length.
            let all = [(); 2].map(|()| Memory::allocate(pool.longest(), &pool).unwrap());
            drop(all);
        }
    }
}
