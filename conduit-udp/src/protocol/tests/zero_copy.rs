//! Tests of packets whose payload stays in the fragment handler's memory until the system has taken
//! it.

use conduit_core::ni::Rank;

use crate::protocol::{
    Config, Endpoint, Failure, Fragment, FragmentHandler, Nanos, Payload, Seal, TAG, Transmit,
};

const LENGTH: usize = 1 << 20;

/// A seal whose tag is a sum over all bytes, weighted by position.
struct Sum;

impl Sum {
    fn tag<'a>(number: u64, bytes: impl Iterator<Item = &'a u8>) -> [u8; TAG] {
        let sum = bytes.zip(1u64..).fold(number, |sum, (&byte, at)| {
            sum.rotate_left(5) ^ u64::from(byte).wrapping_mul(at)
        });
        let mut tag = [9; TAG];
        tag[..8].copy_from_slice(&sum.to_le_bytes());
        tag
    }
}

impl Seal for Sum {
    fn seal(&mut self, _: Rank, number: u64, packet: &mut [u8], _: usize) {
        let (bytes, tag) = packet.split_at_mut(packet.len() - TAG);
        tag.copy_from_slice(&Self::tag(number, bytes.iter()));
    }
    fn tag_of(&mut self, _: Rank, number: u64, parts: [&[u8]; 2]) -> Option<[u8; TAG]> {
        Some(Self::tag(number, parts[0].iter().chain(parts[1])))
    }
    fn open(&mut self, _: Rank, number: u64, packet: &mut [u8], _: usize) -> bool {
        let (bytes, tag) = packet.split_at(packet.len() - TAG);
        *tag == Self::tag(number, bytes.iter())
    }
}

struct Memory {
    from: Vec<u8>,
    to: Vec<u8>,
    lends: bool,
    sent: bool,
    came: bool,
}

impl Memory {
    fn new(lends: bool) -> Self {
        Self {
            from: (0..LENGTH).map(|at| (at % 251) as u8).collect(),
            to: vec![0; LENGTH],
            lends,
            sent: false,
            came: false,
        }
    }
}

impl FragmentHandler for Memory {
    fn read(&mut self, _: Rank, _: u64, offset: usize, into: &mut [u8]) {
        into.copy_from_slice(&self.from[offset..offset + into.len()]);
    }
    fn source(&self, _: Rank, token: u64, offset: usize, length: usize) -> Option<&[u8]> {
        assert!(token == 7 && !self.sent, "bytes of a finished fragment");
        self.lends.then(|| &self.from[offset..offset + length])
    }
    fn sent(&mut self, _: Rank, _: u64) {
        self.sent = true;
    }
    fn fragment(&mut self, _: Rank, _: &[u8], _: &[u8]) -> bool {
        true
    }
    fn begin(&mut self, _: Rank, _: &[u8], length: usize) -> Option<u64> {
        assert_eq!(length, LENGTH);
        Some(1)
    }
    fn place(&mut self, _: u64, offset: usize, bytes: &[u8]) {
        self.to[offset..offset + bytes.len()].copy_from_slice(bytes);
    }
    fn end(&mut self, _: u64) {
        self.came = true;
    }
    fn failed(&mut self, peer: Rank, failure: Failure) {
        panic!("{peer} {failure}");
    }
    fn room(&self) -> usize {
        4 << 20
    }
}

/// Sends a fragment over a path that loses every fifth packet. Returns the number of packets whose
/// payload was outside the buffer.
fn carry(packet: usize, lends: bool) -> u32 {
    let config = |rank| Config {
        rank,
        size: 2,
        packet,
        socket_buffer: 4 << 20,
        ..Config::default()
    };
    let mut ends = [0, 1].map(|rank| (Endpoint::new(config(rank)), Memory::new(lends)));
    let mut buffer = vec![0; 1 << 16];
    let fragment = Fragment {
        header: &[5; 8],
        payload: Payload::Read {
            token: 7,
            length: LENGTH as u32,
        },
    };
    ends[0].0.send(0, 1, &fragment).expect("taken");
    let (mut outside, mut number, mut now): (u32, u32, Nanos) = (0, 0, 0);
    while !ends[1].1.came || !ends[0].1.sent {
        now += 20_000;
        assert!(now < 10_000_000_000, "{number} packets");
        for from in 0..2 {
            let mut packets = Vec::new();
            let (endpoint, memory) = &mut ends[from];
            if endpoint.timeout().is_some_and(|at| at <= now) {
                endpoint.on_timeout(now, memory);
            }
            while let Some(made) = endpoint.transmit(now, &mut buffer, &mut Sum, memory) {
                let Transmit {
                    length, segment, ..
                } = made;
                let Some(part) = made.zero_copy else {
                    packets.extend(buffer[..length].chunks(segment).map(<[u8]>::to_vec));
                    continue;
                };
                outside += 1;
                assert_eq!(length + part.bytes.len(), segment);
                let (head, tail) = buffer[..length].split_at(part.at);
                packets.push([head, part.bytes, tail].concat());
            }
            for mut packet in packets {
                number += 1;
                if number % 5 != 0 {
                    let (endpoint, memory) = &mut ends[1 - from];
                    endpoint.receive(now, &mut packet, &mut Sum, memory);
                }
            }
        }
    }
    assert_eq!(ends[1].1.to, ends[0].1.from);
    let counters = ends[1].0.counters();
    assert_eq!((counters.bad_tag, counters.malformed), (0, 0));
    outside
}

#[test]
fn long_packets_take_their_bytes_where_they_lie_the_first_time() {
    // There are 17 segments, of which the first and the last are not full chunks. Retransmissions
    // are copied.
    let chunks = carry(65_507, true);
    assert!((15..=16).contains(&chunks), "{chunks}");
}

#[test]
fn bytes_that_are_not_lent_and_small_packets_are_copied() {
    assert_eq!(carry(65_507, false), 0);
    assert_eq!(carry(8972, true), 0);
}
