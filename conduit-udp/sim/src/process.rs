//! One rank's process, with its endpoint, socket, fragment handler and traffic.

use std::collections::{HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use conduit_core::ni::Rank;
use conduit_udp::protocol::{
    Counters, Endpoint, Fragment, Nanos, Payload, Received, Refused, Seal,
};
use sim::random::{Rng, mix};

use crate::content;
use crate::handler::{State, View};
use crate::memory::inside;
use crate::oracle::{Channel, Oracle, Process as Id, violation};
use crate::scenario::Scenario;
use crate::seal::AnySeal;
use crate::traffic::{Traffic, Wish};

/// The number of corrupted packets for which a run compares the endpoint's whole state.
const COMPARED: u32 = 6;
/// The number of times in a row that an endpoint may ask to be called at once although nothing is
/// due.
const STORM: u32 = 1000;
/// The interval at which the progress thread serves a rank that does not poll.
const ATTENTION: Nanos = 1_000_000;

/// A datagram in the socket.
#[derive(Debug)]
pub(crate) struct Datagram {
    pub(crate) bytes: Vec<u8>,
    /// Whether the datagram differs from every packet that a rank sent.
    pub(crate) is_changed: bool,
}

/// A seal that checks that no packet number is reused towards a peer, because numbers are nonces.
struct Numbering<'a> {
    seal: &'a mut AnySeal,
    /// For each peer, the lowest packet number that may be used.
    next: &'a mut [u64],
    reused: Option<(Rank, u64)>,
}

impl Seal for Numbering<'_> {
    fn seal(&mut self, peer: Rank, number: u64, packet: &mut [u8], header: usize) {
        let next = &mut self.next[peer as usize];
        if number < *next {
            self.reused = Some((peer, number));
        }
        *next = (*next).max(number + 1);
        self.seal.seal(peer, number, packet, header);
    }

    fn open(&mut self, peer: Rank, number: u64, packet: &mut [u8], header: usize) -> bool {
        self.seal.open(peer, number, packet, header)
    }
}

/// A seal that remembers its last verdict.
struct Spy<'a> {
    seal: &'a mut AnySeal,
    verdict: Option<bool>,
}

impl Seal for Spy<'_> {
    fn seal(&mut self, peer: Rank, number: u64, packet: &mut [u8], header: usize) {
        self.seal.seal(peer, number, packet, header);
    }

    fn open(&mut self, peer: Rank, number: u64, packet: &mut [u8], header: usize) -> bool {
        let verdict = self.seal.open(peer, number, packet, header);
        self.verdict = Some(verdict);
        verdict
    }
}

pub(crate) struct Process {
    pub(crate) id: Id,
    pub(crate) rank: Rank,
    pub(crate) endpoint: Endpoint,
    seal: AnySeal,
    /// The process of each rank.
    pub(crate) peers: Vec<Id>,
    handler: State,
    pub(crate) traffic: Traffic,
    /// For each peer, the lowest packet number that may be sent.
    numbers: Vec<u64>,
    /// The peer and the number of every accepted packet.
    taken: HashSet<(Rank, u64)>,
    pub(crate) socket: VecDeque<Datagram>,
    pub(crate) socket_bytes: usize,
    /// The time until which the process is busy.
    pub(crate) clock: Nanos,
    /// The time of the process's next wake-up, or [`Nanos::MAX`] if there is none.
    pub(crate) wake: Nanos,
    /// The number of bytes that the endpoint holds.
    pub(crate) memory: i64,
    /// The maximum of `memory`.
    pub(crate) peak: i64,
    memory_bound: i64,
    /// The number of bytes that the endpoint held at the process's start.
    pub(crate) memory_at_start: i64,
    /// The minimum of `memory` since this field was last reset.
    pub(crate) least: i64,
    storm: u32,
    /// The number of comparisons of the whole state so far.
    compared: u32,
    /// The number of comparisons of the whole state to make.
    comparisons: u32,
    buffer: Vec<u8>,
    random: Rng,
    turn: usize,
    /// The number of timer expirations.
    pub(crate) timeouts: u64,
    /// The number of packets sent.
    pub(crate) packets: u64,
    times: Times,
}

#[derive(Debug, Clone, Copy)]
struct Times {
    receive: Nanos,
    send: Nanos,
    batch: usize,
}

/// A packet that the process sends, as a part of its buffer.
pub(crate) struct Outgoing<'a> {
    pub(crate) at: Nanos,
    pub(crate) to: Rank,
    pub(crate) bytes: &'a [u8],
}

/// Returns the counters without those of dropped packets.
pub(crate) fn without_drops(counters: &Counters) -> Counters {
    Counters {
        bad_tag: 0,
        malformed: 0,
        replayed: 0,
        from_failed: 0,
        ..*counters
    }
}

/// Returns a hash of an endpoint's state without its counters of dropped packets.
pub(crate) fn digest(endpoint: &Endpoint) -> u64 {
    let mut text = format!("{endpoint:?}");
    for name in ["bad_tag: ", "malformed: ", "replayed: ", "from_failed: "] {
        let counters = text.split(name);
        text = counters
            .map(|part| part.trim_start_matches(|c: char| c.is_ascii_digit()))
            .collect();
    }
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

impl Process {
    pub(crate) fn new(
        scenario: &Scenario,
        id: Id,
        rank: Rank,
        peers: Vec<Id>,
        incarnations: &[u64],
        now: Nanos,
    ) -> Self {
        let config = scenario.protocol.config(rank, scenario.ranks);
        let seed = mix(scenario.seed ^ (id as u64 + 1) << 32);
        let mut memory = 0;
        let endpoint = inside(&mut memory, || Endpoint::new(config));
        Self {
            id,
            rank,
            endpoint,
            seal: AnySeal::new(scenario.seal, rank, incarnations),
            peers,
            handler: State::new(&scenario.handler, scenario.ranks, seed ^ 1),
            numbers: vec![0; scenario.ranks as usize],
            taken: HashSet::new(),
            traffic: Traffic::new(scenario, rank, now, seed ^ 2),
            socket: VecDeque::new(),
            socket_bytes: 0,
            clock: now,
            wake: Nanos::MAX,
            memory,
            peak: memory,
            memory_at_start: memory,
            least: memory,
            memory_bound: crate::bound::memory(scenario),
            storm: 0,
            compared: 0,
            comparisons: if scenario.seed.is_multiple_of(8) {
                COMPARED
            } else {
                0
            },
            buffer: vec![0; scenario.host.transmit_buffer],
            random: Rng::with_seed(seed ^ 3),
            turn: 0,
            timeouts: 0,
            packets: 0,
            times: Times {
                receive: scenario.host.receive_time,
                send: scenario.host.send_time,
                batch: scenario.host.batch,
            },
        }
    }

    /// Receives packets, handles timers, and sends. If `is_attended` is set, the rank does not
    /// poll, and only the progress thread makes calls.
    pub(crate) fn poll(
        &mut self,
        now: Nanos,
        is_attended: bool,
        oracle: &mut Oracle,
        mut send: impl FnMut(Outgoing<'_>),
    ) {
        self.clock = self.clock.max(now);
        self.handler.is_closed = is_attended;
        self.handler.pass(self.clock);
        self.handler.has_refused = false;
        // The progress thread runs rarely, so it takes all packets that have arrived.
        let batch = if is_attended {
            usize::MAX
        } else {
            self.times.batch
        };
        for _ in 0..batch {
            let Some(datagram) = self.socket.pop_front() else {
                break;
            };
            self.socket_bytes -= datagram.bytes.len();
            self.clock += self.times.receive;
            self.receive(datagram, oracle);
        }
        oracle.now = self.clock;
        if self.endpoint.timeout().is_some_and(|at| at <= self.clock) {
            self.timeouts += 1;
            self.on_timeout(oracle);
        }
        if !is_attended {
            self.offer(oracle);
        }
        self.transmit(oracle, &mut send);
        if self.endpoint.timeout().is_some_and(|at| at <= self.clock) {
            self.storm += 1;
            if self.storm == STORM {
                let (id, clock, timeout) = (self.id, self.clock, self.endpoint.timeout());
                violation!(
                    oracle,
                    "process {id} has timers that are always due: {timeout:?} at {clock}"
                );
            }
        } else {
            self.storm = 0;
        }
        self.peak = self.peak.max(self.memory);
        self.least = self.least.min(self.memory);
        if self.memory > self.memory_bound {
            let (id, memory, bound) = (self.id, self.memory, self.memory_bound);
            violation!(
                oracle,
                "process {id} holds {memory} bytes, more than {bound}"
            );
            self.memory_bound = i64::MAX;
        }
        self.wake = self.next_wake(is_attended);
    }

    /// Returns the time of the process's next poll, unless a packet arrives earlier.
    fn next_wake(&self, is_attended: bool) -> Nanos {
        if !self.socket.is_empty() {
            return if is_attended {
                self.clock + ATTENTION
            } else {
                self.clock
            };
        }
        let timer = self.endpoint.timeout();
        let room = self
            .handler
            .is_waiting()
            .then_some(self.clock + ATTENTION / 10);
        let traffic = self.traffic.next_at().filter(|_| !is_attended);
        let at = timer
            .into_iter()
            .chain(room)
            .chain(traffic)
            .min()
            .unwrap_or(Nanos::MAX);
        // Time advances even if timers are due.
        at.max(self.clock + if is_attended { ATTENTION } else { 1 })
    }

    /// Returns the time of the process's first poll after a packet has arrived.
    pub(crate) fn on_arrival(&self, now: Nanos, is_attended: bool) -> Nanos {
        if is_attended {
            self.clock.max(now) + ATTENTION
        } else {
            self.clock.max(now)
        }
    }

    /// Returns the counters that must not change without a valid tag. Reading them takes time, so
    /// they are checked only for some packets.
    fn counters(&self, is_changed: bool) -> Option<Counters> {
        (is_changed || self.timeouts.is_multiple_of(8))
            .then(|| without_drops(&self.endpoint.counters()))
    }

    fn receive(&mut self, mut datagram: Datagram, oracle: &mut Oracle) {
        oracle.now = self.clock;
        let digest_before = (datagram.is_changed && self.compared < self.comparisons)
            .then(|| digest(&self.endpoint));
        let before = (
            self.handler.calls,
            self.counters(datagram.is_changed),
            self.endpoint.timeout(),
            self.memory,
        );
        let mut seal = Spy {
            seal: &mut self.seal,
            verdict: None,
        };
        let mut view = View {
            process: self.id,
            peers: &self.peers,
            state: &mut self.handler,
            oracle,
        };
        let (endpoint, clock) = (&mut self.endpoint, self.clock);
        let (seal_ref, view_ref) = (&mut seal, &mut view);
        let received = inside(&mut self.memory, || {
            endpoint.receive(clock, &mut datagram.bytes, seal_ref, view_ref)
        });
        if let Received::Taken(peer) = received
            && let Some((_, number)) = datagram.bytes[..16].split_last_chunk()
            && !self.taken.insert((peer, u64::from_le_bytes(*number)))
        {
            let id = self.id;
            violation!(
                view.oracle,
                "process {id} accepted a packet of {peer} twice"
            );
        }
        let verdict = seal.verdict;
        if verdict != Some(true) {
            let after = (
                self.handler.calls,
                self.counters(datagram.is_changed),
                self.endpoint.timeout(),
                self.memory,
            );
            let id = self.id;
            if before != after {
                violation!(
                    oracle,
                    "a packet without a valid tag changed the counters of process {id}: {before:?}, {after:?}"
                );
            }
            if let Some(digest_before) = digest_before {
                self.compared += 1;
                if digest_before != digest(&self.endpoint) {
                    violation!(
                        oracle,
                        "a packet without a valid tag changed the state of process {id}"
                    );
                }
            }
        } else if datagram.is_changed {
            let id = self.id;
            violation!(oracle, "process {id} accepted a packet that no rank sent");
        }
    }

    fn on_timeout(&mut self, oracle: &mut Oracle) {
        let mut view = View {
            process: self.id,
            peers: &self.peers,
            state: &mut self.handler,
            oracle,
        };
        let (endpoint, clock) = (&mut self.endpoint, self.clock);
        let view_ref = &mut view;
        inside(&mut self.memory, || endpoint.on_timeout(clock, view_ref));
    }

    /// Submits as much of the rank's traffic as the endpoint accepts.
    fn offer(&mut self, oracle: &mut Oracle) {
        let count = self.traffic.look(self.clock);
        let (mut sent, mut refused) = (0, 0);
        while sent < count && refused < self.traffic.flows() {
            self.turn = self.turn.wrapping_add(1);
            let turn = self.turn;
            let Some(wish) = self.traffic.take(turn) else {
                break;
            };
            match self.send(wish, oracle) {
                Ok(()) => {
                    self.traffic.took(turn);
                    sent += 1;
                    refused = 0;
                }
                Err(Refused::Full) => {
                    self.traffic.refused(turn, wish);
                    refused += 1;
                }
                Err(Refused::Dead) => self.traffic.give_up(wish.to),
                Err(refused) => {
                    let id = self.id;
                    violation!(
                        oracle,
                        "process {id} is refused a valid fragment: {wish:?}, {refused:?}"
                    );
                    break;
                }
            }
        }
        if refused > 0 && refused >= self.traffic.flows() {
            // Before there is room, a packet arrives or a timer expires. The rank also polls from
            // time to time.
            self.traffic.wait_until(self.clock + ATTENTION);
        }
    }

    fn send(&mut self, wish: Wish, oracle: &mut Oracle) -> Result<(), Refused> {
        let to = self.peers[wish.to as usize];
        let number = oracle.next(self.id, to, wish.channel);
        let key =
            mix((self.id as u64) << 48 ^ (to as u64) << 40 ^ (wish.channel as u64) << 39 ^ number);
        let header = content::bytes(mix(key), 0, wish.header);
        let bytes = content::bytes(
            key,
            0,
            if wish.channel == Channel::Command {
                wish.length
            } else {
                0
            },
        );
        let (first, second) = bytes.split_at(self.random.usize(..=bytes.len()));
        let pieces = [first, second];
        let payload = match wish.channel {
            Channel::Command => Payload::Copied(&pieces),
            Channel::Data => Payload::Read {
                token: number,
                length: wish.length as u32,
            },
        };
        let (endpoint, clock) = (&mut self.endpoint, self.clock);
        let fragment = Fragment { header, payload };
        let result = inside(&mut self.memory, || {
            endpoint.send(clock, wish.to, &fragment)
        });
        let id = self.id;
        let is_dead = oracle
            .look(id, to)
            .is_some_and(|pair| pair.failed.is_some());
        match result {
            Ok(()) if is_dead => violation!(
                oracle,
                "process {id} may still send to {to} after its failure"
            ),
            Ok(()) => oracle.sent(
                id,
                to,
                wish.channel,
                key,
                wish.header as u8,
                wish.length as u32,
            ),
            Err(Refused::Dead) if !is_dead => {
                violation!(
                    oracle,
                    "process {id} may not send to {to}, but got no failure"
                );
            }
            Err(_) => {}
        }
        result
    }

    fn transmit(&mut self, oracle: &mut Oracle, send: &mut impl FnMut(Outgoing<'_>)) {
        loop {
            oracle.now = self.clock;
            let mut view = View {
                process: self.id,
                peers: &self.peers,
                state: &mut self.handler,
                oracle,
            };
            let (endpoint, clock, buffer) = (&mut self.endpoint, self.clock, &mut self.buffer);
            let mut seal = Numbering {
                seal: &mut self.seal,
                next: &mut self.numbers,
                reused: None,
            };
            let (seal_ref, view_ref) = (&mut seal, &mut view);
            let Some(made) = inside(&mut self.memory, || {
                endpoint.transmit(clock, buffer, seal_ref, view_ref)
            }) else {
                break;
            };
            let reused = seal.reused;
            if made.length == 0 || made.segment == 0 || made.length > self.buffer.len() {
                let id = self.id;
                violation!(oracle, "process {id} makes invalid packets: {made:?}");
                break;
            }
            for bytes in self.buffer[..made.length].chunks(made.segment) {
                self.clock += self.times.send;
                self.packets += 1;
                send(Outgoing {
                    at: self.clock,
                    to: made.peer,
                    bytes,
                });
            }
            if let Some((peer, number)) = reused {
                let id = self.id;
                violation!(
                    oracle,
                    "process {id} reuses packet number {number} towards {peer}"
                );
            }
        }
    }
}
