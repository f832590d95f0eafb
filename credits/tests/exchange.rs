//! Ranks that exchange requests and replies in any order and with any delay, over the request buffers that were planned.
//!
//! The buffers behave as Portals' locally managed ones: messages are put one behind the other into the first buffer of
//! the list, which is unlinked when less than a chunk is left, and linked again at the end, empty, once all of its
//! messages are processed. Where no buffer is left is the catch basin.

use std::collections::VecDeque;

use credits::{CreditByte, FlowControl, Overrides, Plan, Policy, Scale};
use proptest::prelude::*;

const CHUNK: u32 = 1024;

/// A message reached the catch basin.
#[derive(Debug, PartialEq, Eq)]
struct CatchBasin;

#[derive(Clone, Default)]
struct Buffer {
    used: u64,
    unprocessed: u32,
    linked: bool,
}

struct Buffers {
    all: Vec<Buffer>,
    list: VecDeque<usize>,
    size: u64,
}

impl Buffers {
    fn new(plan: &Plan) -> Buffers {
        let buffer = Buffer {
            linked: true,
            ..Buffer::default()
        };
        let all = vec![buffer; plan.buffers() as usize];
        Buffers {
            list: (0..all.len()).collect(),
            all,
            size: plan.buffer_bytes(),
        }
    }

    fn put(&mut self, bytes: u64) -> Result<usize, CatchBasin> {
        let at = *self.list.front().ok_or(CatchBasin)?;
        let buffer = &mut self.all[at];
        buffer.used += bytes;
        buffer.unprocessed += 1;
        assert!(buffer.used <= self.size);
        if self.size - buffer.used < u64::from(CHUNK) {
            buffer.linked = false;
            self.list.pop_front();
        }
        Ok(at)
    }

    fn processed(&mut self, at: usize) {
        let buffer = &mut self.all[at];
        buffer.unprocessed -= 1;
        if buffer.unprocessed == 0 && !buffer.linked {
            *buffer = Buffer {
                linked: true,
                ..Buffer::default()
            };
            self.list.push_back(at);
        }
    }
}

#[derive(Clone, Copy)]
struct Request {
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

struct Rank {
    flow: Policy,
    buffers: Buffers,
    /// Requests on their way here.
    travelling: Vec<Request>,
    /// Requests in the buffers, in the order of their events.
    arrived: VecDeque<(usize, Request)>,
    /// Requests whose handlers run.
    handled: Vec<(usize, Request)>,
    /// Credits that go back to each rank at once, by and by.
    coalesced: Vec<u32>,
}

struct World {
    ranks: Vec<Rank>,
    replies: Vec<Reply>,
    plan: Plan,
    threads: usize,
}

impl World {
    fn new(plan: Plan, threads: usize) -> World {
        let ranks = (0..plan.ranks())
            .map(|rank| Rank {
                flow: Policy::from_plan(&plan, rank),
                buffers: Buffers::new(&plan),
                travelling: Vec::new(),
                arrived: VecDeque::new(),
                handled: Vec::new(),
                coalesced: vec![0; plan.ranks() as usize],
            })
            .collect();
        World {
            ranks,
            replies: Vec::new(),
            plan,
            threads,
        }
    }

    /// Whether the request could be sent.
    fn send(&mut self, source: usize, target: usize, bytes: u64) -> bool {
        let cost = self.plan.scale().cost(bytes as usize);
        match self.ranks[source].flow.take(target as u32, cost) {
            Ok(byte) => {
                self.ranks[target].travelling.push(Request {
                    source,
                    bytes,
                    byte,
                });
                true
            }
            Err(short) => {
                let available = self.ranks[source].flow.available(target as u32);
                assert_eq!(u32::from(cost), available + u32::from(short.missing));
                false
            }
        }
    }

    fn arrive(&mut self, target: usize, pick: usize) -> Result<(), CatchBasin> {
        let rank = &mut self.ranks[target];
        if !rank.travelling.is_empty() {
            let request = rank.travelling.swap_remove(pick % rank.travelling.len());
            let at = rank.buffers.put(request.bytes)?;
            rank.arrived.push_back((at, request));
        }
        Ok(())
    }

    fn begin(&mut self, target: usize) {
        let rank = &mut self.ranks[target];
        if rank.handled.len() < self.threads {
            rank.handled.extend(rank.arrived.pop_front());
        }
    }

    /// A handler replies and returns; an odd `pick` makes it an implied reply, which is coalesced.
    fn finish(&mut self, target: usize, pick: usize) {
        let rank = &mut self.ranks[target];
        if rank.handled.is_empty() {
            return;
        }
        let (at, request) = rank.handled.swap_remove(pick % rank.handled.len());
        let byte = rank.flow.grant(request.source as u32, request.byte);
        rank.buffers.processed(at);
        if pick % 2 == 1 && byte.is_plain() {
            rank.coalesced[request.source] += u32::from(byte.credits());
        } else {
            self.replies.push(Reply {
                source: target,
                target: request.source,
                byte,
            });
        }
    }

    fn reply(&mut self, pick: usize) {
        if !self.replies.is_empty() {
            let reply = self.replies.swap_remove(pick % self.replies.len());
            self.ranks[reply.target]
                .flow
                .settle(reply.source as u32, reply.byte)
                .unwrap();
        }
    }

    fn return_coalesced(&mut self, source: usize, target: usize) {
        let credits = std::mem::take(&mut self.ranks[source].coalesced[target]);
        self.ranks[target]
            .flow
            .settle_many(source as u32, credits)
            .unwrap();
    }

    /// Lets everything under way come home.
    fn drain(&mut self) -> Result<(), CatchBasin> {
        let n = self.ranks.len();
        for rank in 0..n {
            while !self.ranks[rank].travelling.is_empty() {
                self.arrive(rank, 0)?;
            }
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

    /// Every credit of every loan is somewhere, once.
    fn check(&self) {
        for (x, rank) in self.ranks.iter().enumerate() {
            for (y, peer) in self.ranks.iter().enumerate() {
                let used = |request: &Request| {
                    if request.source == x {
                        u32::from(request.byte.credits())
                    } else {
                        0
                    }
                };
                let requests = peer.travelling.iter().map(used).sum::<u32>()
                    + peer
                        .arrived
                        .iter()
                        .chain(&peer.handled)
                        .map(|(_, request)| used(request))
                        .sum::<u32>();
                let replies = self
                    .replies
                    .iter()
                    .filter(|reply| reply.source == y && reply.target == x);
                let replies = replies
                    .map(|reply| u32::from(reply.byte.credits()))
                    .sum::<u32>()
                    + peer.coalesced[x];
                let in_flight = rank.flow.in_flight(y as u32);
                assert_eq!(in_flight, requests + replies, "rank {x} to {y}");
                let loan = u32::from(self.plan.credits_per_peer());
                assert_eq!(
                    rank.flow.available(y as u32) + in_flight,
                    loan,
                    "rank {x} to {y}"
                );
            }
        }
    }
}

/// Small loans and small buffers, so that both run out often.
fn plan(ranks: u32, per_peer: u32, buffer_chunks: u32, threads: usize) -> Plan {
    let overrides = Overrides {
        credits_per_peer: Some(per_peer),
        banked: Some(0),
        buffer_chunks,
        uncovered_buffers: threads as u32,
        ..Overrides::default()
    };
    Plan::new(ranks, Scale::for_chunk(CHUNK).unwrap(), &overrides).unwrap()
}

/// All ranks send to rank 0, which works off a request now and then, until each rank has sent `count`.
fn flood(
    mut world: World,
    count: usize,
    bytes: impl Fn(usize) -> u64,
) -> Result<World, CatchBasin> {
    let mut sent = vec![0; world.ranks.len()];
    let mut step = 0;
    while sent.iter().any(|&sent| sent < count) {
        for (source, sent) in sent.iter_mut().enumerate() {
            while *sent < count && world.send(source, 0, bytes(*sent)) {
                *sent += 1;
            }
        }
        while !world.ranks[0].travelling.is_empty() {
            world.arrive(0, step)?;
        }
        world.begin(0);
        world.finish(0, step * 2);
        world.reply(step);
        step += 1;
    }
    Ok(world)
}

#[test]
fn a_flood_from_all_ranks_to_one_never_reaches_the_catch_basin() {
    let sizes: [fn(usize) -> u64; 4] = [|_| 1024, |_| 1, |i| [1, 257, 1024, 513][i % 4], |_| 768];
    for bytes in sizes {
        let world = flood(World::new(plan(16, 12, 4, 1), 1), 500, bytes).unwrap();
        world.check();
        assert!(
            (0..16).all(|rank| world.ranks[rank].flow.stalls(0) > 0),
            "the flood stalled nobody"
        );
    }
}

#[test]
fn without_flow_control_the_same_flood_reaches_it() {
    let overrides = Overrides {
        flow_control: false,
        credits_per_peer: Some(12),
        banked: Some(0),
        buffer_chunks: 4,
        ..Overrides::default()
    };
    let plan = Plan::new(16, Scale::for_chunk(CHUNK).unwrap(), &overrides).unwrap();
    assert!(matches!(
        flood(World::new(plan, 1), 500, |_| 1024),
        Err(CatchBasin)
    ));
}

#[test]
fn each_thread_in_a_handler_needs_a_buffer_that_no_credit_covers() {
    // Two ranks with 4 credits each, two threads, buffers of two chunks: one handler does not return and holds the first
    // buffer, the other thread works through the second, then all credits are used at once.
    let run = |uncovered| {
        let mut world = World::new(plan(2, 4, 2, uncovered), 2);
        assert!(world.send(0, 0, 256));
        world.arrive(0, 0)?;
        world.begin(0);
        for _ in 0..8 {
            assert!(world.send(1, 0, 256));
            world.arrive(0, 0)?;
            world.begin(0);
            world.finish(0, 1);
            world.return_coalesced(0, 1);
        }
        for source in [1, 0] {
            while world.send(source, 0, 256) {
                world.arrive(0, 0)?;
            }
        }
        world.check();
        Ok(())
    };
    assert_eq!(run(1), Err(CatchBasin));
    assert_eq!(run(2), Ok(()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn credits_are_conserved_and_buffers_never_overflow(
        ranks in 2u32..=4,
        per_peer in 4u32..=20,
        buffer_chunks in 2u32..=6,
        threads in 1usize..=3,
        steps in prop::collection::vec((0u8..12, any::<u16>(), 0u64..=1024), 1..600),
    ) {
        let mut world = World::new(plan(ranks, per_peer, buffer_chunks, threads), threads);
        let n = ranks as usize;
        for (action, pick, bytes) in steps {
            let pick = usize::from(pick);
            let (x, y) = (pick % n, pick / n % n);
            match action {
                // More sends than anything else, most of them to rank 0.
                0..=3 => { world.send(x, 0, bytes); }
                4 => { world.send(x, y, bytes); }
                5 => prop_assert_eq!(world.arrive(0, pick / n), Ok(())),
                6 => prop_assert_eq!(world.arrive(x, pick / n), Ok(())),
                7 => world.begin(x),
                8..=9 => world.finish(x, pick / n),
                10 => world.reply(pick),
                _ => world.return_coalesced(x, y),
            }
            world.check();
        }
        prop_assert!(world.drain().is_ok());
        world.check();
        for rank in &world.ranks {
            for peer in 0..ranks {
                prop_assert_eq!(rank.flow.in_flight(peer), 0);
            }
        }
    }
}
