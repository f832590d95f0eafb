//! Tags, encryption and keys of packets: nobody outside the job makes, changes or reads them.
//!
//! The cipher is AEGIS-128X2 (RFC 10032) of the crate `aegis`, or AEGIS-128L for short packets: an authenticated cipher that needs
//! no key schedule, so that a link costs the bytes of its keys only. Where packets are just authenticated, all of a packet is its associated data and its
//! message is empty. Measurements and the reasons for the choice are in `docs/udp.md`.
//!
//! Each pair of ranks has a key in each direction, and with it a salt (the module `keys`), of a secret that the two have exchanged
//! (`exchange`). Packet number and salt are the nonce: the number never repeats towards one peer, and the salt keeps packets of one
//! number on many links apart. A packet number that comes twice is the protocol's affair: it opens twice.

mod exchange;
mod keys;
mod memory;
mod secret;
#[cfg(test)]
mod tests;

pub use exchange::{Exchange, ExchangeError, Heard};
pub use keys::Secrets;
pub use secret::{Secret, random_incarnation};

use aegis::aegis128l::Aegis128L;
use aegis::aegis128x2::Aegis128X2;
use aegis::aegis128x4::Aegis128X4Mac;
use conduit_core::ni::Rank;

use keys::{Key, Keys};

/// Bytes of the authentication tag that ends every packet.
pub const TAG: usize = 16;

/// Makes packets that nobody outside the job can make, change or repeat.
///
/// A packet is `clear | body | tag`: `clear` bytes at its begin are authenticated only, the body is authenticated and, where
/// the job asks for it, encrypted; the last [`TAG`] bytes are the tag. `number` is never used twice towards the same peer.
pub trait Seal {
    /// Seals a packet to `peer`, whose last [`TAG`] bytes are free.
    fn seal(&mut self, peer: Rank, number: u64, packet: &mut [u8], clear: usize);
    /// The tag of a packet whose bytes before the tag are `parts`, one behind the other: the one that [`seal`](Self::seal) would
    /// write. `None`: it would also change other bytes of it.
    fn tag_of(&mut self, _peer: Rank, _number: u64, _parts: [&[u8]; 2]) -> Option<[u8; TAG]> {
        None
    }
    /// Checks a packet from `peer` and decrypts its body in place. `false`: not sealed by this incarnation of `peer` for this
    /// incarnation of this rank; the packet's contents are then anything.
    fn open(&mut self, peer: Rank, number: u64, packet: &mut [u8], clear: usize) -> bool;
}

/// What is done to a packet's body. All ranks of a job need the same: packets of another kind don't open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Protection {
    /// Nobody can make or change packets, everybody on the way can read them.
    #[default]
    Authenticate,
    /// Nobody can read them either, except for the header: kind, length, sender's rank and packet number.
    Encrypt,
}

/// The seal of one rank's packets to and from all others.
///
/// Keys are derived when a peer is first used, and kept for at most [`Sealer::KEPT`] peers; they are derived again (about
/// 100 ns for both directions) when another peer has taken their place, from the secret that both ranks have once [exchanged](Exchange).
#[derive(Debug)]
pub struct Sealer {
    protection: Protection,
    keys: Keys,
}

impl Sealer {
    /// Peers whose keys are kept, at 52 bytes each, in jobs that have so many.
    pub const KEPT: usize = keys::KEPT;

    /// For `rank` of a job of `incarnations.len()` ranks; each rank's own [incarnation](random_incarnation) is in the list.
    ///
    /// # Panics
    /// If `rank` is not in the list.
    pub fn new(
        secrets: impl Into<Secrets>,
        protection: Protection,
        rank: Rank,
        incarnations: Vec<u64>,
    ) -> Self {
        Self {
            protection,
            keys: Keys::new(secrets.into(), protection, rank, incarnations),
        }
    }
}

fn cipher(key: &Key, number: u64) -> Aegis128X2<TAG> {
    Aegis128X2::new(&key.key, &key.nonce(number))
}

/// Packets of fewer bytes, tag and all, that are just authenticated have the tag of AEGIS-128L, which takes a fifth less time for
/// them: it has half of the state to prepare. For what follows from two ciphers under one key see [`LONG`].
const SHORT: usize = 256;

fn short_cipher(key: &Key, number: u64) -> Aegis128L<TAG> {
    Aegis128L::new(&key.key, &key.nonce(number))
}

/// Packets of so many bytes, tag and all, that are just authenticated have the tag of AEGIS-128X4's MAC instead: it can be made of
/// a packet whose bytes lie in several places, and where the processor has AES instructions of 64 bytes it takes a third less
/// time (elsewhere a fifth more). Packets as long as that leave their host on few networks. A packet's number is used once, so no
/// key and nonce is used for two of the three.
const LONG: usize = 16 << 10;

fn mac(key: &Key, number: u64, parts: [&[u8]; 2]) -> Aegis128X4Mac<TAG> {
    let mut mac = Aegis128X4Mac::new_with_nonce(&key.key, &key.nonce(number));
    for part in parts {
        mac.update(part);
    }
    mac
}

impl Seal for Sealer {
    fn seal(&mut self, peer: Rank, number: u64, packet: &mut [u8], clear: usize) {
        let (sealed, tag) = packet.split_at_mut(packet.len() - TAG);
        let Some(keys) = self.keys.of(peer) else {
            // Not a rank of this job: nobody could open it, and nobody is there to.
            tag.fill(0);
            return;
        };
        let key = &keys.send;
        let made = match self.protection {
            Protection::Authenticate if sealed.len() + TAG < SHORT => {
                short_cipher(key, number).encrypt_in_place(&mut [], sealed)
            }
            Protection::Authenticate if sealed.len() + TAG >= LONG => {
                mac(key, number, [sealed, &[]]).finalize()
            }
            Protection::Authenticate => cipher(key, number).encrypt_in_place(&mut [], sealed),
            Protection::Encrypt => {
                let (clear, body) = sealed.split_at_mut(clear);
                cipher(key, number).encrypt_in_place(body, clear)
            }
        };
        tag.copy_from_slice(&made);
    }

    fn tag_of(&mut self, peer: Rank, number: u64, parts: [&[u8]; 2]) -> Option<[u8; TAG]> {
        let length = parts[0].len() + parts[1].len() + TAG;
        if self.protection != Protection::Authenticate || length < LONG {
            return None;
        }
        let keys = self.keys.of(peer)?;
        Some(mac(&keys.send, number, parts).finalize())
    }

    fn open(&mut self, peer: Rank, number: u64, packet: &mut [u8], clear: usize) -> bool {
        let Some((sealed, tag)) = packet.split_last_chunk_mut::<TAG>() else {
            return false;
        };
        if sealed.len() < clear {
            return false;
        }
        let Some(keys) = self.keys.of(peer) else {
            return false;
        };
        let key = &keys.receive;
        match self.protection {
            Protection::Authenticate if sealed.len() + TAG < SHORT => {
                short_cipher(key, number).decrypt_in_place(&mut [], tag, sealed)
            }
            Protection::Authenticate if sealed.len() + TAG >= LONG => {
                mac(key, number, [sealed, &[]]).verify(tag)
            }
            Protection::Authenticate => cipher(key, number).decrypt_in_place(&mut [], tag, sealed),
            Protection::Encrypt => {
                let (clear, body) = sealed.split_at_mut(clear);
                cipher(key, number).decrypt_in_place(body, tag, clear)
            }
        }
        .is_ok()
    }
}
