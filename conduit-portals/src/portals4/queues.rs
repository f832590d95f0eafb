//! Event queues and portal table indices.
//!
//! A queue of the user consists of one of the library's queues for completions, and one for each
//! index whose messages go to the user's queue. They are separate because flow control bounds only
//! the queues of indices: an index whose queue is full refuses further messages, whereas
//! completions in a full queue would overwrite each other. The queue for completions has room for
//! all operations that may be in flight.
//!
//! A refusing index accepts again once its queue has been emptied. The library's event that reports
//! a refusal may be missing, so every index is also enabled after a number of empty polls, which is
//! harmless for an index that already accepts messages.

use std::collections::VecDeque;

use conduit_core::ni::{
    EqId, Event, MatchEntry, MeEvents, MeMemory, MeOptions, NiError, PtIndex, PutEvent, Unlink,
};
use portals4_sys::*;

use super::NetworkState;
use super::entries::NOBODY;
use super::interface::{Interface, Target};
use super::operations::{Ended, Tells};
use crate::matching::over_limit;

/// Number of indices for the user.
pub(super) const INDICES: u8 = 8;
/// The indices for requests and replies of atomics; see `atomics`.
pub(super) const REQUESTS: u8 = INDICES;
pub(super) const REPLIES: u8 = INDICES + 1;
pub(super) const ALL_INDICES: u8 = INDICES + 2;

/// Number of queues for the user.
pub(super) const QUEUES: u8 = 16;
/// The queue for injects, which raise no events.
pub(super) const INJECTS: u8 = QUEUES;
/// The queue for requests and replies of atomics.
pub(super) const ATOMICS: u8 = QUEUES + 1;
pub(super) const ALL_QUEUES: usize = QUEUES as usize + 2;

/// The maximum number of events in a queue.
const SLOTS: usize = 1 << 24;
/// Room in an index's queue for events that flow control doesn't hold back: those of messages
/// already matched, and of entries that unlink themselves.
const SPARE_SLOTS: usize = 256;
/// Number of empty polls of an index after which the index is enabled again.
const IDLE: u32 = 1024;

/// A queue of the user.
pub(super) struct Queue {
    pub(super) completions: ptl_handle_eq_t,
    /// The memory descriptor for all memory of the process, with completions to this queue.
    pub(super) md: ptl_handle_md_t,
    slots: usize,
    indices: Vec<u8>,
    /// The index to poll first.
    turn: usize,
    /// Events for the user that do not come directly from the library.
    pub(super) pending: VecDeque<Event<'static>>,
    /// Events of the library that were taken during a wait.
    pub(super) held: VecDeque<ptl_event_t>,
    /// Space for the bytes of an unaligned message.
    pub(super) scratch: Vec<u128>,
}

// SAFETY: the pointers in events are used only as addresses, from which `Entry::offset` computes
// pointers into the entry's own memory.
unsafe impl Send for Queue {}

/// An open index.
#[derive(Debug)]
pub(super) struct Index {
    pub(super) queue: Option<u8>,
    events: Option<ptl_handle_eq_t>,
    refuses: bool,
    idle: u32,
    /// The catch-all entry, which is linked behind all others.
    nobody: ptl_handle_me_t,
}

/// An event for the user, with the message's bytes if they are in a managed entry. Their delivery
/// may make further events of the entry due.
pub(super) struct Delivery {
    pub(super) event: Event<'static>,
    pub(super) data: Option<Data>,
}

/// The bytes of a message to a managed entry.
#[derive(Clone, Copy)]
pub(super) struct Data {
    pub(super) place: u32,
    pub(super) offset: usize,
    pub(super) first: *const u8,
    pub(super) length: usize,
}

pub(super) fn no_queue(operation: &'static str, eq: EqId) -> NiError {
    NiError::NoSuchObject {
        operation,
        what: "event queue",
        value: eq.0.into(),
    }
}

pub(super) fn no_index(operation: &'static str, index: PtIndex) -> NiError {
    NiError::NoSuchObject {
        operation,
        what: "portal table index",
        value: index.0.into(),
    }
}

impl NetworkState {
    /// Creates the queue with this number. Without a number, creates the user's next queue.
    pub(super) fn create_queue(
        &mut self,
        interface: &Interface,
        number: Option<u8>,
        slots: usize,
    ) -> Result<EqId, NiError> {
        if slots > SLOTS {
            return Err(over_limit("eq_create", "slots", slots as u64, SLOTS as u64));
        }
        let unused = |number: &u8| self.queues[usize::from(*number)].is_none();
        let number = number.or_else(|| (0..QUEUES).find(unused));
        let number = number.ok_or(NiError::Exhausted {
            operation: "eq_create",
            what: "event queues",
            limit: QUEUES.into(),
            setting: "none: a constant of this network",
        })?;
        let completions = interface.eq_alloc(self.operations.most() + 1)?;
        self.queues[usize::from(number)] = Some(Queue {
            completions,
            md: interface.md_bind(completions)?,
            slots,
            indices: Vec::new(),
            turn: 0,
            pending: VecDeque::new(),
            held: VecDeque::new(),
            scratch: Vec::new(),
        });
        Ok(EqId(number))
    }

    /// Opens an index with this queue, or without a queue.
    pub(super) fn open_index(
        &mut self,
        interface: &Interface,
        index: u8,
        eq: Option<EqId>,
    ) -> Result<(), NiError> {
        const OPERATION: &str = "pt_open";
        let place = self.indices.get_mut(usize::from(index));
        let place = place.ok_or_else(|| no_index(OPERATION, PtIndex(index)))?;
        if place.is_some() {
            return Err(interface.error(OPERATION, format!("index {index} is already open")));
        }
        let events = match eq {
            None => None,
            Some(eq) => {
                let queue = self
                    .queues
                    .get_mut(usize::from(eq.0))
                    .and_then(Option::as_mut);
                let queue = queue.ok_or_else(|| no_queue(OPERATION, eq))?;
                let events = interface.eq_alloc(queue.slots + SPARE_SLOTS)?;
                queue.indices.push(index);
                Some(events)
            }
        };
        *place = Some(Index {
            queue: eq.map(|eq| eq.0),
            events,
            refuses: false,
            idle: 0,
            nobody: PTL_INVALID_HANDLE,
        });
        interface.pt_alloc(index, events)?;
        self.link_nobody(interface, index)
    }

    /// Links the catch-all entry, which takes all otherwise unmatched messages. Without this entry,
    /// an unmatched message would make the index refuse all messages. The initiator of such a
    /// message sees that the entry was on the overflow list.
    pub(super) fn link_nobody(&mut self, interface: &Interface, index: u8) -> Result<(), NiError> {
        let Some(open) = &mut self.indices[usize::from(index)] else {
            return Ok(());
        };
        while open.nobody != PTL_INVALID_HANDLE {
            if interface.me_unlink(open.nobody)? == Unlink::Done {
                open.nobody = PTL_INVALID_HANDLE;
            }
        }
        let nobody = MatchEntry {
            memory: MeMemory::Nothing,
            match_bits: 0,
            ignore_bits: u64::MAX,
            source: None,
            options: MeOptions::PUT | MeOptions::GET | MeOptions::TRUNCATE | MeOptions::OVERFLOW,
            events: MeEvents::empty(),
            tag: 0,
        };
        // SAFETY: the entry has no memory.
        open.nobody =
            unsafe { interface.me_append(index, &nobody, Target::Nothing, false, NOBODY) }?;
        Ok(())
    }

    /// Returns the library's queues to wait on, and for each of them the user's queue to which it
    /// belongs.
    pub(super) fn sources(&self) -> (Vec<ptl_handle_eq_t>, Vec<u8>) {
        let mut sources = (Vec::new(), Vec::new());
        for (number, queue) in (0..).zip(&self.queues) {
            let Some(queue) = queue else { continue };
            let events = |index: &u8| self.indices[usize::from(*index)].as_ref()?.events;
            let own = queue.indices.iter().filter_map(events);
            for source in own.chain([queue.completions]) {
                sources.0.push(source);
                sources.1.push(number);
            }
        }
        sources
    }

    /// Returns the next event of the library for this queue.
    #[inline]
    fn take(&mut self, interface: &Interface, number: usize) -> Option<ptl_event_t> {
        let queue = self.queues[number].as_mut()?;
        if let Some(event) = queue.held.pop_front() {
            return Some(event);
        }
        if let Some(event) = interface.eq_get(queue.completions) {
            return Some(event);
        }
        for step in 0..queue.indices.len() {
            let at = (queue.turn + step) % queue.indices.len();
            let number = queue.indices[at];
            let Some(index) = &mut self.indices[usize::from(number)] else {
                continue;
            };
            let Some(events) = index.events else { continue };
            if let Some(event) = interface.eq_get(events) {
                queue.turn = at;
                index.idle = 0;
                return Some(event);
            }
            index.idle += 1;
            if index.refuses || index.idle >= IDLE {
                index.idle = 0;
                index.refuses = false;
                interface.pt_enable(number);
            }
        }
        None
    }

    /// Returns the next event of a queue.
    #[inline]
    pub(super) fn next(&mut self, interface: &Interface, number: usize) -> Option<Delivery> {
        loop {
            let queue = self.queues[number].as_mut()?;
            if let Some(event) = queue.pending.pop_front() {
                return Some(Delivery { event, data: None });
            }
            let event = self.take(interface, number)?;
            if let Some(delivery) = self.translate(number, &event) {
                return Some(delivery);
            }
        }
    }

    /// Returns the user's event for an event of the library, if there is one.
    #[inline]
    pub(super) fn translate(&mut self, number: usize, event: &ptl_event_t) -> Option<Delivery> {
        // SAFETY: all bytes of an event are initialised, so its rank can be read.
        let source = unsafe { event.initiator.rank };
        let plain = |event| Some(Delivery { event, data: None });
        let told = match event.r#type {
            PTL_EVENT_ACK | PTL_EVENT_REPLY => match self.operations.ended(event)? {
                Ended::Yes(operation, outcome, length) => {
                    if let Some(md) = operation.md {
                        self.descriptors.finish(md.0);
                    }
                    let late = self.abandoned && matches!(operation.tells, Tells::Get);
                    return (!late)
                        .then(|| operation.event(outcome, length))
                        .flatten()
                        .and_then(plain);
                }
                Ended::Refused => return None,
                Ended::Unreachable(operation) => {
                    if let Some(md) = operation.md {
                        self.descriptors.finish(md.0);
                    }
                    self.failed.get_or_insert(operation.transfer.target);
                    return None;
                }
            },
            PTL_EVENT_PT_DISABLED => {
                let index = self.indices.get_mut(event.pt_index as usize)?;
                index.as_mut()?.refuses = true;
                return None;
            }
            PTL_EVENT_AUTO_UNLINK => {
                let (place, _) = self.entries.named(event.user_ptr.addr())?;
                self.leave_list(place);
                let [unlinked, free] = self.entries.unlinked(place);
                let queue = self.queues[number].as_mut()?;
                queue.pending.extend(free);
                return unlinked.and_then(plain);
            }
            PTL_EVENT_PUT | PTL_EVENT_GET | PTL_EVENT_ATOMIC | PTL_EVENT_FETCH_ATOMIC => {
                self.entries.named(event.user_ptr.addr())?
            }
            _ => return None,
        };
        let (place, entry) = told;
        let length = event.mlength as usize;
        let tells = entry.events.contains(MeEvents::OPERATION);
        if event.r#type == PTL_EVENT_GET {
            return tells
                .then_some(Event::Get {
                    tag: entry.tag,
                    source,
                    match_bits: event.match_bits,
                    offset: event.remote_offset,
                    length,
                })
                .and_then(plain);
        }
        if matches!(event.r#type, PTL_EVENT_ATOMIC | PTL_EVENT_FETCH_ATOMIC) {
            return tells
                .then_some(Event::Atomic {
                    tag: entry.tag,
                    source,
                    match_bits: event.match_bits,
                    offset: event.remote_offset,
                })
                .and_then(plain);
        }
        let data = match entry.is_managed() {
            false => None,
            true => {
                // The library may report any address for a message without bytes.
                let address = match length {
                    0 => entry.first(),
                    _ => event.start.addr(),
                };
                let (offset, first) = entry.offset(address, length)?;
                Some(Data {
                    place,
                    offset,
                    first,
                    length,
                })
            }
        };
        if !tells {
            if let Some(data) = data {
                self.delivered(number, &data);
            }
            return None;
        }
        let put = PutEvent {
            index: PtIndex(entry.index),
            tag: entry.tag,
            source,
            match_bits: event.match_bits,
            hdr_data: event.hdr_data,
            offset: data.map_or(event.remote_offset, |data| data.offset as u64),
            length,
            requested: event.rlength as usize,
            data: &[],
        };
        Some(Delivery {
            event: Event::Put(put),
            data,
        })
    }

    /// Records that a message has been delivered.
    pub(super) fn delivered(&mut self, number: usize, data: &Data) {
        let due = self.entries.delivered(data.place, data.offset, data.length);
        if let Some(queue) = &mut self.queues[number] {
            queue.pending.extend(due);
        }
    }
}
