//! A part of the ranks, and their actions within a window of time.

use credits::{CreditByte, Scale, System, Tuning, Violation};
use sim::random::Rng;

use crate::config::{Config, Subject};
use crate::pattern::{Op, Programs};
use crate::queue::{Item, Queue};
use crate::report::Counts;

/// The kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PartKind {
    Request,
    Reply,
    System,
}

/// A message to a rank of another part.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Envelope {
    item: Item,
    target: u32,
    kind: PartKind,
}

const _: () = assert!(size_of::<Envelope>() == 24);

/// A violation of a rule, with the rank and the time at which it was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) time: u64,
    pub(crate) rank: u32,
    pub(crate) what: Broken,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// The flow control reports a violation.
    Rules(Violation),
    /// More requests are in transit to a rank than it has credits.
    Occupancy { credits: u64 },
}

/// The durations and other parameters of the model, precomputed.
#[derive(Clone, Debug)]
pub(crate) struct Costs {
    timing: crate::Timing,
    /// The time for which a request occupies the interface, and the time for which any other
    /// message does.
    wire: [u64; 2],
    /// The time to serve a request.
    serve: u64,
    slice: u64,
    slices: u32,
    /// The number of credits for a request.
    cost: u8,
    seed: u64,
    /// The total number of a rank's credits.
    total: u64,
    /// The tuning, which defines the meaning of the bits for extra credits.
    tuning: Tuning,
}

impl Costs {
    pub(crate) fn latency(&self) -> u64 {
        self.timing.latency
    }

    pub(crate) fn new(config: &Config, total: Option<u64>) -> Costs {
        let timing = config.timing.clone();
        let size = config.load.cost;
        let bytes = u32::from(size) * Scale::LEAST_BYTES;
        let slices = if timing.compute > 0 {
            timing.compute_polls + 1
        } else {
            0
        };
        Costs {
            wire: [timing.wire(bytes), timing.wire(0)],
            serve: timing.serve + timing.serve_credit * u64::from(size),
            slice: timing.compute / u64::from(slices.max(1)),
            slices,
            cost: config.cost(),
            seed: config.seed,
            total: total.unwrap_or(u64::MAX),
            tuning: config.scheme.tuning(),
            timing,
        }
    }
}

/// A rank's next action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The rank polls, and takes system messages next.
    System,
    /// The rank polls, and takes at most this many more replies.
    Replies(u8),
    /// The rank polls, and takes at most this many more requests.
    Requests(u8),
    /// The rank continues its program.
    Program,
}

#[derive(Clone, Copy, Debug)]
struct Rank {
    /// The time up to which the rank has been simulated.
    clock: u64,
    /// The time until which its network interface is busy.
    interface: u64,
    /// The time since which the next request has been waiting for credits.
    since: u64,
    /// The current operation.
    op: u32,
    /// The index at which the rank's program ends.
    end: u32,
    /// The number of requests sent in the current operation.
    sent: u32,
    /// The number of requests sent that have no reply yet.
    outstanding: u32,
    /// The number of requests served in this step.
    received: u32,
    /// The number of requests served since the pattern changed.
    served: u32,
    unpolled: u32,
    slices: u32,
    /// The additional time that each slice of the rank's computing takes.
    slower: u64,
    stage: Stage,
    /// Whether the rank waits for an arrival.
    idle: bool,
    /// Whether the next request waits for credits.
    stalled: bool,
    /// Whether credits may have arrived since the last attempt to send.
    retry: bool,
    finished: bool,
}

#[derive(Clone, Debug, Default)]
#[repr(align(64))]
struct Inbox {
    replies: Queue,
    requests: Queue,
    system: Queue,
    /// The size, in credits, of the requests that wait at the rank or are in transit to it.
    reserved: u64,
}

// An inbox takes two cache lines. Its size matters because every message touches one of about
// 100,000 inboxes, which is rarely in a cache.
const _: () = assert!(size_of::<Inbox>() == 128);

impl Inbox {
    fn sort(&mut self) {
        self.system.sort();
        self.replies.sort();
        self.requests.sort();
    }

    fn first(&self) -> u64 {
        let replies = self.replies.first().min(self.requests.first());
        replies.min(self.system.first())
    }
}

/// The number of ranks whose next data are prefetched together.
const AHEAD: usize = 16;

/// For each part, the messages to its ranks in the order in which they were sent.
pub(crate) type Outboxes = Vec<Vec<Envelope>>;

/// A part of the job, which consists of consecutive ranks. They are so few that a processor's cache
/// holds their state. A window begins with sorting in the messages of other parts; afterwards, it
/// touches no rank of another part.
pub(crate) struct Part<F> {
    /// The number of the part.
    number: usize,
    first: u32,
    /// The number of ranks in every part except the last, which may have fewer.
    size: u32,
    flows: Vec<F>,
    ranks: Vec<Rank>,
    inboxes: Vec<Inbox>,
    /// The times of the ranks' next actions.
    next: Vec<u64>,
    /// The messages sent in this window.
    pub(crate) outboxes: Outboxes,
    /// The earliest time at which a rank has something to do or a message to another part arrives.
    pub(crate) due: u64,
    pub(crate) counts: Counts,
    /// The number of ranks that have ended the step.
    pub(crate) finished: u32,
    /// The time at which the last rank of the part ended the step.
    pub(crate) finished_at: u64,
    /// The first fault found.
    pub(crate) fault: Option<Fault>,
}

impl<F: Subject> Part<F> {
    /// Creates the part of the ranks `first..end`, which is one of `parts` parts with `size` ranks
    /// each.
    pub(crate) fn new(
        first: u32,
        end: u32,
        size: u32,
        parts: usize,
        flow: impl Fn(u32) -> F,
    ) -> Part<F> {
        let len = (end - first) as usize;
        let rank = Rank {
            clock: 0,
            interface: 0,
            since: 0,
            op: 0,
            end: 0,
            sent: 0,
            outstanding: 0,
            received: 0,
            served: 0,
            unpolled: 0,
            slices: 0,
            slower: 0,
            stage: Stage::Program,
            idle: false,
            stalled: false,
            retry: false,
            finished: true,
        };
        Part {
            number: (first / size) as usize,
            first,
            size,
            flows: (first..end).map(flow).collect(),
            ranks: vec![rank; len],
            inboxes: vec![Inbox::default(); len],
            next: vec![u64::MAX; len],
            outboxes: vec![Vec::new(); parts],
            due: u64::MAX,
            counts: Counts::default(),
            finished: 0,
            finished_at: 0,
            fault: None,
        }
    }

    pub(crate) fn flow(&self, rank: u32) -> &F {
        &self.flows[(rank - self.first) as usize]
    }

    pub(crate) fn flows(&self) -> impl Iterator<Item = &F> {
        self.flows.iter()
    }

    /// Returns the first rank that has not ended the step, if any, and whether it waits for
    /// credits.
    pub(crate) fn unfinished(&self) -> Option<(u32, bool)> {
        let index = self.ranks.iter().position(|rank| !rank.finished)?;
        Some((self.first + index as u32, self.ranks[index].stalled))
    }

    /// Returns, for each rank, the number of requests that it has served since the pattern changed.
    pub(crate) fn served(&self) -> impl Iterator<Item = u32> {
        self.ranks.iter().map(|rank| rank.served)
    }

    pub(crate) fn change_pattern(&mut self) {
        self.ranks.iter_mut().for_each(|rank| rank.served = 0);
    }

    /// Begins a step on all ranks, at `start` or a little later.
    pub(crate) fn begin(&mut self, programs: &Programs, costs: &Costs, start: u64, step: u64) {
        self.finished = 0;
        self.finished_at = start;
        self.counts = Counts::default();
        let timing = &costs.timing;
        for (index, rank) in self.ranks.iter_mut().enumerate() {
            let number = self.first + index as u32;
            let mut random = Rng::with_seed(
                costs.seed ^ step << 32 ^ u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15),
            );
            let program = programs.ranks[number as usize];
            let late = random.u64(0..=timing.jitter);
            let slower = random.f64() * timing.skew;
            *rank = Rank {
                clock: start + late,
                op: program.start,
                end: program.end,
                sent: 0,
                received: 0,
                unpolled: 0,
                slices: costs.slices,
                slower: (slower * costs.slice as f64) as u64,
                stage: Stage::Program,
                idle: false,
                stalled: false,
                retry: false,
                finished: false,
                ..*rank
            };
            self.next[index] = rank.clock;
        }
        self.due = start;
    }

    /// Sorts in the messages that all parts sent in the previous window, then simulates all actions
    /// that begin before `end`. Messages that other ranks send during this window must arrive at
    /// `end` or later.
    pub(crate) fn advance(
        &mut self,
        mail: &[Outboxes],
        programs: &Programs,
        costs: &Costs,
        end: u64,
    ) {
        // The outboxes still contain the messages of the window before the last one.
        self.outboxes.iter_mut().for_each(Vec::clear);
        for outboxes in mail {
            for message in &outboxes[self.number] {
                let index = (message.target - self.first) as usize;
                self.deliver(index, message.kind, message.item, costs);
            }
        }
        self.due = u64::MAX;
        for index in 0..self.ranks.len() {
            if index % AHEAD == 0 {
                self.look_ahead(index, programs, end);
            }
            if self.next[index] < end {
                self.advance_rank(index, programs, costs, end);
            }
        }
        let own = self.next.iter().copied().min();
        self.due = self.due.min(own.unwrap_or(u64::MAX));
    }

    /// Prefetches the data that the ranks from `index` on need first, by reading them. The data are
    /// far apart in memory and independent of each other, so the processor fetches many of them at
    /// once here. In the simulation itself, it would wait for one after another.
    fn look_ahead(&self, index: usize, programs: &Programs, end: u64) {
        let mut read = 0;
        for index in index..(index + AHEAD).min(self.ranks.len()) {
            if self.next[index] >= end {
                continue;
            }
            let (rank, inbox, flow) =
                (&self.ranks[index], &self.inboxes[index], &self.flows[index]);
            for item in inbox.replies.ahead() {
                read ^= flow.available(item.source);
            }
            for item in inbox.requests.ahead() {
                read ^= flow.available(item.source);
            }
            if let Some(Op::Send { partners, .. }) = programs.ops.get(rank.op as usize) {
                read ^= flow.available(programs.targets[partners.start as usize]);
            }
        }
        std::hint::black_box(read);
    }

    #[inline]
    fn deliver(&mut self, index: usize, kind: PartKind, item: Item, costs: &Costs) {
        let inbox = &mut self.inboxes[index];
        match kind {
            PartKind::System => inbox.system.push(item),
            PartKind::Reply => inbox.replies.push(item),
            PartKind::Request => {
                inbox.requests.push(item);
                inbox.reserved += u64::from(item.cost);
                if inbox.reserved > costs.total {
                    let credits = inbox.reserved;
                    self.break_at(item.time, index, Broken::Occupancy { credits });
                }
            }
        }
        // The rank may be busy beyond this time, in which case its next action has to wait.
        self.next[index] = self.next[index].min(item.time);
    }

    #[cold]
    fn break_at(&mut self, time: u64, index: usize, what: Broken) {
        let rank = self.first + index as u32;
        let fault = Fault { time, rank, what };
        let earlier = |known: &Fault| (known.time, known.rank) <= (time, rank);
        if !self.fault.as_ref().is_some_and(earlier) {
            self.fault = Some(fault);
        }
    }

    /// Sends a message at time `now` from `rank`, which is the rank at `index`.
    #[inline]
    #[expect(clippy::too_many_arguments, reason = "the fields of a message")]
    fn send(
        &mut self,
        index: usize,
        rank: &mut Rank,
        costs: &Costs,
        now: u64,
        kind: PartKind,
        target: u32,
        body: (u8, u16, u8),
    ) {
        let (byte, value, cost) = body;
        let wire = costs.wire[usize::from(kind != PartKind::Request)];
        rank.interface = rank.interface.max(now) + wire;
        let item = Item {
            time: rank.interface + costs.timing.latency,
            source: self.first + index as u32,
            value,
            byte,
            cost,
        };
        let local = target.wrapping_sub(self.first) as usize;
        if local < self.ranks.len() {
            self.deliver(local, kind, item, costs);
        } else {
            let part = (target / self.size) as usize;
            self.due = self.due.min(item.time);
            self.outboxes[part].push(Envelope { item, target, kind });
        }
    }

    fn send_system(
        &mut self,
        index: usize,
        rank: &mut Rank,
        costs: &Costs,
        now: u64,
        to: (u32, System),
    ) {
        let (target, message) = to;
        let (byte, credits) = match message {
            System::Revoke { end_of_epoch } => (u8::from(end_of_epoch) * Item::END, 0),
            System::Return {
                credits,
                end_of_epoch,
            } => (Item::RETURN | (u8::from(end_of_epoch) * Item::END), credits),
        };
        self.counts.system += 1;
        self.counts.returned += u64::from(credits);
        self.send(
            index,
            rank,
            costs,
            now,
            PartKind::System,
            target,
            (byte, credits, 0),
        );
    }

    fn advance_rank(&mut self, index: usize, programs: &Programs, costs: &Costs, end: u64) {
        let timing = &costs.timing;
        let mut rank = self.ranks[index];
        let mut now = rank.clock;
        if rank.idle {
            now = timing.wake(now, self.next[index].max(now));
            if now >= end {
                self.next[index] = now;
                return;
            }
            rank.idle = false;
        }
        self.inboxes[index].sort();
        while now < end {
            match rank.stage {
                Stage::System => {
                    if let Some(item) = self.inboxes[index].system.pop(now) {
                        now += timing.system;
                        self.take_system(index, &mut rank, costs, &mut now, item);
                    } else {
                        self.send_revokes(index, &mut rank, costs, &mut now);
                        rank.stage = Stage::Replies(timing.safe_limit);
                    }
                }
                Stage::Replies(left) => {
                    let reply = match left {
                        0 => None,
                        _ => self.inboxes[index].replies.pop(now),
                    };
                    if let Some(item) = reply {
                        let byte = CreditByte::from_bits(item.byte);
                        if let Err(violation) = self.flows[index].settle(item.source, byte) {
                            self.break_at(now, index, Broken::Rules(violation));
                        }
                        rank.outstanding -= 1;
                        rank.retry = true;
                        now += timing.reply;
                        self.counts.replies += 1;
                        rank.stage = Stage::Replies(left - 1);
                    } else {
                        let waiting = self.inboxes[index].requests.waiting(now);
                        self.counts.waiting = self.counts.waiting.max(waiting.into());
                        rank.stage = Stage::Requests(timing.am_limit);
                    }
                }
                Stage::Requests(left) => {
                    let request = match left {
                        0 => None,
                        _ => self.inboxes[index].requests.pop(now),
                    };
                    if let Some(item) = request {
                        self.serve(index, &mut rank, costs, &mut now, item);
                        rank.stage = Stage::Requests(left - 1);
                    } else {
                        rank.stage = Stage::Program;
                    }
                }
                Stage::Program => {
                    if self.go_on(index, &mut rank, programs, costs, &mut now) {
                        continue;
                    }
                    let first = self.inboxes[index].first();
                    rank.stage = Stage::System;
                    if first <= now {
                        now += timing.poll;
                        continue;
                    }
                    let wake = timing.wake(now, first);
                    if wake >= end {
                        rank.idle = true;
                        rank.clock = now;
                        self.ranks[index] = rank;
                        self.next[index] = first;
                        return;
                    }
                    now = wake;
                }
            }
        }
        rank.clock = now;
        self.ranks[index] = rank;
        self.next[index] = now;
    }

    fn take_system(
        &mut self,
        index: usize,
        rank: &mut Rank,
        costs: &Costs,
        now: &mut u64,
        item: Item,
    ) {
        let end_of_epoch = item.byte & Item::END != 0;
        let message = if item.byte & Item::RETURN != 0 {
            System::Return {
                credits: item.value,
                end_of_epoch,
            }
        } else {
            System::Revoke { end_of_epoch }
        };
        self.counts.events += 1;
        rank.retry = true;
        match self.flows[index].on_system(item.source, message) {
            Ok(Some(answer)) => {
                *now += costs.timing.system;
                self.send_system(index, rank, costs, *now, (item.source, answer));
            }
            Ok(None) => {}
            Err(violation) => self.break_at(*now, index, Broken::Rules(violation)),
        }
    }

    fn send_revokes(&mut self, index: usize, rank: &mut Rank, costs: &Costs, now: &mut u64) {
        while let Some(message) = self.flows[index].next_system() {
            *now += costs.timing.system;
            self.send_system(index, rank, costs, *now, message);
        }
    }

    /// Serves a request and replies.
    fn serve(&mut self, index: usize, rank: &mut Rank, costs: &Costs, now: &mut u64, item: Item) {
        *now += costs.serve;
        let byte = CreditByte::from_bits(item.byte);
        let reply = self.flows[index].grant(item.source, byte);
        if reply.extra() > 0 {
            self.counts.grants += 1;
            self.counts.granted += u64::from(costs.tuning.credits(reply.extra()));
            let loan = self.flows[index].loan(item.source).unwrap_or(0);
            self.counts.loan = self.counts.loan.max(loan.into());
        }
        self.counts.served += 1;
        self.inboxes[index].reserved -= u64::from(item.cost);
        rank.received += 1;
        rank.served = rank.served.saturating_add(1);
        let body = (reply.bits(), 0, 0);
        self.send(index, rank, costs, *now, PartKind::Reply, item.source, body);
        self.send_revokes(index, rank, costs, now);
    }

    /// Executes the next action of the program. Returns `false` if the rank has to wait or has
    /// ended.
    fn go_on(
        &mut self,
        index: usize,
        rank: &mut Rank,
        programs: &Programs,
        costs: &Costs,
        now: &mut u64,
    ) -> bool {
        let timing = &costs.timing;
        if rank.slices > 0 {
            rank.slices -= 1;
            *now += costs.slice + rank.slower;
            rank.stage = Stage::System;
            return true;
        }
        while rank.op < rank.end {
            match programs.ops[rank.op as usize] {
                Op::Await(received) => {
                    if rank.received < received {
                        return false;
                    }
                    rank.op += 1;
                }
                Op::Send { partners, rounds } => {
                    let len = partners.end - partners.start;
                    if rank.sent == len * rounds {
                        rank.op += 1;
                        rank.sent = 0;
                        continue;
                    }
                    if rank.outstanding >= timing.chunks || (rank.stalled && !rank.retry) {
                        return false;
                    }
                    let number = if len == 1 { 0 } else { rank.sent % len };
                    let target = programs.targets[(partners.start + number) as usize];
                    let Ok(byte) = self.flows[index].take(target, costs.cost) else {
                        if !rank.stalled {
                            rank.stalled = true;
                            rank.since = *now;
                            self.counts.stalls += 1;
                        }
                        rank.retry = false;
                        return false;
                    };
                    if rank.stalled {
                        rank.stalled = false;
                        self.counts.stalled_ns += *now - rank.since;
                    }
                    *now += timing.send;
                    let body = (byte.bits(), 0, costs.cost);
                    self.send(index, rank, costs, *now, PartKind::Request, target, body);
                    self.counts.requests += 1;
                    rank.outstanding += 1;
                    rank.sent += 1;
                    rank.unpolled += 1;
                    if rank.unpolled >= timing.poll_every {
                        rank.unpolled = 0;
                        *now += timing.poll;
                        rank.stage = Stage::System;
                    }
                    return true;
                }
            }
        }
        if !rank.finished && rank.outstanding == 0 {
            rank.finished = true;
            self.finished += 1;
            self.finished_at = self.finished_at.max(*now);
        }
        false
    }
}
