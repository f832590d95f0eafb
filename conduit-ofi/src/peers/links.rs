//! What is kept of peers, links and libfabric's handles.

use std::collections::HashMap;

use conduit_core::ni::Rank;
use conduit_portals::compact::shrink_map;
use conduit_portals::peers::Peer;
use conduit_portals::transport::fragment::Failure;
use libfabric_sys::fi_addr_t;

use crate::wire::liveness::Nanos;
use crate::wire::objects::{Objects, Refusal};

/// No number.
pub(super) const NONE: u32 = u32::MAX;

/// The links of a process that has a number here, each a number or [`NONE`].
#[derive(Debug)]
pub(super) struct PeerLinks {
    /// That of its session, and that of an attempt to begin one.
    pub(super) session: u32,
    pub(super) attempt: u32,
    /// That of a session that is to replace the other one.
    pub(super) pending: u32,
}

impl PeerLinks {
    pub(super) const NONE: Self = Self {
        session: NONE,
        attempt: NONE,
        pending: NONE,
    };
}

/// A link's owner with this flag: the peer of a session that replaces another one when the peer was
/// heard. There are never so many peers.
pub(super) const PENDING: u32 = 1 << 31;
/// With it: the process is the same as before.
pub(super) const SAME: u32 = 1 << 30;

/// Why a session has ended for another one.
pub(super) fn replaced(is_same: bool) -> Failure {
    Failure::Network(match is_same {
        true => "has given up the session, and begun another",
        false => "was restarted",
    })
}

/// What a link is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A handshake that this process has begun.
    Attempt,
    /// An answer to a stranger.
    Answer,
    /// A session with this peer.
    Session(Rank),
    /// A session with this peer, which replaces the other one when the peer was heard.
    Pending(Rank),
    /// Nothing any more: what was sent last goes out.
    Ending,
}

/// A link.
#[derive(Debug)]
pub(super) struct LinkUse {
    pub(super) address: Box<[u8]>,
    pub(super) purpose: Purpose,
    /// When it was added, or began to end.
    pub(super) since: Nanos,
    /// How often libfabric said that nothing can be sent to it.
    pub(super) errors: u8,
}

// What `docs/ofi.md` says of memory.
const _: () =
    assert!(size_of::<Option<Peer<Box<[u8]>, PeerLinks>>>() + size_of::<Option<LinkUse>>() <= 80);

/// libfabric's handles of addresses, each as long as something uses it.
#[derive(Debug, Default)]
pub(super) struct Handles {
    by_address: HashMap<Box<[u8]>, (fi_addr_t, u32)>,
}

impl Handles {
    /// The handle of an address, which libfabric reads as `raw`.
    pub(super) fn take(
        &mut self,
        objects: &Objects,
        address: &[u8],
        raw: &[u8],
    ) -> Result<fi_addr_t, Refusal> {
        if let Some((handle, users)) = self.by_address.get_mut(address) {
            *users += 1;
            return Ok(*handle);
        }
        let handle = objects.insert(raw)?;
        self.by_address.insert(address.into(), (handle, 1));
        Ok(handle)
    }

    /// One user less.
    pub(super) fn give(&mut self, objects: &Objects, address: &[u8]) {
        let Some((handle, users)) = self.by_address.get_mut(address) else {
            return;
        };
        *users -= 1;
        if *users == 0 {
            objects.remove(*handle);
            self.by_address.remove(address);
            shrink_map(&mut self.by_address);
        }
    }

    pub(super) fn count(&self) -> usize {
        self.by_address.len()
    }

    pub(super) fn memory(&self) -> usize {
        self.by_address.capacity() * size_of::<(Box<[u8]>, fi_addr_t, u32)>()
    }
}
