//! The known sessions of each address.

use seal::{SESSION_TAG, SessionKeys};

/// A message to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::peers) struct Outgoing {
    /// The destination.
    pub(in crate::peers) to: Box<[u8]>,
    /// The number of the attempt or session to which the message belongs, or `None` if the
    /// destination is an unknown process.
    pub(in crate::peers) number: Option<u32>,
    /// The message.
    pub(in crate::peers) bytes: Vec<u8>,
}

/// A session that has just been established.
#[derive(Debug)]
pub(in crate::peers) struct Established {
    /// The peer's address.
    pub(in crate::peers) address: Box<[u8]>,
    /// The number that this process assigned to the peer.
    pub(in crate::peers) number: u32,
    /// The number that the peer assigned to this process.
    pub(in crate::peers) theirs: u32,
    /// The relation to the peer of the session that this session replaces, if it replaces one.
    pub(in crate::peers) replaces: Option<Replaced>,
    /// The number of this process's own attempt that the session cancels, if any.
    pub(in crate::peers) cancelled: Option<u32>,
    /// The number of the pending session that this session drops, if any.
    pub(in crate::peers) displaced: Option<u32>,
    /// The session's keys.
    pub(in crate::peers) keys: SessionKeys,
}

/// The relation between the peer of a new session and the peer of the session that it replaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::peers) enum Replaced {
    /// The same process, which has given up the replaced session.
    Same,
    /// Another process, which has taken the place of the previous one at the address.
    Other,
}

/// The sessions with one address.
pub(super) struct Known {
    pub(super) live: Live,
    /// The session that replaces the live one once the peer has been heard in it.
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
    /// The number of the peer's latest attempt that is over.
    pub(super) attempt: u64,
    /// The peer's nonce and the ACCEPT message, until the peer has been heard in the session.
    pub(super) accepted: Option<Box<([u8; SESSION_TAG], Outgoing)>>,
}

// `docs/ofi.md` states this size.
const _: () = assert!(size_of::<(Box<[u8]>, Known)>() <= 88);
