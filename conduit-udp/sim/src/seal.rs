//! Seals for the simulation: a cheap one that detects accidental changes, and the ranks' real one.

use conduit_core::ni::Rank;
use conduit_udp::protocol::{Seal, TAG};
use seal::{Protection, Sealer, Secret};
use serde::Serialize;
use sim::random::mix;

/// The seal that the ranks use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum SealKind {
    /// A keyed hash. It detects changes, but its tags are easy to forge.
    Hash,
    /// The ranks' real seal, without encryption.
    Authenticate,
    /// The ranks' real seal, with encryption.
    Encrypt,
}

/// A seal with a tag that depends on every byte of a packet, its number, sender, receiver, and
/// their incarnations.
#[derive(Debug, Clone)]
pub struct HashSeal {
    /// For each peer, the keys of packets to and from that peer.
    keys: Vec<[u64; 2]>,
}

impl HashSeal {
    /// Creates a rank's seal from the incarnations of all ranks as it knows them.
    pub fn new(rank: Rank, incarnations: &[u64]) -> Self {
        let own = incarnations[rank as usize];
        let key = |from: Rank, from_incarnation: u64, to: Rank, to_incarnation: u64| {
            let ranks = u64::from(from) << 32 | u64::from(to);
            mix(mix(mix(ranks) ^ from_incarnation).wrapping_add(to_incarnation))
        };
        let keys = (0..).zip(incarnations).map(|(peer, &incarnation)| {
            [
                key(rank, own, peer, incarnation),
                key(peer, incarnation, rank, own),
            ]
        });
        Self {
            keys: keys.collect(),
        }
    }
}

fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

/// Computes a tag in the manner of wyhash, with 16 bytes per step.
fn tag(key: u64, number: u64, bytes: &[u8]) -> [u8; TAG] {
    let mut state = mix(key ^ mix(number));
    let mut pieces = bytes.chunks_exact(16);
    for piece in &mut pieces {
        let words = piece.as_chunks::<8>().0;
        let (a, b) = (u64::from_le_bytes(words[0]), u64::from_le_bytes(words[1]));
        state = fold(
            a ^ 0xa076_1d64_78bd_642f ^ state,
            b ^ 0xe703_7ed1_a0b4_28db ^ state.rotate_left(29),
        );
    }
    let mut last = [0; 16];
    let rest = pieces.remainder();
    last[..rest.len()].copy_from_slice(rest);
    let words = last.as_chunks::<8>().0;
    state = mix(state ^ u64::from_le_bytes(words[0]));
    state = mix(state ^ u64::from_le_bytes(words[1]) ^ (bytes.len() as u64).rotate_left(40));
    let mut tag = [0; TAG];
    tag[..8].copy_from_slice(&state.to_le_bytes());
    tag[8..].copy_from_slice(&mix(state ^ key).to_le_bytes());
    tag
}

impl Seal for HashSeal {
    fn seal(&mut self, peer: Rank, number: u64, packet: &mut [u8], _header: usize) {
        let (sealed, place) = packet.split_at_mut(packet.len() - TAG);
        place.copy_from_slice(&tag(self.keys[peer as usize][0], number, sealed));
    }

    fn open(&mut self, peer: Rank, number: u64, packet: &mut [u8], _header: usize) -> bool {
        let Some((sealed, is)) = packet.split_last_chunk::<TAG>() else {
            return false;
        };
        self.keys
            .get(peer as usize)
            .is_some_and(|keys| tag(keys[1], number, sealed) == *is)
    }
}

/// One of the seals.
#[derive(Debug)]
pub enum AnySeal {
    /// Accepts every tag.
    Open,
    /// See [`SealKind::Hash`].
    Hash(HashSeal),
    /// See [`SealKind::Authenticate`] and [`SealKind::Encrypt`].
    Real(Box<Sealer>),
}

impl AnySeal {
    /// Creates a rank's seal from the incarnations of all ranks as it knows them.
    ///
    /// # Panics
    /// Panics if the rank has no incarnation.
    pub fn new(kind: SealKind, rank: Rank, incarnations: &[u64]) -> Self {
        let protection = match kind {
            SealKind::Hash => return Self::Hash(HashSeal::new(rank, incarnations)),
            SealKind::Authenticate => Protection::Authenticate,
            SealKind::Encrypt => Protection::Encrypt,
        };
        let secret = Secret::from_bytes([7; Secret::LENGTH]);
        Self::Real(Box::new(Sealer::new(
            secret,
            protection,
            rank,
            incarnations.to_vec(),
        )))
    }
}

impl Seal for AnySeal {
    fn seal(&mut self, peer: Rank, number: u64, packet: &mut [u8], header: usize) {
        match self {
            Self::Open => {}
            Self::Hash(seal) => seal.seal(peer, number, packet, header),
            Self::Real(seal) => seal.seal(peer, number, packet, header),
        }
    }

    fn open(&mut self, peer: Rank, number: u64, packet: &mut [u8], header: usize) -> bool {
        match self {
            Self::Open => true,
            Self::Hash(seal) => seal.open(peer, number, packet, header),
            Self::Real(seal) => seal.open(peer, number, packet, header),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_changed_or_not_for_this_rank_or_incarnation_does_not_open() {
        for kind in [SealKind::Hash, SealKind::Authenticate, SealKind::Encrypt] {
            let incarnations = [11, 12, 13];
            let seal = |rank, incarnations: &[u64]| AnySeal::new(kind, rank, incarnations);
            let (mut a, mut b) = (seal(0, &incarnations), seal(1, &incarnations));
            let mut packet: Vec<u8> = (0..77).collect();
            let plain = packet.clone();
            a.seal(1, 5, &mut packet, 16);
            for bit in 0..packet.len() * 8 {
                let mut changed = packet.clone();
                changed[bit / 8] ^= 1 << (bit % 8);
                assert!(!b.open(0, 5, &mut changed, 16), "{kind:?}, bit {bit}");
            }
            assert!(!b.open(0, 6, &mut packet.clone(), 16), "another number");
            assert!(!b.open(2, 5, &mut packet.clone(), 16), "another sender");
            assert!(
                !a.open(1, 5, &mut packet.clone(), 16),
                "the other direction"
            );
            assert!(
                !seal(2, &incarnations).open(0, 5, &mut packet.clone(), 16),
                "another receiver"
            );
            assert!(
                !seal(1, &[14, 12, 13]).open(0, 5, &mut packet.clone(), 16),
                "an earlier sender"
            );
            assert!(
                !seal(1, &[11, 14, 13]).open(0, 5, &mut packet.clone(), 16),
                "an earlier receiver"
            );
            assert!(b.open(0, 5, &mut packet, 16));
            assert_eq!(packet[..61], plain[..61]);
        }
    }
}
