//! A world of ranks that exchange requests, replies and system messages in any order and with any
//! delay, through the planned request buffers. Every step checks its own invariants, and
//! [`World::check`] checks those that hold between steps.

use std::collections::VecDeque;

use credits::{CreditByte, FlowControl, Growth, Plan, System};

use super::buffers::{Buffers, CatchBasin};
use super::ledger::Ledger;
use crate::reference::worth;

#[derive(Clone, Copy)]
pub(crate) struct Request {
    source: usize,
    bytes: u64,
    byte: CreditByte,
}

#[derive(Clone, Copy)]
struct Reply {
    source: usize,
    target: usize,
    byte: CreditByte,
}

#[derive(Clone, Copy)]
struct Message {
    source: usize,
    target: usize,
    system: System,
}

pub(crate) struct Rank {
    /// The rank's flow control, which is in one part or several.
    parts: Vec<Box<dyn FlowControl>>,
    buffers: Buffers,
    /// The requests in transit to this rank.
    travelling: Vec<Request>,
    /// The requests in the buffers, in the order of their events.
    arrived: VecDeque<(usize, Request)>,
    /// The requests whose handlers are running.
    handled: Vec<(usize, Request)>,
    /// For each rank, the number of credits that go back to it later without messages, and the
    /// number of epochs reported with them.
    coalesced: Vec<(u32, u32)>,
    /// For each rank, whether a request to it waits for credits.
    waiting: Vec<bool>,
    /// For each rank, whether it has granted credits since this rank last asked it for some.
    granted: Vec<bool>,
    /// The index of the part that searches next for a peer to ask.
    turn: usize,
}

impl Rank {
    pub(crate) fn flow(&self, peer: usize) -> &dyn FlowControl {
        &*self.parts[peer % self.parts.len()]
    }

    fn flow_mut(&mut self, peer: usize) -> &mut dyn FlowControl {
        let parts = self.parts.len();
        &mut *self.parts[peer % parts]
    }

    /// Returns the number of credits that the rank has lent to a peer.
    pub(crate) fn lent(&self, peer: usize) -> u32 {
        self.flow(peer).lent(peer as u32)
    }

    /// Returns the number of credits that a peer has lent to the rank.
    pub(crate) fn send_credits(&self, peer: usize) -> u32 {
        let (flow, peer) = (self.flow(peer), peer as u32);
        flow.available(peer) + flow.in_flight(peer)
    }

    pub(crate) fn banked(&self) -> u32 {
        self.parts[0].banked()
    }

    fn asked(&self) -> u32 {
        self.parts[0].asked()
    }

    /// Returns the number of credits that the rank has given back.
    pub(crate) fn revoked(&self) -> u64 {
        let peers = 0..self.coalesced.len();
        peers.map(|peer| self.flow(peer).revoked(peer as u32)).sum()
    }
}

pub(crate) struct World {
    pub(crate) ranks: Vec<Rank>,
    replies: Vec<Reply>,
    system: Vec<Message>,
    /// The number of revokes sent so far.
    pub(crate) revokes: u64,
    /// The number of extra credits granted so far.
    pub(crate) granted: u64,
    ledger: Ledger,
    plan: Plan,
    threads: usize,
}

impl World {
    /// Creates a world in which each rank has `threads` threads that run handlers. `open` returns
    /// the flow control of a rank.
    pub(crate) fn new(
        plan: Plan,
        threads: usize,
        open: impl Fn(&Plan, u32) -> Vec<Box<dyn FlowControl>>,
    ) -> World {
        let n = plan.ranks() as usize;
        let ranks = (0..plan.ranks())
            .map(|rank| Rank {
                parts: open(&plan, rank),
                buffers: Buffers::new(&plan),
                travelling: Vec::new(),
                arrived: VecDeque::new(),
                handled: Vec::new(),
                coalesced: vec![(0, 0); n],
                waiting: vec![false; n],
                granted: vec![false; n],
                turn: 0,
            })
            .collect();
        World {
            ranks,
            replies: Vec::new(),
            system: Vec::new(),
            revokes: 0,
            granted: 0,
            ledger: Ledger::new(n, *plan.tuning()),
            plan,
            threads,
        }
    }

    /// Sends a request. Returns whether that was possible.
    pub(crate) fn send(&mut self, source: usize, target: usize, bytes: u64) -> bool {
        let cost = self.plan.scale().cost(bytes as usize);
        let rank = &mut self.ranks[source];
        let peer = target as u32;
        let flow = rank.flow_mut(target);
        let (available, stalls) = (flow.available(peer), flow.stalls(peer));
        let taken = flow.take(peer, cost);
        let counted = flow.stalls(peer) - stalls;
        match taken {
            Ok(byte) => {
                assert_eq!(counted, 0);
                assert!(byte.credits() == cost || !self.plan.flow_control());
                assert!(u32::from(cost) <= available);
                let waited = std::mem::take(&mut rank.waiting[target]);
                if byte.extra() > 0 {
                    let granted = std::mem::take(&mut rank.granted[target]);
                    let goes_on = self.plan.tuning().growth == Growth::Doubling && granted;
                    assert!(waited || goes_on, "asks for more without a stall");
                }
                self.ranks[target].travelling.push(Request {
                    source,
                    bytes,
                    byte,
                });
                true
            }
            Err(short) => {
                assert_eq!(u32::from(cost), available + u32::from(short.missing));
                let waited = std::mem::replace(&mut rank.waiting[target], true);
                assert_eq!(counted, u64::from(!waited), "stalls are counted once");
                if counted > 0 {
                    self.ledger.stalled(target, source);
                }
                false
            }
        }
    }

    /// Takes the credits for a request and cancels it.
    pub(crate) fn give_up(&mut self, source: usize, target: usize, bytes: u64) {
        if self.send(source, target, bytes) {
            let request = self.ranks[target].travelling.pop();
            let byte = request.expect("it was sent").byte;
            let rank = &mut self.ranks[source];
            rank.waiting[target] = byte.extra() > 0;
            rank.flow_mut(target).give_back(target as u32, byte);
        }
    }

    /// Returns whether enough credits are available for a request.
    pub(crate) fn could_send(&self, source: usize, target: usize, bytes: u64) -> bool {
        let cost = self.plan.scale().cost(bytes as usize);
        self.ranks[source].flow(target).available(target as u32) >= u32::from(cost)
    }

    /// Settles the credits that have come back to `source` without messages, but only if that
    /// matters for a request, like the engine.
    pub(crate) fn refresh(&mut self, source: usize, target: usize, bytes: u64) {
        let cost = self.plan.scale().cost(bytes as usize);
        if self.ranks[source]
            .flow(target)
            .is_stale(target as u32, cost)
        {
            self.return_coalesced(target, source);
        }
    }

    /// Delivers a request in transit, if there is one.
    pub(crate) fn arrive(&mut self, target: usize, pick: usize) -> Result<bool, CatchBasin> {
        let rank = &mut self.ranks[target];
        if rank.travelling.is_empty() {
            return Ok(false);
        }
        let request = rank.travelling.swap_remove(pick % rank.travelling.len());
        let at = rank.buffers.put(request.bytes)?;
        rank.arrived.push_back((at, request));
        Ok(true)
    }

    pub(crate) fn begin(&mut self, target: usize) {
        let rank = &mut self.ranks[target];
        if rank.handled.len() < self.threads {
            rank.handled.extend(rank.arrived.pop_front());
        }
    }

    /// Lets a handler reply and return. If `pick` is odd, the reply is an implied one, which is
    /// coalesced.
    pub(crate) fn finish(&mut self, target: usize, pick: usize) {
        let rank = &mut self.ranks[target];
        if rank.handled.is_empty() {
            return;
        }
        let (at, request) = rank.handled.swap_remove(pick % rank.handled.len());
        let Request { source, byte, .. } = request;
        let asks = byte.extra() > 0;
        self.ledger.request(target, source, asks, rank.asked());
        if byte.end_of_epoch() {
            self.ledger.told(source, target);
        }
        let back = rank.flow_mut(source).grant(source as u32, byte);
        assert_eq!(back.credits(), byte.credits());
        assert!(back.extra() <= byte.extra(), "gave more than was asked for");
        let extra = worth(self.plan.tuning(), back.extra());
        self.ledger.granted(target, source, extra);
        self.granted += u64::from(extra);
        rank.buffers.processed(at);
        if pick % 2 == 1 && back.extra() == 0 {
            let (credits, epochs) = &mut rank.coalesced[source];
            *credits += u32::from(back.credits());
            *epochs += u32::from(back.end_of_epoch());
        } else {
            self.replies.push(Reply {
                source: target,
                target: source,
                byte: back,
            });
        }
    }

    pub(crate) fn reply(&mut self, pick: usize) {
        if !self.replies.is_empty() {
            let reply = self.replies.swap_remove(pick % self.replies.len());
            let Reply {
                source,
                target,
                byte,
            } = reply;
            if byte.end_of_epoch() {
                self.ledger.told(source, target);
            }
            let rank = &mut self.ranks[target];
            rank.granted[source] |= byte.extra() > 0;
            let flow = rank.flow_mut(source);
            flow.settle(source as u32, byte).unwrap();
        }
    }

    pub(crate) fn return_coalesced(&mut self, source: usize, target: usize) {
        let (credits, epochs) = std::mem::take(&mut self.ranks[source].coalesced[target]);
        (0..epochs).for_each(|_| self.ledger.told(source, target));
        let flow = self.ranks[target].flow_mut(source);
        flow.settle_many(source as u32, credits, epochs).unwrap();
    }

    /// Lets a rank search for a peer to ask. Returns whether it asks one. Its parts search in turn,
    /// because if one part always came first, the others might never ask for credits that lie idle
    /// with their peers.
    pub(crate) fn poll(&mut self, rank: usize) -> bool {
        let Rank { parts, turn, .. } = &mut self.ranks[rank];
        let next = (0..parts.len()).find_map(|at| {
            let part = (*turn + at) % parts.len();
            let next = parts[part].has_system().then(|| parts[part].next_system());
            next.flatten().inspect(|_| *turn = part + 1)
        });
        let Some((peer, system)) = next else {
            return false;
        };
        assert!(matches!(system, System::Revoke { .. }));
        self.ledger.revoke(rank, peer as usize);
        self.revokes += 1;
        self.system.push(Message {
            source: rank,
            target: peer as usize,
            system,
        });
        true
    }

    /// Delivers a system message.
    pub(crate) fn deliver(&mut self, pick: usize) {
        if self.system.is_empty() {
            return;
        }
        let message = self.system.swap_remove(pick % self.system.len());
        let Message {
            source,
            target,
            system,
        } = message;
        let (System::Revoke { end_of_epoch } | System::Return { end_of_epoch, .. }) = system;
        if end_of_epoch {
            self.ledger.told(source, target);
        }
        if let System::Return { credits, .. } = system {
            self.ledger.returned(target, source, credits);
        }
        let flow = self.ranks[target].flow_mut(source);
        let answer = flow.on_system(source as u32, system).unwrap();
        match (system, answer) {
            (System::Revoke { .. }, Some(system @ System::Return { credits, .. })) => {
                self.ledger.returns(source, target, credits);
                self.system.push(Message {
                    source: target,
                    target: source,
                    system,
                });
            }
            (System::Return { .. }, None) => {}
            _ => panic!("{answer:?} does not answer {system:?}"),
        }
    }

    /// Completes all requests and replies in transit.
    pub(crate) fn settle_all(&mut self) -> Result<(), CatchBasin> {
        let n = self.ranks.len();
        for rank in 0..n {
            while self.arrive(rank, 0)? {}
            while !self.ranks[rank].arrived.is_empty() || !self.ranks[rank].handled.is_empty() {
                self.begin(rank);
                self.finish(rank, 0);
            }
        }
        while !self.replies.is_empty() {
            self.reply(0);
        }
        (0..n * n).for_each(|pair| self.return_coalesced(pair / n, pair % n));
        Ok(())
    }

    /// Completes everything in transit, including the messages that ranks then send to ask for
    /// credits.
    pub(crate) fn drain(&mut self) -> Result<(), CatchBasin> {
        self.settle_all()?;
        loop {
            let mut asked = false;
            for rank in 0..self.ranks.len() {
                asked |= self.poll(rank);
            }
            if self.system.is_empty() && !asked {
                return Ok(());
            }
            while !self.system.is_empty() {
                self.deliver(0);
            }
        }
    }

    pub(crate) fn stalls(&self) -> u64 {
        let n = self.ranks.len();
        (0..n * n)
            .map(|pair| {
                self.ranks[pair / n]
                    .flow(pair % n)
                    .stalls((pair % n) as u32)
            })
            .sum()
    }

    /// Checks that every credit is in exactly one place, and that limits are respected.
    pub(crate) fn check(&self) {
        let n = self.ranks.len();
        (0..n * n).for_each(|pair| self.check_pair(pair / n, pair % n));
        for y in 0..n {
            self.check_lender(y);
        }
    }

    /// Checks the credits that `y` has lent to `x`.
    fn check_pair(&self, x: usize, y: usize) {
        let (borrower, lender) = (&self.ranks[x], &self.ranks[y]);
        let used = |request: &Request| {
            let own = request.source == x;
            if own {
                request.byte.credits().into()
            } else {
                0
            }
        };
        let handled = lender.arrived.iter().chain(&lender.handled);
        let requests = lender.travelling.iter().map(used).sum::<u32>()
            + handled.map(|(_, request)| used(request)).sum::<u32>();
        let replies = || {
            let replies = self.replies.iter();
            replies.filter(|reply| reply.source == y && reply.target == x)
        };
        let back = replies()
            .map(|reply| u32::from(reply.byte.credits()))
            .sum::<u32>()
            + lender.coalesced[x].0;
        let in_flight = borrower.flow(y).in_flight(y as u32);
        assert_eq!(in_flight, requests + back, "in flight from {x} to {y}");

        let tuning = self.plan.tuning();
        let extra = replies()
            .map(|reply| u32::from(worth(tuning, reply.byte.extra())))
            .sum::<u32>();
        let (mut returned, mut messages) = (0, 0);
        for message in &self.system {
            match message.system {
                System::Revoke { .. } if (message.source, message.target) == (y, x) => {
                    messages += 1;
                }
                System::Return { credits, .. } if (message.source, message.target) == (x, y) => {
                    messages += 1;
                    returned += u32::from(credits);
                }
                _ => {}
            }
        }
        assert!(messages <= 1, "{messages} messages between {y} and {x}");
        let (send, loan) = (borrower.send_credits(y), lender.lent(x));
        assert_eq!(loan, send + extra + returned, "rank {x} of rank {y}");
        let minimum = u32::from(tuning.minimum.min(self.plan.credits_per_peer()));
        assert!(minimum <= send, "{send} credits are below the minimum");
        assert!(loan <= u32::from(self.plan.max_per_peer()), "{loan} lent");
    }

    fn check_lender(&self, y: usize) {
        let lender = &self.ranks[y];
        let loans = 0..self.ranks.len();
        let lent: u32 = loans.clone().map(|x| lender.lent(x)).sum();
        assert_eq!(lender.banked() + lent, self.plan.total(), "of rank {y}");
        let asked = self.system.iter().filter(|message| match message.system {
            System::Revoke { .. } => message.source == y,
            System::Return { .. } => message.target == y,
        });
        let asked = asked.count() as u32;
        assert_eq!(lender.asked(), asked, "messages under way");
        assert!(asked <= self.plan.tuning().scavenge, "asks too many");
        let stalled = |x: usize| self.ranks[x].flow(y).stalls(y as u32) > 0;
        if !loans.clone().any(stalled) {
            assert_eq!(asked, 0, "asks although no request stalled");
            let start = u32::from(self.plan.credits_per_peer());
            let moved = loans.clone().find(|&x| lender.lent(x) != start);
            assert_eq!(moved, None, "moved although no request stalled");
        }
    }
}
