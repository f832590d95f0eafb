//! Tests of connections. The peers with the most traffic get connections, and nothing is lost,
//! duplicated or reordered when connections change hands or ranks die.

use std::collections::BTreeMap;

use ::lanes::{Message, Settings, State, Statistics};
use conduit_core::ni::Rank;
use proptest::prelude::*;

use super::*;
use crate::transport::Transport;
use crate::transport::connect::Connect;
use crate::transport::connections::Connections;
use crate::transport::fragment::{Failure, Fragment, FragmentHandler, Payload, Refused};

/// Returns the byte at an offset of a fragment.
fn byte(number: u32, at: usize) -> u8 {
    (number as usize).wrapping_mul(31).wrapping_add(at) as u8
}

/// The layer above, which checks tokens and the order of arrivals.
#[derive(Debug, Default)]
struct Above {
    /// For each peer and channel, the numbers of the fragments that are next to be sent, to begin
    /// arriving, and to arrive completely.
    sent: BTreeMap<(Rank, u8), u32>,
    begun: BTreeMap<(Rank, u8), u32>,
    came: BTreeMap<(Rank, u8), u32>,
    /// Fragments that arrive in pieces, each with the number of its missing bytes. The list never
    /// shrinks, so places are ids.
    pieces: Vec<Option<(Rank, u32, usize)>>,
    /// The numbers of the fragments being read, by peer and token.
    reading: BTreeMap<(Rank, u64), u32>,
    failed: BTreeMap<Rank, Failure>,
    /// The handler refuses one fragment in this many. If this is 0, the handler refuses none.
    refuse: u32,
    random: fastrand::Rng,
    /// Every call of the handler that reports something.
    log: Vec<(Rank, String)>,
}

impl Above {
    fn log(&mut self, peer: Rank, what: String) {
        assert!(!self.failed.contains_key(&peer), "{peer} is mentioned");
        self.log.push((peer, what));
    }

    fn refuses(&mut self) -> bool {
        self.refuse > 0 && self.random.u32(0..self.refuse) == 0
    }

    fn next(
        numbers: &mut BTreeMap<(Rank, u8), u32>,
        peer: Rank,
        channel: u8,
        number: u32,
        what: &str,
    ) {
        let next = numbers.entry((peer, channel)).or_default();
        assert_eq!(
            number, *next,
            "fragment {what} from {peer} on channel {channel}"
        );
        *next += 1;
    }
}

fn decoded(header: &[u8]) -> (u8, u32) {
    let &[channel, a, b, c, d] = header else {
        panic!("not sent by this layer: {header:?}");
    };
    (channel, u32::from_le_bytes([a, b, c, d]))
}

impl FragmentHandler for Above {
    fn read(&mut self, peer: Rank, token: u64, offset: usize, into: &mut [u8]) {
        self.log(peer, format!("read {token} {offset}"));
        let number = token as u32;
        assert_eq!(self.reading[&(peer, token)], number);
        for (at, into) in into.iter_mut().enumerate() {
            *into = byte(number, offset + at);
        }
    }

    fn sent(&mut self, peer: Rank, token: u64) {
        self.log(peer, format!("sent {token}"));
        assert!(self.reading.remove(&(peer, token)).is_some(), "once");
    }

    fn fragment(&mut self, peer: Rank, header: &[u8], payload: &[u8]) -> bool {
        let (channel, number) = decoded(header);
        if self.refuses() {
            return false;
        }
        self.log(peer, format!("{channel} {number}"));
        Self::next(&mut self.begun, peer, channel, number, "begins");
        Self::next(&mut self.came, peer, channel, number, "comes");
        for (at, found) in payload.iter().enumerate() {
            assert_eq!(*found, byte(number, at));
        }
        true
    }

    fn begin(&mut self, peer: Rank, header: &[u8], length: usize) -> Option<u64> {
        let (channel, number) = decoded(header);
        assert_eq!(channel, 1);
        if self.refuses() {
            return None;
        }
        self.log(peer, format!("begin {number}"));
        Self::next(&mut self.begun, peer, channel, number, "begins");
        self.pieces.push(Some((peer, number, length)));
        Some(self.pieces.len() as u64 - 1)
    }

    fn place(&mut self, id: u64, offset: usize, bytes: &[u8]) {
        let (peer, number, left) = self.pieces[id as usize].unwrap();
        self.log(peer, format!("place {id} {offset}"));
        for (at, found) in bytes.iter().enumerate() {
            assert_eq!(*found, byte(number, offset + at));
        }
        self.pieces[id as usize] = Some((peer, number, left - bytes.len()));
    }

    fn end(&mut self, id: u64) {
        let (peer, number, left) = self.pieces[id as usize].take().unwrap();
        self.log(peer, format!("end {number}"));
        assert_eq!(left, 0);
        Self::next(&mut self.came, peer, 1, number, "ends");
    }

    fn failed(&mut self, peer: Rank, failure: Failure) {
        assert_eq!(self.failed.insert(peer, failure), None, "{peer} fails once");
        self.reading.retain(|(to, _), _| *to != peer);
    }

    fn room(&self) -> usize {
        usize::MAX
    }
}

/// Ranks over a fabric.
struct Ranks<T> {
    fabric: Fabric,
    networks: Vec<T>,
    above: Vec<Above>,
    dead: Vec<bool>,
}

type Connected = Connections<FabricTransport>;

impl<T: Transport> Ranks<T> {
    fn over(ranks: u32, disorder: Disorder, make: impl Fn(Rank, FabricTransport) -> T) -> Self {
        let fabric = Fabric::new(ranks);
        let networks = (0..ranks).map(|rank| make(rank, fabric.transport(rank, disorder)));
        let above = |rank: u32| Above {
            refuse: disorder.refuse,
            random: fastrand::Rng::with_seed(rank.into()),
            ..Above::default()
        };
        Self {
            networks: networks.collect(),
            above: (0..ranks).map(above).collect(),
            dead: vec![false; ranks as usize],
            fabric,
        }
    }

    /// Sends a fragment. Returns whether there was room for it.
    fn send(&mut self, from: Rank, to: Rank, length: Option<u32>) -> bool {
        let (network, above) = (
            &mut self.networks[from as usize],
            &mut self.above[from as usize],
        );
        let channel = u8::from(length.is_some());
        let number = above.sent.entry((to, channel)).or_default();
        let mut header = vec![channel];
        header.extend(number.to_le_bytes());
        let (header, bytes) = (&header[..], [byte(*number, 0)]);
        let payload = match length {
            None => Payload::Copied(&[&bytes]),
            Some(length) => Payload::Read {
                token: u64::from(*number),
                length,
            },
        };
        match network.send(to, &Fragment { header, payload }) {
            Ok(()) => {
                if length.is_some() {
                    above.reading.insert((to, u64::from(*number)), *number);
                }
                *number += 1;
                true
            }
            Err(refused) => {
                let has_failed = above.failed.contains_key(&to);
                let expected = [Refused::Full, Refused::Dead][usize::from(has_failed)];
                assert_eq!(refused, expected);
                false
            }
        }
    }

    fn progress(&mut self, rank: Rank) {
        if !self.dead[rank as usize] {
            let above = &mut self.above[rank as usize];
            self.networks[rank as usize].receive(above);
            self.networks[rank as usize].transmit(above);
        }
    }

    fn settle(&mut self) {
        for _ in 0..300 {
            (0..self.networks.len() as u32).for_each(|rank| self.progress(rank));
        }
    }

    fn fail(&mut self, rank: Rank) {
        self.dead[rank as usize] = true;
        self.fabric.fail(rank, Failure::Silent(1));
    }

    fn live(&self) -> impl Iterator<Item = Rank> {
        let dead = self.dead.iter();
        (0..).zip(dead).filter(|(_, dead)| !**dead).map(|(r, _)| r)
    }

    /// Checks that everything sent between live ranks has arrived, and that the senders know this.
    fn check_came(&self) {
        for from in self.live() {
            let above = &self.above[from as usize];
            assert!(above.reading.is_empty(), "{:?}", above.reading);
            for to in self.live().filter(|to| *to != from) {
                assert_eq!(self.networks[from as usize].outstanding(to), 0);
                for channel in [0, 1] {
                    let came = self.above[to as usize].came.get(&(from, channel));
                    let sent = above.sent.get(&(to, channel));
                    assert_eq!(
                        came.copied().unwrap_or(0),
                        sent.copied().unwrap_or(0),
                        "from {from} to {to} on channel {channel}"
                    );
                }
            }
        }
    }
}

impl Ranks<Connected> {
    fn new(ranks: u32, settings: &Settings, disorder: Disorder) -> Self {
        Self::over(ranks, disorder, |rank, network| {
            Connections::new(network, rank, settings.clone(), 0)
        })
    }

    /// Returns the peers to which a rank has connections.
    fn connected(&self, rank: Rank) -> Vec<Rank> {
        let lanes = self.networks[rank as usize].lanes();
        let open = lanes.filter(|lane| lane.state == State::Open);
        open.map(|lane| lane.peer).collect()
    }

    fn statistics(&self) -> Statistics {
        let mut sum = Statistics::default();
        for network in &self.networks {
            let one = network.statistics();
            sum.promotions += one.promotions;
            sum.demotions += one.demotions;
            sum.denials += one.denials;
        }
        sum
    }

    /// Checks that the two ends of each lane agree once there is no traffic, and that no rank has a
    /// lane with a dead rank.
    fn check_rest(&self) {
        for rank in self.live() {
            let network = &self.networks[rank as usize];
            for lane in network.lanes() {
                assert!(!self.dead[lane.peer as usize]);
                assert_eq!(lane.state, State::Open);
                let mut others = self.networks[lane.peer as usize].lanes();
                let other = others.find(|other| other.peer == rank);
                assert_eq!(other.map(|other| other.generation), Some(lane.generation));
            }
            let ends = network.lanes().count();
            assert_eq!(network.network().connected(), ends, "ends of connections");
        }
    }
}

/// Returns settings with which connections change hands as soon as they can, which is after each
/// fragment, and to the peer with more traffic.
fn restless() -> Settings {
    Settings {
        interval: 1,
        samples: 1,
        threshold: 1,
        factor: 1,
        deviations: 0,
        hold: 0,
        backoff: 1,
        ..Settings::default()
    }
}

#[derive(Debug, Clone, Copy)]
enum Step {
    /// Sends up to this many fragments, while there is room. The fragments have the given length,
    /// or are copied if no length is given.
    Send(Rank, Rank, Option<u32>, u32),
    Progress(Rank),
    Fail(Rank),
}

const RANKS: u32 = 4;

fn step() -> impl Strategy<Value = Step> {
    let length = prop_oneof![
        2 => Just(None),
        1 => (0_u32..300).prop_map(Some),
        1 => (300_u32..2000).prop_map(Some),
    ];
    prop_oneof![
        60 => (0..RANKS, 0..RANKS, length, 1_u32..20)
            .prop_map(|(from, to, length, count)| Step::Send(from, to, length, count)),
        120 => (0..RANKS).prop_map(Step::Progress),
        1 => (0..RANKS).prop_map(Step::Fail),
    ]
}

fn disorder(seed: Option<u64>, connections: u16) -> Disorder {
    Disorder {
        seed,
        refuse: 5,
        packet: 300,
        link_fragments: 16,
        connections,
        refuse_connections: 4,
        ..Disorder::default()
    }
}

/// Runs all steps. The fabric checks that no rank has too many connections.
fn run(steps: impl IntoIterator<Item = Step>, seed: Option<u64>, connections: u16) -> Statistics {
    let mut ranks = Ranks::new(RANKS, &restless(), disorder(seed, connections));
    for step in steps {
        match step {
            Step::Send(from, to, length, count) if from != to && !ranks.dead[from as usize] => {
                let _ = (0..count).find(|_| !ranks.send(from, to, length));
            }
            Step::Progress(rank) => ranks.progress(rank),
            Step::Fail(rank) if !ranks.dead[rank as usize] => ranks.fail(rank),
            Step::Send(..) | Step::Fail(_) => {}
        }
    }
    ranks.settle();
    ranks.check_came();
    ranks.check_rest();
    ranks.statistics()
}

proptest! {
    /// Checks that, even with disorder, refusals and deaths, fragments between live ranks arrive
    /// once and completely, in order on each channel. No rank has more connections than exist, and
    /// the two ends agree once there is no traffic.
    #[test]
    fn connections_change_hands_under_traffic(
        steps in prop::collection::vec(step(), 1..600),
        seed in any::<Option<u64>>(),
        connections in 1_u16..3,
    ) {
        run(steps, seed, connections);
    }
}

proptest! {
    /// Runs the portals over connections. Their wide windows change hands as well.
    #[test]
    fn portals_notice_nothing(
        steps in prop::collection::vec(lanes::step(RANKS), 1..300),
        seed in any::<Option<u64>>(),
        connections in 1_u16..3,
    ) {
        let order = disorder(seed, connections);
        let windows = lanes::restless(1);
        let mut job = lanes::Job::over(RANKS, windows, order, |rank, network| {
            Connections::new(network, rank, restless(), 0)
        });
        job.run(steps, 1);
    }
}

/// Checks that connections do change hands in the traffic that the property test generates.
#[test]
fn restless_connections_do_change_hands() {
    let mut random = fastrand::Rng::with_seed(7);
    let mut rank = || random.u32(0..RANKS);
    let steps: Vec<Step> = (0..9000)
        .map(|at| match at % 3 {
            0 => Step::Send(rank(), rank(), [None, Some(900)][at % 2], 8),
            _ => Step::Progress(rank()),
        })
        .collect();
    let statistics = run(steps, Some(7), 1);
    let Statistics {
        promotions,
        demotions,
        denials,
        ..
    } = statistics;
    assert!(
        promotions > 100 && demotions > 100 && denials > 100,
        "{statistics:?}"
    );
}

/// Lets a rank die at each step of a change of hands. The other ranks continue, and can use the
/// connection.
#[test]
fn a_death_at_any_step_frees_the_connection() {
    let settings = Settings {
        slots: 1,
        ..restless()
    };
    for at in 0..120 {
        for dead in 0..3 {
            for seed in [None, Some(1), Some(2)] {
                let mut ranks = Ranks::new(3, &settings, disorder(seed, 1));
                for step in 0..400 {
                    if step == at {
                        ranks.fail(dead);
                    }
                    let from = step % 3;
                    let live: Vec<Rank> = ranks.live().filter(|rank| *rank != from).collect();
                    // Each pair in turn is the busiest for a while.
                    let to = live[(step / 20) as usize % live.len()];
                    if !ranks.dead[from as usize] {
                        ranks.send(from, to, None);
                        ranks.send(from, to, Some(700));
                    }
                    ranks.progress(step % 3);
                }
                ranks.settle();
                ranks.check_came();
                ranks.check_rest();
                let live: Vec<Rank> = ranks.live().collect();
                let lanes = [live[0], live[1]].map(|rank| ranks.connected(rank));
                assert_eq!(lanes, [[live[1]], [live[0]]], "{dead} died at {at}");
            }
        }
    }
}

/// Checks that with much traffic between pairs and a little between all ranks, connections go to
/// the pairs and stay there until the pairs change.
#[test]
fn hot_partners_get_the_connections_and_keep_them() {
    const RANKS: u32 = 12;
    // A round is 128 fragments.
    let settings = Settings {
        interval: 4,
        ..Settings::default()
    };
    let mut ranks = Ranks::new(RANKS, &settings, disorder(None, 1));
    let mut random = fastrand::Rng::with_seed(3);
    let mut moves = Vec::new();
    for partner in [|rank| rank ^ 1, |rank: u32| RANKS - 1 - rank] {
        for at in 0..16_000 {
            if at == 12_000 {
                moves.push(ranks.statistics());
            }
            for from in 0..RANKS {
                let other = (from + random.u32(1..RANKS)) % RANKS;
                let to = if at % 10 == 0 { other } else { partner(from) };
                ranks.send(from, to, (at % 3 == 0).then_some(1000));
                ranks.progress(from);
            }
        }
        assert_eq!(
            ranks.statistics(),
            moves[moves.len() - 1],
            "the connections stay"
        );
        for rank in 0..RANKS {
            assert_eq!(ranks.connected(rank), [partner(rank)]);
        }
    }
    ranks.settle();
    ranks.check_came();
    ranks.check_rest();
    assert_eq!(moves[0].demotions, 0);
    assert!(moves[1].promotions <= 5 * u64::from(RANKS), "{moves:?}");
}

/// Checks that no rank is promoted if all ranks have the same traffic with all others.
#[test]
fn all_to_all_moves_nothing() {
    const RANKS: u32 = 100;
    let mut ranks = Ranks::new(RANKS, &Settings::default(), disorder(None, 4));
    for at in 0..3000 {
        for from in 0..RANKS {
            ranks.send(from, (from + 1 + at % (RANKS - 1)) % RANKS, None);
            ranks.progress(from);
        }
    }
    assert_eq!(ranks.statistics(), Statistics::default());
}

/// Checks that the network's calls are the same as without the layer of connections.
#[test]
fn without_connections_nothing_is_different() {
    fn log<T: Transport>(make: impl Fn(Rank, FabricTransport) -> T) -> Vec<Vec<(Rank, String)>> {
        let mut ranks = Ranks::over(2, disorder(Some(5), 0), make);
        for at in 0..2000 {
            ranks.send(at % 2, 1 - at % 2, (at % 3 == 0).then_some(at));
            ranks.progress(at % 2);
        }
        ranks.settle();
        ranks.above.into_iter().map(|above| above.log).collect()
    }
    let bare = log(|_, network| network);
    let over = log(|rank, network| Connections::new(network, rank, restless(), 0));
    assert!(bare[0].len() > 1000);
    assert_eq!(bare, over);
}

/// Checks that abandoned fragments never arrive, and that the connection is returned nevertheless.
#[test]
fn a_connection_whose_fragments_are_abandoned_is_given_back() {
    let settings = Settings {
        slots: 1,
        ..restless()
    };
    let quiet = Disorder {
        refuse: 0,
        ..disorder(None, 1)
    };
    let mut ranks = Ranks::new(3, &settings, quiet);
    let open = |ranks: &mut Ranks<Connected>, to: Rank, count| {
        for _ in 0..count {
            ranks.send(0, to, None);
            (0..3).for_each(|rank| ranks.progress(rank));
        }
    };
    open(&mut ranks, 1, 50);
    assert_eq!(ranks.connected(0), [1]);
    ranks.settle();
    assert!(ranks.networks[0].is_idle(1));
    // Fragments in the connection count as outstanding until they are taken.
    assert!(ranks.send(0, 1, None));
    ranks.progress(0);
    assert!(!ranks.networks[0].is_idle(1));
    ranks.settle();
    assert!(ranks.networks[0].is_idle(1));
    assert!(ranks.send(0, 1, Some(1000)));
    assert!(!ranks.networks[0].is_idle(1));
    let above = &mut ranks.above[0];
    ranks.networks[0].abandon(&[1], above);
    above.reading.clear();
    *above.sent.get_mut(&(1, 1)).unwrap() = 0;
    open(&mut ranks, 2, 200);
    assert_eq!(ranks.connected(0), [2]);
    ranks.settle();
    ranks.check_came();
    ranks.check_rest();
}

/// The messages of a dishonest peer.
#[derive(Debug, Clone)]
enum Nonsense {
    Base(Vec<u8>, Vec<u8>),
    Long(Vec<u8>, usize),
    Connect(u32),
    ByConnection(Vec<u8>, Vec<u8>),
}

/// Generates headers of this layer. Fragments of the honest ranks are not imitated.
fn own_header() -> impl Strategy<Value = Vec<u8>> {
    let rest = prop_oneof![
        6 => Just(Vec::new()),
        1 => prop::collection::vec(any::<u8>(), 0..10),
    ];
    let first = prop_oneof![4 => Just(0x80_u8), 2 => 0x81_u8..0x83, 1 => 0x80_u8..];
    (first, rest).prop_map(|(first, rest)| [vec![first], rest].concat())
}

/// Generates payloads that are often valid messages about lanes, with a generation that may be the
/// current one.
fn lane_payload() -> impl Strategy<Value = Vec<u8>> {
    let near = (
        0_u8..8,
        0_u8..20,
        0_u16..3,
        prop_oneof![0_u32..20, any::<u32>()],
    )
        .prop_map(|(kind, odd, small, large)| {
            let small = if matches!(kind, 2 | 4) { small } else { 0 };
            let reserved = u8::from(odd == 0);
            let mut bytes = vec![kind, reserved];
            bytes.extend(small.to_le_bytes());
            bytes.extend((large % 32).to_le_bytes());
            if matches!(kind, 1 | 2 | 4) {
                bytes.extend(large.to_le_bytes());
            }
            bytes
        });
    prop_oneof![
        6 => near,
        2 => (0_u32..32).prop_map(|generation| generation.to_le_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..20),
    ]
}

fn nonsense() -> impl Strategy<Value = Nonsense> {
    prop_oneof![
        8 => (own_header(), lane_payload()).prop_map(|(h, p)| Nonsense::Base(h, p)),
        1 => (own_header(), 0_usize..1000).prop_map(|(h, length)| Nonsense::Long(h, length)),
        1 => (0_u32..32).prop_map(Nonsense::Connect),
        2 => (own_header(), lane_payload()).prop_map(|(h, p)| Nonsense::ByConnection(h, p)),
    ]
}

/// The handler of a dishonest peer, which sends arbitrary bytes and accepts no fragments.
struct Nobody;

impl FragmentHandler for Nobody {
    fn read(&mut self, _: Rank, _: u64, _: usize, into: &mut [u8]) {
        into.fill(0x80);
    }
    fn sent(&mut self, _: Rank, _: u64) {}
    fn fragment(&mut self, _: Rank, _: &[u8], _: &[u8]) -> bool {
        true
    }
    fn begin(&mut self, _: Rank, _: &[u8], _: usize) -> Option<u64> {
        Some(0)
    }
    fn place(&mut self, _: u64, _: usize, _: &[u8]) {}
    fn end(&mut self, _: u64) {}
    fn failed(&mut self, _: Rank, _: Failure) {}
    fn room(&self) -> usize {
        usize::MAX
    }
}

/// Runs a dishonest rank 2 while the other ranks send to each other and to rank 2. Returns the
/// reason why they gave rank 2 up, if they did.
fn meet(all: &[Nonsense], seed: Option<u64>) -> Option<Failure> {
    let mut ranks = Ranks::new(3, &restless(), disorder(seed, 1));
    let mut liar = ranks.fabric.transport(2, disorder(None, 1));
    let mut number = None;
    for nonsense in all {
        let mut send = |header: &[u8], payload: Payload<'_>, by_connection: bool| {
            let fragment = Fragment { header, payload };
            let _ = match by_connection {
                false => liar.send(0, &fragment),
                true => liar.send_connected(0, &fragment),
            };
        };
        match nonsense {
            Nonsense::Base(header, payload) => send(header, Payload::Copied(&[payload]), false),
            Nonsense::Long(header, length) => {
                let length = *length as u32;
                send(header, Payload::Read { token: 0, length }, false);
            }
            Nonsense::ByConnection(header, payload) => {
                send(header, Payload::Copied(&[payload]), true);
            }
            Nonsense::Connect(new) => {
                if number.replace(*new).is_some() {
                    liar.disconnect(0);
                }
                liar.expect(0, *new);
            }
        }
        liar.transmit(&mut Nobody);
        for (from, to) in [(0, 1), (1, 0), (0, 2)] {
            ranks.send(from, to, None);
            ranks.send(from, to, Some(700));
        }
        (0..2).for_each(|rank| ranks.progress(rank));
        liar.receive(&mut Nobody);
    }
    for _ in 0..300 {
        (0..2).for_each(|rank| ranks.progress(rank));
        liar.receive(&mut Nobody);
        liar.transmit(&mut Nobody);
    }
    assert!(!ranks.above[0].failed.contains_key(&1));
    assert_eq!(ranks.above[1].failed, BTreeMap::new());
    for channel in [0, 1] {
        for (from, to) in [(0, 1), (1, 0)] {
            // All fragments on one channel may have been refused.
            let sent = ranks.above[from as usize].sent.get(&(to, channel));
            let sent = sent.copied().filter(|sent| *sent > 0);
            let came = ranks.above[to as usize].came.get(&(from, channel));
            assert_eq!(came.copied(), sent);
        }
    }
    let failure = ranks.above[0].failed.get(&2).copied();
    let mut lanes = ranks.networks[0].lanes();
    assert!(failure.is_none() || lanes.all(|lane| lane.peer != 2));
    failure
}

proptest! {
    /// Checks that arbitrary messages cause no panic, that a peer is given up only for a violation
    /// of the protocol, and that the other ranks are not affected.
    #[test]
    fn any_messages_about_lanes_are_handled(
        all in prop::collection::vec(nonsense(), 1..60),
        seed in any::<Option<u64>>(),
    ) {
        let failure = meet(&all, seed);
        prop_assert!(matches!(failure, None | Some(Failure::Broken(_))), "{failure:?}");
    }
}

#[test]
fn whoever_sends_nonsense_about_lanes_is_given_up() {
    // Rank 0 is the lower of the two ranks, so the generations of questions that rank 2 begins are
    // odd.
    let even = Message::Ask {
        generation: 2,
        weight: 1,
    };
    let odd = Message::Ask {
        generation: 3,
        weight: 1,
    };
    let base = |first: u8, bytes: &[u8]| Nonsense::Base(vec![first], bytes.to_vec());
    let of = |message: Message| base(0x80, message.encode().as_ref());
    for (nonsense, is_broken) in [
        (of(odd), false),
        (of(even), true),
        (base(0x80, &[]), true),
        (base(0x80, &[7; 8]), true),
        (base(0x81, &[0; 4]), false),
        (base(0x82, &[0; 5]), true),
        (base(0x83, &[0; 4]), true),
        (Nonsense::Base(vec![0x80, 0], Vec::new()), true),
        (Nonsense::Long(vec![0x82], 1000), true),
    ] {
        let failure = meet(std::slice::from_ref(&nonsense), None);
        let is_so = matches!(failure, Some(Failure::Broken(_)));
        assert_eq!(is_so, is_broken, "{nonsense:?}: {failure:?}");
    }
}
