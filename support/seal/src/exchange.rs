//! The key exchange at job start. Each rank sends the others its X25519 share (RFC 7748) over the
//! launcher's side channel. Any two ranks that communicate derive a pair secret from their shares.
//! An attacker who reads the side channel, at that time or later, learns no secret, and no rank
//! learns the secret of a pair to which it does not belong.
//!
//! A pair's secret is the HMAC-SHA256, under the job's secret, of the product of the scalar
//! multiplication and the two shares, that of the lower rank first (HKDF's extract step, RFC 5869).
//! The job's secret comes from a file. It also authenticates ranks to each other: each rank's
//! contribution ends with an HMAC under it, which covers the rank, the number of ranks and the
//! network. Without a file, the job's secret is all zeros, and an attacker who can alter the side
//! channel can mount a man-in-the-middle attack.
//!
//! Contributions from an earlier job with the same secret also have valid HMACs. Each rank
//! therefore sends the others a confirmation of all contributions that it has received (its
//! [`Transcript`]).
//!
//! Computing a product takes 640,000 instructions, or 60 µs. A pair's product is computed when the
//! peer is first used, and the pair's secret then replaces the peer's share. An attacker who spoofs
//! packets from ranks can therefore cause at most one scalar multiplication per rank.

mod meeting;

use std::fmt;
use std::path::{Path, PathBuf};

use conduit_core::ni::Rank;
use hmac_sha256::{HMAC, Hash};
use x25519_dalek::{X25519_BASEPOINT_BYTES, x25519};
use zerocopy::FromZeros;

pub use meeting::{PeerError, meet};

use crate::Secret;
use crate::memory::{DEEP, Guarded, scrubbed};

/// The setting that names the file with the job's secret.
const SETTING: &str = "CONDUIT_SECRET_FILE";

/// The reason why the key exchange failed.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    /// The system returned no random numbers.
    #[error("the system returned no random numbers: {0}")]
    Random(#[from] getrandom::Error),
    /// The file with the job's secret cannot be used.
    #[error("{SETTING}={}: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The problem with the file.
        reason: String,
    },
    /// A peer's contribution is too short.
    #[error("it is {0} bytes long")]
    Length(usize),
    /// A peer's contribution has no valid HMAC, because the peer has another secret or the
    /// contribution was forged or altered.
    #[error(
        "its HMAC is not valid: it was made with a secret other than this rank's, which is {own}, or altered in transit ({SETTING}: use a file with \
         the same content on all ranks, or none)"
    )]
    Unauthenticated {
        /// The source of this rank's secret.
        own: String,
    },
}

/// A rank's state of the exchange, which consists of its own private key and what it knows of each
/// peer.
pub struct Exchange {
    network: &'static [u8; 3],
    rank: Rank,
    /// This rank's private key.
    own: Guarded<[u8; 32]>,
    share: [u8; 32],
    secret: Option<(Secret, PathBuf)>,
    /// The peers' data, by rank.
    peers: Guarded<Peer>,
    /// The hash over the HMACs of the contributions that have been verified so far.
    transcript: Hash,
}

/// The state that a rank keeps of a peer.
#[derive(FromZeros)]
#[repr(C)]
struct Peer {
    /// The peer's share, or the pair's secret once it is computed.
    bytes: [u8; 32],
    /// Whether `bytes` is the pair's secret.
    is_secret: bool,
}

impl Exchange {
    /// Creates the exchange of `rank` among `ranks` ranks, over the network named `network`. The
    /// job's secret is read from `file`, if given.
    ///
    /// # Errors
    /// Returns [`ExchangeError::File`] if the file cannot be used, and [`ExchangeError::Random`] if
    /// the system returns no random numbers.
    pub fn new(
        network: &'static [u8; 3],
        rank: Rank,
        ranks: u32,
        file: Option<&Path>,
    ) -> Result<Self, ExchangeError> {
        let read = |path: &Path| match Secret::from_file(path) {
            Ok(secret) => Ok((secret, path.to_owned())),
            Err(reason) => Err(ExchangeError::File {
                path: path.to_owned(),
                reason,
            }),
        };
        let secret = file.map(read).transpose()?;
        let mut own = Guarded::<[u8; 32]>::new(1);
        getrandom::fill(&mut own[0])?;
        Ok(Self::of(network, rank, ranks, secret, own))
    }

    fn of(
        network: &'static [u8; 3],
        rank: Rank,
        ranks: u32,
        secret: Option<(Secret, PathBuf)>,
        own: Guarded<[u8; 32]>,
    ) -> Self {
        Self {
            network,
            rank,
            share: scrubbed::<DEEP, _>(|| x25519(own[0], X25519_BASEPOINT_BYTES)),
            own,
            secret,
            peers: Guarded::new(ranks as usize),
            transcript: Hash::new(),
        }
    }

    /// Returns the job's secret, or zeros if there is none.
    fn secret(&self) -> &[u8] {
        match &self.secret {
            Some((secret, _)) => secret.bytes(),
            None => &[0; Secret::LENGTH],
        }
    }

    /// Returns the HMAC that authenticates `words` as the contribution of `rank`.
    fn tag(&self, rank: Rank, words: &[u8]) -> HMAC {
        let mut tag = HMAC::new(self.secret());
        tag.update(b"words");
        tag.update(self.network);
        tag.update(rank.to_le_bytes());
        // The cast is lossless, because `of` takes the number of ranks as a `u32`.
        tag.update((self.peers.len() as u32).to_le_bytes());
        tag.update(words);
        tag
    }

    /// Appends this rank's share and HMAC to its contribution.
    fn append_share(&self, words: &mut Vec<u8>) {
        words.extend(self.share);
        let tag = self.tag(self.rank, words).finalize();
        words.extend(tag);
    }

    /// Checks the HMAC of a peer's contribution and stores its share. Returns the contribution
    /// without the part that [`append_share`](Self::append_share) appended. Call this once for each
    /// rank, in the order of the ranks.
    ///
    /// # Errors
    /// Returns [`ExchangeError::Length`] if the contribution is too short, and
    /// [`ExchangeError::Unauthenticated`] if it was not made by `peer` with the same secret, in a
    /// job of the same size, over the same network.
    fn verify<'a>(&mut self, peer: Rank, words: &'a [u8]) -> Result<&'a [u8], ExchangeError> {
        let short = || ExchangeError::Length(words.len());
        let (said, tag) = words.split_last_chunk().ok_or_else(short)?;
        let (rest, share) = said.split_last_chunk().ok_or_else(short)?;
        if !self.tag(peer, said).finalize_verify(tag) {
            let own = match &self.secret {
                Some((_, path)) => format!("that of {}", path.display()),
                None => "none".to_owned(),
            };
            return Err(ExchangeError::Unauthenticated { own });
        }
        self.transcript.update(tag);
        match self.peers.get_mut(peer as usize) {
            Some(known) if peer != self.rank => known.bytes = *share,
            _ => {}
        }
        Ok(rest)
    }

    /// Returns the transcript of the contributions that this rank has received from all ranks.
    pub fn transcript(&self) -> Transcript {
        let mut key = HMAC::new(self.secret());
        key.update(b"heard");
        key.update(self.transcript.finalize());
        Transcript {
            rank: self.rank,
            key: key.finalize(),
        }
    }

    /// Returns the secret that this rank shares with `peer`. Returns `None` if there is no such
    /// rank, or if random numbers are needed and the system returns none.
    pub(crate) fn pair_secret(&mut self, peer: Rank) -> Option<&[u8; 32]> {
        if !self.peers.get(peer as usize)?.is_secret {
            scrubbed::<DEEP, _>(|| self.make(peer))?;
        }
        Some(&self.peers[peer as usize].bytes)
    }

    fn make(&mut self, peer: Rank) -> Option<()> {
        let theirs = self.peers[peer as usize].bytes;
        let product = x25519(self.own[0], theirs);
        let mut bytes = [0; 32];
        if product == [0; 32] {
            // The peer is this rank itself, its share has small order (so that the product is
            // publicly known), or this is a forked child, where the keys are zeros. Use a random
            // secret that no other process has.
            getrandom::fill(&mut bytes).ok()?;
        } else {
            let mut shares = [self.share, theirs];
            if peer < self.rank {
                shares.reverse();
            }
            let mut pair = HMAC::new(self.secret());
            pair.update(b"pair");
            pair.update(product);
            pair.update(shares.as_flattened());
            bytes = pair.finalize();
        }
        self.peers[peer as usize] = Peer {
            bytes,
            is_secret: true,
        };
        Some(())
    }
}

impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exchange")
            .field("rank", &self.rank)
            .finish_non_exhaustive()
    }
}

/// A digest of the contributions that a rank received from all ranks at start. Ranks compare their
/// transcripts.
pub struct Transcript {
    rank: Rank,
    key: [u8; 32],
}

impl Transcript {
    /// The first byte of a [confirmation](Self::confirm). No error text begins with this byte.
    const CONFIRMATION: u8 = 1;

    fn tag(&self, rank: Rank) -> HMAC {
        let mut tag = HMAC::new(self.key);
        tag.update(rank.to_le_bytes());
        tag
    }

    /// Returns this rank's confirmation, which only ranks with the same transcript can make.
    fn confirm(&self) -> Vec<u8> {
        [&[Self::CONFIRMATION], &self.tag(self.rank).finalize()[..]].concat()
    }

    /// Checks that a peer has started and has the same transcript.
    ///
    /// # Errors
    /// Returns the peer's error text if it sent one instead of its [confirmation](Self::confirm),
    /// or a text stating that its transcript differs.
    fn check(&self, peer: Rank, said: &[u8]) -> Result<(), String> {
        let is_same = |tag: &[u8]| match tag.try_into() {
            Ok(tag) => self.tag(peer).finalize_verify(tag),
            Err(_) => false,
        };
        match said.split_first() {
            Some((&Self::CONFIRMATION, tag)) if is_same(tag) => Ok(()),
            None | Some((&Self::CONFIRMATION, _)) => Err(format!(
                "its transcript differs from that of rank {}, so contributions were altered in transit",
                self.rank
            )),
            Some(_) => Err(String::from_utf8_lossy(said).into_owned()),
        }
    }
}

impl fmt::Debug for Transcript {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transcript")
            .field("rank", &self.rank)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
