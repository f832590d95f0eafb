//! What is known of sessions.

use seal::{SESSION_TAG, SessionKeys};

/// A message to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::peers) struct Outgoing {
    /// To this address.
    pub(in crate::peers) to: Box<[u8]>,
    /// The number of the attempt or session that it belongs to; `None`: to a stranger.
    pub(in crate::peers) number: Option<u32>,
    /// What to send.
    pub(in crate::peers) bytes: Vec<u8>,
}

/// A session that has begun.
#[derive(Debug)]
pub(in crate::peers) struct Established {
    /// The peer's address.
    pub(in crate::peers) address: Box<[u8]>,
    /// The number that this process has given to the peer.
    pub(in crate::peers) number: u32,
    /// The number that the peer has given to this process.
    pub(in crate::peers) theirs: u32,
    /// With this process there was a session already, or with another one at its address.
    pub(in crate::peers) replaces: Option<Replaced>,
    /// This process's own attempt, which counts no more: its number.
    pub(in crate::peers) cancelled: Option<u32>,
    /// A session that was not heard of yet, which counts no more: its number.
    pub(in crate::peers) displaced: Option<u32>,
    /// The session's keys.
    pub(in crate::peers) keys: SessionKeys,
}

/// What a new session replaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::peers) enum Replaced {
    /// A session with the same process, which has given it up.
    Same,
    /// A session with a process that was there before.
    Other,
}

/// What is known of the sessions with one address.
pub(super) struct Known {
    pub(super) live: Live,
    /// It replaces the other one when the peer was heard in it.
    pub(super) pending: Option<Live>,
}

impl Known {
    pub(super) fn each(&self) -> impl Iterator<Item = &Live> {
        std::iter::once(&self.live).chain(&self.pending)
    }

    pub(super) fn replaced_by(&self, incarnation: u64) -> Replaced {
        match self.live.incarnation == incarnation {
            true => Replaced::Same,
            false => Replaced::Other,
        }
    }
}

/// What is known of a session.
pub(super) struct Live {
    pub(super) number: u32,
    pub(super) incarnation: u64,
    /// The peer's last attempt that counts no more.
    pub(super) attempt: u64,
    /// The peer's nonce and the ACCEPT, until the peer was heard in the session.
    pub(super) accepted: Option<Box<([u8; SESSION_TAG], Outgoing)>>,
}

// What `docs/ofi.md` says of memory.
const _: () = assert!(size_of::<(Box<[u8]>, Known)>() <= 88);
