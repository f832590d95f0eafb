//! The target's half of every operation: matching, data movement, responses and replies.

mod arrival;
mod header_only;
mod put;
mod short;

use conduit_core::ni::{EqId, Event, MeEvents, Outcome, Rank};
use conduit_core::process_memory;

use super::buffers::Buffer;
use super::state::{Index, Portals};
use super::window::Cost;
use super::wire::Header;
use crate::matching::{EntryId, Hit, Incoming, Location};

pub(super) use arrival::Arrival;
pub(super) use header_only::LongReply;

/// A message to an index that is not open yet.
#[derive(Debug)]
pub(super) struct Held {
    source: Rank,
    header: Header,
    /// The bytes of a put; empty for other messages.
    data: Buffer,
    cost: Cost,
}

impl Index {
    /// Returns whether messages can be matched. The rank may be about to append the first entry to
    /// an index that it has just opened, so the progress thread does not match messages to an index
    /// that never had an entry, but holds them for the rank.
    #[inline]
    fn is_ready(&self, on_progress_thread: bool) -> bool {
        self.open.is_some() && (self.used || !on_progress_thread)
    }
}

/// An entry whose bytes are still being written or read.
#[derive(Debug)]
pub(super) struct InUse {
    pub(super) id: EntryId,
    count: u32,
    /// The tag of the entry's `Free` event, if the entry has left its list. The event is raised
    /// once no message uses the entry any more.
    free: Option<u64>,
}

/// The result of matching.
enum Found {
    /// The index is not open.
    Closed,
    Nothing,
    Entry(Hit),
}

/// Writes bytes of a put at an address of this process. If the address is not mapped, the put ends
/// with [`Outcome::OutOfRange`], and nothing more of it is written.
///
/// # Safety
/// `[bytes, bytes + length)` must be valid for reads.
unsafe fn to_process(hit: &mut Hit, address: u64, bytes: *const u8, length: usize) {
    // SAFETY: the caller guarantees that `bytes` is valid for reads of `length` bytes; the owner of
    // the entry is responsible for the memory at the address.
    let placed = unsafe { process_memory::write(process_memory::this(), address, bytes, length) };
    if placed.is_err() {
        hit.outcome = Outcome::OutOfRange;
        hit.length = 0;
    }
}

/// A peer's violation of the protocol.
#[derive(Debug)]
pub(super) struct ProtocolError;

impl Portals {
    fn accept(&mut self, index: u8, incoming: &Incoming) -> Result<Found, ProtocolError> {
        let place = self
            .indices
            .get_mut(usize::from(index))
            .ok_or(ProtocolError)?;
        if !place.is_ready(self.on_progress_thread) {
            return Ok(Found::Closed);
        }
        Ok(match place.list.accept(incoming) {
            Some(hit) => Found::Entry(hit),
            None => {
                self.counters.unmatched += 1;
                Found::Nothing
            }
        })
    }

    fn hold(&mut self, index: u8, held: Held) {
        if let Some(index) = self.indices.get_mut(usize::from(index)) {
            index.held.push_back(held);
            self.held += 1;
        }
    }

    /// Processes the messages held for indices that are now open.
    #[cold]
    pub(super) fn process_held(&mut self) {
        for at in 0..self.indices.len() {
            if self.indices[at].open.is_none() {
                continue;
            }
            while let Some(held) = self.indices[at].held.pop_front() {
                self.held -= 1;
                let Held {
                    source,
                    header,
                    data,
                    cost,
                } = held;
                let result = match header {
                    Header::Put(put) => {
                        let bytes = data.bytes();
                        // SAFETY: `bytes` is the content of a buffer that is kept until the call
                        // has returned.
                        unsafe { self.put_arrives(source, &put, bytes.as_ptr(), bytes.len(), cost) }
                    }
                    Header::Get(get) => self.get_arrives(source, &get),
                    Header::Atomic(atomic) => self.atomic_arrives(source, &atomic),
                    _ => Err(ProtocolError),
                };
                self.pool.give(data);
                if result.is_err() {
                    self.protocol_error(source);
                }
            }
        }
    }

    // ---- entries in use ----

    fn raises_event(hit: &Hit) -> bool {
        hit.outcome == Outcome::Done && hit.events.contains(MeEvents::OPERATION)
    }

    fn queue_of(&self, index: u8) -> Option<EqId> {
        self.indices.get(usize::from(index))?.open?
    }

    /// Raises the `Unlinked` event of an entry that has left its list with this message.
    fn unlinked(&mut self, index: u8, hit: &Hit) {
        if !hit.unlinked {
            return;
        }
        self.entry_left(index);
        if let Some(eq) = self.queue_of(index)
            && hit.events.contains(MeEvents::LINK)
        {
            self.post_event(eq, Event::Unlinked { tag: hit.tag });
        }
    }

    /// Raises the entry's `Free` event, or leaves this to the end of the entry's last use if
    /// messages still use it.
    fn freed(&mut self, index: u8, hit: &Hit) {
        if !hit.unlinked
            || hit.location != Location::Managed
            || !hit.events.contains(MeEvents::LINK)
        {
            return;
        }
        let Some(eq) = self.queue_of(index) else {
            return;
        };
        let in_use = &mut self.indices[usize::from(index)].in_use;
        match in_use.iter_mut().find(|in_use| in_use.id == hit.id) {
            Some(in_use) => in_use.free = Some(hit.tag),
            None => self.post_event(eq, Event::Free { tag: hit.tag }),
        }
    }

    pub(crate) fn begin_use(&mut self, index: u8, id: EntryId) {
        let in_use = &mut self.indices[usize::from(index)].in_use;
        match in_use.iter_mut().find(|in_use| in_use.id == id) {
            Some(in_use) => in_use.count += 1,
            None => in_use.push(InUse {
                id,
                count: 1,
                free: None,
            }),
        }
    }

    pub(crate) fn end_use(&mut self, index: u8, id: EntryId) {
        let in_use = &mut self.indices[usize::from(index)].in_use;
        let Some(at) = in_use.iter().position(|in_use| in_use.id == id) else {
            return;
        };
        in_use[at].count -= 1;
        if in_use[at].count > 0 {
            return;
        }
        let ended = in_use.swap_remove(at);
        if let (Some(tag), Some(eq)) = (ended.free, self.queue_of(index)) {
            self.post_event(eq, Event::Free { tag });
        }
    }
}
