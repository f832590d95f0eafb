//! The network between endpoints: every packet takes some time and is subject to the faults.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use conduit_core::ni::Rank;

use super::reference::{App, Random, TestSeal};
use crate::protocol::{Config, Endpoint, Nanos};

/// The faults of the network. Shares are per thousand.
#[derive(Debug, Clone, Copy)]
pub(super) struct Faults {
    pub(super) lose: u64,
    pub(super) double: u64,
    pub(super) change: u64,
    /// The transit time of a packet.
    pub(super) delay: Nanos,
    /// The maximum random additional time of a packet, which reorders packets.
    pub(super) jitter: Nanos,
    /// The size above which packets are lost.
    pub(super) largest: usize,
    /// The number of bytes per microsecond on each rank's outgoing cable, or 0 for no limit.
    pub(super) rate: u64,
    /// The number of bytes per microsecond that each rank reads from its socket, and the number of
    /// bytes that the socket holds. There is no limit if they are 0.
    pub(super) intake: u64,
    pub(super) buffer: usize,
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            lose: 0,
            double: 0,
            change: 0,
            delay: 10_000,
            jitter: 0,
            largest: usize::MAX,
            rate: 0,
            intake: 0,
            buffer: usize::MAX,
        }
    }
}

type Under = (Nanos, u64, Rank, Vec<u8>);

/// Ranks and their network.
#[derive(Debug)]
pub(super) struct Network {
    pub(super) now: Nanos,
    pub(super) endpoints: Vec<Endpoint>,
    pub(super) apps: Vec<App>,
    pub(super) faults: Faults,
    /// The pairs (from, to) between which every packet is lost.
    pub(super) cut: Vec<(Rank, Rank)>,
    pub(super) under_way: BinaryHeap<Reverse<Under>>,
    /// The times at which each rank's outgoing cable and its socket become free.
    free_at: Vec<Nanos>,
    taken_at: Vec<Nanos>,
    /// The number of packets dropped because a socket was full.
    pub(super) overflown: u64,
    count: u64,
    random: Random,
    buffer: Vec<u8>,
    /// The number of super-packets made, and the number of packets in them.
    pub(super) transmits: u64,
    pub(super) packets: u64,
    pub(super) most_memory: usize,
}

impl Network {
    pub(super) fn new(size: u32, seed: u64, config: &Config, faults: Faults) -> Self {
        let config = |rank| Config {
            rank,
            size,
            ..config.clone()
        };
        Self {
            now: 1_000,
            endpoints: (0..size).map(|rank| Endpoint::new(config(rank))).collect(),
            apps: (0..size)
                .map(|rank| App::new(rank, seed + u64::from(rank)))
                .collect(),
            faults,
            cut: Vec::new(),
            under_way: BinaryHeap::new(),
            free_at: vec![0; size as usize],
            taken_at: vec![0; size as usize],
            overflown: 0,
            count: 0,
            random: Random(seed),
            buffer: vec![0; 1 << 16],
            transmits: 0,
            packets: 0,
            most_memory: 0,
        }
    }

    pub(super) fn send(&mut self, from: Rank, to: Rank, channel: u8, length: usize) -> bool {
        let from = from as usize;
        self.apps[from]
            .send(self.now, &mut self.endpoints[from], to, channel, length)
            .is_ok()
    }

    /// Passes to the network all packets that the ranks have to send.
    pub(super) fn transmit(&mut self) {
        for from in 0..self.endpoints.len() {
            let seal = &mut TestSeal(from as Rank);
            while let Some(transmit) = self.endpoints[from].transmit(
                self.now,
                &mut self.buffer,
                seal,
                &mut self.apps[from],
            ) {
                assert!(transmit.length <= self.buffer.len() && transmit.length > 0);
                assert!(transmit.zero_copy.is_none());
                let peer = transmit.peer;
                let packets: Vec<Vec<u8>> = self.buffer[..transmit.length]
                    .chunks(transmit.segment)
                    .map(<[u8]>::to_vec)
                    .collect();
                assert!(packets.len() <= 64);
                self.transmits += 1;
                for packet in packets {
                    assert!(packet.len() <= self.endpoints[from].config().packet);
                    self.packets += 1;
                    self.carry(from as Rank, peer, packet);
                }
            }
        }
    }

    fn carry(&mut self, from: Rank, to: Rank, packet: Vec<u8>) {
        let faults = self.faults;
        let time = (packet.len() as u64 * 1000)
            .checked_div(faults.rate)
            .unwrap_or(0);
        let free = &mut self.free_at[from as usize];
        *free = (*free).max(self.now) + time;
        let sent = *free;
        if self.cut.contains(&(from, to)) || packet.len() > faults.largest {
            return;
        }
        let copies = 1 + u64::from(self.random.in_thousand(faults.double));
        for _ in 0..copies {
            if self.random.in_thousand(faults.lose) {
                continue;
            }
            let mut packet = packet.clone();
            if self.random.in_thousand(faults.change) {
                let at = self.random.below(packet.len() as u64) as usize;
                packet[at] ^= 1 << self.random.below(8);
            }
            self.count += 1;
            let mut at = sent + faults.delay + self.random.below(faults.jitter);
            if faults.intake > 0 {
                // Computed as if the packet arrived now, because packets arrive nearly in the
                // order in which they were sent.
                let taken = &mut self.taken_at[to as usize];
                let begin = (*taken).max(at);
                if (begin - at) * faults.intake / 1000 + packet.len() as u64 > faults.buffer as u64
                {
                    self.overflown += 1;
                    continue;
                }
                *taken = begin + packet.len() as u64 * 1000 / faults.intake;
                at = *taken;
            }
            self.under_way.push(Reverse((at, self.count, to, packet)));
        }
    }

    /// Advances to the next event. Returns `false` if there is none before `end`.
    pub(super) fn step(&mut self, end: Nanos) -> bool {
        self.transmit();
        let arrival = self.under_way.peek().map(|Reverse((at, ..))| *at);
        let timeout = self.endpoints.iter().filter_map(Endpoint::timeout).min();
        let Some(next) = arrival
            .into_iter()
            .chain(timeout)
            .min()
            .filter(|&next| next <= end)
        else {
            self.now = end;
            return false;
        };
        self.now = self.now.max(next);
        while let Some(Reverse((at, _, to, mut packet))) = self.under_way.pop() {
            if at > self.now {
                self.under_way.push(Reverse((at, 0, to, packet)));
                break;
            }
            let to = to as usize;
            let seal = &mut TestSeal(to as Rank);
            self.endpoints[to].receive(self.now, &mut packet, seal, &mut self.apps[to]);
        }
        for (endpoint, app) in self.endpoints.iter_mut().zip(&mut self.apps) {
            if endpoint.timeout().is_some_and(|at| at <= self.now) {
                endpoint.on_timeout(self.now, app);
            }
            assert!(endpoint.timeout().is_none_or(|at| at > self.now));
            self.most_memory = self.most_memory.max(endpoint.memory());
        }
        true
    }

    /// Runs until everything sent has been delivered and acknowledged. Panics if that takes longer
    /// than `time`.
    pub(super) fn settle(&mut self, time: Nanos) {
        let end = self.now + time;
        while !self.is_settled() {
            assert!(
                self.step(end),
                "not settled after {time} ns: {:#?}",
                self.endpoints
            );
        }
    }

    pub(super) fn is_settled(&self) -> bool {
        let all_received = self.apps.iter().enumerate().all(|(from, app)| {
            app.sent.iter().all(|(&(to, channel), &count)| {
                self.apps[to as usize]
                    .received
                    .get(&(from as Rank, channel))
                    .copied()
                    .unwrap_or(0)
                    == count
            })
        });
        all_received
            && self.apps.iter().all(|app| app.unsent.is_empty())
            && self.endpoints.iter().all(|endpoint| {
                (0..self.endpoints.len() as Rank)
                    .filter_map(|peer| endpoint.link(peer))
                    .all(|link| {
                        link.outstanding == [0, 0]
                            && link.waiting_commands == 0
                            && link.waiting_fragments == 0
                    })
            })
    }

    /// Runs for the given time.
    pub(super) fn run(&mut self, time: Nanos) {
        let end = self.now + time;
        while self.step(end) {}
    }
}
