//! Keys that are hashes of 64 bits. They are sufficient for a model, and fast.

use std::hash::{DefaultHasher, Hash, Hasher};

use conduit_core::ni::Rank;

use crate::peers::handshake::Crypto;
use crate::peers::handshake::crypto::Label;
use crate::peers::handshake::message::Tag;

fn hash(key: u64, label: &Label, parts: &[&[u8]]) -> u64 {
    let mut hasher = DefaultHasher::new();
    (key, label).hash(&mut hasher);
    parts.hash(&mut hasher);
    hasher.finish()
}

fn tag(key: u64, label: &Label, parts: &[&[u8]]) -> Tag {
    let mut tag = [0; 16];
    tag[..8].copy_from_slice(&hash(key, label, parts).to_le_bytes());
    tag
}

/// The keys of one process of a model, identified by a number.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Toy {
    process: u64,
    share: [u8; 32],
    nonces: u64,
    /// For each peer, the session's key and the peer's number for this process.
    rows: Vec<Option<(u64, Rank)>>,
}

impl Toy {
    /// Creates the keys of a process. `share` decides which process's handshake prevails if both
    /// begin.
    pub(super) fn new(process: u64, share: u8) -> Self {
        let mut bytes = [share; 32];
        bytes[24..].copy_from_slice(&process.to_le_bytes());
        Self {
            process,
            share: bytes,
            nonces: 0,
            rows: Vec::new(),
        }
    }
}

impl Crypto for Toy {
    type Keys = u64;

    fn share(&self) -> &[u8; 32] {
        &self.share
    }
    fn incarnation(&self) -> u64 {
        self.process
    }
    fn encrypts(&self) -> bool {
        false
    }
    fn nonce(&mut self) -> Option<Tag> {
        self.nonces += 1;
        Some(tag(
            self.process,
            b"nonce   ",
            &[&self.nonces.to_le_bytes()],
        ))
    }
    fn tag(&self, label: &Label, parts: &[&[u8]]) -> Tag {
        tag(7, label, parts)
    }
    fn cookie(&self, parts: &[&[u8]]) -> Tag {
        tag(self.process, b"cookie  ", parts)
    }
    fn derive(&self, theirs: &[u8; 32], first: bool, transcript: &[&[u8]]) -> Option<u64> {
        let shares = match first {
            true => [self.share, *theirs],
            false => [*theirs, self.share],
        };
        let parts = [&[shares.as_flattened()], transcript].concat();
        Some(hash(8, b"session ", &parts))
    }
    fn tag_by(keys: &u64, label: &Label, parts: &[&[u8]]) -> Tag {
        tag(*keys, label, parts)
    }
    fn id_of(keys: &u64) -> [u8; 8] {
        keys.to_le_bytes()
    }
    fn set_size(&mut self, peers: u32) {
        self.rows.resize(peers as usize, None);
    }
    fn install(&mut self, peer: Rank, keys: &u64) {
        self.rows[peer as usize] = Some((*keys, 0));
    }
    fn set_name(&mut self, peer: Rank, name: Rank) {
        if let Some(row) = &mut self.rows[peer as usize] {
            row.1 = name;
        }
    }
    fn forget(&mut self, peer: Rank) {
        self.rows[peer as usize] = None;
    }
    fn session_tag(&self, peer: Rank, label: &Label, parts: &[&[u8]]) -> Option<Tag> {
        let (key, _) = self.rows.get(peer as usize)?.as_ref()?;
        Some(tag(*key, label, parts))
    }
}
