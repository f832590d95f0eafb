//! A fragment handler that knows which fragments must arrive, and a seal that detects every change
//! of a packet.

use std::collections::{BTreeMap, HashMap};

use conduit_core::ni::Rank;

use crate::protocol::{
    Endpoint, Failure, Fragment, FragmentHandler, Nanos, Payload, Refused, Seal, TAG,
};

/// A generator of pseudo-random numbers.
#[derive(Debug, Clone)]
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }

    /// Returns true in `cases` of a thousand cases.
    pub(super) fn in_thousand(&mut self, cases: u64) -> bool {
        self.below(1000) < cases
    }
}

/// Returns the byte at `offset` of fragment `index` that `sender` sends to `to` on a channel.
fn byte(sender: Rank, to: Rank, channel: u8, index: u32, offset: usize) -> u8 {
    let mixed = (u64::from(sender) << 40
        ^ u64::from(to) << 32
        ^ u64::from(channel) << 31
        ^ u64::from(index))
    .wrapping_mul(0x9e37_79b9_7f4a_7c15)
    .wrapping_add(offset as u64)
    .wrapping_mul(0xd6e8_feb8_6659_fd93);
    (mixed >> 56) as u8
}

/// Writes a fragment's header, which consists of the channel, the index and the length.
fn header(channel: u8, index: u32, length: usize) -> [u8; 9] {
    let mut header = [0; 9];
    header[0] = channel;
    header[1..5].copy_from_slice(&index.to_le_bytes());
    header[5..].copy_from_slice(&(length as u32).to_le_bytes());
    header
}

fn read_header(header: &[u8]) -> (u8, u32, usize) {
    let header: [u8; 9] = header.try_into().expect("a header that was sent");
    let [channel, i0, i1, i2, i3, length @ ..] = header;
    (
        channel,
        u32::from_le_bytes([i0, i1, i2, i3]),
        u32::from_le_bytes(length) as usize,
    )
}

/// A fragment that arrives in several segments.
#[derive(Debug)]
struct Arriving {
    peer: Rank,
    index: u32,
    came: Vec<bool>,
}

/// One rank's fragment handler.
#[derive(Debug)]
pub(super) struct App {
    rank: Rank,
    /// For each peer and channel, the numbers of fragments sent and received.
    pub(super) sent: HashMap<(Rank, u8), u32>,
    pub(super) received: HashMap<(Rank, u8), u32>,
    /// For each peer and channel, the index of the next larger fragment to begin.
    begun: HashMap<Rank, u32>,
    arriving: BTreeMap<u64, Arriving>,
    places: u64,
    /// For each token, the peer, index and length of the fragment, if it is not yet acknowledged.
    pub(super) unsent: HashMap<u64, (Rank, u32, usize)>,
    tokens: u64,
    pub(super) failures: Vec<(Rank, Failure)>,
    pub(super) bytes_received: u64,
    /// The number of fragments refused, per thousand.
    pub(super) refuse: u64,
    pub(super) room: usize,
    random: Random,
}

impl App {
    pub(super) fn new(rank: Rank, seed: u64) -> Self {
        Self {
            rank,
            sent: HashMap::new(),
            received: HashMap::new(),
            begun: HashMap::new(),
            arriving: BTreeMap::new(),
            places: 0,
            unsent: HashMap::new(),
            tokens: 0,
            failures: Vec::new(),
            bytes_received: 0,
            refuse: 0,
            room: usize::MAX,
            random: Random(seed),
        }
    }

    /// Sends the next fragment of a channel.
    pub(super) fn send(
        &mut self,
        now: Nanos,
        endpoint: &mut Endpoint,
        to: Rank,
        channel: u8,
        length: usize,
    ) -> Result<(), Refused> {
        let index = self.sent.get(&(to, channel)).copied().unwrap_or(0);
        let header = header(channel, index, length);
        if channel == 0 {
            let payload: Vec<u8> = (0..length)
                .map(|offset| byte(self.rank, to, 0, index, offset))
                .collect();
            let (front, back) = payload.split_at(length / 2);
            endpoint.send(
                now,
                to,
                &Fragment {
                    header: &header,
                    payload: Payload::Copied(&[front, back]),
                },
            )?;
        } else {
            let token = self.tokens;
            let payload = Payload::Read {
                token,
                length: length as u32,
            };
            endpoint.send(
                now,
                to,
                &Fragment {
                    header: &header,
                    payload,
                },
            )?;
            self.tokens += 1;
            self.unsent.insert(token, (to, index, length));
        }
        self.sent.insert((to, channel), index + 1);
        Ok(())
    }

    fn refuses(&mut self) -> bool {
        self.refuse > 0 && self.random.in_thousand(self.refuse)
    }
}

impl FragmentHandler for App {
    fn read(&mut self, peer: Rank, token: u64, offset: usize, into: &mut [u8]) {
        let &(to, index, length) = self.unsent.get(&token).expect("a token not yet sent");
        assert!(to == peer && offset + into.len() <= length);
        for (at, place) in into.iter_mut().enumerate() {
            *place = byte(self.rank, to, 1, index, offset + at);
        }
    }

    fn sent(&mut self, peer: Rank, token: u64) {
        let (to, ..) = self.unsent.remove(&token).expect("a token not yet sent");
        assert_eq!(to, peer);
    }

    fn is_awaited(&self, _: Rank, token: u64) -> bool {
        token.is_multiple_of(2)
    }

    fn fragment(&mut self, peer: Rank, header: &[u8], payload: &[u8]) -> bool {
        if self.refuses() {
            return false;
        }
        let (channel, index, length) = read_header(header);
        let expected = self.received.entry((peer, channel)).or_default();
        assert_eq!(
            index, *expected,
            "rank {} from {peer} on channel {channel}",
            self.rank
        );
        assert_eq!(length, payload.len());
        *expected += 1;
        for (offset, &came) in payload.iter().enumerate() {
            assert_eq!(came, byte(peer, self.rank, channel, index, offset));
        }
        self.bytes_received += payload.len() as u64;
        if channel == 1 {
            let begun = self.begun.entry(peer).or_default();
            assert_eq!(*begun, index, "delivered before an earlier one has begun");
            *begun += 1;
        }
        true
    }

    fn begin(&mut self, peer: Rank, header: &[u8], length: usize) -> Option<u64> {
        if self.refuses() {
            return None;
        }
        let (channel, index, said) = read_header(header);
        assert_eq!((channel, said), (1, length));
        let begun = self.begun.entry(peer).or_default();
        assert_eq!(*begun, index, "begun before an earlier one");
        *begun += 1;
        self.places += 1;
        self.arriving.insert(
            self.places,
            Arriving {
                peer,
                index,
                came: vec![false; length],
            },
        );
        Some(self.places)
    }

    fn place(&mut self, place: u64, offset: usize, bytes: &[u8]) {
        let arriving = self
            .arriving
            .get_mut(&place)
            .expect("a place that was given");
        for (at, &came) in bytes.iter().enumerate() {
            assert_eq!(
                came,
                byte(arriving.peer, self.rank, 1, arriving.index, offset + at)
            );
            assert!(
                !std::mem::replace(&mut arriving.came[offset + at], true),
                "a byte comes twice"
            );
        }
        self.bytes_received += bytes.len() as u64;
    }

    fn end(&mut self, place: u64) {
        let arriving = self
            .arriving
            .remove(&place)
            .expect("a place that was given");
        assert!(arriving.came.iter().all(|&came| came), "a byte is missing");
        let expected = self.received.entry((arriving.peer, 1)).or_default();
        assert_eq!(arriving.index, *expected);
        *expected += 1;
    }

    fn failed(&mut self, peer: Rank, failure: Failure) {
        assert!(
            self.failures.iter().all(|&(other, _)| other != peer),
            "a peer fails twice"
        );
        self.failures.push((peer, failure));
        self.unsent.retain(|_, &mut (to, ..)| to != peer);
        self.arriving.retain(|_, arriving| arriving.peer != peer);
    }

    fn room(&self) -> usize {
        self.room
    }
}

/// A seal whose tag depends on every byte. It makes a packet's body unreadable until the packet is
/// opened.
#[derive(Debug, Clone, Copy)]
pub(super) struct TestSeal(pub(super) Rank);

impl TestSeal {
    fn tag(from: Rank, to: Rank, number: u64, bytes: &[u8]) -> [u8; TAG] {
        let mut hash =
            0xcbf2_9ce4_8422_2325 ^ u64::from(from) << 32 ^ u64::from(to) ^ number.rotate_left(17);
        for &byte in bytes {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        let mut tag = [0; TAG];
        tag[..8].copy_from_slice(&hash.to_le_bytes());
        tag[8..].copy_from_slice(&hash.wrapping_mul(31).to_be_bytes());
        tag
    }

    fn stir(number: u64, body: &mut [u8]) {
        for byte in body {
            *byte ^= 0x5a ^ number as u8;
        }
    }
}

impl Seal for TestSeal {
    fn seal(&mut self, peer: Rank, number: u64, packet: &mut [u8], header: usize) {
        let (contents, tag) = packet.split_at_mut(packet.len() - TAG);
        Self::stir(number, &mut contents[header..]);
        tag.copy_from_slice(&Self::tag(self.0, peer, number, contents));
    }

    fn open(&mut self, peer: Rank, number: u64, packet: &mut [u8], header: usize) -> bool {
        let (contents, tag) = packet.split_at_mut(packet.len() - TAG);
        if *tag != Self::tag(peer, self.0, number, contents) {
            return false;
        }
        Self::stir(number, &mut contents[header..]);
        true
    }
}
