//! Processes in virtual time, and a network between them that loses, duplicates and delays
//! datagrams.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV6};

use conduit_core::ni::Rank;
use fastrand::Rng;
use seal::{Protection, Secret, SessionSealer};

use super::app::App;
use crate::peers::NodesOwn;
use crate::peers::address::Address;
use crate::peers::node::Node;
use crate::protocol::{Config, Nanos, Refused};
use crate::socket::DrivenMachine;

pub(super) const MS: Nanos = 1_000_000;

/// The faults of the network, in percent.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Faults {
    pub(super) lose: u32,
    pub(super) double: u32,
    /// The maximum random delay, in addition to 10 µs.
    pub(super) jitter: Nanos,
}

/// A datagram in flight.
pub(super) type Datagram = (Nanos, u64, SocketAddr, SocketAddr, Vec<u8>);

#[derive(Debug)]
pub(super) struct Process {
    pub(super) node: Node,
    pub(super) app: App,
}

/// Processes by place. A place always has an address, but may have no process.
pub(super) struct World {
    pub(super) now: Nanos,
    pub(super) processes: Vec<Option<Process>>,
    pub(super) faults: Faults,
    pub(super) under_way: BinaryHeap<Reverse<Datagram>>,
    /// All datagrams sent, or `None` if they are not recorded.
    pub(super) seen: Option<Vec<Datagram>>,
    config: Config,
    max_peers: u32,
    started: u32,
    count: u64,
    random: Rng,
    buffer: Vec<u8>,
}

pub(super) fn address(place: usize) -> SocketAddr {
    (Ipv4Addr::new(10, 0, 0, 1), 1000 + place as u16).into()
}

pub(super) fn source(of: SocketAddr) -> SocketAddrV6 {
    match of {
        SocketAddr::V4(v4) => SocketAddrV6::new(v4.ip().to_ipv6_mapped(), v4.port(), 0, 0),
        SocketAddr::V6(v6) => v6,
    }
}

pub(super) fn own(place: usize) -> Address {
    Address::of(address(place).ip(), address(place).port())
}

impl World {
    pub(super) fn new(places: usize, seed: u64) -> Self {
        let config = Config {
            dead_time: 2_000 * MS,
            idle_time: 100 * MS,
            ..Config::default()
        };
        let mut world = Self {
            now: 1_000,
            processes: (0..places).map(|_| None).collect(),
            faults: Faults::default(),
            under_way: BinaryHeap::new(),
            seen: None,
            config,
            max_peers: 1000,
            started: 0,
            count: 0,
            random: Rng::with_seed(seed),
            buffer: vec![0; 1 << 16],
        };
        for place in 0..places {
            world.start(place);
        }
        world
    }

    /// Starts a new process at a place. If there is a process at the place, that process ends
    /// without notification.
    pub(super) fn start(&mut self, place: usize) {
        self.start_with(place, b"common");
    }

    /// Does the same as [`start`](Self::start), but with the secret derived from `key`.
    pub(super) fn start_with(&mut self, place: usize, key: &[u8]) {
        self.started += 1;
        let mut seed = [self.random.u8(..); 32];
        seed[..4].copy_from_slice(&self.started.to_le_bytes());
        let secret = Secret::from_key(key);
        let seed = Secret::from_bytes(seed);
        let sealer = SessionSealer::new(Some(&secret), Protection::Authenticate, &seed);
        let node = Node::new(sealer, own(place), 0, self.max_peers, self.config.clone());
        self.processes[place] = Some(Process {
            node,
            app: App::new(self.started),
        });
    }

    pub(super) fn kill(&mut self, place: usize) {
        self.processes[place] = None;
    }

    pub(super) fn process(&mut self, place: usize) -> &mut Process {
        self.processes[place].as_mut().expect("a process")
    }

    /// Returns the number that the process at a place has for the process at another.
    pub(super) fn number(&mut self, place: usize, to: usize) -> Option<Rank> {
        self.processes[place].as_mut()?.node.connect(own(to))
    }

    pub(super) fn send(
        &mut self,
        from: usize,
        to: usize,
        channel: u8,
        length: usize,
    ) -> Result<(), Refused> {
        let now = self.now;
        let Some(peer) = self.number(from, to) else {
            return Err(Refused::NoSuchRank);
        };
        let Process { node, app } = self.process(from);
        app.send(peer, channel, length, |peer, fragment| {
            node.send(now, peer, fragment)
        })
    }

    pub(super) fn close(&mut self, place: usize, to: usize) {
        if let Some(peer) = self.number(place, to) {
            let Process { node, app } = self.process(place);
            node.close(peer);
            app.ended(peer);
        }
    }

    pub(super) fn end_session(&mut self, place: usize, to: usize) {
        if let Some(peer) = self.number(place, to) {
            let Process { node, app } = self.process(place);
            node.end_session(peer);
            app.ended(peer);
        }
    }

    /// Passes to the network all datagrams that the processes have to send.
    pub(super) fn transmit(&mut self) {
        for place in 0..self.processes.len() {
            let mut sent = Vec::new();
            if let Some(Process { node, app }) = &mut self.processes[place] {
                while let Some((to, message)) = node.next_message() {
                    sent.push((to, message.bytes().to_vec()));
                }
                while let Some(made) = node.transmit(self.now, &mut self.buffer, &mut NodesOwn, app)
                {
                    let (peer, length, segment) = (made.peer, made.length, made.segment);
                    let to = DrivenMachine::address(node, peer).expect("an address");
                    let packets = self.buffer[..length].chunks(segment);
                    sent.extend(packets.map(|packet| (to, packet.to_vec())));
                }
            }
            for (to, bytes) in sent {
                self.carry(address(place), to, bytes);
            }
        }
    }

    pub(super) fn carry(&mut self, from: SocketAddr, to: SocketAddr, bytes: Vec<u8>) {
        let copies = 1 + u32::from(self.random.u32(..100) < self.faults.double);
        for _ in 0..copies {
            self.count += 1;
            let at = self.now + 10_000 + self.random.u64(..=self.faults.jitter);
            let datagram = (at, self.count, from, to, bytes.clone());
            if let Some(seen) = &mut self.seen {
                seen.push(datagram.clone());
            }
            if self.random.u32(..100) >= self.faults.lose {
                self.under_way.push(Reverse(datagram));
            }
        }
    }

    /// Delivers a datagram at once.
    pub(super) fn deliver(&mut self, from: SocketAddr, to: SocketAddr, mut bytes: Vec<u8>) -> bool {
        let place = usize::from(to.port()) - 1000;
        let now = self.now;
        match self.processes.get_mut(place) {
            Some(Some(Process { node, app })) => {
                node.receive_from(now, &mut bytes, source(from), &mut NodesOwn, app)
            }
            _ => false,
        }
    }

    /// Advances to the next event. Returns `false` if there is no event before `end`.
    pub(super) fn step(&mut self, end: Nanos) -> bool {
        self.transmit();
        let arrival = self.under_way.peek().map(|Reverse((at, ..))| *at);
        let processes = self.processes.iter().flatten();
        let timeouts = processes.filter_map(|process| process.node.timeout());
        let next = timeouts.chain(arrival).min().filter(|&next| next <= end);
        let Some(next) = next else {
            self.now = end;
            return false;
        };
        self.now = self.now.max(next);
        while let Some(Reverse((at, _, from, to, bytes))) = self.under_way.pop() {
            if at > self.now {
                self.under_way.push(Reverse((at, 0, from, to, bytes)));
                break;
            }
            self.deliver(from, to, bytes);
        }
        for Process { node, app } in self.processes.iter_mut().flatten() {
            if node.timeout().is_some_and(|at| at <= self.now) {
                node.on_timeout(self.now, app);
            }
            assert!(node.timeout().is_none_or(|at| at > self.now));
        }
        true
    }

    pub(super) fn run(&mut self, time: Nanos) {
        let end = self.now + time;
        while self.step(end) {}
    }

    /// Sends once there is a session.
    pub(super) fn send_one(&mut self, from: usize, to: usize, channel: u8, length: usize) {
        let end = self.now + 60_000 * MS;
        while self.send(from, to, channel, length).is_err() {
            assert!(self.step(end), "no session");
        }
    }

    /// Returns the id of the session that a process has with another.
    pub(super) fn session(&mut self, place: usize, to: usize) -> Option<[u8; 8]> {
        let process = self.processes[place].as_ref()?;
        process.node.handshakes.session_with(&own(to))
    }

    /// Checks the final state. Two processes that have sessions with each other must have the same
    /// session, and everything sent in it must have arrived.
    pub(super) fn check_rest(&mut self) {
        let places = self.processes.len();
        for (one, other) in (0..places).flat_map(|one| (0..places).map(move |other| (one, other))) {
            if one == other || self.processes[one].is_none() {
                continue;
            }
            let sessions = [self.session(one, other), self.session(other, one)];
            assert_eq!(sessions[0], sessions[1], "{one} and {other}");
            if sessions[0].is_none() {
                continue;
            }
            let peer = self.number(one, other).expect("a number");
            let Process { app, .. } = self.process(one);
            let (process, session) = (app.process(), app.session(peer));
            let sent = app.sent.clone();
            let arrived = &self.process(other).app.arrived;
            for ((to, in_session, channel), count) in sent {
                if (to, in_session) == (peer, session) {
                    let there = arrived.get(&(process, session, channel));
                    assert_eq!(there, Some(&count), "{one} to {other}");
                }
            }
        }
    }
}
