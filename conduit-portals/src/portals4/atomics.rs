//! Atomics, performed by the target's processor or by the library.
//!
//! The library's own atomics are not atomic with respect to those of a processor, which handlers
//! and ranks that share memory use. Therefore an atomic is sent as a message to one of the
//! network's internal indices, and a second message carries the answer. This module matches
//! requests against a list of the entries that take atomics. If a job requests the library's own
//! atomics, each atomic is a single operation of the library instead, as a put or a get is.

use std::collections::VecDeque;

use conduit_core::ni::{
    Atomic, AtomicOp, AtomicType, EqId, Event, Exchange, Inject, MatchEntry, MeEvents, MeMemory,
    MeOptions, NiError, Outcome, PtIndex, PutEvent, Rank, Sink, Submit, apply_atomic,
};
use conduit_core::threads::{Lock, Mode};
use portals4_sys::*;
use slab::Slab;

use super::interface::{EntryKind, Interface, NativeAtomic, Transfer};
use super::operations::{Operation, Tells};
use super::queues::{ATOMICS, INDICES, REPLIES, REQUESTS};
use super::{NetworkState, Portals4};
use crate::matching::{
    Entry, Incoming, Location, MatchList, MessageKind, atomic_code, atomic_of, outcome_code,
    outcome_of,
};

/// The maximum number of atomics that a rank may have in flight.
const MOST: usize = 256;
/// Number of blocks for requests, and number of bytes in each block.
const BLOCKS: [usize; 2] = [4, 64 << 10];
/// Length of a request in bytes. A request consists of match bits, offset, operand and comparand.
const REQUEST: usize = 32;

/// An atomic in flight.
#[derive(Debug)]
struct Pending {
    target: Rank,
    token: u64,
    queue: EqId,
    fetch: bool,
    ty: AtomicType,
}

/// An answer that waits for a ticket.
#[derive(Debug, Clone, Copy)]
struct Answer {
    target: Rank,
    match_bits: u64,
    value: u64,
}

#[derive(Debug)]
pub(super) struct Atomics {
    pending: Slab<Pending>,
    /// For each index, the list of the entries that take atomics. An entry's tag is its place in
    /// `Entries`.
    lists: [MatchList; INDICES as usize],
    owed: VecDeque<Answer>,
}

impl Atomics {
    pub(super) fn new() -> Self {
        Self {
            pending: Slab::new(),
            lists: std::array::from_fn(|_| MatchList::new()),
            owed: VecDeque::new(),
        }
    }
}

/// Returns the match entry for a block that receives requests.
fn requests() -> MatchEntry {
    MatchEntry {
        memory: MeMemory::Managed {
            bytes: BLOCKS[1],
            min_free: REQUEST,
        },
        ignore_bits: u64::MAX,
        match_bits: 0,
        source: None,
        options: MeOptions::PUT,
        events: MeEvents::all(),
        tag: 0,
    }
}

impl NetworkState {
    /// Links an entry to its index's list if it takes atomics and its memory is in a region.
    pub(super) fn join_list(&mut self, place: u32, entry: &MatchEntry, base: Option<*mut u8>) {
        let Some(base) = base.filter(|_| entry.options.contains(MeOptions::ATOMIC)) else {
            return;
        };
        let Some(linked) = self.entries.get(place) else {
            return;
        };
        let entry = MatchEntry {
            tag: place.into(),
            ..*entry
        };
        let list = &mut self.atomics.lists[usize::from(linked.index)];
        linked.in_list = list.append(Entry::new(&entry, base.expose_provenance()));
    }

    /// Undoes [`Self::join_list`].
    pub(super) fn leave_list(&mut self, place: u32) {
        if let Some(entry) = self.entries.get(place)
            && let Some(id) = entry.in_list.take()
        {
            self.atomics.lists[usize::from(entry.index)].unlink(id);
        }
    }

    /// Performs a request. Returns `None` if it is malformed.
    fn serve(&mut self, interface: &Interface, put: &PutEvent<'_>) -> Option<Answer> {
        let (op, ty) = atomic_of((put.match_bits >> 32) as u32)?;
        let word = |at: usize| Some(u64::from_le_bytes(*put.data.get(at * 8..)?.first_chunk()?));
        let (match_bits, offset, operand, comparand) = (word(0)?, word(1)?, word(2)?, word(3)?);
        let index = usize::try_from(put.hdr_data).ok()?;
        let incoming = Incoming {
            kind: MessageKind::Atomic,
            source: put.source,
            match_bits,
            offset,
            length: ty.size(),
        };
        let hit = self.atomics.lists.get_mut(index)?.accept(&incoming);
        let (mut outcome, mut value) = (Outcome::NoMatch, 0);
        if let Some(hit) = hit {
            outcome = hit.outcome;
            if let (Outcome::Done, Location::Region(address)) = (hit.outcome, hit.location) {
                match address.is_multiple_of(ty.size()) {
                    false => outcome = Outcome::OutOfRange,
                    true => {
                        let integer = std::ptr::with_exposed_provenance_mut(address);
                        // SAFETY: `integer` is aligned and lies within a region. The contract of
                        // atomics requires the program to access the integer only by atomic
                        // instructions.
                        value = unsafe { apply_atomic(integer, op, ty, operand, comparand) };
                    }
                }
            }
            let queue = self.indices[index].as_ref().and_then(|index| index.queue);
            let mut due = [None; 2];
            if let Some(entry) = self.entries.get(hit.tag as u32)
                && hit.events.contains(MeEvents::OPERATION)
                && outcome == Outcome::Done
            {
                due[0] = Some(Event::Atomic {
                    tag: entry.tag,
                    source: put.source,
                    match_bits,
                    offset,
                });
            }
            if hit.unlinked {
                due[1] = self.entries.used_up(interface, hit.tag as u32);
            }
            if let Some(queue) = queue.and_then(|queue| self.queues[usize::from(queue)].as_mut()) {
                queue.pending.extend(due.into_iter().flatten());
            }
        }
        Some(Answer {
            target: put.source,
            match_bits: u64::from(put.match_bits as u32) | u64::from(outcome_code(outcome)) << 32,
            value,
        })
    }

    /// Ends the atomic that this message answers. Returns `None` if no such atomic is in flight.
    fn answered(&mut self, put: &PutEvent<'_>) -> Option<()> {
        let key = put.match_bits as u32 as usize;
        let outcome = outcome_of(u8::try_from(put.match_bits >> 32).ok()?)?;
        let pending = self.atomics.pending.get(key)?;
        if pending.target != put.source {
            return None;
        }
        let pending = self.atomics.pending.remove(key);
        let length = match outcome {
            Outcome::Done => pending.ty.size(),
            _ => 0,
        };
        let token = pending.token;
        let event = match pending.fetch {
            true => Event::Reply {
                token,
                outcome,
                length,
                value: put.hdr_data,
            },
            false => Event::Ack {
                token,
                outcome,
                length,
            },
        };
        let queue = self.queues[usize::from(pending.queue.0)].as_mut()?;
        queue.pending.push_back(event);
        Some(())
    }
}

/// Returns an atomic in the form that the library takes, and its operand as bytes in memory.
fn native(atomic: &Atomic) -> (NativeAtomic, [u8; 8]) {
    let Atomic {
        op,
        ty,
        operand,
        comparand,
        fetch,
        ..
    } = *atomic;
    let datatype = match ty {
        AtomicType::F32 if op.is_arithmetic() => PTL_FLOAT,
        AtomicType::F64 if op.is_arithmetic() => PTL_DOUBLE,
        AtomicType::I32 => PTL_INT32_T,
        AtomicType::I64 => PTL_INT64_T,
        // An operation that does not compute treats a float as the integer with the same bits.
        AtomicType::U32 | AtomicType::F32 => PTL_UINT32_T,
        AtomicType::U64 | AtomicType::F64 => PTL_UINT64_T,
    };
    let (op, operand) = match op {
        AtomicOp::Get => (PTL_BOR, 0),
        AtomicOp::Set => (PTL_SWAP, operand),
        AtomicOp::Add => (PTL_SUM, operand),
        AtomicOp::Sub => (PTL_SUM, ty.negated(operand)),
        AtomicOp::Mult => (PTL_PROD, operand),
        AtomicOp::Min => (PTL_MIN, operand),
        AtomicOp::Max => (PTL_MAX, operand),
        AtomicOp::And => (PTL_BAND, operand),
        AtomicOp::Or => (PTL_BOR, operand),
        AtomicOp::Xor => (PTL_BXOR, operand),
        AtomicOp::CompareSwap => (PTL_CSWAP, operand),
    };
    let native = NativeAtomic {
        op,
        ty: datatype,
        comparand: in_memory(ty, comparand),
        fetch,
    };
    (native, in_memory(ty, operand))
}

/// Returns a number's representation in memory. Only the first `ty.size()` bytes are used.
fn in_memory(ty: AtomicType, value: u64) -> [u8; 8] {
    let mut bytes = [0; 8];
    match ty.size() {
        4 => bytes[..4].copy_from_slice(&(value as u32).to_ne_bytes()),
        _ => bytes = value.to_ne_bytes(),
    }
    bytes
}

impl<M: Mode> Portals4<M> {
    /// Implements [`conduit_core::ni::Ni::atomic`] by an operation of the library, once the
    /// arguments have been checked.
    pub(super) fn native_atomic(&self, atomic: &Atomic) -> Result<Submit, NiError> {
        let mut state = self.state.lock();
        let Some(queue) = &state.queues[usize::from(atomic.eq.0)] else {
            return Ok(Submit::Again);
        };
        let (native, operand) = native(atomic);
        let transfer = Transfer {
            kind: EntryKind::Atomic(native),
            md: queue.md,
            address: 0,
            length: atomic.ty.size(),
            target: atomic.target,
            index: atomic.index.0,
            match_bits: atomic.match_bits,
            remote_offset: atomic.remote_offset,
            hdr_data: 0,
            user: 0,
        };
        let tells = Tells::Atomic {
            fetch: atomic.fetch,
            ty: atomic.ty,
        };
        let operation = Operation::new(transfer, tells, atomic.token, None);
        // SAFETY: the operand and the old value lie in the ticket's buffer, so the library accesses
        // no memory of the caller.
        unsafe { (state.operations).start(&self.interface, operation, [&operand, &[]]) }
    }

    /// Opens the indices for requests and replies of atomics.
    pub(super) fn open_atomics(&self) -> Result<(), NiError> {
        let eq = Some(EqId(ATOMICS));
        let mut state = self.state.lock();
        state.open_index(&self.interface, REQUESTS, eq)?;
        state.open_index(&self.interface, REPLIES, eq)?;
        for _ in 0..BLOCKS[0] {
            state.append(&self.interface, REQUESTS, &requests())?;
        }
        let replies = MatchEntry {
            memory: MeMemory::Nothing,
            ..requests()
        };
        state.append(&self.interface, REPLIES, &replies)?;
        Ok(())
    }

    /// Implements [`conduit_core::ni::Ni::atomic`] by a request message, once the arguments have
    /// been checked.
    pub(super) fn request_atomic(&self, atomic: &Atomic) -> Result<Submit, NiError> {
        let mut state = self.state.lock();
        if state.atomics.pending.len() == MOST {
            return Ok(Submit::Again);
        }
        let key = state.atomics.pending.insert(Pending {
            target: atomic.target,
            token: atomic.token,
            queue: atomic.eq,
            fetch: atomic.fetch,
            ty: atomic.ty,
        });
        let words = [
            atomic.match_bits,
            atomic.remote_offset,
            atomic.operand,
            atomic.comparand,
        ];
        let body = words.map(u64::to_le_bytes);
        let answer = state.inject(
            &self.interface,
            &Inject {
                match_bits: key as u64 | u64::from(atomic_code(atomic.op, atomic.ty)) << 32,
                head: &[],
                hdr_data: atomic.index.0.into(),
                body: body.as_flattened(),
                target: atomic.target,
                index: PtIndex(REQUESTS),
                exchange: Exchange::ExpectsReply,
            },
        );
        if !matches!(answer, Ok(Submit::Posted)) {
            state.atomics.pending.remove(key);
        }
        answer
    }

    /// Performs the requests of peers, and ends the atomics for which an answer has arrived.
    pub(super) fn serve_atomics(&self) {
        self.send_owed();
        self.poll_queue(ATOMICS.into(), 64, &mut Serve(self));
    }

    fn send_owed(&self) {
        let mut state = self.state.lock();
        while let Some(answer) = state.atomics.owed.pop_front() {
            let sent = state.inject(
                &self.interface,
                &Inject {
                    match_bits: answer.match_bits,
                    head: &[],
                    hdr_data: answer.value,
                    body: &[],
                    target: answer.target,
                    index: PtIndex(REPLIES),
                    exchange: Exchange::IsReply,
                },
            );
            match sent {
                Ok(Submit::Posted) => {}
                Ok(Submit::Again) => return state.atomics.owed.push_front(answer),
                Err(error) => return state.fail(error),
            }
        }
    }
}

/// Handles the events of requests and answers.
struct Serve<'a, M: Mode>(&'a Portals4<M>);

impl<M: Mode> Sink for Serve<'_, M> {
    fn event(&mut self, event: Event<'_>) {
        let mut state = self.0.state.lock();
        match event {
            Event::Put(put) => {
                let made_sense = match put.index.0 == REQUESTS {
                    false => state.answered(&put),
                    true => {
                        let answer = state.serve(&self.0.interface, &put);
                        answer.map(|answer| state.atomics.owed.push_back(answer))
                    }
                };
                if made_sense.is_none() {
                    state.bad = state.bad.or(Some(put.source));
                }
                drop(state);
                self.0.send_owed();
            }
            Event::Free { .. } => {
                if let Err(error) = state.append(&self.0.interface, REQUESTS, &requests()) {
                    state.fail(error);
                }
            }
            _ => {}
        }
    }

    /// Returns `false` while an answer waits for a ticket, or too many events wait for the user.
    /// Requests then wait in their queue, and ultimately at their initiators.
    fn is_ready(&self) -> bool {
        let state = self.0.state.lock();
        let mut queues = state.queues.iter().flatten();
        state.atomics.owed.is_empty() && queues.all(|queue| queue.pending.len() <= MOST)
    }
}
