//! Delivery of events. All events of a queue are taken out at once under the lock, and are passed
//! to the sink outside of the lock.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use conduit_core::ni::{Rank, Ready, Sink};
use conduit_core::threads::{Lock, Mode};

use super::buffers::Buffer;
use super::interface::Transport;
use super::mailbox::{InlinePut, Reader};
use super::queue::{Queued, QueuedPut};
use super::window::Cost;
use super::{Inner, SoftPortals};

/// The events of a queue that are being delivered, by one thread at a time.
#[derive(Debug)]
pub(crate) struct Delivery {
    /// The events that have been taken from the queue. They are older than the put in the mailbox,
    /// which is older than the events in the queue.
    events: VecDeque<Queued>,
    delivered: Delivered,
    mailbox: Reader<InlinePut>,
}

/// Delivered items that still have to be accounted for.
#[derive(Debug, Default)]
struct Delivered {
    operations: Vec<(Rank, Cost)>,
    buffers: Vec<Buffer>,
}

impl Delivered {
    #[inline]
    fn is_empty(&self) -> bool {
        self.operations.is_empty() && self.buffers.is_empty()
    }

    #[inline]
    fn add(&mut self, source: Rank, cost: Cost) {
        if let Some((last, sum)) = self.operations.last_mut()
            && *last == source
            && sum.add(cost)
        {
            return;
        }
        self.operations.push((source, cost));
    }
}

impl Delivery {
    pub(crate) fn new(mailbox: Reader<InlinePut>) -> Self {
        Self {
            events: VecDeque::new(),
            delivered: Delivered::default(),
            mailbox,
        }
    }

    /// Removes the first event after its delivery. The parts to be accounted for are taken out in
    /// place, because moving the whole event out of the queue would cost more.
    #[inline(always)]
    fn pop_delivered(&mut self) {
        let Some(event) = self.events.front_mut() else {
            return;
        };
        if let Some((source, cost)) = event.consumed() {
            self.delivered.add(source, cost);
        }
        if let Queued::Put(QueuedPut { data, .. }) = event
            && let Some(data) = data.take()
        {
            self.delivered.buffers.push(data);
        }
        self.events.pop_front();
    }
}

/// Removes the first event after its delivery, even if the sink panics.
struct PopOnDrop<'a>(&'a mut Delivery);

impl Drop for PopOnDrop<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.pop_delivered();
    }
}

impl<M: Mode, T: Transport> SoftPortals<M, T> {
    /// Implements [`conduit_core::ni::Ni::ready`].
    #[inline]
    pub(crate) fn poll_ready(&self) -> Ready {
        let shared = &*self.shared;
        let ready = shared.flags.ready();
        // If no events have been delivered since the last call, progress is made even though queues
        // are ready, because the caller may be waiting for events of another queue.
        if !ready.is_empty() && shared.delivered.load(Ordering::Relaxed) {
            shared.delivered.store(false, Ordering::Relaxed);
            return ready;
        }
        if let Some(mut inner) = self.try_inner() {
            if !ready.is_empty() {
                // The ready events are taken before progress is made, because the caller awaits the
                // events that progress brings.
                self.take_ready(&mut inner, ready);
            }
            if inner.is_due() {
                self.advance(&mut inner);
            }
            if shared.flags.has_queued() {
                self.take_ready(&mut inner, shared.flags.ready());
            }
        }
        shared.flags.ready()
    }

    /// Hands over the events for the next poll, because the lock is already held, and clears the
    /// flags of queues that were emptied without the lock.
    #[inline(never)]
    fn take_ready(&self, inner: &mut Inner<T>, ready: Ready) {
        let flags = &self.shared.flags;
        for number in ready.queues() {
            if let Some(queue) = inner.portals.queues.get_mut(number)
                && let Some(mut delivery) = self.deliveries[number].try_lock()
                && delivery.events.is_empty()
                && !delivery.mailbox.is_full()
            {
                flags.hand_over(number, queue, &mut delivery.events);
            }
        }
    }

    /// Implements [`conduit_core::ni::Ni::poll`].
    pub(crate) fn poll_queue<S: Sink>(&self, number: usize, limit: u32, sink: &mut S) -> u32 {
        let Some(delivery) = self.deliveries.get(number) else {
            return 0;
        };
        let Some(mut delivery) = delivery.try_lock() else {
            return 0;
        };
        let delivery = &mut *delivery;
        let flags = &self.shared.flags;
        let mut count = 0;
        let mut has_progressed = false;
        while count < limit && sink.is_ready() {
            if delivery.events.is_empty() {
                if delivery.mailbox.take(|put| sink.put(put.event())).is_some() {
                    count += 1;
                    if !flags.is_queued(number) {
                        // `take_ready` clears the queue's flag, because it has the lock anyway.
                        break;
                    }
                    // The queue was not empty, so progress can wait until the next poll.
                    has_progressed = true;
                    continue;
                }
                if !self.refill(number, delivery, &mut has_progressed) {
                    break;
                }
                continue;
            }
            if !deliver(delivery, sink) {
                break;
            }
            count += 1;
            // The queue was not empty, so progress can wait until the next poll.
            has_progressed = true;
        }
        if count > 0 && (!delivery.events.is_empty() || flags.is_queued(number)) {
            self.shared.delivered.store(true, Ordering::Relaxed);
        }
        if !delivery.delivered.is_empty() {
            self.account_delivered(number, delivery);
        }
        count
    }

    /// Takes a queue's events. If there are none, makes progress first. Returns `false` if there
    /// are still none.
    fn refill(&self, number: usize, delivery: &mut Delivery, has_progressed: &mut bool) -> bool {
        let mut inner = self.inner();
        inner.account(&mut delivery.delivered);
        let queue = inner.portals.queues.get(number);
        if queue.is_none_or(VecDeque::is_empty)
            && !delivery.mailbox.is_full()
            && !std::mem::replace(has_progressed, true)
        {
            self.advance(&mut inner);
        }
        // The put in the mailbox is older than the events in the queue.
        if delivery.mailbox.is_full() {
            return true;
        }
        let queue = inner.portals.queues.get_mut(number);
        queue.is_some_and(|queue| {
            let flags = &self.shared.flags;
            flags.hand_over(number, queue, &mut delivery.events)
        })
    }

    /// Accounts for the delivered items, and clears the flag of an empty queue.
    fn account_delivered(&self, number: usize, delivery: &mut Delivery) {
        let mut inner = self.inner();
        inner.account(&mut delivery.delivered);
        let queue = inner.portals.queues.get(number);
        if delivery.events.is_empty()
            && !delivery.mailbox.is_full()
            && queue.is_none_or(VecDeque::is_empty)
        {
            self.shared.flags.clear(number);
        }
    }
}

/// Delivers the first event; returns `false` if there is none.
#[inline]
fn deliver<S: Sink>(delivery: &mut Delivery, sink: &mut S) -> bool {
    let pop = PopOnDrop(delivery);
    match pop.0.events.front() {
        Some(Queued::Put(put)) => sink.put(put.event()),
        Some(event) => sink.event(event.event()),
        None => return false,
    }
    true
}

impl<T: Transport> Inner<T> {
    #[inline]
    fn account(&mut self, delivered: &mut Delivered) {
        // Consumption is only summed up, so the order does not matter.
        while let Some((source, cost)) = delivered.operations.pop() {
            self.portals.consumed(source, cost);
        }
        while let Some(buffer) = delivered.buffers.pop() {
            self.portals.pool.give(buffer);
        }
    }
}
