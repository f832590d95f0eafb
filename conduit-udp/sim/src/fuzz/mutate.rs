//! Mutates packets. One mutator knows the packet format, and the other does not.
//!
//! The packet format is implemented a second time here, from the description in
//! `conduit_udp::protocol`, so that an error in the protocol's own code is not repeated.

use conduit_udp::protocol::TAG;
use sim::random::Rng;

/// The number of bytes of the header.
pub(super) const HEADER: usize = 16;
/// The number of bytes of acknowledgements before those of a channel.
const ACKS: usize = 5;
const KINDS: u8 = 7;
/// Values at which errors are likely.
const EDGES: [u64; 18] = [
    0,
    1,
    2,
    3,
    7,
    8,
    63,
    64,
    65,
    255,
    768,
    4095,
    4096,
    0xffff,
    0x7f_ffff,
    0x80_0000,
    0xff_ffff,
    0xffff_ffff,
];

fn edge(random: &mut Rng) -> u64 {
    let edge = EDGES[random.usize(..EDGES.len())];
    match random.u8(..4) {
        0 => edge.wrapping_add(1),
        1 => edge.wrapping_sub(1),
        2 => random.u64(..) >> random.u8(..64),
        _ => edge,
    }
}

/// Sets the length, sender and number in a packet's header.
pub(super) fn address(packet: &mut [u8], sender: u32, number: u64) {
    if packet.len() >= HEADER + TAG {
        let body = (packet.len() - HEADER - TAG) as u16;
        packet[2..4].copy_from_slice(&body.to_le_bytes());
        packet[4..8].copy_from_slice(&sender.to_le_bytes());
        packet[8..16].copy_from_slice(&number.to_le_bytes());
    }
}

/// Returns the offset of a packet's segment, after the acknowledgements.
fn segment(packet: &[u8]) -> Option<usize> {
    let flags = *packet.get(1)?;
    if flags & 3 == 0 {
        return Some(HEADER);
    }
    let mut at = HEADER + ACKS;
    for flag in [1, 2] {
        if flags & flag != 0 {
            at += 6 + 8 * usize::from(*packet.get(at + 5)?);
        }
    }
    (at < packet.len().checked_sub(TAG)?).then_some(at)
}

fn write(packet: &mut [u8], at: usize, number: u64, bytes: usize) {
    if let Some(place) = packet.get_mut(at..at + bytes) {
        place.copy_from_slice(&number.to_le_bytes()[..bytes]);
    }
}

fn read24(packet: &[u8], at: usize) -> u64 {
    packet.get(at..at + 3).map_or(0, |bytes| {
        u64::from(bytes[0]) | u64::from(bytes[1]) << 8 | u64::from(bytes[2]) << 16
    })
}

/// Mutates a packet. Parts of it may be copied from `other`.
pub(super) fn mutate(random: &mut Rng, packet: &mut Vec<u8>, other: &[u8], most: usize) {
    once(random, packet, other, most);
    while random.u8(..4) == 0 {
        once(random, packet, other, most);
    }
}

fn once(random: &mut Rng, packet: &mut Vec<u8>, other: &[u8], most: usize) {
    let length = packet.len();
    if length < HEADER + TAG + 1 {
        return grammar(random, packet, read24(other, HEADER), most);
    }
    let anywhere = random.usize(..length);
    match random.u8(..16) {
        0 => packet[anywhere] ^= 1 << random.u8(..8),
        1 => packet[anywhere] = edge(random) as u8,
        2 => {
            let bytes = [2, 3, 4, 8][random.usize(..4)];
            write(packet, anywhere, edge(random), bytes);
        }
        3 => packet[0] = packet[0] & 0xf0 | random.u8(..KINDS + 1),
        4 => packet[1] = random.u8(..8),
        5 => packet.truncate(HEADER + TAG + random.usize(..length - HEADER - TAG)),
        6 => {
            let more = random.usize(..100).min(most.saturating_sub(length));
            packet.extend((0..more).map(|_| random.u8(..)));
        }
        7 => {
            let cut = random.usize(..length);
            packet.truncate(cut);
            packet.extend_from_slice(&other[cut.min(other.len())..]);
            packet.truncate(most);
        }
        // The sequence number: near the current one, at the window's end, or half the number space
        // away.
        8..11 => {
            if let Some(at) = segment(packet) {
                let by = match random.u8(..4) {
                    0 => random.u64(..8),
                    1 => random.u64(..70).wrapping_neg(),
                    2 => 4090 + random.u64(..12),
                    _ => edge(random),
                };
                let sequence = read24(packet, at).wrapping_add(by) & 0xff_ffff;
                write(packet, at, sequence, 3);
            }
        }
        // The bytes after the sequence number, which are the lengths of header, fragment and chunk.
        11 | 12 => {
            if let Some(at) = segment(packet) {
                let (offset, bytes) =
                    [(3, 1), (3, 4), (7, 2), (9, 1), (4, 2), (0, 8), (8, 2)][random.usize(..7)];
                write(packet, at + offset, edge(random), bytes);
            }
        }
        // Acknowledgements.
        13 | 14 => {
            let fields = [
                (2, 3),
                (5, 3),
                (8, 2),
                (10, 1),
                (11, 8),
                (11, 3),
                (14, 2),
                (16, 1),
                (17, 8),
            ];
            let (offset, bytes) = fields[random.usize(..fields.len())];
            let number = match random.u8(..3) {
                0 if bytes == 3 => read24(packet, HEADER + offset)
                    .wrapping_add(random.u64(..64))
                    .wrapping_sub(16),
                _ => edge(random),
            };
            write(packet, HEADER + offset, number, bytes);
        }
        _ => grammar(
            random,
            packet,
            segment(other).map_or(0, |at| read24(other, at)),
            most,
        ),
    }
}

/// Makes a well-formed packet with a sequence number close to `near`.
fn grammar(random: &mut Rng, packet: &mut Vec<u8>, near: u64, most: usize) {
    packet.clear();
    packet.resize(HEADER, 0);
    let kind = random.u8(..KINDS);
    packet[0] = 1 << 4 | kind;
    packet[1] = random.u8(..8);
    let number = |random: &mut Rng, packet: &mut Vec<u8>, number: u64, bytes: usize| {
        let number = if random.u8(..10) == 0 {
            edge(random)
        } else {
            number
        };
        packet.extend_from_slice(&number.to_le_bytes()[..bytes]);
    };
    let sequence = near.wrapping_add(random.u64(..12)).wrapping_sub(4) & 0xff_ffff;
    if packet[1] & 3 != 0 {
        number(random, packet, 3, 2);
        number(random, packet, near, 3);
        for flag in [1, 2] {
            if packet[1] & flag != 0 {
                let words = if random.u8(..4) == 0 {
                    random.u64(..66)
                } else {
                    0
                };
                number(random, packet, sequence, 3);
                number(random, packet, 100, 2);
                number(random, packet, words, 1);
                for _ in 0..words {
                    packet.extend_from_slice(&(random.u64(..) & random.u64(..)).to_le_bytes());
                }
            }
        }
    }
    let header = random.u64(..66);
    let some = random.u64(..200);
    match kind {
        1 => {
            number(random, packet, sequence, 3);
            for _ in 0..random.u8(..5) {
                number(random, packet, header, 1);
                number(random, packet, some, 2);
                let length = packet.len() + (header + some) as usize;
                packet.resize(length, 7);
            }
        }
        2 => {
            number(random, packet, sequence, 3);
            number(random, packet, header, 1);
            let length = packet.len() + (header + some) as usize;
            packet.resize(length, 8);
        }
        3 => {
            number(random, packet, sequence, 3);
            let whole = some + random.u64(..3000);
            number(random, packet, whole, 4);
            number(random, packet, random_chunk(some), 2);
            number(random, packet, header, 1);
            let length = packet.len() + (header + some) as usize;
            packet.resize(length, 9);
        }
        4 => {
            number(random, packet, sequence, 3);
            let length = packet.len() + random_chunk(some) as usize;
            packet.resize(length, 10);
        }
        5 | 6 => {
            number(random, packet, some, 8);
            number(random, packet, 1472, 2);
        }
        _ => {}
    }
    packet.truncate(most - TAG);
    packet.resize(packet.len() + TAG, 0);
}

/// Returns a number from a small set, so that a chunk sometimes fits a fragment that was made
/// earlier.
fn random_chunk(some: u64) -> u64 {
    100 + some % 3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_fits_and_is_not_always_the_same() {
        let mut random = Rng::with_seed(5);
        let mut seen = std::collections::HashSet::new();
        for _ in 0..10_000 {
            let mut packet = vec![0x12; 60];
            let other: Vec<u8> = (0..90).collect();
            mutate(&mut random, &mut packet, &other, 1472);
            assert!(packet.len() <= 1472);
            address(&mut packet, 3, 9);
            seen.insert(packet);
        }
        assert!(seen.len() > 3000, "{}", seen.len());
    }
}
