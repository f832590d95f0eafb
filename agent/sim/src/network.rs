//! A network in simulated time. A peer's number is its node's. Sessions begin on first use, and end
//! when either end dies or the link is cut, which the ends notice after a delay.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use agent::host::Nanos;
use conduit_core::ni::Rank;
use conduit_portals::transport::fragment::{Failure, Fragment, FragmentHandler, Payload, Refused};
use conduit_portals::transport::open::{ConnectError, OpenTransport};
use conduit_portals::transport::{Transport, Wait};

/// The maximum number of long fragments to a peer that an end holds.
const ROOM: usize = 8;
/// The longest fragment that is delivered as a whole.
const WHOLE: usize = 1500;

/// The delays of fragments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delays {
    /// The minimum latency.
    pub latency: Nanos,
    /// The maximum random addition for each fragment; fragments stay in order on their channel.
    pub jitter: Nanos,
    /// The time per byte into a node, in picoseconds. Fragments into one node are serialized.
    pub picos_per_byte: u64,
    /// The additional time per fragment into a node.
    pub per_fragment: Nanos,
    /// The time until a death is noticed.
    pub dead_time: Nanos,
}

impl Default for Delays {
    fn default() -> Self {
        Self {
            latency: 5_000,
            jitter: 20_000,
            picos_per_byte: 100,
            per_fragment: 0,
            dead_time: 10_000_000,
        }
    }
}

enum Packet {
    Fragment {
        header: Vec<u8>,
        payload: Vec<u8>,
        /// The token of a long fragment, which is acknowledged.
        token: Option<u64>,
    },
    /// Acknowledges a long fragment.
    Sent(u64),
    /// Reports that the sender has no session with the peer in the incarnation that the peer named.
    Unknown(u64),
}

struct Traveling {
    from: Rank,
    /// The incarnations of both ends.
    from_life: u64,
    to_life: u64,
    /// The number of cuts of the link so far.
    cuts: u64,
    packet: Packet,
}

/// A session with a peer, as seen from one end. Later sessions are greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Session {
    /// The peer's incarnation.
    life: u64,
    /// The number of cuts of the link so far.
    cuts: u64,
}

/// The load in flight to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct Load {
    bytes: usize,
    /// The maximum number of fragments at once.
    pub fragments: usize,
    /// The maximum number of bytes at once.
    pub most_bytes: usize,
}

/// The number of fragments of one kind from one node to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Count {
    /// Fragments sent.
    pub sent: usize,
    /// Fragments that have arrived.
    pub arrived: usize,
}

/// Returns the link's key, which is the same for both ends.
fn link(a: Rank, b: Rank) -> (Rank, Rank) {
    (a.min(b), a.max(b))
}

#[derive(Default)]
struct State {
    now: Nanos,
    lives: u64,
    /// The current incarnation, by node.
    alive: HashMap<Rank, u64>,
    /// Packets by receiver, time and order.
    traveling: HashMap<Rank, BTreeMap<(Nanos, u64), Traveling>>,
    posted: u64,
    /// The last arrival, by sender, receiver and channel; the last of any channel, by receiver.
    last: HashMap<(Rank, Rank, bool), Nanos>,
    busy: HashMap<Rank, Nanos>,
    packets: u64,
    /// The loads, by receiver.
    loads: HashMap<Rank, Load>,
    /// The number of deaths, cuts and starts so far.
    changes: u64,
    /// The number of cuts of each link, and the links that are cut now.
    cuts: HashMap<(Rank, Rank), u64>,
    cut: HashSet<(Rank, Rank)>,
    /// Counts by sender, receiver and the first byte of the header.
    counts: HashMap<(Rank, Rank, u8), Count>,
    hostile: Option<Hostile>,
}

/// A node whose fragments are altered.
struct Hostile {
    node: Rank,
    percent: u32,
    random: fastrand::Rng,
    /// Headers and payloads that it has sent, for replays.
    sent: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Hostile {
    /// Alters a fragment with the given probability. Returns how often to send it.
    fn alter(&mut self, header: &mut Vec<u8>, payload: &mut Vec<u8>) -> usize {
        let random = &mut self.random;
        if self.sent.len() < 1000 {
            self.sent.push((header.clone(), payload.clone()));
        }
        if random.u32(..100) >= self.percent {
            return 1;
        }
        let flip = |bytes: &mut [u8], random: &mut fastrand::Rng| {
            for _ in 0..random.usize(1..4) {
                if !bytes.is_empty() {
                    let at = random.usize(..bytes.len());
                    bytes[at] ^= 1 << random.u8(..8);
                }
            }
        };
        match random.u8(..8) {
            0 => flip(header, random),
            1 => flip(payload, random),
            // Replaces a field by a number that is often special.
            2 => {
                let bytes = if random.bool() { header } else { payload };
                let number = [0, 1, 2, 0xff, 1 << 16, u32::MAX][random.usize(..6)];
                let at = random.usize(..bytes.len().max(4) - 3);
                if let Some(word) = bytes.get_mut(at..at + 4) {
                    word.copy_from_slice(&u32::to_le_bytes(number));
                }
            }
            3 => payload.truncate(random.usize(..=payload.len())),
            4 => {
                let other = random.usize(..self.sent.len());
                (*header, *payload) = self.sent[other].clone();
            }
            5 => return 0,
            _ => return 2,
        }
        1
    }
}

impl State {
    fn cuts(&self, a: Rank, b: Rank) -> u64 {
        self.cuts.get(&link(a, b)).copied().unwrap_or(0)
    }

    /// Returns the session that could begin with a node, if that is reachable.
    fn session(&self, from: Rank, to: Rank) -> Option<Session> {
        let life = *self.alive.get(&to)?;
        let cuts = self.cuts(from, to);
        (!self.cut.contains(&link(from, to))).then_some(Session { life, cuts })
    }
}

/// The network.
#[derive(Clone)]
pub struct Net {
    state: Arc<Mutex<State>>,
    delays: Delays,
    random: Arc<Mutex<fastrand::Rng>>,
}

impl Net {
    /// Creates a network without nodes.
    pub fn new(delays: Delays, seed: u64) -> Self {
        Self {
            state: Arc::default(),
            delays,
            random: Arc::new(Mutex::new(fastrand::Rng::with_seed(seed))),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder has panicked")
    }

    /// Sets the time.
    pub fn set_now(&self, now: Nanos) {
        self.state().now = now;
    }

    /// Starts a node in a new incarnation and returns its end.
    pub fn start(&self, node: Rank) -> End {
        let mut state = self.state();
        state.lives += 1;
        let life = state.lives;
        state.changes += 1;
        state.alive.insert(node, life);
        state.loads.entry(node).or_default().bytes = 0;
        state.traveling.remove(&node);
        End {
            net: self.clone(),
            node,
            address: node.to_le_bytes(),
            life,
            sessions: BTreeMap::new(),
            known: BTreeMap::new(),
            failing: Vec::new(),
            has_begun: false,
            reading: BTreeMap::new(),
            landing: Vec::new(),
        }
    }

    /// Kills a node.
    pub fn kill(&self, node: Rank) {
        let mut state = self.state();
        state.changes += 1;
        state.alive.remove(&node);
        state.traveling.remove(&node);
    }

    /// Cuts the link between two nodes until it is [mended](Self::mend). Packets in flight are
    /// lost. Both ends notice this after the dead time, or when the other one has begun a new
    /// session.
    pub fn cut(&self, a: Rank, b: Rank) {
        let mut state = self.state();
        state.changes += 1;
        *state.cuts.entry(link(a, b)).or_default() += 1;
        state.cut.insert(link(a, b));
    }

    /// Makes a node's agent violate the protocol: `percent` of its fragments are altered, lost,
    /// duplicated or replaced by earlier ones.
    pub fn make_hostile(&self, node: Rank, percent: u32, seed: u64) {
        self.state().hostile = Some(Hostile {
            node,
            percent,
            random: fastrand::Rng::with_seed(seed),
            sent: Vec::new(),
        });
    }

    /// Mends the link between two nodes, which can then begin a new session.
    pub fn mend(&self, a: Rank, b: Rank) {
        let mut state = self.state();
        state.changes += 1;
        state.cut.remove(&link(a, b));
    }

    /// Returns the count of fragments from one node to another whose headers begin with this byte.
    pub fn count(&self, from: Rank, to: Rank, kind: u8) -> Count {
        let state = self.state();
        state
            .counts
            .get(&(from, to, kind))
            .copied()
            .unwrap_or_default()
    }

    /// Returns the number of nodes that have sent to a node.
    pub fn degree(&self, node: Rank) -> usize {
        let state = self.state();
        let links = state.counts.keys().filter(|(_, to, _)| *to == node);
        links.map(|(from, ..)| from).collect::<HashSet<_>>().len()
    }

    /// Returns when the next fragment arrives at a node.
    pub fn next(&self, node: Rank) -> Option<Nanos> {
        let state = self.state();
        let first = state.traveling.get(&node)?.first_key_value()?;
        Some(first.0.0)
    }

    /// Returns the number of packets so far.
    pub fn packets(&self) -> u64 {
        self.state().packets
    }

    /// Returns the maximum load in flight to a node.
    pub fn load(&self, node: Rank) -> Load {
        self.state().loads.get(&node).copied().unwrap_or_default()
    }

    /// Returns the number of deaths, cuts and starts so far.
    pub(crate) fn changes(&self) -> u64 {
        self.state().changes
    }

    fn post(&self, to: Rank, is_data: bool, mut traveling: Traveling) {
        let mut copy = None;
        if let Packet::Fragment {
            header,
            payload,
            token,
        } = &mut traveling.packet
        {
            let mut state = self.state();
            let hostile = state.hostile.as_mut();
            let times = hostile
                .filter(|hostile| hostile.node == traveling.from)
                .map_or(1, |hostile| hostile.alter(header, payload));
            if times == 0 {
                return;
            }
            copy = (times > 1).then(|| Packet::Fragment {
                header: header.clone(),
                payload: payload.clone(),
                token: *token,
            });
        }
        if let Some(packet) = copy {
            self.post_as_is(
                to,
                is_data,
                Traveling {
                    packet,
                    ..traveling
                },
            );
        }
        self.post_as_is(to, is_data, traveling);
    }

    fn post_as_is(&self, to: Rank, is_data: bool, traveling: Traveling) {
        let jitter = match self.delays.jitter {
            0 => 0,
            most => self
                .random
                .lock()
                .expect("no holder has panicked")
                .u64(0..most),
        };
        let mut guard = self.state();
        let state = &mut *guard;
        let length = match &traveling.packet {
            Packet::Fragment {
                header, payload, ..
            } => {
                let kind = header.first().copied().unwrap_or(0);
                let key = (traveling.from, to, kind);
                state.counts.entry(key).or_default().sent += 1;
                header.len() + payload.len()
            }
            _ => 0,
        };
        if !state.alive.contains_key(&to) || state.cut.contains(&link(traveling.from, to)) {
            return;
        }
        let line = state.last.entry((traveling.from, to, is_data)).or_default();
        let earliest = (state.now + self.delays.latency + jitter).max(*line);
        let busy = state.busy.entry(to).or_default();
        let takes = length as u64 * self.delays.picos_per_byte / 1000 + self.delays.per_fragment;
        let at = earliest.max(*busy) + takes;
        *busy = at;
        *line = at;
        state.posted += 1;
        state.packets += 1;
        let all = state.traveling.entry(to).or_default();
        all.insert((at, state.posted), traveling);
        let load = state.loads.entry(to).or_default();
        load.bytes += length;
        load.fragments = load.fragments.max(all.len());
        load.most_bytes = load.most_bytes.max(load.bytes);
    }
}

/// A node's end.
pub struct End {
    net: Net,
    node: Rank,
    address: [u8; 4],
    life: u64,
    sessions: BTreeMap<Rank, Session>,
    /// Peers that have numbers.
    known: BTreeMap<Rank, ()>,
    /// Unreachable peers, and when this is noticed.
    failing: Vec<(Nanos, Rank, Option<Session>)>,
    /// A session has begun, so refused fragments can be sent.
    has_begun: bool,
    /// Long fragments that the peer has not acknowledged.
    reading: BTreeMap<Rank, Vec<Reading>>,
    /// Long fragments of a hostile peer, whose pieces arrive interleaved.
    landing: Vec<Landing>,
}

struct Landing {
    from: Rank,
    id: u64,
    payload: Vec<u8>,
    placed: usize,
}

struct Reading {
    token: u64,
    header: Vec<u8>,
    length: u32,
    is_under_way: bool,
}

impl End {
    fn now(&self) -> Nanos {
        self.net.state().now
    }

    fn is_alive(&self, peer: Rank, session: Session) -> bool {
        self.net.state().session(self.node, peer) == Some(session)
    }

    fn lose(&mut self, peer: Rank) {
        self.sessions.remove(&peer);
        self.reading.remove(&peer);
        self.landing.retain(|landing| landing.from != peer);
    }

    fn traveling(&self, session: Session, packet: Packet) -> Traveling {
        Traveling {
            from: self.node,
            from_life: self.life,
            to_life: session.life,
            cuts: session.cuts,
            packet,
        }
    }

    /// Schedules the notice of peers' deaths.
    fn notice(&mut self) {
        let at = self.now() + self.net.delays.dead_time;
        for (&peer, &session) in &self.sessions {
            let is_known = self
                .failing
                .iter()
                .any(|(_, known, of)| (*known, *of) == (peer, Some(session)));
            if !is_known && !self.is_alive(peer, session) {
                self.failing.push((at, peer, Some(session)));
            }
        }
    }

    /// Returns when there is work other than arrivals.
    pub fn due(&self) -> Option<Nanos> {
        let failing = self.failing.iter().map(|(at, ..)| *at);
        let has_more = self.has_begun || !self.landing.is_empty();
        failing.chain(has_more.then_some(0)).min()
    }
}

struct Never;

impl Wait for Never {
    fn wait(&self, _: Option<&OwnedFd>, _: Option<Duration>) -> bool {
        true
    }
}

impl Transport for End {
    fn send(&mut self, peer: Rank, fragment: &Fragment<'_>) -> Result<(), Refused> {
        if !self.known.contains_key(&peer) {
            return Err(Refused::NoSuchRank);
        }
        let Some(&session) = self.sessions.get(&peer) else {
            let session = self.net.state().session(self.node, peer);
            match session {
                Some(session) => {
                    self.sessions.insert(peer, session);
                    self.has_begun = true;
                }
                None if self.failing.iter().all(|(_, known, _)| *known != peer) => {
                    let at = self.now() + self.net.delays.dead_time;
                    self.failing.push((at, peer, None));
                }
                None => {}
            }
            return Err(Refused::Full);
        };
        match fragment.payload {
            Payload::Copied(pieces) => {
                let packet = Packet::Fragment {
                    header: fragment.header.to_vec(),
                    payload: pieces.concat(),
                    token: None,
                };
                self.net.post(peer, false, self.traveling(session, packet));
            }
            Payload::Read { token, length } => {
                let held = self.reading.entry(peer).or_default();
                if held.len() >= ROOM {
                    return Err(Refused::Full);
                }
                held.push(Reading {
                    token,
                    header: fragment.header.to_vec(),
                    length,
                    is_under_way: false,
                });
            }
        }
        Ok(())
    }

    fn receive(&mut self, handler: &mut impl FragmentHandler) -> bool {
        let now = self.now();
        self.notice();
        let mut did = std::mem::take(&mut self.has_begun) || !self.landing.is_empty();
        self.landing.retain_mut(|landing| {
            let rest = &landing.payload[landing.placed..];
            let chunk = &rest[..rest.len().min(WHOLE)];
            handler.place(landing.id, landing.placed, chunk);
            landing.placed += chunk.len();
            let is_whole = landing.placed == landing.payload.len();
            if is_whole {
                handler.end(landing.id);
            }
            !is_whole
        });
        for (at, peer, session) in std::mem::take(&mut self.failing) {
            if at > now {
                self.failing.push((at, peer, session));
            } else if self.sessions.get(&peer).copied() == session {
                self.lose(peer);
                handler.failed(peer, Failure::Silent(10));
                did = true;
            }
        }
        loop {
            let mut state = self.net.state();
            let Some(all) = state.traveling.get_mut(&self.node) else {
                break;
            };
            let Some(first) = all.first_entry().filter(|first| first.key().0 <= now) else {
                break;
            };
            let traveling = first.remove();
            let from = traveling.from;
            let session = Session {
                life: traveling.from_life,
                cuts: traveling.cuts,
            };
            let is_lost = session.cuts != state.cuts(from, self.node);
            if let Packet::Fragment {
                header, payload, ..
            } = &traveling.packet
            {
                let load = state.loads.entry(self.node).or_default();
                load.bytes = load.bytes.saturating_sub(header.len() + payload.len());
            }
            if let Packet::Fragment { header, .. } = &traveling.packet
                && !is_lost
            {
                let kind = header.first().copied().unwrap_or(0);
                let key = (from, self.node, kind);
                state.counts.entry(key).or_default().arrived += 1;
            }
            drop(state);
            did = true;
            if is_lost {
                continue;
            }
            if traveling.to_life != self.life {
                if !matches!(traveling.packet, Packet::Unknown(_)) {
                    let unknown = self.traveling(session, Packet::Unknown(traveling.to_life));
                    self.net.post(from, false, unknown);
                }
                continue;
            }
            if let Packet::Unknown(life) = traveling.packet {
                if self
                    .sessions
                    .get(&from)
                    .is_some_and(|known| known.life == life)
                {
                    self.lose(from);
                    handler.failed(from, Failure::Left);
                }
                continue;
            }
            match self.sessions.get(&from) {
                Some(known) if *known == session => {}
                // From an earlier incarnation, or one that has been replaced in the meantime.
                Some(known) if *known > session => continue,
                known => {
                    if matches!(traveling.packet, Packet::Sent(_)) {
                        continue;
                    }
                    if known.is_some() {
                        self.lose(from);
                        handler.failed(from, Failure::Left);
                    }
                    self.sessions.insert(from, session);
                    if self.known.insert(from, ()).is_none() {
                        handler.joined(from);
                    }
                }
            }
            match traveling.packet {
                Packet::Fragment {
                    header,
                    payload,
                    token,
                } => {
                    if payload.len() <= WHOLE {
                        let has_room = handler.fragment(from, &header, &payload);
                        assert!(has_room, "agents have room");
                    } else {
                        let id = handler
                            .begin(from, &header, payload.len())
                            .expect("agents have room");
                        let is_hostile = |hostile: &Hostile| hostile.node == from;
                        let hostile = self.net.state().hostile.as_ref().map(is_hostile);
                        if hostile == Some(true) {
                            self.landing.push(Landing {
                                from,
                                id,
                                payload,
                                placed: 0,
                            });
                        } else {
                            let mut offset = 0;
                            for chunk in payload.chunks(WHOLE) {
                                handler.place(id, offset, chunk);
                                offset += chunk.len();
                            }
                            handler.end(id);
                        }
                    }
                    if let Some(token) = token {
                        let sent = self.traveling(session, Packet::Sent(token));
                        self.net.post(from, false, sent);
                    }
                }
                Packet::Sent(token) => {
                    if let Some(held) = self.reading.get_mut(&from) {
                        let before = held.len();
                        held.retain(|reading| reading.token != token);
                        if held.len() < before {
                            handler.sent(from, token);
                        }
                    }
                }
                Packet::Unknown(_) => {}
            }
        }
        did
    }

    fn transmit(&mut self, handler: &mut impl FragmentHandler) {
        let peers: Vec<Rank> = self.reading.keys().copied().collect();
        for peer in peers {
            let Some(&session) = self.sessions.get(&peer) else {
                continue;
            };
            let mut packets = Vec::new();
            for reading in self.reading.get_mut(&peer).into_iter().flatten() {
                if std::mem::replace(&mut reading.is_under_way, true) {
                    continue;
                }
                let mut payload = vec![0; reading.length as usize];
                handler.read(peer, reading.token, 0, &mut payload);
                packets.push((reading.token, std::mem::take(&mut reading.header), payload));
            }
            for (token, header, payload) in packets {
                let packet = Packet::Fragment {
                    header,
                    payload,
                    token: Some(token),
                };
                self.net.post(peer, true, self.traveling(session, packet));
            }
        }
    }

    fn outstanding(&self, peer: Rank) -> usize {
        self.reading.get(&peer).map_or(0, Vec::len)
    }
    fn timeout(&self) -> Option<Duration> {
        None
    }
    fn waiter(&self) -> Arc<dyn Wait> {
        Arc::new(Never)
    }
    fn abandon(&mut self, _: &[Rank], _: &mut impl FragmentHandler) {}
    fn describe(&self, peer: Rank) -> String {
        format!("node {peer}")
    }
}

impl OpenTransport for End {
    fn address(&self) -> &[u8] {
        &self.address
    }
    fn address_to_text(&self, address: &[u8]) -> Option<String> {
        Some(format!("{address:?}"))
    }
    fn address_of_text(&self, _: &str) -> Result<Vec<u8>, ConnectError> {
        Err(ConnectError::Malformed("nodes have no names"))
    }
    fn connect(&mut self, address: &[u8]) -> Result<Rank, ConnectError> {
        let number = address.try_into().map(Rank::from_le_bytes);
        let peer = number.map_err(|_| ConnectError::Malformed("not four bytes"))?;
        self.known.insert(peer, ());
        Ok(peer)
    }
    fn peer_address(&self, peer: Rank) -> Option<Vec<u8>> {
        Some(peer.to_le_bytes().to_vec())
    }
    fn has_session(&self, peer: Rank) -> bool {
        self.sessions.contains_key(&peer)
    }
    fn end_session(&mut self, peer: Rank) {
        if let Some(&session) = self.sessions.get(&peer) {
            let unknown = self.traveling(session, Packet::Unknown(self.life));
            self.net.post(peer, false, unknown);
        }
        self.lose(peer);
    }
    fn close(&mut self, peer: Rank) {
        self.end_session(peer);
        self.known.remove(&peer);
    }
    fn leave(&mut self) {
        for peer in self.sessions.keys().copied().collect::<Vec<_>>() {
            self.end_session(peer);
        }
    }
    fn descriptors<'a>(&'a self, _: &mut Vec<BorrowedFd<'a>>) {}
}
