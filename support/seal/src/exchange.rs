//! The key exchange at job start. Each rank sends the others its X25519 share (RFC 7748) over the
//! launcher's side channel, and each two ranks that communicate derive a secret of their own from
//! their shares. Somebody who reads the side channel, then or later, learns no secret, and no rank
//! learns another pair's.
//!
//! A pair's secret is HMAC-SHA256 of the product and both shares, the lower rank's first, under the
//! job's secret (HKDF's extract step, RFC 5869). The job's secret comes from a file, which also
//! authenticates ranks to each other: what each says of itself ends in an HMAC under it, which
//! covers its rank, the number of ranks and the network. Without a file the job's secret is zeros,
//! and somebody who can change the side channel can be the man in the middle.
//!
//! What ranks of an earlier job with the same secret said has a valid HMAC too. So each rank
//! confirms to the others the transcript of what it has received ([`Transcript`]).
//!
//! A product takes 640,000 instructions, 60 µs. It is computed when a peer is first used, and then
//! stored in place of the peer's share. So somebody who sends packets in the names of ranks can
//! cause no more products than there are ranks.

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

/// The setting that names the file.
const SETTING: &str = "CONDUIT_SECRET_FILE";

/// Why the key exchange failed.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    /// The system returned no random numbers.
    #[error("random numbers: {0}")]
    Random(#[from] getrandom::Error),
    /// The file with the job's secret can't be used.
    #[error("{SETTING}={}: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A peer's contribution is too short.
    #[error("it is {0} bytes long")]
    Length(usize),
    /// A peer's contribution has no valid HMAC: the peer has another secret, or somebody else
    /// is_secret or changed it.
    #[error(
        "it was is_secret with another secret than this rank's, which is {own}, or changed on its way ({SETTING}: on all ranks a file with \
         the same content, or on none)"
    )]
    Unauthenticated {
        /// The source of this rank's secret.
        own: String,
    },
}

/// A rank's state of the exchange: its own private key, and what it has of each peer.
pub struct Exchange {
    network: &'static [u8; 3],
    rank: Rank,
    /// This rank's private key.
    own: Guarded<[u8; 32]>,
    share: [u8; 32],
    secret: Option<(Secret, PathBuf)>,
    /// By rank.
    peers: Guarded<Peer>,
    /// Hash over the contributions of all ranks so far.
    transcript: Hash,
}

/// What a rank keeps of a peer.
#[derive(FromZeros)]
#[repr(C)]
struct Peer {
    /// The peer's share, or the pair's secret once that is computed.
    bytes: [u8; 32],
    /// `bytes` are the pair's secret.
    is_secret: bool,
}

impl Exchange {
    /// The exchange of `rank` among `ranks`, over a network of this name, with the job's secret
    /// from a file or without one.
    ///
    /// # Errors
    /// [`ExchangeError::File`] if the file can't be used, [`ExchangeError::Random`] without random
    /// numbers.
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

    /// The job's secret.
    fn secret(&self) -> &[u8] {
        match &self.secret {
            Some((secret, _)) => secret.bytes(),
            None => &[0; Secret::LENGTH],
        }
    }

    /// The HMAC that authenticates `words` as the contribution of `rank`.
    fn tag(&self, rank: Rank, words: &[u8]) -> HMAC {
        let mut tag = HMAC::new(self.secret());
        tag.update(b"words");
        tag.update(self.network);
        tag.update(rank.to_le_bytes());
        // Fits: ranks.
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
    /// without what [`append_share`](Self::append_share) appended. To be called once for each rank,
    /// in order.
    ///
    /// # Errors
    /// [`ExchangeError::Length`] and [`ExchangeError::Unauthenticated`]: it was not made by this
    /// rank with the same secret, in a job of the same size, over the same network.
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

    /// The transcript of what this rank has received from all.
    pub fn transcript(&self) -> Transcript {
        let mut key = HMAC::new(self.secret());
        key.update(b"heard");
        key.update(self.transcript.finalize());
        Transcript {
            rank: self.rank,
            key: key.finalize(),
        }
    }

    /// The secret that this rank shares with `peer`. `None`: no rank of this job, or no random
    /// numbers.
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
            // This rank itself, a share of small order (whose product is known to everybody), or
            // zeros in a forked child: takes a random secret that nobody else has.
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

/// What a rank received from all ranks at start, for ranks to compare.
pub struct Transcript {
    rank: Rank,
    key: [u8; 32],
}

impl Transcript {
    /// First byte of a [confirmation](Self::confirm); no text begins with it.
    const CONFIRMATION: u8 = 1;

    fn tag(&self, rank: Rank) -> HMAC {
        let mut tag = HMAC::new(self.key);
        tag.update(rank.to_le_bytes());
        tag
    }

    /// This rank's confirmation, which only ranks with the same transcript can make.
    fn confirm(&self) -> Vec<u8> {
        [&[Self::CONFIRMATION], &self.tag(self.rank).finalize()[..]].concat()
    }

    /// Checks that a peer has started and has the same transcript.
    ///
    /// # Errors
    /// The peer's error text, if it sent that instead of its [confirmation](Self::confirm), or a
    /// text that says that its transcript differs.
    fn check(&self, peer: Rank, said: &[u8]) -> Result<(), String> {
        let is_same = |tag: &[u8]| match tag.try_into() {
            Ok(tag) => self.tag(peer).finalize_verify(tag),
            Err(_) => false,
        };
        match said.split_first() {
            Some((&Self::CONFIRMATION, tag)) if is_same(tag) => Ok(()),
            None | Some((&Self::CONFIRMATION, _)) => Err(format!(
                "it was not told of the ranks what rank {} was told, so that was changed on its way",
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
