//! Operations in flight, the tickets that they hold, and the operations that their target has
//! refused for now.
//!
//! libportals doesn't specify how many operations may be in flight, and a rank that exceeds the
//! limit may hang inside a call. Each operation therefore takes a ticket from one of a few
//! *shares*, selected by the index at the target, because ranks that have used up their tickets for
//! requests must still have tickets for replies.
//!
//! Every operation is acknowledged, even if it needs no event here, because the initiator must
//! learn of refusals: a target whose event queue is full, or that has not opened the index yet,
//! refuses messages, and the initiator sends them again. Immediate repetition would cause a storm,
//! so each repetition waits twice as long as the one before.

use std::cell::UnsafeCell;
use std::time::{Duration, Instant};

use conduit_core::ni::{Ack, AtomicType, Event, MdId, NiError, Outcome, Submit};
use portals4_sys::*;

use super::interface::{FETCHED, Interface, Transfer};
use super::queues::INDICES;

/// Number of shares. The user's indices share four of them; the network's own indices have one
/// each.
const SHARES: u32 = 6;

/// Returns the share of an index.
fn share(index: u8) -> usize {
    match index {
        own if own >= INDICES => 4 + usize::from(own - INDICES),
        index => usize::from(index) % 4,
    }
}

/// The wait before the first repetition, and the longest wait before any repetition.
const PAUSES: [Duration; 2] = [Duration::from_micros(20), Duration::from_millis(10)];

/// The event that an operation raises at its initiator.
#[derive(Debug, Clone, Copy)]
pub(super) enum Tells {
    /// No event, because the operation is an inject.
    Nothing,
    /// An event for the end of a put.
    Put(Ack),
    /// An event for the end of a get.
    Get,
    /// An event for the end of an atomic, with the old value if the atomic fetches.
    Atomic { fetch: bool, ty: AtomicType },
}

impl Tells {
    /// Returns whether the operation is an atomic whose integer does not have `length` bytes.
    fn is_atomic_of_other(self, length: u64) -> bool {
        matches!(self, Self::Atomic { ty, .. } if length != ty.size() as u64)
    }

    /// Returns whether the data to send are in the ticket's buffer.
    fn is_buffered(self) -> bool {
        matches!(self, Self::Nothing | Self::Atomic { .. })
    }
}

/// An operation in flight.
#[derive(Debug, Clone, Copy)]
pub(super) struct Operation {
    pub(super) transfer: Transfer,
    pub(super) tells: Tells,
    pub(super) token: u64,
    /// The memory descriptor that counts the operation as pending.
    pub(super) md: Option<MdId>,
    refusals: u32,
    /// The old value of an atomic that has ended.
    value: u64,
}

impl Operation {
    pub(super) fn new(transfer: Transfer, tells: Tells, token: u64, md: Option<MdId>) -> Self {
        Self {
            transfer,
            tells,
            token,
            md,
            refusals: 0,
            value: 0,
        }
    }

    /// Returns whether the library may access the caller's memory for this operation.
    pub(super) fn has_memory(&self) -> bool {
        self.md.is_some() && self.transfer.length > 0
    }

    /// Returns the event that is due at the operation's initiator.
    pub(super) fn event(&self, outcome: Outcome, length: usize) -> Option<Event<'static>> {
        let token = self.token;
        match self.tells {
            Tells::Nothing => None,
            Tells::Put(Ack::Local) => Some(Event::Send { token }),
            Tells::Put(Ack::Remote) => Some(Event::Ack {
                token,
                outcome,
                length,
            }),
            Tells::Get => Some(Event::Reply {
                token,
                outcome,
                length,
                value: 0,
            }),
            Tells::Atomic { fetch: true, .. } => Some(Event::Reply {
                token,
                outcome,
                length,
                value: self.value,
            }),
            Tells::Atomic { fetch: false, .. } => Some(Event::Ack {
                token,
                outcome,
                length,
            }),
        }
    }
}

/// The result that an event reports for an operation.
pub(super) enum Ended {
    /// The operation has ended.
    Yes(Operation, Outcome, usize),
    /// The operation was refused and will be sent again.
    Refused,
    /// The operation's target can't be reached.
    Unreachable(Operation),
}

/// All operations of a rank. A ticket is a place in the table, with a buffer for an inject.
#[derive(Debug)]
pub(super) struct Operations {
    table: Box<[Option<Operation>]>,
    free: Vec<u32>,
    /// For each share, the number of tickets left.
    left: [u32; SHARES as usize],
    /// The times at which refused operations are due, each with the operation's ticket.
    refused: Vec<(Instant, u32)>,
    /// The tickets' buffers. They are cells because the library reads them, and writes the values
    /// that atomics fetch.
    buffers: Box<[UnsafeCell<u8>]>,
    buffer_size: usize,
}

impl Operations {
    /// Creates the table with at least `most` tickets, for injects of up to `inject_size` bytes.
    pub(super) fn new(most: u32, inject_size: usize) -> Self {
        let each = most.div_ceil(SHARES);
        let most = each * SHARES;
        let buffer_size = inject_size.next_multiple_of(64);
        Self {
            table: vec![None; most as usize].into(),
            free: (0..most).rev().collect(),
            left: [each; SHARES as usize],
            refused: Vec::new(),
            buffers: (0..most as usize * buffer_size)
                .map(|_| UnsafeCell::new(0))
                .collect(),
            buffer_size,
        }
    }

    pub(super) fn most(&self) -> usize {
        self.table.len()
    }

    pub(super) fn under_way(&self) -> usize {
        self.table.len() - self.free.len()
    }

    /// Starts an operation. `inject` holds the bytes of an inject or of an atomic's operand, which
    /// are copied to the ticket's buffer.
    ///
    /// # Errors
    /// The library has refused the operation.
    ///
    /// # Safety
    /// Same as for [`Interface::start`].
    pub(super) unsafe fn start(
        &mut self,
        interface: &Interface,
        mut operation: Operation,
        inject: [&[u8]; 2],
    ) -> Result<Submit, NiError> {
        let share = share(operation.transfer.index);
        if self.left[share] == 0 {
            return Ok(Submit::Again);
        }
        let Some(&place) = self.free.last() else {
            return Ok(Submit::Again);
        };
        operation.transfer.user = place as usize;
        if operation.tells.is_buffered() {
            let [head, body] = inject;
            let buffer = self.buffer(place as usize, head.len() + body.len());
            // SAFETY: the ticket was free, so its buffer is not in use, and `Self::buffer` has
            // checked that the bytes fit.
            unsafe {
                buffer.copy_from_nonoverlapping(head.as_ptr(), head.len());
                let behind = buffer.add(head.len());
                behind.copy_from_nonoverlapping(body.as_ptr(), body.len());
            }
            operation.transfer.address = buffer.expose_provenance();
        }
        // SAFETY: the caller keeps the contract of `Interface::start` for its own memory. The
        // ticket's buffer is unchanged until the ticket is free again.
        let answer = unsafe { interface.start(&operation.transfer) }?;
        if answer == Submit::Posted {
            self.free.pop();
            self.left[share] -= 1;
            self.table[place as usize] = Some(operation);
        }
        Ok(answer)
    }

    /// Handles the library's event for an operation; returns `None` if no such operation is in
    /// flight.
    #[inline]
    pub(super) fn ended(&mut self, event: &ptl_event_t) -> Option<Ended> {
        let place = event.user_ptr.addr();
        let operation = self.table.get_mut(place)?.as_mut()?;
        let outcome = match event.ni_fail_type {
            // Entries on the overflow list take no bytes. These are the entry behind all others,
            // and the user's entries for otherwise unmatched messages.
            PTL_NI_OK if event.ptl_list == PTL_OVERFLOW_LIST => Outcome::NoMatch,
            // An entry that permits truncation has truncated an atomic.
            PTL_NI_OK if operation.tells.is_atomic_of_other(event.mlength) => Outcome::OutOfRange,
            PTL_NI_OK => Outcome::Done,
            PTL_NI_PT_DISABLED | PTL_NI_DROPPED => {
                let pause = PAUSES[0] * (1 << operation.refusals.min(16));
                operation.refusals += 1;
                let due = Instant::now() + pause.min(PAUSES[1]);
                self.refused.push((due, place as u32));
                return Some(Ended::Refused);
            }
            PTL_NI_UNDELIVERABLE => return self.free(place).map(Ended::Unreachable),
            PTL_NI_SEGV => Outcome::OutOfRange,
            _ => Outcome::NoMatch,
        };
        // Other fields of unsuccessful events are stale.
        let length = match outcome {
            Outcome::Done => event.mlength as usize,
            _ => 0,
        };
        let mut operation = self.free(place)?;
        if let Tells::Atomic { ty, .. } = operation.tells {
            operation.value = self.fetched(place, ty);
        }
        Some(Ended::Yes(operation, outcome, length))
    }

    fn free(&mut self, place: usize) -> Option<Operation> {
        let operation = self.table[place].take()?;
        self.left[share(operation.transfer.index)] += 1;
        self.free.push(place as u32);
        Some(operation)
    }

    /// Returns the value that an atomic has fetched to its ticket's buffer.
    fn fetched(&self, place: usize, ty: AtomicType) -> u64 {
        let there = self.buffer(place, FETCHED + 8).wrapping_add(FETCHED);
        // SAFETY: `there` lies within the ticket's buffer. The library writes nothing to it after
        // the operation's event.
        unsafe {
            match ty.size() {
                4 => there.cast::<u32>().read_unaligned().into(),
                _ => there.cast::<u64>().read_unaligned(),
            }
        }
    }

    /// Returns a ticket's buffer, which must have room for this many bytes.
    fn buffer(&self, place: usize, bytes: usize) -> *mut u8 {
        assert!(bytes <= self.buffer_size, "{bytes} of {}", self.buffer_size);
        let first = &raw const self.buffers[place * self.buffer_size..][..self.buffer_size];
        UnsafeCell::raw_get(first.cast())
    }

    pub(super) fn any_refused(&self) -> bool {
        !self.refused.is_empty()
    }

    /// Repeats the refused operations that are due.
    ///
    /// # Errors
    /// The library has refused a repeated operation.
    pub(super) fn repeat(&mut self, interface: &Interface) -> Result<(), NiError> {
        let now = Instant::now();
        let mut at = 0;
        while let Some(&(due, place)) = self.refused.get(at) {
            let operation = self.table[place as usize].filter(|_| due <= now);
            let started = match operation {
                // SAFETY: the caller of `start` guaranteed that the operation's memory is not
                // accessed otherwise until the operation's event, which has not arrived yet.
                Some(operation) => unsafe { interface.start(&operation.transfer) }?,
                None => Submit::Again,
            };
            match started {
                Submit::Posted => {
                    self.refused.swap_remove(at);
                }
                Submit::Again => at += 1,
            }
        }
        Ok(())
    }

    /// Removes the refused operations that access the caller's memory, and returns them.
    pub(super) fn give_up_refused(&mut self) -> Vec<Operation> {
        let mut refused = std::mem::take(&mut self.refused);
        let mut given_up = Vec::new();
        refused.retain(|(_, place)| {
            let place = *place as usize;
            let gives_up = self.table[place].is_some_and(|operation| operation.has_memory());
            given_up.extend(gives_up.then(|| self.free(place)).flatten());
            !gives_up
        });
        self.refused = refused;
        given_up
    }

    /// Returns whether the library may access the caller's memory for any operation.
    pub(super) fn any_with_memory(&self) -> bool {
        let mut operations = self.table.iter().flatten();
        operations.any(Operation::has_memory)
    }
}
