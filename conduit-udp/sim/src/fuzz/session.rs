//! A session, in which one endpoint gets inputs made from the packets of another.

use conduit_core::ni::Rank;
use conduit_udp::protocol::{
    Endpoint, Failure, Fragment, FragmentHandler, MAX_HEADER, Nanos, Payload, Received, TAG,
    Transmit,
};
use sim::US;
use sim::random::{Rng, mix};

use super::Outcome;
use super::mutate::{address, mutate};
use crate::content::bytes;
use crate::memory::{inside, outside};
use crate::process::{digest, without_drops};
use crate::scenario::Scenario;
use crate::seal::{AnySeal, SealKind};

/// The number of ranks in the job. The first rank gets inputs in the names of all others.
const RANKS: u32 = 8;
/// The number of ranks if every tag is accepted. There are more ranks because links are then soon
/// given up.
const OPEN_RANKS: u32 = 64;
/// The maximum number of packets that begin a link. They are the other endpoint's first packets.
const HISTORY: usize = 40;
/// The rank with a real endpoint.
const OTHER: Rank = 1;
/// The number of the other endpoint's packets that are kept as material for inputs.
const CORPUS: usize = 48;
/// The number of inputs between two comparisons of the whole state.
const COMPARED: u64 = 5000;

/// A fragment handler that checks every call for effects that would be unsafe.
struct CheckingHandler {
    random: Rng,
    /// The receiver and length of each fragment to send, by token. The length is `None` once the
    /// fragment has been reported as sent.
    tokens: Vec<(Rank, Option<u32>)>,
    /// The sender and length of each fragment that has begun, by place. The length is `None` once
    /// the fragment has ended.
    places: Vec<(Rank, Option<usize>)>,
    failed: Vec<bool>,
    failures: Vec<Failure>,
    calls: u64,
    wrong: Option<String>,
}

impl CheckingHandler {
    fn new(seed: u64, ranks: u32) -> Self {
        Self {
            random: Rng::with_seed(seed),
            tokens: Vec::new(),
            places: Vec::new(),
            failed: vec![false; ranks as usize],
            failures: Vec::new(),
            calls: 0,
            wrong: None,
        }
    }

    fn check(&mut self, is_right: bool, what: &str) {
        self.calls += 1;
        if !is_right && self.wrong.is_none() {
            self.wrong = Some(what.into());
        }
    }

    fn lives(&self, peer: Rank) -> bool {
        self.failed.get(peer as usize) == Some(&false)
    }
}

impl FragmentHandler for CheckingHandler {
    fn read(&mut self, peer: Rank, token: u64, offset: usize, into: &mut [u8]) {
        outside(|| {
            let end = offset + into.len();
            let is_there = self
                .tokens
                .get(token as usize)
                .is_some_and(|&(to, length)| {
                    to == peer && length.is_some_and(|length| end <= length as usize)
                });
            self.check(
                is_there && self.lives(peer),
                "bytes are read outside a fragment",
            );
            into.copy_from_slice(bytes(token, offset, into.len()));
        });
    }

    fn sent(&mut self, peer: Rank, token: u64) {
        outside(|| {
            let length = match self.tokens.get_mut(token as usize) {
                Some((to, length)) if *to == peer => length.take(),
                _ => None,
            };
            self.check(
                length.is_some() && self.lives(peer),
                "an unknown fragment is reported as sent, or one twice",
            );
        });
    }

    fn fragment(&mut self, peer: Rank, header: &[u8], payload: &[u8]) -> bool {
        outside(|| {
            let is_right =
                header.len() <= MAX_HEADER && payload.len() <= 65_507 && self.lives(peer);
            self.check(is_right, "an impossible fragment is delivered");
            self.random.u8(..16) != 0
        })
    }

    fn begin(&mut self, peer: Rank, header: &[u8], length: usize) -> Option<u64> {
        outside(|| {
            self.check(
                header.len() <= MAX_HEADER && self.lives(peer),
                "an impossible fragment begins",
            );
            if self.random.u8(..8) == 0 {
                return None;
            }
            self.places.push((peer, Some(length)));
            Some(self.places.len() as u64 - 1)
        })
    }

    fn place(&mut self, place: u64, offset: usize, bytes: &[u8]) {
        outside(|| {
            let end = offset.checked_add(bytes.len());
            let place = self.places.get(place as usize).copied();
            let is_right = place.is_some_and(|(peer, length)| {
                self.lives(peer) && length.zip(end).is_some_and(|(length, end)| end <= length)
            });
            self.check(is_right, "bytes are placed outside a fragment");
        });
    }

    fn end(&mut self, place: u64) {
        outside(|| {
            let place = self.places.get_mut(place as usize);
            let ended = place.and_then(|(peer, length)| Some((*peer, length.take()?)));
            let is_right = ended.is_some_and(|(peer, _)| self.lives(peer));
            self.check(is_right, "a fragment ends that hasn't begun");
        });
    }

    fn failed(&mut self, peer: Rank, failure: Failure) {
        outside(|| {
            self.check(
                self.lives(peer),
                "a peer fails twice, or an unknown one fails",
            );
            if let Some(failed) = self.failed.get_mut(peer as usize) {
                *failed = true;
            }
            self.failures.push(failure);
        });
    }

    fn room(&self) -> usize {
        self.calls as usize % 7 * 20_000
    }
}

/// An endpoint and its environment.
struct Side {
    rank: Rank,
    endpoint: Endpoint,
    seal: AnySeal,
    handler: CheckingHandler,
    memory: i64,
    peak: i64,
}

impl Side {
    fn new(scenario: &Scenario, rank: Rank, seal: AnySeal, seed: u64) -> Self {
        let config = scenario.protocol.config(rank, scenario.ranks);
        let mut memory = 0;
        let endpoint = inside(&mut memory, || Endpoint::new(config));
        Self {
            rank,
            endpoint,
            seal,
            handler: CheckingHandler::new(seed, scenario.ranks),
            memory,
            peak: memory,
        }
    }

    fn receive(&mut self, now: Nanos, packet: &mut [u8]) -> Received {
        let (endpoint, seal, handler) = (&mut self.endpoint, &mut self.seal, &mut self.handler);
        let received = inside(&mut self.memory, || {
            endpoint.receive(now, packet, seal, handler)
        });
        self.peak = self.peak.max(self.memory);
        received
    }

    /// Submits a few fragments.
    fn offer(&mut self, now: Nanos, random: &mut Rng, to: Rank, packet: usize) {
        let header = bytes(random.u64(..), 0, random.usize(..=MAX_HEADER));
        if random.bool() {
            let payload = bytes(random.u64(..), 0, random.usize(..300));
            let pieces = [payload];
            let fragment = Fragment {
                header,
                payload: Payload::Copied(&pieces),
            };
            let endpoint = &mut self.endpoint;
            let _ = inside(&mut self.memory, || endpoint.send(now, to, &fragment));
        } else {
            let token = self.handler.tokens.len() as u64;
            let length = random.u32(..6 * packet as u32);
            let fragment = Fragment {
                header,
                payload: Payload::Read { token, length },
            };
            let endpoint = &mut self.endpoint;
            if inside(&mut self.memory, || endpoint.send(now, to, &fragment)).is_ok() {
                self.handler.tokens.push((to, Some(length)));
            }
        }
    }

    /// Handles timers that are due, and passes all packets to `each`.
    fn go(&mut self, now: Nanos, buffer: &mut [u8], mut each: impl FnMut(Rank, &mut [u8])) {
        let (endpoint, seal, handler) = (&mut self.endpoint, &mut self.seal, &mut self.handler);
        if endpoint.timeout().is_some_and(|at| at <= now) {
            inside(&mut self.memory, || endpoint.on_timeout(now, handler));
        }
        // Invalid input may cause many packets, but not an endless number.
        for _ in 0..2000 {
            let made = inside(&mut self.memory, || {
                endpoint.transmit(now, buffer, seal, handler)
            });
            let Some(Transmit {
                peer,
                length,
                segment,
                ..
            }) = made
            else {
                break;
            };
            for packet in buffer[..length].chunks_mut(segment.max(1)) {
                each(peer, packet);
            }
        }
        self.peak = self.peak.max(self.memory);
    }
}

/// Runs one session.
pub(super) fn run(seed: u64, session: u64, is_real: bool, inputs: u64) -> Outcome {
    let start = mix(mix(seed) ^ session ^ u64::from(is_real) << 63);
    let random = &mut Rng::with_seed(start);
    let mut scenario = Scenario::from_seed(start);
    let ranks = if is_real { RANKS } else { OPEN_RANKS };
    scenario.ranks = ranks;
    // The timeouts are so long that no peer counts as silent.
    (scenario.protocol.dead_time, scenario.protocol.mtu_timeout) = (1 << 50, 1 << 50);
    let kind = [
        SealKind::Hash,
        SealKind::Hash,
        SealKind::Authenticate,
        SealKind::Encrypt,
    ][random.usize(..4)];
    let incarnations: Vec<u64> = (0..u64::from(ranks))
        .map(|rank| mix(start ^ rank))
        .collect();
    let lock = |rank| {
        if is_real {
            AnySeal::new(kind, rank, &incarnations)
        } else {
            AnySeal::Open
        }
    };
    let mut fed = Side::new(&scenario, 0, lock(0), start ^ 1);
    let mut other = Side::new(&scenario, OTHER, lock(OTHER), start ^ 2);
    let mut outcome = Outcome::default();
    let packet = scenario.protocol.packet;
    let bound = crate::bound::memory(&scenario);
    let mut buffer = vec![0; 65_536];
    let (mut corpus, mut history): (Vec<Vec<u8>>, Vec<Vec<u8>>) = Default::default();
    let mut has_begun = vec![false; ranks as usize];
    let (mut input, mut prefix) = (Vec::new(), Vec::new());
    let (mut now, mut number) = (US, 0u64);
    while outcome.inputs < inputs && fed.handler.failed[1..].contains(&false) {
        now += random.u64(..20 * US);
        if random.u8(..64) == 0 || corpus.is_empty() {
            exchange(
                random,
                now,
                &mut fed,
                &mut other,
                &mut buffer,
                &mut corpus,
                &mut history,
                &mut number,
                is_real,
            );
        }
        let (Some(first), Some(second)) = (random.choice(&corpus), random.choice(&corpus)) else {
            continue;
        };
        input.clone_from(first);
        match random.u8(..32) {
            0 => {
                let length = random.usize(..300);
                input = (0..length).map(|_| random.u8(..)).collect();
            }
            1 if !is_real => {}
            _ => mutate(random, &mut input, second, packet),
        }
        if !is_real && random.u8(..64) != 0 {
            number += match random.u8(..64) {
                0 => random.u64(..2000),
                1 => 0,
                _ => 1,
            };
            // Choose a sender that has not been given up, if a few attempts find one.
            let mut sender = random.u32(1..ranks);
            for _ in 0..8 {
                if fed.handler.lives(sender) {
                    break;
                }
                sender = random.u32(1..ranks);
            }
            if sender != OTHER && !std::mem::replace(&mut has_begun[sender as usize], true) {
                for packet in &history[..random.usize(..=history.len())] {
                    prefix.clone_from(packet);
                    number += 1;
                    address(&mut prefix, sender, number);
                    if random.u8(..16) != 0 {
                        fed.receive(now, &mut prefix);
                    }
                }
                number += 1;
            }
            address(&mut input, sender, number);
        } else if is_real && random.bool() {
            let number =
                u64::from_le_bytes(*second.last_chunk().unwrap_or(&[0; 8])) >> random.u8(..64);
            address(
                &mut input,
                if random.u8(..4) == 0 {
                    random.u32(..ranks + 1)
                } else {
                    OTHER
                },
                number,
            );
        }
        if is_real && (corpus.contains(&input) || input.len() < TAG && input.is_empty()) {
            continue;
        }
        outcome.inputs += 1;
        let before = is_real.then(|| state(&fed, outcome.inputs));
        let received = fed.receive(now, &mut input);
        outcome.valid += u64::from(matches!(received, Received::Taken(_)));
        if let Some(before) = before
            && (before != state(&fed, outcome.inputs) || matches!(received, Received::Taken(_)))
        {
            fed.handler
                .check(false, "a packet without a valid tag changed the state");
        }
        if fed.memory > bound {
            fed.handler.check(
                false,
                &format!("{} bytes of memory, more than {bound}", fed.memory),
            );
        }
        if random.u8(..16) == 0 {
            fed.go(now, &mut buffer, |_, _| {});
        }
        if let Some(wrong) = fed.handler.wrong.take().or(other.handler.wrong.take()) {
            outcome
                .failing
                .push((session, format!("input {}: {wrong}", outcome.inputs)));
            break;
        }
    }
    let is_broken = |failure: &&Failure| matches!(failure, Failure::Broken(_));
    outcome.broken = fed.handler.failures.iter().filter(is_broken).count() as u64;
    let others = fed
        .handler
        .failures
        .iter()
        .find(|failure| !is_broken(failure) || is_real);
    if let Some(failure) = others.or(other.handler.failures.iter().find(|_| is_real)) {
        outcome
            .failing
            .push((session, format!("a peer is given up: {failure}")));
    }
    outcome.memory = fed.peak;
    outcome
}

/// Returns the state that a packet without a valid tag must not change.
fn state(side: &Side, input: u64) -> impl PartialEq + use<> {
    let all = input
        .is_multiple_of(COMPARED)
        .then(|| digest(&side.endpoint));
    (
        side.handler.calls,
        side.endpoint.timeout(),
        side.memory,
        without_drops(&side.endpoint.counters()),
        all,
    )
}

/// Exchanges some regular traffic. Inputs are made from the other endpoint's packets.
#[expect(clippy::too_many_arguments, reason = "the state of a session")]
fn exchange(
    random: &mut Rng,
    now: Nanos,
    fed: &mut Side,
    other: &mut Side,
    buffer: &mut [u8],
    corpus: &mut Vec<Vec<u8>>,
    history: &mut Vec<Vec<u8>>,
    number: &mut u64,
    is_real: bool,
) {
    let packet = fed.endpoint.config().packet;
    for _ in 0..random.u8(1..6) {
        other.offer(now, random, 0, packet);
        let to = random.u32(1..fed.endpoint.config().size);
        fed.offer(now, random, to, packet);
    }
    let mut sent: Vec<Vec<u8>> = Vec::new();
    other.go(now, buffer, |_, packet| sent.push(packet.to_vec()));
    for packet in sent {
        if history.len() < HISTORY {
            history.push(packet.clone());
        }
        if corpus.len() < CORPUS {
            corpus.push(packet.clone());
        } else {
            let place = random.usize(..CORPUS);
            corpus[place].clone_from(&packet);
        }
        let mut packet = packet;
        if !is_real {
            *number += 1;
            address(&mut packet, other.rank, *number);
        }
        // Some packets are lost, to make gaps.
        if random.u8(..8) != 0 {
            fed.receive(now, &mut packet);
        }
    }
    let mut answers: Vec<Vec<u8>> = Vec::new();
    fed.go(now, buffer, |peer, packet| {
        if peer == other.rank {
            answers.push(packet.to_vec());
        }
    });
    for mut packet in answers {
        other.receive(now, &mut packet);
    }
}
