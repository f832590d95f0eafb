//! The traffic of a rank.

use conduit_core::ni::Rank;
use conduit_udp::protocol::{MAX_HEADER, MAX_TINY, Nanos};
use sim::random::Rng;

use crate::oracle::Channel;
use crate::scenario::{Pattern, Phase, Scenario, Sizes};

/// The maximum time between two sends of a rank that has fragments to send.
const LONGEST_PAUSE: Nanos = 200_000_000;

/// A fragment to send.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wish {
    pub(crate) to: Rank,
    pub(crate) channel: Channel,
    pub(crate) header: usize,
    pub(crate) length: usize,
}

#[derive(Debug)]
struct Flow {
    to: Rank,
    left: u32,
    sizes: Sizes,
    /// A fragment that was refused and is sent before any other.
    next: Option<Wish>,
}

/// All traffic of a rank.
#[derive(Debug)]
pub(crate) struct Traffic {
    rank: Rank,
    ranks: u32,
    packet: usize,
    random: Rng,
    /// The phases that have not begun, in descending order of their beginnings.
    phases: Vec<Phase>,
    flows: Vec<Flow>,
    /// The mean time between sends, in the phase that began last.
    gap: Nanos,
    /// The number of fragments sent at a time, in the phase that began last.
    burst: u32,
    /// The time from which the next fragment may be sent.
    ready_at: Nanos,
}

impl Traffic {
    /// Creates the traffic that a rank has from the time `from` on.
    pub(crate) fn new(scenario: &Scenario, rank: Rank, from: Nanos, seed: u64) -> Self {
        let mut phases: Vec<Phase> = scenario
            .phases
            .iter()
            .filter(|phase| phase.begin >= from)
            .cloned()
            .collect();
        phases.sort_by_key(|phase| std::cmp::Reverse(phase.begin));
        Self {
            rank,
            ranks: scenario.ranks,
            packet: scenario.protocol.packet,
            random: Rng::with_seed(seed),
            phases,
            flows: Vec::new(),
            gap: 0,
            burst: 1,
            ready_at: 0,
        }
    }

    /// Returns whether all traffic was sent.
    pub(crate) fn is_done(&self) -> bool {
        self.flows.is_empty() && self.phases.is_empty()
    }

    /// Returns the time of the next send.
    pub(crate) fn next_at(&self) -> Option<Nanos> {
        let phase = self.phases.last().map(|phase| phase.begin);
        let flow = (!self.flows.is_empty()).then_some(self.ready_at);
        phase.into_iter().chain(flow).min()
    }

    /// Begins the phases that are due. Returns the number of fragments that may be sent now.
    pub(crate) fn look(&mut self, now: Nanos) -> u32 {
        while let Some(phase) = self.phases.pop_if(|phase| phase.begin <= now) {
            for to in self.partners(phase.pattern) {
                self.flows.push(Flow {
                    to,
                    left: phase.fragments,
                    sizes: phase.sizes,
                    next: None,
                });
            }
            (self.gap, self.burst) = (phase.gap, phase.burst);
        }
        if self.flows.is_empty() || now < self.ready_at {
            return 0;
        }
        if self.gap == 0 {
            return 64.max(self.burst);
        }
        let pause: f64 =
            (self.gap * u64::from(self.burst)) as f64 * -(1.0 - self.random.f64()).ln();
        self.ready_at = now + (pause as Nanos).min(LONGEST_PAUSE);
        self.burst
    }

    /// Records that nothing can be sent at present. The next attempt follows the next packet or
    /// timer, or is made at the time `later`.
    pub(crate) fn wait_until(&mut self, later: Nanos) {
        self.ready_at = self.ready_at.max(later);
    }

    fn partners(&mut self, pattern: Pattern) -> Vec<Rank> {
        let (rank, ranks) = (self.rank, self.ranks);
        let others = (0..ranks).filter(|&other| other != rank);
        match pattern {
            Pattern::OneWay if rank.is_multiple_of(2) && rank + 1 < ranks => vec![rank + 1],
            Pattern::Pairs if rank ^ 1 < ranks => vec![rank ^ 1],
            Pattern::Ring => vec![(rank + 1) % ranks],
            Pattern::AllToAll => others.collect(),
            Pattern::ManyToOne if rank != 0 => vec![0],
            Pattern::OneToMany if rank == 0 => others.collect(),
            Pattern::Random => {
                let random = &mut self.random;
                others.filter(|_| random.u32(..ranks) < 2).collect()
            }
            Pattern::OneWay | Pattern::Pairs | Pattern::ManyToOne | Pattern::OneToMany => vec![],
        }
    }

    /// Returns the next fragment to send, from flow `turn` modulo the number of flows.
    pub(crate) fn take(&mut self, turn: usize) -> Option<Wish> {
        if self.flows.is_empty() {
            return None;
        }
        let at = turn % self.flows.len();
        let (to, sizes) = (self.flows[at].to, self.flows[at].sizes);
        if let Some(next) = self.flows[at].next.take() {
            return Some(next);
        }
        Some(self.draw(to, sizes))
    }

    pub(crate) fn flows(&self) -> usize {
        self.flows.len()
    }

    /// Records that the fragment returned by [`take`](Self::take) was sent.
    pub(crate) fn took(&mut self, turn: usize) {
        let at = turn % self.flows.len();
        let flow = &mut self.flows[at];
        if flow.left != u32::MAX {
            flow.left -= 1;
        }
        if flow.left == 0 {
            self.flows.swap_remove(at);
        }
    }

    /// Records that the fragment returned by [`take`](Self::take) was refused and has to be sent
    /// again.
    pub(crate) fn refused(&mut self, turn: usize, wish: Wish) {
        let at = turn % self.flows.len();
        self.flows[at].next = Some(wish);
    }

    /// Removes the traffic to a peer.
    pub(crate) fn give_up(&mut self, peer: Rank) {
        self.flows.retain(|flow| flow.to != peer);
    }

    fn draw(&mut self, to: Rank, sizes: Sizes) -> Wish {
        let random = &mut self.random;
        let (channel, header, length) = match sizes {
            Sizes::Tiny => {
                let header = random.usize(8..=MAX_HEADER);
                let length = if random.u8(..8) == 0 {
                    random.usize(..=MAX_TINY - header)
                } else {
                    random.usize(..60)
                };
                (Channel::Command, header, length)
            }
            Sizes::Packet => (
                Channel::Data,
                random.usize(..=MAX_HEADER),
                random.usize(..self.packet),
            ),
            Sizes::Full => (Channel::Data, 16, self.packet - 160),
            Sizes::Short => (Channel::Data, 8, 8),
            Sizes::Large => (
                Channel::Data,
                random.usize(..=MAX_HEADER),
                random.usize(self.packet..100_000),
            ),
            Sizes::Stream => (Channel::Data, 24, 1 << 20),
            Sizes::Mixed => match random.u8(..16) {
                // Sizes at the limits: the largest tiny fragment, an empty one, one of one byte,
                // and those that just fit or just do not fit in a packet.
                0 => {
                    let header = random.usize(8..=MAX_HEADER);
                    (Channel::Command, header, MAX_TINY - header)
                }
                1 => (Channel::Command, random.usize(8..=MAX_HEADER), 0),
                2 => (Channel::Command, 0, random.usize(8..=MAX_TINY)),
                3 => (
                    Channel::Data,
                    random.usize(..=MAX_HEADER),
                    random.usize(..2),
                ),
                4 => (
                    Channel::Data,
                    random.usize(..=MAX_HEADER),
                    self.packet - random.usize(..200),
                ),
                5 => (
                    Channel::Data,
                    random.usize(..=MAX_HEADER),
                    random.usize(1..5) * self.packet,
                ),
                6 => (
                    Channel::Data,
                    random.usize(..=MAX_HEADER),
                    random.usize(..100_000),
                ),
                7..10 => (
                    Channel::Data,
                    random.usize(..=MAX_HEADER),
                    random.usize(..self.packet),
                ),
                _ => (
                    Channel::Command,
                    random.usize(8..=MAX_HEADER),
                    random.usize(..100),
                ),
            },
        };
        Wish {
            to,
            channel,
            header,
            length,
        }
    }
}
