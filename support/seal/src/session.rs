//! Sessions between processes that were not started together.
//!
//! A process has its own X25519 share and incarnation, and may share a secret with the processes it
//! talks to. Two processes begin a session with a handshake, which the network carries out. This
//! module computes the contents of the handshake's messages, and the session's keys:
//!
//! * codes under the shared secret, which only processes with that secret can make;
//! * cookies, which are codes under a key that only this process has. With cookies, a process
//!   recognises its own earlier messages without storing them;
//! * nonces, which never repeat;
//! * the session's keys, which are derived (HKDF, RFC 5869) under the shared secret from the
//!   product of the scalar multiplication, the two shares and everything that identifies the
//!   session (its transcript). Both sides contribute data that they never repeat, so no two
//!   sessions have equal keys.
//!
//! If there is no shared secret, zeros take its place, and an attacker who can alter the network's
//! packets can mount a man-in-the-middle attack.

use std::fmt;

use conduit_core::ni::Rank;
use hmac_sha256::HMAC;
use x25519_dalek::{X25519_BASEPOINT_BYTES, x25519};
use zerocopy::FromZeros;
use zeroize::{Zeroize, Zeroizing};

use crate::keys::Key;
use crate::memory::{DEEP, Guarded, SHALLOW, scrubbed};
use crate::{
    Protection, Seal, Secret, TAG, has_tag_of_parts, leave_without_tag, mac, open_with, seal_with,
};

/// The length of the codes and cookies of a handshake, in bytes.
pub const SESSION_TAG: usize = 16;

/// A label that names a code's purpose, so that codes with different purposes never match.
type Label = [u8; 8];

/// Returns whether two codes are equal, in a time that does not depend on where they differ.
pub fn is_same_tag(one: &[u8; SESSION_TAG], other: &[u8; SESSION_TAG]) -> bool {
    let differ = one.iter().zip(other).fold(0, |all, (a, b)| all | (a ^ b));
    std::hint::black_box(differ) == 0
}

fn hmac(key: &[u8; 32], label: &Label, parts: &[&[u8]]) -> [u8; 32] {
    scrubbed::<SHALLOW, _>(|| {
        let mut hmac = HMAC::new(key);
        hmac.update(label);
        for part in parts {
            hmac.update(part);
        }
        hmac.finalize()
    })
}

fn tag(key: &[u8; 32], label: &Label, parts: &[&[u8]]) -> [u8; SESSION_TAG] {
    let mut code = [0; SESSION_TAG];
    code.copy_from_slice(&hmac(key, label, parts)[..SESSION_TAG]);
    code
}

/// The keys of one session.
pub struct SessionKeys {
    send: Key,
    receive: Key,
    /// The key of the codes in those messages of the session that are not sealed packets.
    control: [u8; 32],
    id: [u8; 8],
}

impl SessionKeys {
    /// Returns a code that only the two ends of this session can make.
    pub fn tag(&self, label: &Label, parts: &[&[u8]]) -> [u8; SESSION_TAG] {
        tag(&self.control, label, parts)
    }

    /// Returns the bytes that identify this session at both ends. They are not secret.
    pub fn id(&self) -> [u8; 8] {
        self.id
    }
}

impl Drop for SessionKeys {
    fn drop(&mut self) {
        for key in [&mut self.send, &mut self.receive] {
            key.key.zeroize();
            key.salt.zeroize();
        }
        self.control.zeroize();
    }
}

impl fmt::Debug for SessionKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionKeys(..)")
    }
}

/// A process's own secrets.
#[derive(FromZeros)]
#[repr(C)]
struct Own {
    /// The private key of the exchange, or zeros in a forked child.
    private: [u8; 32],
    cookies: [u8; 32],
    nonces: [u8; 32],
    /// The secret shared with other processes.
    secret: [u8; 32],
}

/// The keys of a peer's session.
#[derive(FromZeros)]
#[repr(C)]
struct Row {
    control: [u8; 32],
    send: Key,
    receive: Key,
    /// The number by which the peer identifies this process.
    name: Rank,
    /// Nonzero if the row contains keys.
    in_use: u32,
}

// The documentation of the networks states this size.
const _: () = assert!(size_of::<Row>() == 88);

/// The keys of one process and of its sessions, and the seal of their packets.
///
/// Packets identify their sender by the number that the receiver has assigned to it
/// ([`set_name`](Self::set_name)).
pub struct SessionSealer {
    protection: Protection,
    own: Guarded<Own>,
    share: [u8; 32],
    incarnation: u64,
    /// The number of nonces made.
    nonces: u64,
    /// The keys by peer.
    rows: Guarded<Row>,
}

impl SessionSealer {
    /// Creates the keys of a process without sessions. If given, `secret` is the secret shared with
    /// other processes. All other keys are derived from `seed`, which must be used only once and
    /// known to no other process.
    pub fn new(secret: Option<&Secret>, protection: Protection, seed: &Secret) -> Self {
        let part = |label| hmac(seed.bytes(), label, &[]);
        let mut own = Guarded::<Own>::new(1);
        own[0].private = part(b"private ");
        own[0].cookies = part(b"cookies ");
        own[0].nonces = part(b"nonces  ");
        if let Some(secret) = secret {
            own[0].secret = *secret.bytes();
        }
        let mut incarnation = [0; 8];
        incarnation.copy_from_slice(&part(b"incarnat")[..8]);
        Self {
            protection,
            share: scrubbed::<DEEP, _>(|| x25519(own[0].private, X25519_BASEPOINT_BYTES)),
            own,
            incarnation: u64::from_le_bytes(incarnation),
            nonces: 0,
            rows: Guarded::new(1),
        }
    }

    /// Returns the protection of packets.
    pub fn protection(&self) -> Protection {
        self.protection
    }

    /// Returns this process's share of the exchange.
    pub fn share(&self) -> &[u8; 32] {
        &self.share
    }

    /// Returns the random number that distinguishes this process from others at the same address.
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// Returns a nonce that no earlier call has returned, or `None` in a forked child, which has no
    /// keys.
    pub fn nonce(&mut self) -> Option<[u8; SESSION_TAG]> {
        if self.own[0].private == [0; 32] {
            return None;
        }
        self.nonces += 1;
        let number = self.nonces.to_le_bytes();
        Some(tag(&self.own[0].nonces, b"nonce   ", &[&number]))
    }

    /// Returns a code under the secret shared with other processes. The label must determine the
    /// lengths of the parts, because the code covers only their concatenation.
    pub fn tag(&self, label: &Label, parts: &[&[u8]]) -> [u8; SESSION_TAG] {
        tag(&self.own[0].secret, label, parts)
    }

    /// Returns a code that only this process can make and check.
    pub fn cookie(&self, parts: &[&[u8]]) -> [u8; SESSION_TAG] {
        tag(&self.own[0].cookies, b"cookie  ", parts)
    }

    /// Derives the keys of a session with the process whose share is `theirs`. `first` says whether
    /// this process has begun the session. The transcript must be the same on both sides and differ
    /// from that of any other session. The call performs a scalar multiplication, which takes 60
    /// µs. Returns `None` if the share is invalid, and in a forked child.
    pub fn derive(
        &self,
        theirs: &[u8; 32],
        first: bool,
        transcript: &[&[u8]],
    ) -> Option<SessionKeys> {
        let mut shares = [self.share, *theirs];
        if !first {
            shares.reverse();
        }
        let mut key = Zeroizing::new([0; 32]);
        let is_made = scrubbed::<DEEP, _>(|| {
            let product = Zeroizing::new(x25519(self.own[0].private, *theirs));
            // Either the share has small order, so that the product is publicly known, or this is a
            // forked child.
            if *product == [0; 32] || self.own[0].private == [0; 32] {
                return false;
            }
            let mut hmac = HMAC::new(self.own[0].secret);
            hmac.update(b"session ");
            hmac.update([self.protection as u8]);
            hmac.update(*product);
            hmac.update(shares.as_flattened());
            for part in transcript {
                hmac.update(part);
            }
            *key = hmac.finalize();
            true
        });
        if !is_made {
            return None;
        }
        let direction = |label| {
            let bytes = Zeroizing::new(hmac(&key, label, &[]));
            let mut made = Key::default();
            made.key.copy_from_slice(&bytes[..16]);
            made.salt.copy_from_slice(&bytes[16..24]);
            made
        };
        let (there, back) = (direction(b"to secon"), direction(b"to first"));
        let (send, receive) = if first { (there, back) } else { (back, there) };
        let mut id = [0; 8];
        id.copy_from_slice(&hmac(&key, b"id      ", &[])[..8]);
        Some(SessionKeys {
            send,
            receive,
            control: hmac(&key, b"control ", &[]),
            id,
        })
    }

    /// Makes room for the keys of `peers` peers. If the table shrinks, the keys of peers beyond
    /// its end are forgotten.
    pub fn set_size(&mut self, peers: u32) {
        let wanted = (peers as usize).next_power_of_two();
        if wanted > self.rows.len() || wanted < self.rows.len() / 2 {
            let mut rows = Guarded::<Row>::new(wanted);
            for (to, from) in rows.iter_mut().zip(self.rows.iter_mut()) {
                std::mem::swap(to, from);
            }
            self.rows = rows;
        }
    }

    /// Sets the keys with which packets to and from `peer` are sealed and opened from now on.
    pub fn install(&mut self, peer: Rank, keys: &SessionKeys) {
        if let Some(row) = self.rows.get_mut(peer as usize) {
            let copy = |key: &Key| Key {
                key: key.key,
                salt: key.salt,
            };
            row.send = copy(&keys.send);
            row.receive = copy(&keys.receive);
            row.control = keys.control;
            row.in_use = 1;
        }
    }

    /// Sets the number that identifies the sender in packets to `peer`.
    pub fn set_name(&mut self, peer: Rank, name: Rank) {
        if let Some(row) = self.rows.get_mut(peer as usize) {
            row.name = name;
        }
    }

    /// Forgets the keys of `peer`.
    pub fn forget(&mut self, peer: Rank) {
        if let Some(row) = self.rows.get_mut(peer as usize) {
            row.zero();
        }
    }

    /// Returns a code that only the two ends of the session with `peer` can make, or `None` if this
    /// process has no keys for `peer`.
    pub fn session_tag(
        &self,
        peer: Rank,
        label: &Label,
        parts: &[&[u8]],
    ) -> Option<[u8; SESSION_TAG]> {
        Some(tag(&self.row(peer)?.control, label, parts))
    }

    /// Returns the number of bytes of memory used for sessions.
    pub fn memory(&self) -> usize {
        size_of_val(&*self.rows)
    }

    #[inline]
    fn row(&self, peer: Rank) -> Option<&Row> {
        self.rows.get(peer as usize).filter(|row| row.in_use != 0)
    }
}

impl Seal for SessionSealer {
    #[inline]
    fn sender(&self, peer: Rank, own: Rank) -> Rank {
        self.row(peer).map_or(own, |row| row.name)
    }

    fn seal(&mut self, peer: Rank, number: u64, packet: &mut [u8], header: usize) {
        match self.row(peer) {
            Some(row) => seal_with(self.protection, &row.send, number, packet, header),
            None => leave_without_tag(packet),
        }
    }

    fn tag_of(&mut self, peer: Rank, number: u64, parts: [&[u8]; 2]) -> Option<[u8; TAG]> {
        if !has_tag_of_parts(self.protection, parts) {
            return None;
        }
        Some(mac(&self.row(peer)?.send, number, parts).finalize())
    }

    fn open(&mut self, peer: Rank, number: u64, packet: &mut [u8], header: usize) -> bool {
        match self.row(peer) {
            Some(row) => open_with(self.protection, &row.receive, number, packet, header),
            None => false,
        }
    }
}

impl fmt::Debug for SessionSealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionSealer")
            .field("protection", &self.protection)
            .field("rows", &self.rows.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: usize = 16;

    fn process(seed: u8, secret: Option<&[u8]>, protection: Protection) -> SessionSealer {
        let secret = secret.map(Secret::from_key);
        SessionSealer::new(secret.as_ref(), protection, &Secret::from_bytes([seed; 32]))
    }

    fn pair(protection: Protection) -> [SessionSealer; 2] {
        let mut ends = [1, 2].map(|seed| process(seed, Some(b"key"), protection));
        let shares = [ends[0].share, ends[1].share];
        for (at, end) in ends.iter_mut().enumerate() {
            let keys = end.derive(&shares[1 - at], at == 0, &[b"one"]).unwrap();
            end.set_size(4);
            end.install(3, &keys);
            end.set_name(3, 70 + at as Rank);
        }
        ends
    }

    #[test]
    fn both_ends_have_the_keys_of_the_session() {
        for protection in [Protection::Authenticate, Protection::Encrypt] {
            let [mut here, mut there] = pair(protection);
            for body in [0, 100, 1000, 20_000] {
                let mut packet = vec![7; HEADER + body + TAG];
                here.seal(3, 9, &mut packet, HEADER);
                assert!(!here.open(3, 9, &mut packet.clone(), HEADER));
                assert!(!there.open(3, 8, &mut packet.clone(), HEADER));
                assert!(!there.open(2, 9, &mut packet.clone(), HEADER));
                assert!(there.open(3, 9, &mut packet, HEADER));
                assert!(packet[..HEADER + body].iter().all(|&byte| byte == 7));
            }
            let tags = [&here, &there].map(|end| end.session_tag(3, b"bye     ", &[]));
            assert_eq!(tags[0], tags[1]);
            assert_eq!([here.sender(3, 5), there.sender(3, 5)], [70, 71]);
            assert_eq!(here.sender(0, 5), 5);
            here.forget(3);
            let mut packet = [7; HEADER + TAG];
            here.seal(3, 9, &mut packet, HEADER);
            assert_eq!(packet[HEADER..], [0; TAG]);
            assert_eq!(here.session_tag(3, b"bye     ", &[]), None);
        }
    }

    #[test]
    fn parts_of_long_packets_have_the_tag_of_the_whole() {
        let [mut here, mut there] = pair(Protection::Authenticate);
        let bytes: Vec<u8> = (0..20_000).map(|at| at as u8).collect();
        let (front, back) = bytes.split_at(30);
        let tag = here.tag_of(3, 4, [front, back]).unwrap();
        let mut packet = [&bytes[..], &tag].concat();
        assert!(there.open(3, 4, &mut packet, HEADER));
        assert_eq!(here.tag_of(3, 4, [front, front]), None);
    }

    #[test]
    fn transcript_secret_protection_and_who_began_make_other_keys() {
        let id = |secret, protection, first, transcript: &[u8]| {
            let other = process(2, secret, protection);
            let one = process(1, secret, protection);
            one.derive(other.share(), first, &[transcript]).unwrap().id
        };
        let all = [
            id(Some(b"key"), Protection::Encrypt, true, b"one"),
            id(None, Protection::Encrypt, true, b"one"),
            id(Some(b"key"), Protection::Authenticate, true, b"one"),
            id(Some(b"key"), Protection::Encrypt, false, b"one"),
            id(Some(b"key"), Protection::Encrypt, true, b"two"),
        ];
        for (at, one) in all.iter().enumerate() {
            assert!(all[at + 1..].iter().all(|other| other != one));
        }
    }

    #[test]
    fn shares_of_small_order_make_no_keys() {
        let here = process(1, None, Protection::Encrypt);
        assert!(here.derive(&[0; 32], true, &[]).is_none());
    }

    #[test]
    fn the_table_grows_and_shrinks() {
        let [mut here, mut there] = pair(Protection::Authenticate);
        here.set_size(5_000);
        assert!(here.memory() >= 5_000 * 88);
        here.set_size(4);
        assert!(here.memory() <= 8 * 88);
        let mut packet = [7; HEADER + TAG];
        here.seal(3, 9, &mut packet, HEADER);
        assert!(there.open(3, 9, &mut packet, HEADER));
    }

    #[test]
    fn nonces_differ_and_prints_tell_nothing() {
        let mut here = process(1, None, Protection::Encrypt);
        assert_ne!(here.nonce(), here.nonce());
        assert!(here.nonce().is_some());
        assert_eq!(
            format!("{here:?}"),
            "SessionSealer { protection: Encrypt, rows: 1, .. }"
        );
    }
}
