//! The bookkeeping of peers, links and libfabric's handles.

use std::collections::HashMap;

use conduit_core::ni::Rank;
use conduit_portals::compact::shrink_map;
use conduit_portals::peers::Peer;
use conduit_portals::transport::fragment::Failure;
use libfabric_sys::fi_addr_t;

use crate::wire::liveness::Nanos;
use crate::wire::objects::{Objects, Refusal};

/// The value that marks the absence of a number.
pub(super) const NONE: u32 = u32::MAX;

/// The links of a peer that has a number. Each field is a link's number or [`NONE`].
#[derive(Debug)]
pub(super) struct PeerLinks {
    /// The link of the session.
    pub(super) session: u32,
    /// The link of the attempt to begin a session.
    pub(super) attempt: u32,
    /// The link of a session that is to replace the current one.
    pub(super) pending: u32,
}

impl PeerLinks {
    pub(super) const NONE: Self = Self {
        session: NONE,
        attempt: NONE,
        pending: NONE,
    };
}

/// The flag in a link's owner that says that the link's session replaces another one as soon as the
/// peer is heard in it. Peer numbers never reach this bit.
pub(super) const PENDING: u32 = 1 << 31;
/// The flag that is set in addition to [`PENDING`] if the peer's process is the same as in the
/// replaced session.
pub(super) const SAME: u32 = 1 << 30;

/// Returns the failure of a session that was replaced by another one.
pub(super) fn replaced(is_same: bool) -> Failure {
    Failure::Network(match is_same {
        true => "gave up the session and began another",
        false => "was restarted",
    })
}

/// The purpose of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A handshake that this process has begun.
    Attempt,
    /// An answer to an unknown process.
    Answer,
    /// A session with this peer.
    Session(Rank),
    /// A session with this peer, which replaces the current one as soon as the peer is heard in it.
    Pending(Rank),
    /// The link has no purpose any more, and only its last messages are still being sent.
    Ending,
}

/// A link.
#[derive(Debug)]
pub(super) struct LinkUse {
    pub(super) address: Box<[u8]>,
    pub(super) purpose: Purpose,
    /// The time at which the link was added or, for an ending link, at which it began to end.
    pub(super) since: Nanos,
    /// The number of times that libfabric reported the peer as unreachable.
    pub(super) errors: u8,
}

// `docs/ofi.md` states this size.
const _: () =
    assert!(size_of::<Option<Peer<Box<[u8]>, PeerLinks>>>() + size_of::<Option<LinkUse>>() <= 80);

/// libfabric's handles of addresses. A handle is kept as long as a link uses it.
#[derive(Debug, Default)]
pub(super) struct Handles {
    by_address: HashMap<Box<[u8]>, (fi_addr_t, u32)>,
}

impl Handles {
    /// Returns the handle of an address, and counts one more use of it. `raw` must be the address
    /// in libfabric's format.
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

    /// Releases one use of an address.
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
