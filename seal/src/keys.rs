//! Keys: one for each direction of each pair of ranks, derived when it is needed.
//!
//! A key and its salt are the begin of AEGIS-256's keystream under the secret of both ranks, with a nonce that says whose they are:
//!
//! | bytes | |
//! |---|---|
//! | 4 | the sending rank, little endian |
//! | 4 | the receiving rank |
//! | 8 | the sending rank's incarnation |
//! | 8 | the receiving rank's incarnation |
//! | 8 | the key's use |
//!
//! These nonces are distinct, and with distinct nonces the keystream is a pseudo-random function; whoever learns one key learns
//! nothing of another or of the secret.
//!
//! The salt is the half of a packet's nonce above its number, which all links count from the same begin. Without it a key that is
//! guessed could be tried on the packets of one number of all links at once: with the 2^40 keys of a job of a million ranks one of
//! them would be found after 2^88 guesses. With it a guess is one of key and salt, of 2^192.

use std::fmt;

use aegis::aegis256::Aegis256;
use conduit_core::ni::Rank;
use zerocopy::FromZeros;
use zeroize::Zeroizing;

use super::memory::{Guarded, SHALLOW, scrubbed};
use super::{Exchange, Protection, Secret};

/// What the keys of a rank's links are made of.
#[derive(Debug)]
pub enum Secrets {
    /// One secret for all.
    Job(Secret),
    /// One for each pair of ranks.
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
    /// That of the link with `peer`. `None`: there is none, or this process is a child of the rank's, which finds zeros instead of the
    /// job's.
    fn with(&mut self, peer: Rank) -> Option<&[u8; Secret::LENGTH]> {
        match self {
            Self::Job(secret) => {
                Some(secret.bytes()).filter(|bytes| **bytes != [0; Secret::LENGTH])
            }
            Self::Pairs(exchange) => exchange.with(peer),
        }
    }
}

/// Of packets in one direction: a key of AEGIS-128X2, and what is above the number in its nonces.
#[derive(Default, FromZeros)]
pub(super) struct Key {
    pub(super) key: [u8; 16],
    pub(super) salt: [u8; 8],
}

impl Key {
    /// The nonce of a packet with this number, which is used once.
    #[inline]
    pub(super) fn nonce(&self, number: u64) -> [u8; 16] {
        let mut nonce = [0; 16];
        nonce[..8].copy_from_slice(&number.to_le_bytes());
        nonce[8..].copy_from_slice(&self.salt);
        nonce
    }
}

/// Peers whose keys are kept.
pub(super) const KEPT: usize = 1024;

/// The keys of one link.
#[derive(FromZeros)]
pub(super) struct LinkKeys {
    /// Of packets to the peer.
    pub(super) send: Key,
    /// Of packets from the peer.
    pub(super) receive: Key,
    /// Whose they are: peer + 1; 0: nobody's, as in a child of the rank's process.
    owner: u32,
}

const _: () = assert!(size_of::<LinkKeys>() == 52);

/// The keys of one rank: derived on first use, kept in a table in which each peer has one possible place.
pub(super) struct Keys {
    secrets: Secrets,
    label: &'static [u8; 8],
    rank: Rank,
    incarnations: Vec<u64>,
    /// A power of two of places; the lower bits of a rank are its place.
    kept: Guarded<LinkKeys>,
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
            kept: Guarded::new(incarnations.len().next_power_of_two().min(KEPT)),
            incarnations,
        }
    }

    /// The keys of the link with `peer`. `None`: no rank of this job.
    #[inline]
    pub(super) fn of(&mut self, peer: Rank) -> Option<&LinkKeys> {
        let place = peer as usize & (self.kept.len() - 1);
        if self.kept[place].owner != peer.wrapping_add(1) || peer == Rank::MAX {
            self.derive(peer, place)?;
        }
        Some(&self.kept[place])
    }

    #[cold]
    fn derive(&mut self, peer: Rank, place: usize) -> Option<()> {
        self.incarnations.get(peer as usize)?;
        scrubbed::<SHALLOW, _>(|| {
            self.kept[place] = LinkKeys {
                send: self.key(self.rank, peer)?,
                receive: self.key(peer, self.rank)?,
                owner: peer + 1,
            };
            Some(())
        })
    }

    /// Changes the salt of packets from `peer` whose keys are kept, or changes it back.
    #[cfg(test)]
    pub(super) fn change_salt(&mut self, peer: Rank) {
        let place = peer as usize & (self.kept.len() - 1);
        self.kept[place].receive.salt[7] ^= 1;
    }

    /// Whether the keys of a link with `peer` are kept, or anything of them is there all the same.
    #[cfg(test)]
    pub(super) fn are_kept(&self, peer: Rank) -> bool {
        let LinkKeys {
            send,
            receive,
            owner,
        } = &self.kept[peer as usize & (self.kept.len() - 1)];
        let is_there = |key: &Key| key.key != [0; 16] || key.salt != [0; 8];
        *owner == peer + 1 || is_there(send) || is_there(receive)
    }

    /// The key of packets from rank `from` to rank `to`, of which this is one.
    pub(super) fn key(&mut self, from: Rank, to: Rank) -> Option<Key> {
        let mut nonce = [0; 32];
        nonce[..4].copy_from_slice(&from.to_le_bytes());
        nonce[4..8].copy_from_slice(&to.to_le_bytes());
        nonce[8..16].copy_from_slice(&self.incarnations[from as usize].to_le_bytes());
        nonce[16..24].copy_from_slice(&self.incarnations[to as usize].to_le_bytes());
        nonce[24..].copy_from_slice(self.label);
        let peer = if from == self.rank { to } else { from };
        let secret = self.secrets.with(peer)?;
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
