//! Polling of a queue, which carries out the target's half of every operation and delivers
//! completions at their initiator.
//!
//! Values written by a peer are not trusted to be in range: a malformed message is counted and
//! skipped, and the source of the first one is remembered ([`super::Statistics`]).

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use ::lanes::Sampler;
use conduit_core::ni::{Event, MeEvents, Rank, Ready, Sink};
use conduit_core::threads::{Lock, Mode};

use crate::ring::{Consumer, Frame, KIND_SKIP, Next, RingView, SLOT};
use conduit_portals::matching::{Hit, Incoming, Location};

use super::Shm;
use super::coalescing::Coalescing;
use super::message::{
    ACK, ATOMIC, GET, Header, LANE, LANE_OPENED, PUT, PUT_COMPACT, PUT_REFERENCE, PUT_REPLY_SLOT,
    REPLY, SEND, before_payload,
};
use super::ready_table::ReadyTable;

/// The maximum number of messages that a poll takes from one ring before it goes to the next. This
/// bound is necessary because messages that raise no event don't count against the caller's limit.
const BATCH: u32 = 64;

/// After one in this many replies, the poll that took the reply also reads the rings.
const ANSWERS: u32 = 16;

/// An event queue, with the rings that lead to it.
pub(super) struct Queue<M: Mode> {
    pub(super) inbox: M::Lock<Inbox>,
    /// The [`mark`] of the entry into which a message is being delivered, or 0 if there is none.
    pub(super) delivering: AtomicU64,
}

/// The part of a queue that only one thread at a time may use.
#[derive(Debug)]
pub(super) struct Inbox {
    pub(super) rings: Vec<Inbound>,
    /// The lanes to lend, by number. A lane that is polled is in `rings` instead.
    lanes: Box<[Option<Inbound>]>,
    /// The index at which the next poll starts, after the ring at which the last poll ended.
    pub(super) next: usize,
    pub(super) deferred: DeferredEvents,
    /// The queue's bit in the ready table.
    ready: Ready,
    /// The number of replies taken from slots (`super::reply_slots`).
    replies: u32,
}

/// The state of one ring at its consumer.
#[derive(Debug)]
pub(super) struct Inbound {
    /// The only source, or `None` for a ring of all sources.
    pub(super) source: Option<Rank>,
    pub(super) ring: Consumer<RingView>,
    /// A completion for which the initiator's queue had no room. Nothing more is taken from this
    /// ring until the completion has been posted, so there is never more than one.
    pending: Option<(Rank, Header)>,
    /// Whether the ready table will show the ring's next message and the ring has no other work;
    /// see [`Shm::watch`].
    pub(super) watched: bool,
    /// The ring's entry in the ready table; `None` until a source has begun to send through it.
    pub(super) place: Option<u32>,
    pub(super) coalescing: Coalescing,
    /// The sampler of the messages of a ring of all sources.
    pub(super) sampler: Sampler,
    /// The lane's number, if the ring belongs to a lane.
    lane: Option<usize>,
    /// The number of received slots that [`Inbox::lend`] has already returned.
    counted: u64,
}

impl Inbound {
    pub(super) fn new(source: Option<Rank>, ring: Consumer<RingView>, sampler: Sampler) -> Self {
        Self {
            source,
            ring,
            pending: None,
            watched: false,
            place: None,
            coalescing: Coalescing::default(),
            sampler,
            lane: None,
            counted: 0,
        }
    }

    /// Returns whether [`Shm::visit`] would find nothing to do.
    #[inline]
    fn is_idle(&self) -> bool {
        self.place.is_none() || (self.watched && !self.ring.is_ready())
    }

    /// Returns the word and the tag that will show the ring's next message, or `None` if the ring
    /// has work even without a message.
    #[inline]
    pub(super) fn awaited(&self) -> Option<(&AtomicU64, u32)> {
        match self.pending {
            None if !self.coalescing.is_on() => self.ring.awaited(),
            _ => None,
        }
    }
}

impl Inbox {
    pub(super) fn new(
        mut rings: Vec<Inbound>,
        lanes: Box<[Option<Inbound>]>,
        ready: Ready,
    ) -> Self {
        // The room is reserved now, so that no ring moves in memory when lanes are added.
        rings.reserve_exact(lanes.len());
        Self {
            rings,
            lanes,
            next: 0,
            deferred: DeferredEvents::default(),
            ready,
            replies: 0,
        }
    }

    /// Starts polling a lane through which `holder` sends, or stops polling it if `holder` is
    /// `None`. Returns the number of slots that were received through the lane since the last call,
    /// or `None` if the lane cannot be left yet.
    pub(super) fn lend(
        &mut self,
        number: usize,
        holder: Option<Rank>,
        ready_table: &ReadyTable,
    ) -> Option<u64> {
        let Some(lane) = self.lanes.get_mut(number) else {
            return Some(0);
        };
        if let (Some(holder), Some(mut inbound)) = (holder, lane.take_if(|_| holder.is_some())) {
            inbound.source = Some(holder);
            inbound.lane = Some(number);
            inbound.watched = false;
            match inbound.place {
                Some(place) => ready_table.set(place as usize, None),
                None => inbound.place = ready_table.add(self.ready),
            }
            self.rings.push(inbound);
            return Some(0);
        }
        let mut rings = self.rings.iter();
        let Some(at) = rings.position(|inbound| inbound.lane == Some(number)) else {
            return Some(0);
        };
        let inbound = &mut self.rings[at];
        let taken = inbound.ring.taken();
        let fresh = taken.wrapping_sub(std::mem::replace(&mut inbound.counted, taken));
        if holder.is_none() {
            if inbound.pending.is_some() {
                return None;
            }
            let inbound = self.rings.swap_remove(at);
            if let Some(place) = inbound.place {
                ready_table.clear(place as usize);
            }
            self.lanes[number] = Some(inbound);
            self.next = 0;
        }
        Some(fresh)
    }

    /// Moves on to the next ring that has work, if any.
    #[inline(always)]
    pub(super) fn seek(&mut self) {
        if self.rings.get(self.next).is_some_and(Inbound::is_idle) {
            self.seek_further();
        }
    }

    #[inline(never)]
    fn seek_further(&mut self) {
        let mut places = (self.next + 1..self.rings.len()).chain(0..self.next);
        if let Some(place) = places.find(|&place| !self.rings[place].is_idle()) {
            self.next = place;
        }
    }

    /// Returns the index of the ring that follows `place`.
    #[inline(always)]
    pub(super) fn behind(&self, place: usize) -> usize {
        if place + 1 == self.rings.len() {
            0
        } else {
            place + 1
        }
    }

    /// Returns whether a poll would find anything to do.
    #[inline]
    pub(super) fn is_ready(&self) -> bool {
        self.deferred.is_pending()
            || self.rings.iter().any(|inbound| {
                inbound.place.is_some() && (inbound.ring.is_ready() || inbound.pending.is_some())
            })
    }
}

/// Events that are due after an event that was already delivered.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct DeferredEvents {
    unlinked: Option<u64>,
    free: Option<u64>,
}

impl DeferredEvents {
    #[inline]
    pub(super) fn is_pending(&self) -> bool {
        self.unlinked.is_some() || self.free.is_some()
    }
}

/// A range of ranks from which messages may come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sources {
    first: Rank,
    count: u32,
}

impl Sources {
    /// Creates the range that contains only `only`, or all `size` ranks if `only` is `None`.
    pub(super) fn of(only: Option<Rank>, size: u32) -> Self {
        let (first, count) = only.map_or((0, size), |source| (source, 1));
        Self { first, count }
    }

    /// Restricts the range to `source` if it contains that rank; otherwise, makes it empty.
    pub(super) fn and_only(self, source: Rank) -> Self {
        Self {
            first: source,
            count: self.contains(source).into(),
        }
    }

    #[inline(always)]
    pub(super) fn contains(self, source: Rank) -> bool {
        source.wrapping_sub(self.first) < self.count
    }
}

/// Returns the value that stands for an entry in [`Queue::delivering`].
#[inline]
pub(super) fn mark(me: u32) -> u64 {
    u64::from(me) + 1
}

/// The sink of a poll's events, and the limit on their number.
pub(super) struct PollBudget<'s, S: ?Sized> {
    pub(super) sink: &'s mut S,
    pub(super) count: u32,
    limit: u32,
}

impl<'s, S: Sink + ?Sized> PollBudget<'s, S> {
    pub(super) fn new(sink: &'s mut S, limit: u32) -> Self {
        Self {
            sink,
            count: 0,
            limit,
        }
    }
}

impl<S: Sink + ?Sized> PollBudget<'_, S> {
    #[inline]
    pub(super) fn event(&mut self, event: Event<'_>) {
        self.count += 1;
        self.sink.event(event);
    }

    /// Delivers deferred events. Returns `false` if the limit is reached.
    #[inline]
    fn settle(&mut self, deferred: &mut DeferredEvents) -> bool {
        if let Some(tag) = deferred.unlinked.filter(|_| self.count < self.limit) {
            deferred.unlinked = None;
            self.event(Event::Unlinked { tag });
        }
        if let Some(tag) = deferred.free.filter(|_| self.count < self.limit) {
            deferred.free = None;
            self.event(Event::Free { tag });
        }
        self.count < self.limit
    }
}

/// The outcome of handling a message.
pub(super) enum Taken {
    /// The message's slots can be released.
    Done,
    /// The message's slots can be released, and this completion has to be posted.
    Completed(Header),
    /// There is no room for the reply, so the message must be tried again later.
    Stalled,
    /// The message is malformed.
    Bad,
}

/// A message in its slots.
pub(super) struct Message {
    pub(super) slot: *const u8,
    pub(super) frame: Frame,
    pub(super) source: Rank,
}

impl Message {
    /// Returns the address of the payload, which begins `before` bytes into the message, if its
    /// `length` bytes lie within the message.
    #[inline]
    pub(super) fn payload(&self, before: usize, length: u32) -> Option<*const u8> {
        let room = usize::from(self.frame.slots()) * SLOT - before;
        // SAFETY: the message has at least one slot, and at most one slot of bytes precedes a
        // payload.
        (length as usize <= room).then(|| unsafe { self.slot.add(before) })
    }
}

impl<M: Mode> Shm<M> {
    /// Implements [`conduit_core::ni::Ni::poll`].
    ///
    /// This is not inlined, so that a single stack frame leads from here to the sink, which is
    /// inlined.
    #[inline(never)]
    pub(super) fn poll_queue<S: Sink>(&self, number: usize, limit: u32, sink: &mut S) -> u32 {
        let Some(queue) = self.queues.get(number).and_then(|queue| queue.get()) else {
            return 0;
        };
        let Some(mut inbox) = queue.inbox.try_lock() else {
            return 0;
        };
        if limit == 0 {
            return 0;
        }
        if self.is_replied()
            && let Some(events) = self.take_reply(number, queue, &mut inbox, sink)
        {
            // Even a rank that gets a reply in every poll must poll the rings from time to time.
            inbox.replies = inbox.replies.wrapping_add(1);
            let is_enough = events > 0 && !inbox.replies.is_multiple_of(ANSWERS);
            if is_enough || events >= limit {
                return events;
            }
            return events + self.poll_inbox(number, queue, &mut inbox, limit - events, sink);
        }
        if self.poll_single(number, queue, &mut inbox, sink) {
            return 1;
        }
        self.poll_inbox(number, queue, &mut inbox, limit, sink)
    }

    /// Does the work of [`Self::poll_queue`] on a queue that may have messages. This is not
    /// inlined, so that the message loop has the registers to itself.
    #[inline(never)]
    fn poll_inbox<S: Sink>(
        &self,
        number: usize,
        queue: &Queue<M>,
        inbox: &mut Inbox,
        limit: u32,
        sink: &mut S,
    ) -> u32 {
        if self.has_activations() {
            self.activate_all(number, inbox);
        }
        let mut budget = PollBudget::new(sink, limit);
        if inbox.deferred.is_pending() && !budget.settle(&mut inbox.deferred) {
            // Deferred events make the ready table show this queue, so the next poll comes back
            // here.
            return budget.count;
        }
        let rings = inbox.rings.len();
        for _ in 0..rings {
            let at = inbox.next;
            inbox.next = inbox.behind(at);
            let inbound = &mut inbox.rings[at];
            if inbound.is_idle() || (inbound.coalescing.is_on() && self.is_coalescing(inbound)) {
                continue;
            }
            let go_on = self.visit(number, queue, inbound, &mut inbox.deferred, &mut budget);
            self.watch(inbound, &inbox.deferred);
            if !go_on {
                break;
            }
        }
        budget.count
    }

    /// Watches a ring from which something was taken. If the ring has other work, makes sure
    /// instead that the ring is polled in any case.
    #[inline(always)]
    pub(super) fn watch(&self, inbound: &mut Inbound, deferred: &DeferredEvents) {
        let awaited = inbound.awaited().filter(|_| !deferred.is_pending());
        let watched = awaited.is_some();
        if let Some(place) = inbound.place {
            self.ready_table.set(place as usize, awaited);
        }
        inbound.watched = watched;
    }

    /// Makes sure that a queue is polled in any case, because events are deferred there.
    pub(super) fn watch_anyway(&self, inbox: &mut Inbox) {
        let mut rings = inbox.rings.iter_mut();
        let place = rings.find_map(|inbound| {
            inbound.watched = false;
            inbound.place
        });
        match place {
            Some(place) => self.ready_table.set(place as usize, None),
            None => self.own().control().signal(),
        }
    }

    /// Returns whether another rank has activated a ring or signalled this rank since the last
    /// check.
    #[inline]
    pub(super) fn has_activations(&self) -> bool {
        self.own().control().activations.load(Ordering::Relaxed) != 0
    }

    /// Adds activated rings to those that are polled, in the queue `number`, which the caller has
    /// locked, and in all other queues.
    #[cold]
    fn activate_all(&self, number: usize, inbox: &mut Inbox) {
        let control = self.own().control();
        // SYNC (activations): the acquire pairs with the releases in `Control::announce`, so a
        // thread that sees the word also sees the bits that were set before it.
        control.activations.swap(0, Ordering::AcqRel);
        self.tend_lanes(number, inbox);
        self.activate(number, inbox);
        for (other, queue) in self.queues.iter().enumerate() {
            let Some(queue) = queue.get().filter(|_| other != number) else {
                continue;
            };
            match queue.inbox.try_lock() {
                Some(mut inbox) => self.activate(other, &mut inbox),
                // The queue is in use, so its rings are added by a later poll. Until then, all
                // queues are polled.
                None => control.signal(),
            }
        }
    }

    fn activate(&self, number: usize, inbox: &mut Inbox) {
        let used = self.own().control().queues[number]
            .used
            .load(Ordering::Acquire);
        for (at, inbound) in inbox.rings.iter_mut().enumerate() {
            if used >> (at % 64) & 1 == 1 && inbound.place.is_none() {
                inbound.place = self.ready_table.add(inbox.ready);
            }
        }
    }

    /// Records that all of a ring's messages have been taken and that at least one of them was
    /// large. `sent` is the number of messages that this rank had sent when it began to take these
    /// messages.
    #[inline(always)]
    pub(super) fn coalesce(&self, inbound: &mut Inbound, sent: u32) {
        let longest = self.config.max_coalescing;
        // There are no pauses in a ring of all sources, because a flood from one source must not
        // delay the messages of others, or if several threads poll at once, because a flood to one
        // thread must not delay messages to another.
        if !longest.is_zero() && inbound.source.is_some() && !M::PARALLEL {
            let coalescing = &mut inbound.coalescing;
            coalescing.begin(longest, sent, self.sent(), Instant::now);
        }
    }

    /// Returns whether a ring must not be polled yet.
    #[inline(never)]
    fn is_coalescing(&self, inbound: &mut Inbound) -> bool {
        let pauses = inbound.coalescing.goes_on(self.sent(), Instant::now);
        if pauses {
            // Nothing else frees the slots taken so far during a pause, and the sender may need the
            // room.
            inbound.ring.publish();
        }
        pauses
    }

    /// Takes the messages of a ring. Returns `false` if the limit is reached.
    #[inline]
    fn visit<S: Sink>(
        &self,
        number: usize,
        queue: &Queue<M>,
        inbound: &mut Inbound,
        deferred: &mut DeferredEvents,
        budget: &mut PollBudget<'_, S>,
    ) -> bool {
        let mut left = BATCH;
        let (sent, mut large) = (self.sent(), false);
        while left > 0 {
            if inbound.pending.is_some() && !self.post_pending(inbound) {
                // The slots of messages taken earlier can still be freed.
                inbound.ring.publish();
                return true;
            }
            if budget.count >= budget.limit || !budget.sink.is_ready() {
                return false;
            }
            let most = left.min(budget.limit - budget.count);
            let head = inbound.ring.peek();
            if head.is_some_and(|(_, frame)| frame.kind == KIND_SKIP) {
                // `next` passes the skip, so the loop continues with the message behind it.
                inbound.ring.next();
                continue;
            }
            large |= head.is_some_and(|(_, frame)| frame.slots() > 1);
            let delivered = match head {
                None => 0,
                Some(head)
                    if head.1.kind == PUT_REPLY_SLOT
                        || !inbound.ring.is_followed(head.1)
                        // The next message has to be sampled, and `deliver_last` does the sampling.
                        || inbound.sampler.left() == 1 =>
                {
                    self.deliver_last(number, queue, inbound, head, budget.sink)
                        .into()
                }
                Some(_) => {
                    let most = most.min(inbound.sampler.left() - 1);
                    let delivered = self.deliver_run(number, queue, inbound, most, budget.sink);
                    if inbound.source.is_none() {
                        inbound.sampler.pass(delivered);
                    }
                    delivered
                }
            };
            budget.count += delivered;
            left -= delivered;
            if !inbound.ring.is_ready() {
                // If messages were taken, the head is published only by the next poll, so that the
                // messages' effects need not wait for its publication.
                if left == BATCH {
                    inbound.ring.publish();
                    inbound.coalescing.in_vain();
                } else if large {
                    self.coalesce(inbound, sent);
                }
                return true;
            }
            if delivered > 0 {
                continue;
            }
            let (slot, frame) = match inbound.ring.next() {
                Next::Message { slot, frame } => (slot, frame),
                Next::Empty => {
                    if left == BATCH {
                        inbound.coalescing.in_vain();
                    }
                    return true;
                }
                Next::Broken => {
                    self.statistics.note_bad(inbound.source);
                    return true;
                }
            };
            left = left.saturating_sub(1);
            let slot = inbound.ring.slots().address(slot);
            // All other messages go through one instance of the code for all sinks, so that a sink
            // is inlined only in the fast paths above.
            let mut slow = PollBudget {
                sink: &mut *budget.sink as &mut dyn Sink,
                count: budget.count,
                limit: budget.limit,
            };
            let go_on = self.visit_slowly(number, queue, inbound, slot, frame, deferred, &mut slow);
            budget.count = slow.count;
            match go_on {
                ControlFlow::Continue(()) => {}
                ControlFlow::Break(more) => return more,
            }
        }
        true
    }

    /// Takes one message of any kind. Breaks with `false` if the limit is reached, and with `true`
    /// if nothing more can be taken from the ring for now.
    #[inline(never)]
    #[allow(clippy::too_many_arguments)]
    fn visit_slowly(
        &self,
        number: usize,
        queue: &Queue<M>,
        inbound: &mut Inbound,
        slot: *const u8,
        frame: Frame,
        deferred: &mut DeferredEvents,
        budget: &mut PollBudget<'_, dyn Sink + '_>,
    ) -> ControlFlow<bool> {
        // SAFETY: `slot` is the first slot of a message that was found committed and is released
        // only below.
        let header = unsafe { Header::read_compact(slot) };
        let message = Message {
            slot,
            frame,
            source: header.source,
        };
        let sources = Sources::of(inbound.source, self.size);
        let taken = match sources.contains(header.source) {
            true => self.take(number, queue, &message, &header, deferred, budget),
            false => Taken::Bad,
        };
        match taken {
            Taken::Done => inbound.ring.release(frame),
            Taken::Completed(completion) => {
                inbound.ring.release(frame);
                match self.post_completion(&completion, message.source) {
                    Some(true) => {}
                    Some(false) => inbound.pending = Some((message.source, completion)),
                    None => self.statistics.note_bad(Some(message.source)),
                }
            }
            Taken::Stalled => return ControlFlow::Break(true),
            Taken::Bad => {
                self.statistics
                    .note_bad(inbound.source.or(Some(message.source)));
                inbound.ring.release(frame);
            }
        }
        match budget.settle(deferred) {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(false),
        }
    }

    #[cold]
    fn post_pending(&self, inbound: &mut Inbound) -> bool {
        let Some((to, completion)) = inbound.pending.take() else {
            return true;
        };
        match self.post_completion(&completion, to) {
            Some(true) => true,
            Some(false) => {
                inbound.pending = Some((to, completion));
                false
            }
            None => {
                self.statistics.note_bad(Some(to));
                true
            }
        }
    }

    #[inline]
    pub(super) fn take<S: Sink + ?Sized>(
        &self,
        number: usize,
        queue: &Queue<M>,
        message: &Message,
        header: &Header,
        deferred: &mut DeferredEvents,
        budget: &mut PollBudget<'_, S>,
    ) -> Taken {
        if matches!(message.frame.kind, PUT_COMPACT | PUT_REPLY_SLOT) {
            let before = before_payload(header.length as usize);
            let Some(payload) = message.payload(before, header.length) else {
                return Taken::Bad;
            };
            let put = self.take_put(number, queue, message, header, payload, deferred, budget);
            return match put {
                Some(_) => Taken::Done,
                None => Taken::Bad,
            };
        }
        // SAFETY: the caller found the message committed and has not released it.
        let header = unsafe { Header::read(message.slot) };
        let taken = match message.frame.kind {
            PUT | PUT_REFERENCE => {
                self.take_full_put(number, queue, message, &header, deferred, budget)
            }
            GET => self.take_get(number, queue, message, &header, deferred, budget),
            ATOMIC => self.take_atomic(number, queue, message, &header, deferred, budget),
            SEND | ACK | REPLY => self.take_completion(message, &header, budget),
            LANE => self.take_lane_message(message.source, &header),
            LANE_OPENED => self.take_lane_opened(number, message.source, &header),
            _ => None,
        };
        taken.unwrap_or(Taken::Bad)
    }

    /// Finds the entry for a message. Returns `None` if the index doesn't belong to the queue
    /// through which the message came, and `Some(None)` if no entry matches.
    #[inline]
    pub(super) fn find(
        &self,
        number: usize,
        queue: &Queue<M>,
        message: &Message,
        incoming: &Incoming,
    ) -> Option<Option<Hit>> {
        let index = self.indices.get(usize::from(message.frame.index))?;
        if index.queue.load(Ordering::Relaxed) as usize != number + 1 {
            return None;
        }
        let hit = {
            let mut list = index.list.lock();
            let hit = list.accept(incoming);
            if let Some(hit) = &hit {
                // The mark is stored under the list's lock, so that `me_unlink` either comes before
                // this match or sees the mark.
                let me = hit.id.me(message.frame.index);
                queue.delivering.store(mark(me.0), Ordering::Relaxed);
            }
            hit
        };
        match &hit {
            None => self.statistics.note_dropped(),
            Some(hit) if hit.unlinked => {
                self.entries.fetch_sub(1, Ordering::Relaxed);
            }
            Some(_) => {}
        }
        Some(hit)
    }

    /// Ends the delivery that [`Self::find`] began, and defers the events of an entry that has left
    /// its list.
    #[inline]
    pub(super) fn found(&self, queue: &Queue<M>, hit: &Hit, deferred: &mut DeferredEvents) {
        // SYNC: the release orders this thread's accesses to the entry's memory before the load in
        // `me_unlink` that finds no mark.
        queue.delivering.store(0, Ordering::Release);
        if hit.unlinked && hit.events.contains(MeEvents::LINK) {
            deferred.unlinked = Some(hit.tag);
            if hit.location == Location::Managed {
                // No other message of the entry is in delivery, because messages are delivered one
                // after the other and this one was the entry's last.
                deferred.free = Some(hit.tag);
            }
        }
    }
}
