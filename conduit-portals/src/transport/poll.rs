//! Delivery: events leave their queue under the lock, all at once, and go to the sink outside of it.

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

/// What is being delivered of a queue, by one thread at a time.
#[derive(Debug)]
pub(crate) struct Local {
    /// Of what is there, older than what is in the mailbox, which is older than what is in the queue.
    events: VecDeque<Queued>,
    delivered: Delivered,
    mailbox: Reader<InlinePut>,
}

/// What has been delivered and is to be accounted for.
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

impl Local {
    pub(crate) fn new(mailbox: Reader<InlinePut>) -> Self {
        Self {
            events: VecDeque::new(),
            delivered: Delivered::default(),
            mailbox,
        }
    }

    /// The first event has been delivered. What has to be accounted for is taken out of it where it lies: copying all of it out
    /// of the queue would cost more.
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

/// The first event while it is delivered: gone after that, also if the sink panics.
struct First<'a>(&'a mut Local);

impl Drop for First<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.pop_delivered();
    }
}

impl<M: Mode, T: Transport> SoftPortals<M, T> {
    /// See [`conduit_core::ni::Ni::ready`].
    #[inline]
    pub(crate) fn look(&self) -> Ready {
        let shared = &*self.shared;
        let ready = shared.flags.ready();
        // Where events lie that nobody takes, what is awaited may be elsewhere.
        if !ready.is_empty() && shared.delivered.load(Ordering::Relaxed) {
            shared.delivered.store(false, Ordering::Relaxed);
            return ready;
        }
        if let Some(mut inner) = self.try_inner() {
            if !ready.is_empty() {
                // Before progress: what comes by that is waited for.
                self.fetch_ready(&mut inner, ready);
            }
            if inner.is_due() {
                self.advance(&mut inner);
            }
            if shared.flags.has_queued() {
                self.fetch_ready(&mut inner, shared.flags.ready());
            }
        }
        shared.flags.ready()
    }

    /// Takes what the poll that follows will ask for while the lock is held anyhow, and finds out which queues were emptied
    /// without it.
    #[inline(never)]
    fn fetch_ready(&self, inner: &mut Inner<T>, ready: Ready) {
        let flags = &self.shared.flags;
        for number in ready.queues() {
            if let Some(queue) = inner.portals.queues.get_mut(number)
                && let Some(mut local) = self.local[number].try_lock()
                && local.events.is_empty()
                && !local.mailbox.is_full()
            {
                flags.hand_over(number, queue, &mut local.events);
            }
        }
    }

    /// See [`conduit_core::ni::Ni::poll`].
    pub(crate) fn poll_queue<S: Sink>(&self, number: usize, limit: u32, sink: &mut S) -> u32 {
        let Some(local) = self.local.get(number) else {
            return 0;
        };
        let Some(mut local) = local.try_lock() else {
            return 0;
        };
        let local = &mut *local;
        let flags = &self.shared.flags;
        let mut count = 0;
        let mut looked = false;
        while count < limit && sink.is_ready() {
            if local.events.is_empty() {
                if local.mailbox.take(|put| sink.put(put.event())).is_some() {
                    count += 1;
                    if !flags.is_queued(number) {
                        // The next look finds out that it is empty: it has the lock anyhow.
                        break;
                    }
                    // As below.
                    looked = true;
                    continue;
                }
                if !self.refill(number, local, &mut looked) {
                    break;
                }
                continue;
            }
            if !deliver(local, sink) {
                break;
            }
            count += 1;
            // It had something, so nothing is gained by a look before the next poll.
            looked = true;
        }
        if count > 0 && (!local.events.is_empty() || flags.is_queued(number)) {
            self.shared.delivered.store(true, Ordering::Relaxed);
        }
        if !local.delivered.is_empty() {
            self.settle(number, local);
        }
        count
    }

    /// Takes a queue's events; makes progress once if there are none. False if there are none then.
    fn refill(&self, number: usize, local: &mut Local, looked: &mut bool) -> bool {
        let mut inner = self.inner();
        inner.account(&mut local.delivered);
        let queue = inner.portals.queues.get(number);
        if queue.is_none_or(VecDeque::is_empty)
            && !local.mailbox.is_full()
            && !std::mem::replace(looked, true)
        {
            self.advance(&mut inner);
        }
        // It is older than what is in the queue.
        if local.mailbox.is_full() {
            return true;
        }
        let queue = inner.portals.queues.get_mut(number);
        queue.is_some_and(|queue| {
            let flags = &self.shared.flags;
            flags.hand_over(number, queue, &mut local.events)
        })
    }

    /// Accounts for what was delivered.
    fn settle(&self, number: usize, local: &mut Local) {
        let mut inner = self.inner();
        inner.account(&mut local.delivered);
        let queue = inner.portals.queues.get(number);
        if local.events.is_empty()
            && !local.mailbox.is_full()
            && queue.is_none_or(VecDeque::is_empty)
        {
            self.shared.flags.clear(number);
        }
    }
}

/// Delivers the first event of a queue; false: it has none.
#[inline]
fn deliver<S: Sink>(local: &mut Local, sink: &mut S) -> bool {
    let first = First(local);
    match first.0.events.front() {
        Some(Queued::Put(put)) => sink.put(put.event()),
        Some(event) => sink.event(event.event()),
        None => return false,
    }
    true
}

impl<T: Transport> Inner<T> {
    #[inline]
    fn account(&mut self, delivered: &mut Delivered) {
        // Sums, so in any order.
        while let Some((source, cost)) = delivered.operations.pop() {
            self.portals.consumed(source, cost);
        }
        while let Some(buffer) = delivered.buffers.pop() {
            self.portals.pool.give(buffer);
        }
    }
}
