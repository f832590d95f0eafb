//! Tests with several ends of the network within one process, which are driven manually.

mod hostile;
mod rings;
mod sessions;
mod sleep;
mod traffic;

use std::collections::{BTreeMap, VecDeque};

use conduit_core::ni::Rank;

use conduit_portals::transport::Transport;
use conduit_portals::transport::fragment::{Failure, Fragment, FragmentHandler, Payload, Refused};
use conduit_portals::transport::open::OpenTransport;

use super::{Local, LocalConfig};

/// The number of rounds after which a test fails.
const MANY: u32 = 1_000_000;

/// A fragment: its header and its payload.
type Message = (Vec<u8>, Vec<u8>);

/// A handler that records everything that is reported to it.
#[derive(Debug, Default)]
struct Recorder {
    arrived: BTreeMap<Rank, VecDeque<Message>>,
    begun: BTreeMap<u64, (Rank, Message, usize)>,
    next_id: u64,
    /// The payloads that tokens stand for.
    sources: BTreeMap<u64, Vec<u8>>,
    sent: Vec<(Rank, u64)>,
    joined: Vec<Rank>,
    failed: Vec<(Rank, Failure)>,
    /// The first header bytes of the fragments for which the handler has no room.
    refused: Vec<u8>,
}

impl FragmentHandler for Recorder {
    fn read(&mut self, _peer: Rank, token: u64, offset: usize, into: &mut [u8]) {
        let source = &self.sources[&token];
        into.copy_from_slice(&source[offset..offset + into.len()]);
    }
    fn sent(&mut self, peer: Rank, token: u64) {
        self.sent.push((peer, token));
    }
    fn fragment(&mut self, peer: Rank, header: &[u8], payload: &[u8]) -> bool {
        if header
            .first()
            .is_some_and(|first| self.refused.contains(first))
        {
            return false;
        }
        let message = (header.to_vec(), payload.to_vec());
        self.arrived.entry(peer).or_default().push_back(message);
        true
    }
    fn begin(&mut self, peer: Rank, header: &[u8], length: usize) -> Option<u64> {
        if header
            .first()
            .is_some_and(|first| self.refused.contains(first))
        {
            return None;
        }
        self.next_id += 1;
        let message = (header.to_vec(), vec![0; length]);
        self.begun.insert(self.next_id, (peer, message, 0));
        Some(self.next_id)
    }
    fn place(&mut self, id: u64, offset: usize, bytes: &[u8]) {
        let (_, (_, payload), placed) = self.begun.get_mut(&id).expect("has begun");
        payload[offset..offset + bytes.len()].copy_from_slice(bytes);
        *placed += bytes.len();
    }
    fn end(&mut self, id: u64) {
        let (peer, message, placed) = self.begun.remove(&id).expect("has begun");
        assert_eq!(placed, message.1.len(), "each byte once");
        self.arrived.entry(peer).or_default().push_back(message);
    }
    fn failed(&mut self, peer: Rank, failure: Failure) {
        self.begun.retain(|_, (of, ..)| *of != peer);
        self.failed.push((peer, failure));
    }
    fn joined(&mut self, peer: Rank) {
        self.joined.push(peer);
    }
    fn room(&self) -> usize {
        usize::MAX
    }
}

/// An end of the network and its handler's records.
struct Process {
    local: Local,
    handler: Recorder,
}

impl Process {
    fn new() -> Self {
        Self::with(&LocalConfig::default())
    }

    fn named(name: &str) -> Self {
        Self::with(&LocalConfig {
            name: Some(name.to_owned()),
            ..LocalConfig::default()
        })
    }

    fn with(config: &LocalConfig) -> Self {
        Self {
            local: Local::start(config).unwrap(),
            handler: Recorder::default(),
        }
    }

    fn address(&self) -> Vec<u8> {
        self.local.address().to_vec()
    }

    fn connect(&mut self, to: &Self) -> Rank {
        self.local.connect(to.local.address()).unwrap()
    }

    fn send(&mut self, to: Rank, header: &[u8], payload: &[u8]) -> Result<(), Refused> {
        let pieces = [payload];
        let payload = Payload::Copied(&pieces);
        self.local.send(to, &Fragment { header, payload })
    }

    fn send_read(&mut self, to: Rank, header: &[u8], token: u64) -> Result<(), Refused> {
        let length = self.handler.sources[&token].len() as u32;
        let payload = Payload::Read { token, length };
        self.local.send(to, &Fragment { header, payload })
    }

    /// Runs enough passes for the sockets to be checked.
    fn pump(&mut self) {
        for _ in 0..300 {
            self.pass();
        }
    }

    fn pass(&mut self) -> bool {
        self.local.transmit(&mut self.handler);
        self.local.receive(&mut self.handler)
    }

    /// Takes the next message of a peer.
    fn next(&mut self, from: Rank) -> Option<Message> {
        self.handler.arrived.get_mut(&from)?.pop_front()
    }

    fn failures(&mut self) -> Vec<(Rank, Failure)> {
        std::mem::take(&mut self.handler.failed)
    }
}

/// Tries to send a fragment until it is accepted, and runs passes at both ends in between.
fn send_to(from: &mut Process, to: &mut Process, number: Rank, header: &[u8], payload: &[u8]) {
    for _ in 0..MANY {
        match from.send(number, header, payload) {
            Ok(()) => return,
            Err(refused) => assert_eq!(refused, Refused::Full),
        }
        from.pass();
        to.pass();
    }
    panic!("the fragment was not accepted");
}

/// Runs passes until there is a message from a peer.
fn await_message(at: &mut Process, other: &mut Process, from: Rank) -> Message {
    for _ in 0..MANY {
        if let Some(message) = at.next(from) {
            return message;
        }
        at.pass();
        other.pass();
    }
    panic!("no message has arrived");
}

/// Returns two processes with a session, followed by the first process's number for the second and
/// the second's number for the first.
fn connected() -> (Process, Process, Rank, Rank) {
    connected_with(&LocalConfig::default())
}

fn connected_with(config: &LocalConfig) -> (Process, Process, Rank, Rank) {
    let (mut a, mut b) = (Process::with(config), Process::with(config));
    let to_b = a.connect(&b);
    send_to(&mut a, &mut b, to_b, b"first", b"");
    for _ in 0..MANY {
        b.pass();
        if !b.handler.arrived.is_empty() {
            break;
        }
    }
    let to_a = b.handler.joined[0];
    assert_eq!(b.next(to_a), Some((b"first".to_vec(), vec![])));
    (a, b, to_b, to_a)
}

/// Generates pseudo-random bytes.
fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..length).map(|_| random.u8(..)).collect()
}
