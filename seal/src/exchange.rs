//! The exchange of keys at job start: each rank tells the others, over the launcher's side channel, its share of an exchange by
//! X25519, and each two ranks that speak make a secret of their own of theirs. Who reads the side channel, then or later, learns
//! none of them, and no rank learns another pair's.
//!
//! A pair's secret is HMAC-SHA256 of the product of both shares and of the shares, the lower rank's first, under the job's secret
//! (which makes it HKDF's extract). The job's secret comes from a file, by which ranks also tell who else has it: what each says of
//! itself ends in an HMAC under it, which is also of its rank, the number of ranks and the network. Without a file it is zeros, and
//! whoever can change what the side channel carries can stand between two ranks.
//!
//! Words of an earlier job with the same secret have such an HMAC too. So, when a rank has heard all, it confirms to the others what it
//! has heard ([`Heard`]).
//!
//! A product takes 640,000 instructions, 60 µs. It is made when a peer is first used and then kept in the place of the peer's share,
//! so that who sends packets in the names of ranks can't have more made than there are ranks.

use std::fmt;
use std::path::{Path, PathBuf};

use conduit_core::ni::Rank;
use hmac_sha256::{HMAC, Hash};
use x25519_dalek::{X25519_BASEPOINT_BYTES, x25519};
use zerocopy::FromZeros;

use crate::Secret;
use crate::memory::{DEEP, Guarded, scrubbed};

/// The setting that names the file.
const SETTING: &str = "CONDUIT_SECRET_FILE";

/// Why keys can't be exchanged.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    /// The system has no random numbers.
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
    /// What a peer says of itself is too short.
    #[error("it is {0} bytes long")]
    Length(usize),
    /// A peer has another secret, or somebody else has made or changed what it says.
    #[error(
        "it was made with another secret than this rank's, which is {own}, or changed on its way ({SETTING}: on all ranks a file with \
         the same content, or on none)"
    )]
    Stranger {
        /// Where this rank has its secret from.
        own: String,
    },
}

/// A rank's end of the exchange: its own number, and what it has of the others.
pub struct Exchange {
    network: &'static [u8; 3],
    rank: Rank,
    /// The number that this rank's share is made of.
    own: Guarded<[u8; 32]>,
    share: [u8; 32],
    secret: Option<(Secret, PathBuf)>,
    /// By rank.
    peers: Guarded<Peer>,
    /// Of what all ranks have said so far.
    heard: Hash,
}

/// What a rank has of another.
#[derive(FromZeros)]
#[repr(C)]
struct Peer {
    /// The peer's share; once it was used, the pair's secret.
    bytes: [u8; 32],
    /// Which of the two.
    made: bool,
}

impl Exchange {
    /// Bytes that each rank's words grow by: a share, and the HMAC.
    pub const BYTES: usize = 64;

    /// Of `rank` among `ranks`, over a network of this name, with the job's secret from a file or without.
    ///
    /// # Errors
    /// The file can't be used; a system without random numbers.
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
            heard: Hash::new(),
        }
    }

    /// The job's secret.
    fn secret(&self) -> &[u8] {
        match &self.secret {
            Some((secret, _)) => secret.bytes(),
            None => &[0; Secret::LENGTH],
        }
    }

    /// What tells that `rank` has said `words`.
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

    /// Appends to what this rank says of itself what the others need.
    pub fn introduce(&self, words: &mut Vec<u8>) {
        words.extend(self.share);
        let tag = self.tag(self.rank, words).finalize();
        words.extend(tag);
    }

    /// What a peer said of itself, without what [`introduce`](Self::introduce) has appended, which is checked and kept. For each rank
    /// once, in their order.
    ///
    /// # Errors
    /// It doesn't come from such a rank with the same secret, in a job as large, over the same network.
    pub fn recognise<'a>(
        &mut self,
        peer: Rank,
        words: &'a [u8],
    ) -> Result<&'a [u8], ExchangeError> {
        let short = || ExchangeError::Length(words.len());
        let (said, tag) = words.split_last_chunk().ok_or_else(short)?;
        let (rest, share) = said.split_last_chunk().ok_or_else(short)?;
        if !self.tag(peer, said).finalize_verify(tag) {
            let own = match &self.secret {
                Some((_, path)) => format!("that of {}", path.display()),
                None => "none".to_owned(),
            };
            return Err(ExchangeError::Stranger { own });
        }
        self.heard.update(tag);
        match self.peers.get_mut(peer as usize) {
            Some(known) if peer != self.rank => known.bytes = *share,
            _ => {}
        }
        Ok(rest)
    }

    /// What this rank has heard of all.
    pub fn heard(&self) -> Heard {
        let mut key = HMAC::new(self.secret());
        key.update(b"heard");
        key.update(self.heard.finalize());
        Heard {
            rank: self.rank,
            key: key.finalize(),
        }
    }

    /// The secret that this rank shares with `peer`. `None`: no rank of this job, or a system without random numbers.
    pub(crate) fn with(&mut self, peer: Rank) -> Option<&[u8; 32]> {
        if !self.peers.get(peer as usize)?.made {
            scrubbed::<DEEP, _>(|| self.make(peer))?;
        }
        Some(&self.peers[peer as usize].bytes)
    }

    fn make(&mut self, peer: Rank) -> Option<()> {
        let theirs = self.peers[peer as usize].bytes;
        let product = x25519(self.own[0], theirs);
        let mut bytes = [0; 32];
        if product == [0; 32] {
            // This rank itself, a share of small order, whose product everybody knows, or zeros in a child of the rank's process: a
            // secret that nobody else has.
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
        self.peers[peer as usize] = Peer { bytes, made: true };
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

/// What a rank has heard of all, for it and the others to find out whether it was the same.
pub struct Heard {
    rank: Rank,
    key: [u8; 32],
}

impl Heard {
    /// How what [`confirm`](Self::confirm) gives begins, and no text.
    const BEGIN: u8 = 1;

    fn tag(&self, rank: Rank) -> HMAC {
        let mut tag = HMAC::new(self.key);
        tag.update(rank.to_le_bytes());
        tag
    }

    /// What this rank says when it has started: who hasn't heard the same can't make it.
    pub fn confirm(&self) -> Vec<u8> {
        [&[Self::BEGIN], &self.tag(self.rank).finalize()[..]].concat()
    }

    /// Whether a peer has started too and heard the same.
    ///
    /// # Errors
    /// The text that it has said instead of [`confirm`](Self::confirm)'s, or that it hasn't heard the same.
    pub fn check(&self, peer: Rank, said: &[u8]) -> Result<(), String> {
        let is_same = |tag: &[u8]| match tag.try_into() {
            Ok(tag) => self.tag(peer).finalize_verify(tag),
            Err(_) => false,
        };
        match said.split_first() {
            Some((&Self::BEGIN, tag)) if is_same(tag) => Ok(()),
            None | Some((&Self::BEGIN, _)) => Err(format!(
                "it was not told of the ranks what rank {} was told, so that was changed on its way",
                self.rank
            )),
            Some(_) => Err(String::from_utf8_lossy(said).into_owned()),
        }
    }
}

impl fmt::Debug for Heard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Heard")
            .field("rank", &self.rank)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
