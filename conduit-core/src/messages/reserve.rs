//! The resources for replies, which are reserved before requests are handled.

use std::cell::{Cell, RefCell};

use am::Header;

use crate::ni::Rank;

/// The number of replies that can be sent before the reserve must be refilled.
pub(crate) const MOST_RESERVED: u32 = 8;

/// The resources for the replies of handlers. They are reserved before requests are handled, so
/// that a reply never waits.
///
/// GASNet's portals-conduit requires two send tickets, a TMPMD ticket and a RplSB chunk for each
/// request. Here a reply is always one message (a long reply is a copy and a message, or is
/// packed), so it needs only one ticket and one chunk.
#[derive(Debug, Default)]
pub(crate) struct ReplyReserve {
    chunks: [Cell<u32>; MOST_RESERVED as usize],
    pub(crate) count: Cell<u32>,
    pub(crate) tickets: Cell<u32>,
    /// Replies that the network has not accepted yet.
    pub(crate) deferred: RefCell<Vec<Deferred>>,
}

impl ReplyReserve {
    pub(crate) fn new() -> Self {
        Self {
            deferred: RefCell::new(Vec::with_capacity(MOST_RESERVED as usize)),
            ..Self::default()
        }
    }

    /// Returns the number of replies for which resources are reserved.
    #[inline]
    pub(crate) fn replies(&self) -> u32 {
        self.count.get().min(self.tickets.get())
    }

    /// Takes a chunk for a reply.
    #[inline]
    pub(crate) fn take_chunk(&self) -> Option<u32> {
        let left = self.count.get().checked_sub(1)?;
        self.count.set(left);
        Some(self.chunks[left as usize].get())
    }

    pub(crate) fn add_chunk(&self, chunk: u32) {
        let count = self.count.get();
        self.chunks[count as usize].set(chunk);
        self.count.set(count + 1);
    }

    /// Takes a ticket for a reply.
    #[inline]
    pub(crate) fn take_ticket(&self) -> bool {
        let left = self.tickets.get().checked_sub(1);
        self.tickets.set(left.unwrap_or(0));
        left.is_some()
    }

    /// Returns a ticket that was not needed.
    pub(crate) fn give_ticket(&self) {
        self.tickets.set(self.tickets.get() + 1);
    }

    pub(crate) fn defer(&self, reply: Deferred) {
        self.deferred.borrow_mut().push(reply);
    }
}

/// A reply that lies in a chunk because the network has not accepted it yet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deferred {
    pub(crate) target: Rank,
    pub(crate) header: Header,
    pub(crate) chunk: u32,
    /// The offset of the reply in the chunk.
    pub(crate) start: usize,
    pub(crate) length: usize,
}
