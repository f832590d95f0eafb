//! The known sessions of each address.

use seal::{SESSION_TAG, SessionKeys};

/// A message to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::peers) struct Outgoing {
    /// The destination.
    pub(in crate::peers) to: Box<[u8]>,
    /// The number of the attempt or session that the message belongs to; `None` for an unknown
    /// process.
    pub(in crate::peers) number: Option<u32>,
    /// The message.
    pub(in crate::peers) bytes: Vec<u8>,
}

/// A session that was just established.
#[derive(Debug)]
pub(in crate::peers) struct Established {
    /// The peer's address.
    pub(in crate::peers) address: Box<[u8]>,
    /// The number that this process assigned to the peer.
    pub(in crate::peers) number: u32,
    /// The number that the peer assigned to this process.
    pub(in crate::peers) theirs: u32,
    /// The previous session with this process, or with another one at its address.
    pub(in crate::peers) replaces: Option<Replaced>,
    /// The number of this process's own attempt that is cancelled.
    pub(in crate::peers) cancelled: Option<u32>,
    /// The number of a pending session, in which the peer was not heard yet, that is dropped.
    pub(in crate::peers) displaced: Option<u32>,
    /// The session's keys.
    pub(in crate::peers) keys: SessionKeys,
}

/// The kind of session that a new one replaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::peers) enum Replaced {
    /// A session with the same process, which has given it up.
    Same,
    /// A session with a previous process at the address.
    Other,
}

/// The sessions with one address.
pub(super) struct Known {
    pub(super) live: Live,
    /// The session that replaces the live one once the peer is heard in it.
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

/// The state of a session.
pub(super) struct Live {
    pub(super) number: u32,
    pub(super) incarnation: u64,
    /// The peer's latest attempt that is over.
    pub(super) attempt: u64,
    /// The peer's nonce and the ACCEPT, until the peer is heard in the session.
    pub(super) accepted: Option<Box<([u8; SESSION_TAG], Outgoing)>>,
}

// The figure of `docs/ofi.md`.
const _: () = assert!(size_of::<(Box<[u8]>, Known)>() <= 88);
