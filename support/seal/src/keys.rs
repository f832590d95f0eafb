//! The keys of packets, one for each direction of each pair of ranks, derived on demand.
//!
//! A key and its salt are the beginning of AEGIS-256's keystream under the pair's secret, with this
//! nonce:
//!
//! | bytes | |
//! |---|---|
//! | 4 | the sending rank, little endian |
//! | 4 | the receiving rank |
//! | 8 | the sending rank's incarnation |
//! | 8 | the receiving rank's incarnation |
//! | 8 | the key's use |
//!
//! No two keys have the same nonce. Under distinct nonces, the keystream is a pseudo-random
//! function, so a leaked key reveals nothing about another key or about the secret.
//!
//! The salt is the upper half of a packet's nonce. The lower half is the packet's number, which
//! every link counts from the same start. Without a salt, an attacker could try each guessed key
//! against the packets with the same number on all links at once. A job of a million ranks has 2^40
//! keys, so the attacker would find one of them after 2^88 guesses. With the salt, the attacker has
//! to guess the key and the salt together, out of 2^192 pairs.

use std::fmt;

use aegis::aegis256::Aegis256;
use conduit_core::ni::Rank;
use zerocopy::FromZeros;
use zeroize::Zeroizing;

use super::memory::{Guarded, SHALLOW, scrubbed};
use super::{Exchange, Protection, Secret};

/// The secrets from which the keys of a rank's links are derived.
#[derive(Debug)]
pub enum Secrets {
    /// One secret for all links.
    Job(Secret),
    /// One secret for each pair of ranks.
    Pairs(Box<Exchange>),
}

impl From<Secret> for Secrets {
    fn from(secret: Secret) -> Self {
        Self::Job(secret)
    }
}

impl From<Exchange> for Secrets {
    fn from(exchange: Exchange) -> Self {
        Self::Pairs(Box::new(exchange))
    }
}

impl Secrets {
    /// Returns the secret of the link with `peer`, or `None` if the link has no secret. In a forked
    /// child, the bytes of the job's secret are zeros, and the call returns `None`.
    fn pair_secret(&mut self, peer: Rank) -> Option<&[u8; Secret::LENGTH]> {
        match self {
            Self::Job(secret) => {
                Some(secret.bytes()).filter(|bytes| **bytes != [0; Secret::LENGTH])
            }
            Self::Pairs(exchange) => exchange.pair_secret(peer),
        }
    }
}

/// The key of packets in one direction, and the salt of their nonces.
#[derive(Default, FromZeros)]
pub(super) struct Key {
    pub(super) key: [u8; 16],
    pub(super) salt: [u8; 8],
}

impl Key {
    /// Returns the nonce of the packet with this number.
    #[inline]
    pub(super) fn nonce(&self, number: u64) -> [u8; 16] {
        let mut nonce = [0; 16];
        nonce[..8].copy_from_slice(&number.to_le_bytes());
        nonce[8..].copy_from_slice(&self.salt);
        nonce
    }
}

/// The maximum number of peers whose keys are cached.
pub(super) const CACHED: usize = 1024;

/// The keys of one link.
#[derive(FromZeros)]
pub(super) struct LinkKeys {
    /// The key of packets to the peer.
    pub(super) send: Key,
    /// The key of packets from the peer.
    pub(super) receive: Key,
    /// The peer's rank + 1, or 0 if the entry is empty. In a forked child, all entries are empty.
    owner: u32,
}

const _: () = assert!(size_of::<LinkKeys>() == 52);

/// The keys of one rank. They are derived on first use and cached in a direct-mapped table.
pub(super) struct Keys {
    secrets: Secrets,
    label: &'static [u8; 8],
    rank: Rank,
    incarnations: Vec<u64>,
    /// The cache. Its size is a power of two, and the lower bits of a peer's rank are the index of
    /// its entry.
    cache: Guarded<LinkKeys>,
}

impl Keys {
    pub(super) fn new(
        secrets: Secrets,
        protection: Protection,
        rank: Rank,
        incarnations: Vec<u64>,
    ) -> Self {
        assert!(
            (rank as usize) < incarnations.len(),
            "rank {rank} is not in a job of {} ranks",
            incarnations.len()
        );
        Self {
            secrets,
            label: match protection {
                Protection::Authenticate => b"udp1 tag",
                Protection::Encrypt => b"udp1 all",
            },
            rank,
            cache: Guarded::new(incarnations.len().next_power_of_two().min(CACHED)),
            incarnations,
        }
    }

    /// Returns the keys of the link with `peer`, or `None` if this job has no such rank or the link
    /// has no secret.
    #[inline]
    pub(super) fn of(&mut self, peer: Rank) -> Option<&LinkKeys> {
        let place = peer as usize & (self.cache.len() - 1);
        if self.cache[place].owner != peer.wrapping_add(1) || peer == Rank::MAX {
            self.derive(peer, place)?;
        }
        Some(&self.cache[place])
    }

    #[cold]
    fn derive(&mut self, peer: Rank, place: usize) -> Option<()> {
        self.incarnations.get(peer as usize)?;
        scrubbed::<SHALLOW, _>(|| {
            self.cache[place] = LinkKeys {
                send: self.key(self.rank, peer)?,
                receive: self.key(peer, self.rank)?,
                owner: peer + 1,
            };
            Some(())
        })
    }

    /// Flips a bit of the cached salt of packets from `peer`.
    #[cfg(test)]
    pub(super) fn change_salt(&mut self, peer: Rank) {
        let place = peer as usize & (self.cache.len() - 1);
        self.cache[place].receive.salt[7] ^= 1;
    }

    /// Returns whether any part of the keys of the link with `peer` is cached.
    #[cfg(test)]
    pub(super) fn are_cached(&self, peer: Rank) -> bool {
        let LinkKeys {
            send,
            receive,
            owner,
        } = &self.cache[peer as usize & (self.cache.len() - 1)];
        let is_there = |key: &Key| key.key != [0; 16] || key.salt != [0; 8];
        *owner == peer + 1 || is_there(send) || is_there(receive)
    }

    /// Derives the key of packets from rank `from` to rank `to`, one of which is this rank.
    pub(super) fn key(&mut self, from: Rank, to: Rank) -> Option<Key> {
        let mut nonce = [0; 32];
        nonce[..4].copy_from_slice(&from.to_le_bytes());
        nonce[4..8].copy_from_slice(&to.to_le_bytes());
        nonce[8..16].copy_from_slice(&self.incarnations[from as usize].to_le_bytes());
        nonce[16..24].copy_from_slice(&self.incarnations[to as usize].to_le_bytes());
        nonce[24..].copy_from_slice(self.label);
        let peer = if from == self.rank { to } else { from };
        let secret = self.secrets.pair_secret(peer)?;
        let mut stream = Zeroizing::new([0; 24]);
        Aegis256::<16>::new(secret, &nonce).stream(&mut *stream);
        let mut key = Key::default();
        key.key.copy_from_slice(&stream[..16]);
        key.salt.copy_from_slice(&stream[16..]);
        Some(key)
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys")
            .field("rank", &self.rank)
            .field("size", &self.incarnations.len())
            .finish_non_exhaustive()
    }
}
