//! A peer with a valid key that sends arbitrary packets. The peer is given up, without any other
//! effect.

use proptest::prelude::*;

use super::reference::Random;
use crate::protocol::packet::{Header, OVERHEAD, PacketKind};
use crate::protocol::{
    Config, Endpoint, Failure, Fragment, FragmentHandler, Nanos, Payload, Received, Seal,
};

/// Accepts every packet as valid.
#[derive(Debug)]
struct Trusting;

impl Seal for Trusting {
    fn seal(&mut self, _peer: u32, _number: u64, _packet: &mut [u8], _header: usize) {}

    fn open(&mut self, _peer: u32, _number: u64, _packet: &mut [u8], _header: usize) -> bool {
        true
    }
}

/// Checks only the guarantees on which a fragment handler relies, whatever a peer does.
#[derive(Debug, Default)]
struct Careful {
    /// For each place, the length, the number of bytes received, and whether the place is open.
    places: Vec<(usize, usize, bool)>,
    /// The tokens whose fragments have not been reported as sent.
    tokens: Vec<u64>,
    failures: u32,
    refuse: bool,
}

impl FragmentHandler for Careful {
    fn read(&mut self, _peer: u32, token: u64, offset: usize, into: &mut [u8]) {
        assert!(self.tokens.contains(&token) && offset + into.len() <= 5000);
        into.fill(1);
    }

    fn sent(&mut self, _peer: u32, token: u64) {
        let at = self
            .tokens
            .iter()
            .position(|&other| other == token)
            .expect("a token not yet sent");
        self.tokens.remove(at);
    }

    fn fragment(&mut self, _peer: u32, header: &[u8], _payload: &[u8]) -> bool {
        assert!(header.len() <= 64);
        self.refuse = !self.refuse;
        self.refuse
    }

    fn begin(&mut self, _peer: u32, header: &[u8], length: usize) -> Option<u64> {
        assert!(header.len() <= 64);
        self.refuse = !self.refuse;
        self.refuse.then(|| {
            self.places.push((length, 0, true));
            self.places.len() as u64 - 1
        })
    }

    fn place(&mut self, place: u64, offset: usize, bytes: &[u8]) {
        let (length, came, open) = &mut self.places[place as usize];
        assert!(*open && offset + bytes.len() <= *length);
        *came += bytes.len();
    }

    fn end(&mut self, place: u64) {
        let (length, came, open) = &mut self.places[place as usize];
        assert!(std::mem::take(open) && came == length);
    }

    fn failed(&mut self, _peer: u32, failure: Failure) {
        assert!(matches!(
            failure,
            Failure::Broken(_) | Failure::Silent(_) | Failure::Unreachable | Failure::Mtu(_)
        ));
        self.failures += 1;
        self.tokens.clear();
        self.places.iter_mut().for_each(|place| place.2 = false);
    }

    fn room(&self) -> usize {
        1 << 20
    }
}

/// Returns a packet that is nearly valid, with packet number `number`.
fn packet(random: &mut Random, number: u64) -> Vec<u8> {
    let kinds = [
        PacketKind::Nothing,
        PacketKind::Bundle,
        PacketKind::Fragment,
        PacketKind::First,
        PacketKind::Chunk,
        PacketKind::Chunk,
        PacketKind::Probe,
        PacketKind::ProbeReply,
    ];
    let kind = kinds[random.below(8) as usize];
    let mut flags = random.below(16) as u8;
    let mut body = Vec::new();
    let near = |random: &mut Random| {
        let limit = if random.in_thousand(50) { 1 << 24 } else { 8 };
        random.below(limit) as u32
    };
    if random.in_thousand(700) {
        flags &= 4;
    }
    if flags & 3 != 0 {
        body.extend(random.next().to_le_bytes()[..5].iter());
        for bit in [1, 2] {
            if flags & bit != 0 {
                body.extend(&near(random).to_le_bytes()[..3]);
                body.extend((random.below(300) as u16).to_le_bytes());
                let words = if random.in_thousand(800) {
                    0
                } else {
                    random.below(3)
                };
                body.push(words as u8);
                for _ in 0..words {
                    body.extend((random.next() & random.next() & random.next() & 15).to_le_bytes());
                }
            }
        }
    }
    match kind {
        PacketKind::Nothing => {}
        PacketKind::Probe => body.extend(random.next().to_le_bytes()),
        PacketKind::ProbeReply => {
            body.extend(random.below(1 << 30).to_le_bytes());
            body.extend((random.next() as u16).to_le_bytes());
        }
        _ => body.extend(&near(random).to_le_bytes()[..3]),
    }
    let some = random.below(40) as usize;
    match kind {
        PacketKind::Bundle => {
            for _ in 0..random.below(4) {
                let (header, payload) = (random.below(10) as u8, random.below(20) as u8);
                body.extend([header, payload, 0]);
                body.resize(body.len() + usize::from(header + payload), 7);
            }
        }
        PacketKind::Fragment => {
            body.push(some as u8 / 2);
            body.resize(body.len() + some, 7);
        }
        PacketKind::First => {
            body.extend((random.below(200) as u32).to_le_bytes());
            body.extend([20, 0, some as u8 / 2]);
            body.resize(body.len() + some, 7);
        }
        PacketKind::Chunk => body.resize(
            body.len() + if random.in_thousand(900) { 20 } else { some },
            7,
        ),
        _ => {}
    }
    if random.in_thousand(20) {
        body.truncate(random.below(body.len() as u64 + 1) as usize);
    }
    let mut packet = vec![0; body.len() + OVERHEAD];
    packet[16..16 + body.len()].copy_from_slice(&body);
    Header {
        kind,
        flags,
        sender: 1,
        number,
    }
    .write(&mut packet, body.len());
    packet
}

fn run(seed: u64) {
    let config = Config {
        size: 2,
        link_early: 2000,
        early: 3000,
        first_sequence: seed % 3,
        ..Config::default()
    };
    let mut random = Random(seed);
    let (mut endpoint, mut handler, mut seal) =
        (Endpoint::new(config), Careful::default(), Trusting);
    let (mut now, mut token, mut buffer): (Nanos, _, _) = (1000, 0, vec![0; 1 << 16]);
    for number in 0..60 {
        match random.below(10) {
            0 => {
                let payload = Payload::Read {
                    token,
                    length: random.below(5000) as u32,
                };
                if endpoint
                    .send(
                        now,
                        1,
                        &Fragment {
                            header: &[1, 2],
                            payload,
                        },
                    )
                    .is_ok()
                {
                    handler.tokens.push(token);
                }
                token += 1;
            }
            1 => drop(endpoint.send(
                now,
                1,
                &Fragment {
                    header: &[],
                    payload: Payload::Copied(&[&[0; 30]]),
                },
            )),
            2 => {
                let limit = if random.in_thousand(10) {
                    20_000_000_000
                } else {
                    3_000_000
                };
                now += random.below(limit)
            }
            _ => {}
        }
        if random.in_thousand(600) {
            while endpoint
                .transmit(now, &mut buffer, &mut seal, &mut handler)
                .is_some()
            {}
        }
        if endpoint.timeout().is_some_and(|at| at <= now) {
            endpoint.on_timeout(now, &mut handler);
        }
        let mut packet = packet(&mut random, number);
        let received = endpoint.receive(now, &mut packet, &mut seal, &mut handler);
        assert!(handler.failures <= 1);
        assert!(handler.failures == 0 || endpoint.has_failed(1));
        if matches!(received, Received::Dropped(_)) {
            assert_eq!(handler.failures, 1);
        }
        assert!(endpoint.memory() < 60_000, "{}", endpoint.memory());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, ..ProptestConfig::default() })]

    #[test]
    fn a_peer_that_sends_anything_breaks_nothing(seed: u64) {
        run(seed);
    }

    #[test]
    fn bytes_without_a_valid_tag_change_nothing(bytes in prop::collection::vec(any::<u8>(), 0..200), first in 0x10u8..0x18) {
        let mut endpoint = Endpoint::new(Config { size: 4, ..Config::default() });
        let mut bytes = bytes;
        if bytes.len() >= OVERHEAD {
            let body = (bytes.len() - OVERHEAD) as u16;
            bytes[0] = first;
            bytes[2..4].copy_from_slice(&body.to_le_bytes());
            bytes[4] %= 5;
            bytes[5..8].fill(0);
        }
        let before = endpoint.memory();
        let received = endpoint.receive(1, &mut bytes, &mut super::reference::TestSeal(0), &mut Careful::default());
        prop_assert!(matches!(received, Received::Dropped(_)));
        prop_assert_eq!(endpoint.memory(), before);
        prop_assert!((0..4).all(|peer| endpoint.link(peer).is_none()));
        let counters = endpoint.counters();
        prop_assert_eq!(counters.bad_tag + counters.malformed, 1);
    }
}
