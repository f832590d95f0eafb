//! Keys: one for each direction of each pair of ranks, derived when it is needed.
//!
//! A key is the begin of AEGIS-256's keystream under the job's secret, with a nonce that says whose it is:
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

use std::fmt;

use aegis::aegis256::Aegis256;
use conduit_core::ni::Rank;
use zeroize::{Zeroize, ZeroizeOnDrop};

use super::{Protection, Secret};

/// A key of AEGIS-128X2.
pub(super) type Key = [u8; 16];

/// Peers whose keys are kept.
pub(super) const KEPT: usize = 1024;

/// The keys of one link.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub(super) struct LinkKeys {
    /// Of packets to the peer.
    pub(super) send: Key,
    /// Of packets from the peer.
    pub(super) receive: Key,
    /// Whose they are: peer + 1; 0: nobody's.
    owner: u32,
}

const _: () = assert!(size_of::<LinkKeys>() == 36);

/// The keys of one rank: derived on first use, kept in a table in which each peer has one possible place.
pub(super) struct Keys {
    secret: Secret,
    label: &'static [u8; 8],
    rank: Rank,
    incarnations: Vec<u64>,
    /// A power of two of places; the lower bits of a rank are its place.
    kept: Vec<LinkKeys>,
}

impl Keys {
    pub(super) fn new(
        secret: Secret,
        protection: Protection,
        rank: Rank,
        incarnations: Vec<u64>,
    ) -> Self {
        assert!(
            (rank as usize) < incarnations.len(),
            "rank {rank} is not in a job of {} ranks",
            incarnations.len()
        );
        let nobody = LinkKeys {
            send: [0; 16],
            receive: [0; 16],
            owner: 0,
        };
        Self {
            secret,
            label: match protection {
                Protection::Authenticate => b"udp1 tag",
                Protection::Encrypt => b"udp1 all",
            },
            rank,
            kept: vec![nobody; incarnations.len().next_power_of_two().min(KEPT)],
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
        self.kept[place] = LinkKeys {
            send: self.key(self.rank, peer),
            receive: self.key(peer, self.rank),
            owner: peer + 1,
        };
        Some(())
    }

    /// The key of packets from rank `from` to rank `to`.
    pub(super) fn key(&self, from: Rank, to: Rank) -> Key {
        let mut nonce = [0; 32];
        nonce[..4].copy_from_slice(&from.to_le_bytes());
        nonce[4..8].copy_from_slice(&to.to_le_bytes());
        nonce[8..16].copy_from_slice(&self.incarnations[from as usize].to_le_bytes());
        nonce[16..24].copy_from_slice(&self.incarnations[to as usize].to_le_bytes());
        nonce[24..].copy_from_slice(self.label);
        let mut key = [0; 16];
        Aegis256::<16>::new(self.secret.bytes(), &nonce).stream(&mut key);
        key
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
