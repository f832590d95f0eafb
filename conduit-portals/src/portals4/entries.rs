//! Match entries, and the memory of those that are locally managed.
//!
//! The library reports when a managed entry has unlinked itself. At that time messages may still be
//! arriving in the entry's memory, and their events may be in the queue, in any order. The network
//! therefore records which bytes have been delivered. An entry's memory is free once these bytes
//! form one piece that begins at the first byte and leaves less than the minimum free space.

use std::collections::VecDeque;

use conduit_core::ni::{Event, MatchEntry, MeEvents, MeId, MeMemory, MeOptions, NiError, Unlink};
use portals4_sys::{PTL_INVALID_HANDLE, ptl_handle_me_t};

use super::interface::{Interface, Target};
use super::queues::INDICES;
use crate::matching::EntryId;

/// Number of places for each entry that may be linked. There are several, and each is reused as
/// late as possible, because a late event may name a place whose entry is gone.
const PLACES: u32 = 4;

/// Memory aligned to 16 bytes.
type Memory = Box<[u128]>;

/// The memory of a managed entry.
#[derive(Debug)]
struct Block {
    memory: Memory,
    bytes: usize,
    min_free: usize,
    messages: u32,
    /// Number of bytes, counted from the block's first byte, whose messages have been delivered.
    delivered: usize,
    /// Delivered pieces beyond the first `delivered` bytes, in no particular order.
    beyond: Vec<(usize, usize)>,
}

impl Block {
    /// Records that a message has been delivered.
    fn note(&mut self, start: usize, end: usize) {
        self.messages += 1;
        if start < end {
            self.beyond.push((start, end));
        }
        while let Some(at) = self
            .beyond
            .iter()
            .position(|piece| piece.0 == self.delivered)
        {
            self.delivered = self.beyond.swap_remove(at).1;
        }
    }

    /// Returns whether everything that the entry had taken when it unlinked itself has been
    /// delivered.
    fn is_drained(&self, once: bool) -> bool {
        match once {
            true => self.messages > 0,
            false => {
                self.messages > 0
                    && self.beyond.is_empty()
                    && self.bytes - self.delivered < self.min_free
            }
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EntryLink {
    Linked,
    /// The entry has unlinked itself, but its memory is still in use.
    Draining,
    Gone,
}

#[derive(Debug)]
pub(super) struct Entry {
    generation: u16,
    link: EntryLink,
    pub(super) index: u8,
    handle: ptl_handle_me_t,
    pub(super) tag: u64,
    pub(super) options: MeOptions,
    pub(super) events: MeEvents,
    /// The entry's id in the list for atomics, if it takes atomics.
    pub(super) in_list: Option<EntryId>,
    block: Option<Block>,
}

/// All entries of a rank. The library identifies an entry by its place plus 1.
#[derive(Debug)]
pub(super) struct Entries {
    places: Vec<Entry>,
    free: VecDeque<u32>,
    linked: u32,
    limit: u32,
    /// Blocks no longer used by entries.
    spare: Vec<Memory>,
}

/// The user pointer of the catch-all entry, which is linked behind all others.
pub(super) const NOBODY: usize = 0;

fn unknown(me: MeId) -> NiError {
    NiError::NoSuchObject {
        operation: "me_unlink",
        what: "match entry",
        value: u64::from(me.0),
    }
}

impl Entries {
    pub(super) fn new(limit: u32) -> Self {
        Self {
            places: Vec::new(),
            free: VecDeque::new(),
            linked: 0,
            limit,
            spare: Vec::new(),
        }
    }

    /// Links an entry. `region` is the first byte of the entry's memory, if this memory is in a
    /// region.
    ///
    /// # Errors
    /// Too many entries are linked, or the library has refused the entry.
    pub(super) fn append(
        &mut self,
        interface: &Interface,
        index: u8,
        entry: &MatchEntry,
        region: Option<*mut u8>,
    ) -> Result<(MeId, u32), NiError> {
        // The network's internal entries don't count towards the limit.
        let counts = index < INDICES;
        if counts && self.linked == self.limit {
            return Err(NiError::Exhausted {
                operation: "me_append",
                what: "match entries",
                limit: self.limit.into(),
                setting: "none: a limit of libportals",
            });
        }
        let place = match self.places.len() as u32 {
            many if many == self.limit * PLACES => self.free.pop_front(),
            next => {
                self.places.push(Entry {
                    generation: 0,
                    link: EntryLink::Gone,
                    index,
                    handle: PTL_INVALID_HANDLE,
                    tag: 0,
                    options: MeOptions::empty(),
                    events: MeEvents::empty(),
                    in_list: None,
                    block: None,
                });
                Some(next)
            }
        };
        let exhausted = || interface.error("me_append", "all entries are draining".to_owned());
        let place = place.ok_or_else(exhausted)?;
        let block = match entry.memory {
            MeMemory::Managed { bytes, min_free } => Some(Block {
                memory: self.memory(bytes),
                bytes,
                min_free,
                messages: 0,
                delivered: 0,
                beyond: Vec::new(),
            }),
            _ => None,
        };
        let slot = &mut self.places[place as usize];
        slot.block = block;
        let target = match (entry.memory, &mut slot.block, region) {
            (_, Some(block), _) => Target::Managed {
                base: block.memory.as_mut_ptr().cast(),
                len: block.bytes,
                min_free: block.min_free,
            },
            (MeMemory::Region { len, .. }, _, Some(base)) => Target::Region { base, len },
            _ => Target::Nothing,
        };
        let tells = slot.block.is_some() || entry.events.contains(MeEvents::OPERATION);
        // Atomics are not matched by the library, but by `atomics`.
        let by_library = entry.options.intersects(MeOptions::PUT | MeOptions::GET);
        let handle = match by_library {
            // SAFETY: a region lives as long as the network. A block lives until the entry has
            // drained, or until its place is reused after the entry was unlinked.
            true => unsafe { interface.me_append(index, entry, target, tells, place as usize + 1) },
            false => Ok(PTL_INVALID_HANDLE),
        };
        let handle = match handle {
            Ok(handle) => handle,
            Err(error) => {
                self.free.push_back(place);
                return Err(error);
            }
        };
        slot.generation = slot.generation.wrapping_add(1);
        slot.link = EntryLink::Linked;
        slot.index = index;
        slot.handle = handle;
        slot.tag = entry.tag;
        slot.options = entry.options;
        slot.events = entry.events;
        slot.in_list = None;
        self.linked += u32::from(counts);
        Ok((MeId(u32::from(slot.generation) << 16 | place), place))
    }

    fn memory(&mut self, bytes: usize) -> Memory {
        let words = bytes.div_ceil(size_of::<u128>());
        match self.spare.iter().position(|memory| memory.len() == words) {
            Some(at) => self.spare.swap_remove(at),
            None => vec![0; words].into(),
        }
    }

    /// Returns the entry that a user pointer from a library event names.
    #[inline]
    pub(super) fn named(&mut self, user: usize) -> Option<(u32, &mut Entry)> {
        let place = user.checked_sub(1)?;
        Some((place as u32, self.places.get_mut(place)?))
    }

    pub(super) fn get(&mut self, place: u32) -> Option<&mut Entry> {
        self.places.get_mut(place as usize)
    }

    /// Unlinks an entry. Returns the entry's place if the entry is gone.
    ///
    /// # Errors
    /// The entry does not exist.
    pub(super) fn unlink(
        &mut self,
        interface: &Interface,
        me: MeId,
    ) -> Result<Result<u32, Unlink>, NiError> {
        let place = me.0 & 0xffff;
        let entry = self.places.get_mut(place as usize);
        let is_it = |entry: &&mut Entry| {
            u32::from(entry.generation) == me.0 >> 16 && entry.link == EntryLink::Linked
        };
        let entry = entry.filter(is_it).ok_or_else(|| unknown(me))?;
        if entry.handle != PTL_INVALID_HANDLE && interface.me_unlink(entry.handle)? == Unlink::InUse
        {
            return Ok(Err(Unlink::InUse));
        }
        // The entry's memory is kept for messages whose events have not been delivered yet.
        entry.link = EntryLink::Gone;
        self.linked -= u32::from(entry.index < INDICES);
        self.free.push_back(place);
        Ok(Ok(place))
    }

    /// Handles the use of a use-once entry by an atomic that was performed here, and that the
    /// library therefore doesn't know about. Returns the event that is due.
    pub(super) fn used_up(&mut self, interface: &Interface, place: u32) -> Option<Event<'static>> {
        let entry = self.places.get_mut(place as usize)?;
        entry.in_list = None;
        if entry.handle != PTL_INVALID_HANDLE {
            // If a message uses the entry at this moment, the library reports that the entry has
            // unlinked itself.
            let gone = matches!(interface.me_unlink(entry.handle), Ok(Unlink::Done));
            gone.then_some(())?;
        }
        self.unlinked(place)[0]
    }

    /// Handles the library's report that an entry has unlinked itself. Returns the events that are
    /// due.
    pub(super) fn unlinked(&mut self, place: u32) -> [Option<Event<'static>>; 2] {
        let Some(entry) = self.places.get_mut(place as usize) else {
            return [None; 2];
        };
        if entry.link != EntryLink::Linked {
            return [None; 2];
        }
        self.linked -= u32::from(entry.index < INDICES);
        entry.link = EntryLink::Draining;
        let tells = entry.events.contains(MeEvents::LINK);
        let unlinked = tells.then_some(Event::Unlinked { tag: entry.tag });
        [unlinked, self.drain(place)]
    }

    /// Records that a put to an entry has been delivered. Returns the event that is due.
    pub(super) fn delivered(
        &mut self,
        place: u32,
        start: usize,
        length: usize,
    ) -> Option<Event<'static>> {
        let block = self.places.get_mut(place as usize)?.block.as_mut()?;
        block.note(start, start + length);
        self.drain(place)
    }

    fn drain(&mut self, place: u32) -> Option<Event<'static>> {
        let entry = self.places.get_mut(place as usize)?;
        if entry.link != EntryLink::Draining {
            return None;
        }
        let once = entry.options.contains(MeOptions::USE_ONCE);
        let managed = entry.block.is_some();
        if entry
            .block
            .as_ref()
            .is_some_and(|block| !block.is_drained(once))
        {
            return None;
        }
        entry.link = EntryLink::Gone;
        self.free.push_back(place);
        self.spare
            .extend(entry.block.take().map(|block| block.memory));
        let tells = managed && entry.events.contains(MeEvents::LINK);
        tells.then_some(Event::Free { tag: entry.tag })
    }
}

impl Entry {
    pub(super) fn is_managed(&self) -> bool {
        self.block.is_some()
    }

    /// Returns the address of a managed entry's first byte.
    pub(super) fn first(&self) -> usize {
        (self.block.as_ref()).map_or(0, |block| block.memory.as_ptr().addr())
    }

    /// Returns the offset of `length` bytes at this address in the entry's own memory, and a
    /// pointer to them.
    #[inline]
    pub(super) fn offset(&self, address: usize, length: usize) -> Option<(usize, *const u8)> {
        let block = self.block.as_ref()?;
        let base: *const u8 = block.memory.as_ptr().cast();
        let offset = address.checked_sub(base.addr())?;
        let end = offset.checked_add(length)?;
        (end <= block.bytes).then(|| (offset, base.wrapping_add(offset)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(bytes: usize, min_free: usize) -> Block {
        Block {
            memory: vec![0; bytes / 16].into(),
            bytes,
            min_free,
            messages: 0,
            delivered: 0,
            beyond: Vec::new(),
        }
    }

    #[test]
    fn a_block_is_drained_after_its_last_message_in_any_order() {
        // There are four messages. After the third there is still room for the smallest message;
        // after the fourth there is not.
        let pieces = [(0, 100), (100, 108), (108, 600), (600, 1000)];
        for first in 0..4 {
            for step in [1, 3] {
                let mut block = block(1024, 100);
                for at in 0..4 {
                    assert!(!block.is_drained(false), "{first} {step} {at}");
                    let (start, end) = pieces[(first + step * at) % 4];
                    block.note(start, end);
                    block.note(end, end);
                }
                assert!(block.is_drained(false), "{first} {step}");
            }
        }
    }

    #[test]
    fn an_entry_that_is_used_once_has_one_message() {
        let mut block = block(1024, 100);
        assert!(!block.is_drained(true));
        block.note(0, 0);
        assert!(block.is_drained(true));
    }
}
