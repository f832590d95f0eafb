//! The keyed computations of a handshake. Tests replace them by simpler ones.

use conduit_core::ni::Rank;
use seal::{Protection, SessionKeys, SessionSealer};

use super::message::Tag;

/// A label that names the purpose of a MAC.
pub(super) type Label = [u8; 8];

/// The cryptographic operations of a handshake. [`SessionSealer`] is the real implementation.
pub(in super::super) trait Crypto {
    /// The keys of one session.
    type Keys;

    fn share(&self) -> &[u8; 32];
    fn incarnation(&self) -> u64;
    fn encrypts(&self) -> bool;
    fn nonce(&mut self) -> Option<Tag>;
    fn tag(&self, label: &Label, parts: &[&[u8]]) -> Tag;
    fn cookie(&self, parts: &[&[u8]]) -> Tag;
    fn derive(&self, theirs: &[u8; 32], first: bool, transcript: &[&[u8]]) -> Option<Self::Keys>;
    fn tag_by(keys: &Self::Keys, label: &Label, parts: &[&[u8]]) -> Tag;
    fn id_of(keys: &Self::Keys) -> [u8; 8];
    fn set_size(&mut self, peers: u32);
    fn install(&mut self, peer: Rank, keys: &Self::Keys);
    fn set_name(&mut self, peer: Rank, name: Rank);
    fn forget(&mut self, peer: Rank);
    fn session_tag(&self, peer: Rank, label: &Label, parts: &[&[u8]]) -> Option<Tag>;
}

impl Crypto for SessionSealer {
    type Keys = SessionKeys;

    fn share(&self) -> &[u8; 32] {
        Self::share(self)
    }
    fn incarnation(&self) -> u64 {
        Self::incarnation(self)
    }
    fn encrypts(&self) -> bool {
        self.protection() == Protection::Encrypt
    }
    fn nonce(&mut self) -> Option<Tag> {
        Self::nonce(self)
    }
    fn tag(&self, label: &Label, parts: &[&[u8]]) -> Tag {
        Self::tag(self, label, parts)
    }
    fn cookie(&self, parts: &[&[u8]]) -> Tag {
        Self::cookie(self, parts)
    }
    fn derive(&self, theirs: &[u8; 32], first: bool, transcript: &[&[u8]]) -> Option<SessionKeys> {
        Self::derive(self, theirs, first, transcript)
    }
    fn tag_by(keys: &SessionKeys, label: &Label, parts: &[&[u8]]) -> Tag {
        keys.tag(label, parts)
    }
    fn id_of(keys: &SessionKeys) -> [u8; 8] {
        keys.id()
    }
    fn set_size(&mut self, peers: u32) {
        Self::set_size(self, peers);
    }
    fn install(&mut self, peer: Rank, keys: &SessionKeys) {
        Self::install(self, peer, keys);
    }
    fn set_name(&mut self, peer: Rank, name: Rank) {
        Self::set_name(self, peer, name);
    }
    fn forget(&mut self, peer: Rank) {
        Self::forget(self, peer);
    }
    fn session_tag(&self, peer: Rank, label: &Label, parts: &[&[u8]]) -> Option<Tag> {
        Self::session_tag(self, peer, label, parts)
    }
}
