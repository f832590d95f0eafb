//! Authentication and encryption of packets, and the keys for both. Processes outside the job
//! cannot forge or alter packets, nor read them if they are encrypted.
//!
//! The cipher is AEGIS-128X2 (RFC 10032) of the crate `aegis`. Packets that are only authenticated
//! use AEGIS-128L if they are short and the MAC of AEGIS-128X4 if they are long. None of the three
//! needs a key schedule, so a link takes only the memory of its keys. If packets are only
//! authenticated, the whole packet is authenticated and nothing is encrypted. `docs/udp.md` has
//! measurements and the reasons for the choice.
//!
//! Each pair of ranks has a key and a salt for each direction (module `keys`), which are derived
//! from a secret that the two ranks have exchanged (module `exchange`). A packet's number and the
//! salt form the nonce. A number is never reused for one peer, and the salt separates packets with
//! equal numbers on different links. A [`Seal`] does not reject replays: a replayed packet opens
//! again, so the protocol must check packet numbers.
//!
//! Processes that were not started together have session keys instead ([`SessionSealer`]).

mod cookies;
mod exchange;
mod keys;
mod memory;
mod secret;
mod session;
#[cfg(test)]
mod tests;

pub use cookies::SpentCookies;
pub use exchange::{Exchange, ExchangeError, PeerError, Transcript, meet};
pub use keys::Secrets;
pub use secret::{Secret, random_incarnation};
pub use session::{SESSION_TAG, SessionKeys, SessionSealer, is_same_tag};

use aegis::aegis128l::Aegis128L;
use aegis::aegis128x2::Aegis128X2;
use aegis::aegis128x4::Aegis128X4Mac;
use conduit_core::ni::Rank;

use keys::{Key, Keys};

/// The number of bytes of the authentication tag at the end of every packet.
pub const TAG: usize = 16;

/// Seals and opens packets.
///
/// A packet is `header | body | tag`. Its first `header` bytes are only authenticated (associated
/// data). The body is authenticated and, if the job requests it, encrypted. The last [`TAG`] bytes
/// are the tag. The caller must never reuse a `number` for the same peer.
pub trait Seal {
    /// Returns the number that identifies the sender in packets to `peer`. In a job, this is the
    /// sender's rank, `own`. In an open network, it is the number that `peer` has assigned to the
    /// sender.
    #[inline(always)]
    fn sender(&self, _peer: Rank, own: Rank) -> Rank {
        own
    }
    /// Seals a packet to `peer`: encrypts its body and writes its last [`TAG`] bytes.
    fn seal(&mut self, peer: Rank, number: u64, packet: &mut [u8], header: usize);
    /// Returns the tag that [`seal`](Self::seal) would write for a packet that consists of `parts`
    /// and the tag. This serves packets whose bytes are not contiguous. Returns `None` if sealing
    /// would also change other bytes, if packets of this length are not supported, or if there is
    /// no key for `peer`.
    fn tag_of(&mut self, _peer: Rank, _number: u64, _parts: [&[u8]; 2]) -> Option<[u8; TAG]> {
        None
    }
    /// Checks a packet from `peer` and decrypts its body in place. Returns `false` if the packet
    /// was not sealed by this incarnation of `peer` for this incarnation of this rank. The packet's
    /// contents are then undefined.
    fn open(&mut self, peer: Rank, number: u64, packet: &mut [u8], header: usize) -> bool;
}

/// The protection of a packet's body. All ranks must use the same protection, because packets with
/// a different one do not open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Protection {
    /// Packets are authenticated but readable in transit.
    #[default]
    Authenticate,
    /// Packets are also encrypted, except for their header, which contains the kind, the length,
    /// the sender's rank and the packet number.
    Encrypt,
}

/// The seal of one rank's packets to and from all others.
///
/// The keys of a peer are derived when the peer is first used. The keys of at most
/// [`Sealer::CACHED`] peers are cached. Keys that have been evicted from the cache are derived
/// again from the link's [secret](Secrets), which takes about 100 ns for the two directions.
#[derive(Debug)]
pub struct Sealer {
    protection: Protection,
    keys: Keys,
}

impl Sealer {
    /// The maximum number of peers whose keys are cached, at 52 bytes for each peer.
    pub const CACHED: usize = keys::CACHED;

    /// Creates the seal of `rank` in a job of `incarnations.len()` ranks. `incarnations` contains
    /// each rank's [incarnation](random_incarnation).
    ///
    /// # Panics
    /// Panics if `rank` is not less than `incarnations.len()`.
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

/// The length, including the tag, below which packets that are only authenticated get the tag of
/// AEGIS-128L. For them, AEGIS-128L takes a fifth less time than AEGIS-128X2 because it initialises
/// half as much state. [`LONG`] explains why several ciphers may share a key.
const SHORT: usize = 256;

fn short_cipher(key: &Key, number: u64) -> Aegis128L<TAG> {
    Aegis128L::new(&key.key, &key.nonce(number))
}

/// The length, including the tag, from which packets that are only authenticated get the tag of
/// AEGIS-128X4's MAC. The MAC can be computed over bytes that are not contiguous. It takes a third
/// less time than AEGIS-128X2 on processors whose AES instructions work on 64 bytes, and a fifth
/// more on others. Few networks between hosts have packets this long.
///
/// Each packet number is used once, so no pair of key and nonce is used with more than one of the
/// three ciphers.
const LONG: usize = 16 << 10;

fn mac(key: &Key, number: u64, parts: [&[u8]; 2]) -> Aegis128X4Mac<TAG> {
    let mut mac = Aegis128X4Mac::new_with_nonce(&key.key, &key.nonce(number));
    for part in parts {
        mac.update(part);
    }
    mac
}

/// Seals a packet with this key.
#[inline(always)]
fn seal_with(protection: Protection, key: &Key, number: u64, packet: &mut [u8], header: usize) {
    let (sealed, tag) = packet.split_at_mut(packet.len() - TAG);
    let made = match protection {
        Protection::Authenticate if sealed.len() + TAG < SHORT => {
            short_cipher(key, number).encrypt_in_place(&mut [], sealed)
        }
        Protection::Authenticate if sealed.len() + TAG >= LONG => {
            mac(key, number, [sealed, &[]]).finalize()
        }
        Protection::Authenticate => cipher(key, number).encrypt_in_place(&mut [], sealed),
        Protection::Encrypt => {
            let (header, body) = sealed.split_at_mut(header);
            cipher(key, number).encrypt_in_place(body, header)
        }
    };
    tag.copy_from_slice(&made);
}

/// Returns whether packets with these parts have a tag that can be computed from the parts.
#[inline(always)]
fn has_tag_of_parts(protection: Protection, parts: [&[u8]; 2]) -> bool {
    protection == Protection::Authenticate && parts[0].len() + parts[1].len() + TAG >= LONG
}

/// Opens a packet with this key.
#[inline(always)]
fn open_with(
    protection: Protection,
    key: &Key,
    number: u64,
    packet: &mut [u8],
    header: usize,
) -> bool {
    let Some((sealed, tag)) = packet.split_last_chunk_mut::<TAG>() else {
        return false;
    };
    if sealed.len() < header {
        return false;
    }
    match protection {
        Protection::Authenticate if sealed.len() + TAG < SHORT => {
            short_cipher(key, number).decrypt_in_place(&mut [], tag, sealed)
        }
        Protection::Authenticate if sealed.len() + TAG >= LONG => {
            mac(key, number, [sealed, &[]]).verify(tag)
        }
        Protection::Authenticate => cipher(key, number).decrypt_in_place(&mut [], tag, sealed),
        Protection::Encrypt => {
            let (header, body) = sealed.split_at_mut(header);
            cipher(key, number).decrypt_in_place(body, tag, header)
        }
    }
    .is_ok()
}

/// Clears the tag of a packet that no process can open.
#[cold]
fn leave_without_tag(packet: &mut [u8]) {
    let length = packet.len();
    packet[length - TAG..].fill(0);
}

impl Seal for Sealer {
    fn seal(&mut self, peer: Rank, number: u64, packet: &mut [u8], header: usize) {
        match self.keys.of(peer) {
            Some(keys) => seal_with(self.protection, &keys.send, number, packet, header),
            // The peer is not a rank of this job: there is no key and no receiver.
            None => leave_without_tag(packet),
        }
    }

    fn tag_of(&mut self, peer: Rank, number: u64, parts: [&[u8]; 2]) -> Option<[u8; TAG]> {
        if !has_tag_of_parts(self.protection, parts) {
            return None;
        }
        let keys = self.keys.of(peer)?;
        Some(mac(&keys.send, number, parts).finalize())
    }

    fn open(&mut self, peer: Rank, number: u64, packet: &mut [u8], header: usize) -> bool {
        match self.keys.of(peer) {
            Some(keys) => open_with(self.protection, &keys.receive, number, packet, header),
            None => false,
        }
    }
}
