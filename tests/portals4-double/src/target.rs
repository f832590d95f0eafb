//! The target's side of the library: table entries, match entries, and how messages arrive.

use portals4_sys::*;

use crate::queue::Queue;
use crate::wire::{Header, Kind};
use crate::world::World;

const CONSTANTS: &Constants = &Constants::V4_3;
/// The first table entry that has no faults. The bindings' self-test asks for any entry and gets
/// the last one, so it meets no faults.
pub(crate) const SPARED: u32 = 32;

/// A match entry in a list of a table entry.
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) handle: u32,
    pub(crate) me: ptl_me_t,
    pub(crate) user: usize,
    /// The number of bytes of a locally managed entry that are in use.
    fill: u64,
}

/// A table entry, which receives the messages to one index.
#[derive(Default)]
pub(crate) struct TableEntry {
    pub(crate) queue: Option<u32>,
    pub(crate) options: u32,
    pub(crate) disabled: bool,
    /// The match entries of the priority list and of the overflow list.
    pub(crate) lists: [Vec<Entry>; 2],
}

impl Entry {
    pub(crate) fn new(handle: u32, me: ptl_me_t, user: usize) -> Self {
        Self {
            handle,
            me,
            user,
            fill: 0,
        }
    }

    fn has(&self, option: u32) -> bool {
        self.me.options & option != 0
    }

    fn offset(&self, header: &Header) -> u64 {
        match self.has(CONSTANTS.PTL_ME_MANAGE_LOCAL) {
            true => self.fill,
            false => header.offset,
        }
    }

    fn matches(&self, header: &Header) -> bool {
        // SAFETY: all bytes of the id are initialised, so they form a valid rank.
        let source = unsafe { self.me.match_id.rank };
        let end = self.offset(header).checked_add(header.length);
        let fits = end.is_some_and(|end| end <= self.me.length);
        (source == PTL_RANK_ANY || source == header.rank)
            && (fits || !self.has(CONSTANTS.PTL_ME_NO_TRUNCATE))
            && (header.match_bits ^ self.me.match_bits) & !self.me.ignore_bits == 0
    }
}

impl World {
    /// Handles the arrival of a put, get or atomic. Returns the header and the bytes of the reply.
    pub(crate) fn arrived(&mut self, header: &Header, bytes: &[u8]) -> (Header, Vec<u8>) {
        let mut answer = Header {
            kind: match header.kind {
                Kind::Get | Kind::FetchAtomic => Kind::Reply,
                _ => Kind::Ack,
            },
            pid: self.wire.pid,
            rank: self.rank,
            ..*header
        };
        match self.place(header, bytes) {
            Ok((list, offset, moved)) => {
                answer.fail = PTL_NI_OK;
                (answer.list, answer.offset) = (list, offset);
                answer.length = moved.length;
                (answer, moved.bytes)
            }
            Err(fail) => {
                answer.fail = fail;
                (answer, Vec::new())
            }
        }
    }

    fn place(&mut self, header: &Header, bytes: &[u8]) -> Result<(u8, u64, Moved), u8> {
        if self.faults.dropped && header.index < SPARED && fastrand::u32(..8) == 0 {
            return Err(match fastrand::bool() {
                true => PTL_NI_DROPPED,
                false => PTL_NI_PT_DISABLED,
            });
        }
        let entry = self.table.get_mut(header.index as usize);
        let Some(Some(index)) = entry else {
            return Err(PTL_NI_DROPPED);
        };
        if index.disabled {
            return Err(PTL_NI_PT_DISABLED);
        }
        let find = |list: &Vec<Entry>| list.iter().position(|entry| entry.matches(header));
        let found = [PTL_PRIORITY_LIST, PTL_OVERFLOW_LIST]
            .into_iter()
            .find_map(|list| Some((list, find(&index.lists[usize::from(list)])?)));
        let Some((list, at)) = found else {
            if index.options & PTL_PT_FLOWCTRL == 0 {
                return Err(PTL_NI_DROPPED);
            }
            self.disable(header.index);
            return Err(PTL_NI_PT_DISABLED);
        };
        let entry = &mut index.lists[usize::from(list)][at];
        let (writes, reads, kind) = match header.kind {
            Kind::Put => (true, false, PTL_EVENT_PUT),
            Kind::Atomic => (true, false, PTL_EVENT_ATOMIC),
            Kind::FetchAtomic => (true, true, PTL_EVENT_FETCH_ATOMIC),
            _ => (false, true, PTL_EVENT_GET),
        };
        if writes && !entry.has(PTL_ME_OP_PUT) || reads && !entry.has(PTL_ME_OP_GET) {
            return Err(PTL_NI_OP_VIOLATION);
        }
        let offset = entry.offset(header);
        let length = header.length.min(entry.me.length.saturating_sub(offset));
        let start = match length {
            0 => std::ptr::null_mut(),
            _ => entry.me.start.cast::<u8>().wrapping_add(offset as usize),
        };
        let before = match !reads || length == 0 {
            true => Vec::new(),
            // SAFETY: the `length` bytes at `start` lie within the entry's memory, which the
            // entry's owner lets the library read and write.
            false => unsafe { std::slice::from_raw_parts(start, length as usize) }.to_vec(),
        };
        match header.kind {
            // SAFETY: the `length` bytes at `start` lie within the entry's memory, which the
            // entry's owner lets the library read and write.
            Kind::Put => unsafe { start.copy_from(bytes.as_ptr(), length as usize) },
            // SAFETY: the `length` bytes at `start` lie within the entry's memory, which the
            // entry's owner lets the library read and write.
            Kind::Atomic | Kind::FetchAtomic => unsafe {
                crate::arithmetic::apply(header, start, length as usize, bytes);
            },
            _ => {}
        }
        let managed = entry.has(CONSTANTS.PTL_ME_MANAGE_LOCAL);
        if managed {
            entry.fill += length;
        }
        let least = entry.me.min_free;
        let full = managed && least > 0 && entry.me.length - entry.fill < least;
        let unlinks = full || entry.has(PTL_ME_USE_ONCE);
        let entry = *entry;
        if unlinks {
            index.lists[usize::from(list)].remove(at);
        }
        let mut event = ptl_event_t {
            start: start.cast(),
            user_ptr: std::ptr::without_provenance_mut(entry.user),
            hdr_data: header.hdr_data,
            match_bits: header.match_bits,
            rlength: header.length,
            mlength: length,
            remote_offset: header.offset,
            initiator: ptl_process_t::from_rank(header.rank),
            pt_index: header.index,
            r#type: kind,
            ptl_list: list,
            ..ptl_event_t::default()
        };
        let queue = index.queue;
        if !entry.has(CONSTANTS.PTL_ME_EVENT_COMM_DISABLE) {
            self.raise(queue, event, false);
        }
        if unlinks && !entry.has(CONSTANTS.PTL_ME_EVENT_UNLINK_DISABLE) {
            event.r#type = PTL_EVENT_AUTO_UNLINK;
            self.stale(&mut event, false);
            self.raise(queue, event, self.faults.early);
        }
        Ok((
            list,
            offset,
            Moved {
                length,
                bytes: before,
            },
        ))
    }

    /// Sets the event's fields without meaning to random values, if the library has that fault.
    pub(crate) fn stale(&self, event: &mut ptl_event_t, of_initiator: bool) {
        if !self.faults.stale {
            return;
        }
        event.start = std::ptr::without_provenance_mut(fastrand::usize(..));
        event.match_bits = fastrand::u64(..);
        event.hdr_data = fastrand::u64(..);
        event.rlength = fastrand::u64(..);
        event.initiator = ptl_process_t::from_rank(fastrand::u32(..));
        if of_initiator {
            event.pt_index = fastrand::u32(..);
        }
        if !of_initiator || event.ni_fail_type != PTL_NI_OK {
            event.mlength = fastrand::u64(..);
            event.remote_offset = fastrand::u64(..);
            event.ptl_list = fastrand::u8(..);
        }
    }

    /// Disables a table entry, which refuses messages from now on.
    fn disable(&mut self, number: u32) {
        let Some(Some(index)) = self.table.get_mut(number as usize) else {
            return;
        };
        index.disabled = true;
        let queue = index.queue;
        if self.faults.silent && fastrand::bool() {
            return;
        }
        let event = ptl_event_t {
            pt_index: number,
            r#type: PTL_EVENT_PT_DISABLED,
            ni_fail_type: PTL_NI_PT_DISABLED,
            ..ptl_event_t::default()
        };
        if let Some(queue) = queue.and_then(|queue| self.queues.get_mut(queue as usize)) {
            queue.push(event, false);
        }
    }

    /// Adds an event to a queue. If the queue is full then, disables the table entries that use it
    /// with flow control.
    pub(crate) fn raise(&mut self, queue: Option<u32>, event: ptl_event_t, first: bool) {
        let Some(number) = queue else { return };
        let Some(queue) = self.queues.get_mut(number as usize) else {
            return;
        };
        queue.push(event, first);
        if !Queue::is_full(queue) {
            return;
        }
        let controlled = |entry: &Option<TableEntry>| {
            entry.as_ref().is_some_and(|entry| {
                entry.queue == Some(number)
                    && entry.options & PTL_PT_FLOWCTRL != 0
                    && !entry.disabled
            })
        };
        let refusing: Vec<_> = (0..)
            .zip(&self.table)
            .filter(|(_, entry)| controlled(entry))
            .map(|(index, _)| index)
            .collect();
        for index in refusing {
            self.disable(index);
        }
    }
}

/// The number of bytes that a message has moved, and the bytes for its reply.
struct Moved {
    length: u64,
    bytes: Vec<u8>,
}
