//! The initiator's half of every operation: it checks the arguments, takes a share of the peer's
//! window, and sends a fragment.
//!
//! | operation | its bytes |
//! |---|---|
//! | put and inject in a tiny fragment | are copied before the call returns |
//! | longer put | are read from the descriptor's memory until the peer has acknowledged them |
//! | longer inject | are copied to a buffer first |
//! | put or get to an imported entry | are written to or read from the peer's memory directly ([`super::direct`]) |
//! | operation on the rank itself | are copied before the call returns |

use std::ptr;

use conduit_core::ni::{
    Ack, Atomic, EqId, Event, Get, Inject, NiError, PtIndex, Put, Rank, Submit,
};

use crate::matching::{PT_INDICES, no_such_index, over_limit};
use crate::transport::fragment::{Failure, Fragment, MAX_TINY, Payload, Refused};

use super::Inner;
use super::interface::Transport;
use super::operation::{Operation, OperationKind};
use super::state::Portals;
use super::window::Cost;
use super::wire;

/// Number of fragments that may wait for the next poll. Once there are this many, they are
/// transmitted together.
const MAX_BATCH: u32 = 16;

/// The reason why an operation was not posted.
pub(crate) enum SubmitError {
    /// Resources are lacking; see [`Submit::Again`].
    Again,
    Failed(NiError),
}

impl From<NiError> for SubmitError {
    fn from(error: NiError) -> Self {
        Self::Failed(error)
    }
}

impl<T: Transport> Inner<T> {
    /// Checks that the rank exists and has this index.
    #[inline]
    fn check(&self, operation: &'static str, target: Rank, index: PtIndex) -> Result<(), NiError> {
        if target >= self.portals.size {
            return Err(NiError::NoSuchRank {
                operation,
                rank: target,
                size: self.portals.size,
            });
        }
        if usize::from(index.0) >= PT_INDICES {
            return Err(no_such_index(operation, index));
        }
        Ok(())
    }

    #[inline]
    fn submitted(&mut self, submitted: Result<(), SubmitError>) -> Result<Submit, NiError> {
        match submitted {
            Ok(()) => {
                self.submitted = true;
                Ok(Submit::Posted)
            }
            Err(SubmitError::Again) => {
                // Only progress makes room, so the next poll must make progress.
                self.submitted = false;
                Ok(Submit::Again)
            }
            Err(SubmitError::Failed(error)) => Err(error),
        }
    }

    /// Reserves an operation's share of the target's window.
    #[inline]
    fn reserve_window(
        &mut self,
        operation: &'static str,
        target: Rank,
        cost: Cost,
    ) -> Result<(), SubmitError> {
        let Some(link) = self.portals.links.get(target) else {
            return Err(SubmitError::Again);
        };
        if let Some(failure) = link.failure {
            return Err(SubmitError::Failed(
                self.peer_failed(operation, target, failure),
            ));
        }
        match link.send.reserve(cost, link.send_size) {
            true => Ok(()),
            false => {
                self.portals.counters.waited_for_peer += 1;
                Err(SubmitError::Again)
            }
        }
    }

    /// Releases an operation's share of the target's window because other resources are lacking.
    fn release_window(&mut self, target: Rank, cost: Cost) {
        self.portals.counters.waited_for_room += 1;
        if let Some(link) = self.portals.links.get(target) {
            link.send.release(cost);
        }
    }

    #[cold]
    fn peer_failed(&self, operation: &'static str, peer: Rank, failure: Failure) -> NiError {
        NiError::PeerFailed {
            operation,
            rank: peer,
            reason: format!("{} {failure}", self.transport.describe(peer)),
        }
    }

    /// Returns the error when the transport refuses a peer as dead. The transport reports the
    /// reason only once it no longer uses this rank's memory for the peer; until then, the caller
    /// tries again.
    #[cold]
    pub(crate) fn dead(&mut self, operation: &'static str, peer: Rank) -> SubmitError {
        let link = self.portals.links.get(peer);
        match link.and_then(|link| link.failure) {
            Some(failure) => SubmitError::Failed(self.peer_failed(operation, peer, failure)),
            None => SubmitError::Again,
        }
    }

    /// Hands a fragment to the transport, and makes the transport transmit at once if the fragment
    /// should not wait.
    #[inline]
    fn post(
        &mut self,
        operation: &'static str,
        target: Rank,
        header: &wire::Header,
        payload: Payload<'_>,
    ) -> Result<(), SubmitError> {
        let tiny = matches!(payload, Payload::Copied(_));
        let update = match self.portals.links.get(target) {
            Some(link) if tiny => Some(link.window_update(self.portals.window)),
            _ => None,
        };
        let header = header.encode(update);
        let fragment = Fragment {
            header: header.as_slice(),
            payload,
        };
        let at_once = !tiny || !T::AT_ONCE && self.transport.is_idle(target);
        match self.transport.send(target, &fragment) {
            Ok(()) => {}
            Err(Refused::Full) => return Err(SubmitError::Again),
            Err(Refused::Dead) => return Err(self.dead(operation, target)),
            // Impossible, because both have been checked.
            Err(Refused::TooLong | Refused::NoSuchRank) => {
                let failed = self.peer_failed(operation, target, Failure::Unreachable);
                return Err(SubmitError::Failed(failed));
            }
        }
        if let Some(update) = update
            && let Some(link) = self.portals.links.get(target)
        {
            let units = link.receive.update_sent(update);
            self.portals.reported(target, units);
        }
        if !tiny || !T::AT_ONCE {
            self.transmit_batch(at_once);
        }
        Ok(())
    }

    // ---- puts ----

    /// # Safety
    /// Same as for [`conduit_core::ni::Ni::put`].
    pub(crate) unsafe fn put(&mut self, put: &Put) -> Result<Submit, NiError> {
        // SAFETY: the caller keeps the contract of `Ni::put`.
        let submitted = unsafe { self.try_put(put) };
        self.submitted(submitted)
    }

    unsafe fn try_put(&mut self, put: &Put) -> Result<(), SubmitError> {
        let limit = self.portals.config.max_message;
        let bound =
            self.portals
                .descriptors
                .piece("put", put.md, put.local_offset, put.length, limit)?;
        self.check("put", put.target, put.index)?;
        if self.portals.abandoned && put.length > 0 {
            return Err(SubmitError::Again);
        }
        // SAFETY: `piece` has checked that the offset lies within the descriptor.
        let memory = unsafe { bound.base.add(put.local_offset) };
        if self.portals.direct.has_imports()
            // SAFETY: the caller keeps the contract of `Ni::put`.
            && let Some(submitted) = unsafe { self.put_direct(put, &bound, memory) }
        {
            return submitted;
        }
        let cost = Cost::of_put(put.index.0, put.length, self.portals.config.max_managed);
        let mut header = wire::Put {
            index: put.index.0,
            match_bits: put.match_bits,
            hdr_data: put.hdr_data,
            offset: put.remote_offset,
            operation: None,
        };
        let to_self = put.target == self.portals.rank;
        if to_self && !self.portals.is_open(put.index) {
            return Err(SubmitError::Again);
        }
        self.reserve_window("put", put.target, cost)?;
        let acked = put.ack == Ack::Remote;
        let tiny = put.length <= tiny_payload(&header, acked);
        // A short put without acknowledgement ends before this function returns, so it needs no id.
        if !acked && (to_self || tiny) {
            if to_self {
                // SAFETY: the caller guarantees that the source is valid for reads.
                unsafe { self.put_to_self(&header, memory, put.length, cost) };
            } else {
                // SAFETY: the caller guarantees that the source is valid for reads. `tiny` is set,
                // so the bytes fit in a tiny fragment.
                let copied =
                    unsafe { self.post_copy("put", put.target, &header, memory, put.length) };
                if let Err(error) = copied {
                    self.release_window(put.target, cost);
                    return Err(error);
                }
            }
            let event = Event::Send { token: put.token };
            self.portals.post_event(bound.eq, event);
            return Ok(());
        }
        let kind = if acked {
            OperationKind::AckedPut
        } else {
            OperationKind::Put
        };
        let operation = Operation {
            md: Some(put.md),
            memory,
            length: put.length,
            unsent: !to_self && !tiny,
            ..Operation::new(kind, put.token, put.target, bound.eq)
        };
        let Some(id) = self.portals.operations.add(operation) else {
            self.release_window(put.target, cost);
            return Err(SubmitError::Again);
        };
        self.portals.descriptors.start(put.md);
        header.operation = acked.then_some(id);
        let posted = if to_self {
            // SAFETY: the caller guarantees that the source is valid for reads.
            unsafe { self.put_to_self(&header, memory, put.length, cost) };
            Ok(())
        } else if tiny {
            // SAFETY: the caller guarantees that the source is valid for reads. `tiny` is set, so
            // the bytes fit in a tiny fragment.
            unsafe { self.post_copy("put", put.target, &header, memory, put.length) }
        } else {
            let payload = Payload::Read {
                token: u64::from(id),
                // The cast is lossless: a message's size fits in 32 bits.
                length: put.length as u32,
            };
            self.post("put", put.target, &wire::Header::Put(header), payload)
        };
        if posted.is_err() {
            self.abandon(id, put.target, cost);
        }
        posted
    }

    /// Undoes an operation that the transport has refused.
    fn abandon(&mut self, id: u32, target: Rank, cost: Cost) {
        self.undo(id);
        self.release_window(target, cost);
    }

    /// # Safety
    /// `[memory, memory + length)` must be valid for reads, and `length` bytes must fit in a tiny
    /// fragment.
    unsafe fn post_copy(
        &mut self,
        operation: &'static str,
        target: Rank,
        header: &wire::Put,
        memory: *const u8,
        length: usize,
    ) -> Result<(), SubmitError> {
        let mut copy = [0; MAX_TINY];
        // SAFETY: the caller guarantees that `memory` is valid for `length` bytes, which fit in
        // `copy`. The bytes are copied first, because peers may write to the source if it is in a
        // region.
        unsafe { ptr::copy_nonoverlapping(memory, copy.as_mut_ptr(), length) };
        let header = wire::Header::Put(*header);
        self.post(
            operation,
            target,
            &header,
            Payload::Copied(&[&copy[..length]]),
        )
    }

    /// # Safety
    /// `[memory, memory + length)` must be valid for reads.
    unsafe fn put_to_self(
        &mut self,
        put: &wire::Put,
        memory: *const u8,
        length: usize,
        cost: Cost,
    ) {
        let portals = &mut self.portals;
        portals.arrives_from_self(cost);
        // SAFETY: the caller guarantees that `memory` is valid for reads of `length` bytes.
        let result = unsafe { portals.put_arrives(portals.rank, put, memory, length, cost) };
        debug_assert!(result.is_ok(), "this rank violated its own protocol");
    }

    /// Performs the fast path of [`Self::inject`], for a short message to a peer with room. In all
    /// other cases returns `false` without any effect.
    #[inline(always)]
    pub(crate) fn inject_short(&mut self, inject: &Inject<'_>) -> bool {
        let Self {
            transport, portals, ..
        } = self;
        let (target, index) = (inject.target, inject.index.0);
        let length = inject.head.len() + inject.body.len();
        if length > portals.short || usize::from(index) >= PT_INDICES || target == portals.rank {
            return false;
        }
        let cost = Cost::of_short(index, length);
        let Some(link) = portals.links.get(target) else {
            return false;
        };
        if link.failure.is_some() || !link.send.reserve(cost, link.send_size) {
            return false;
        }
        let has_update = link.has_window_update(portals.window);
        let update = match has_update {
            true => link.window_update(portals.window),
            false => link.receive.last_update(),
        };
        let header = wire::encode_short(index, inject.match_bits, inject.hdr_data, update);
        let fragment = Fragment {
            header: &header,
            payload: Payload::Copied(&[inject.head, inject.body]),
        };
        let at_once = !T::AT_ONCE && transport.is_idle(target);
        if transport.send(target, &fragment).is_err() {
            link.send.release(cost);
            return false;
        }
        if has_update {
            let units = link.receive.update_sent(update);
            portals.reported(target, units);
        }
        self.submitted = true;
        if !T::AT_ONCE {
            self.transmit_batch(at_once);
        }
        true
    }

    /// Injects any message.
    #[inline(never)]
    pub(crate) fn inject(&mut self, inject: &Inject<'_>) -> Result<Submit, NiError> {
        let submitted = self.try_inject(inject);
        self.submitted(submitted)
    }

    /// Makes the transport transmit at once, or when enough fragments have been handed to it.
    #[inline(always)]
    fn transmit_batch(&mut self, at_once: bool) {
        self.batched += 1;
        if at_once || self.batched >= MAX_BATCH {
            self.batched = 0;
            self.transport.transmit(&mut self.portals);
        }
    }

    fn try_inject(&mut self, inject: &Inject<'_>) -> Result<(), SubmitError> {
        let length = inject.head.len() + inject.body.len();
        let limit = self.portals.config.inject_size;
        if length > limit {
            let error = over_limit("inject", "length", length as u64, limit as u64);
            return Err(SubmitError::Failed(error));
        }
        self.check("inject", inject.target, inject.index)?;
        let cost = Cost::of_put(inject.index.0, length, self.portals.config.max_managed);
        let header = wire::Put {
            index: inject.index.0,
            match_bits: inject.match_bits,
            hdr_data: inject.hdr_data,
            offset: 0,
            operation: None,
        };
        let to_self = inject.target == self.portals.rank;
        if to_self && !self.portals.is_open(inject.index) {
            return Err(SubmitError::Again);
        }
        let pieces = [inject.head, inject.body];
        self.reserve_window("inject", inject.target, cost)?;
        if !to_self && length <= tiny_payload(&header, false) {
            let header = wire::Header::Put(header);
            let posted = self.post("inject", inject.target, &header, Payload::Copied(&pieces));
            if posted.is_err() {
                self.release_window(inject.target, cost);
            }
            return posted;
        }
        if length > self.portals.inject_room {
            self.release_window(inject.target, cost);
            return Err(SubmitError::Again);
        }
        let mut buffer = self.portals.pool.take(length);
        let (head, body) = buffer.bytes_mut().split_at_mut(inject.head.len());
        head.copy_from_slice(inject.head);
        body.copy_from_slice(inject.body);
        if to_self {
            // SAFETY: the pointer is valid for reads of the buffer's `length` bytes.
            unsafe { self.put_to_self(&header, buffer.bytes().as_ptr(), length, cost) };
            self.portals.pool.give(buffer);
            return Ok(());
        }
        self.portals.inject_room -= length;
        let operation = Operation {
            unsent: true,
            ..Operation::new(OperationKind::Inject(buffer), 0, inject.target, EqId(0))
        };
        let Some(id) = self.portals.operations.add(operation) else {
            self.portals.inject_room += length;
            self.release_window(inject.target, cost);
            return Err(SubmitError::Again);
        };
        let payload = Payload::Read {
            token: u64::from(id),
            // The cast is lossless: an inject's size fits in 32 bits.
            length: length as u32,
        };
        let posted = self.post("inject", inject.target, &wire::Header::Put(header), payload);
        if posted.is_err() {
            self.abandon(id, inject.target, cost);
        }
        posted
    }

    // ---- gets and atomics ----

    /// # Safety
    /// Same as for [`conduit_core::ni::Ni::get`].
    pub(crate) unsafe fn get(&mut self, get: &Get) -> Result<Submit, NiError> {
        // SAFETY: the caller keeps the contract of `Ni::get`.
        let submitted = unsafe { self.try_get(get) };
        self.submitted(submitted)
    }

    unsafe fn try_get(&mut self, get: &Get) -> Result<(), SubmitError> {
        let limit = self.portals.config.max_message;
        let bound =
            self.portals
                .descriptors
                .piece("get", get.md, get.local_offset, get.length, limit)?;
        self.check("get", get.target, get.index)?;
        if self.portals.abandoned {
            return Err(SubmitError::Again);
        }
        // SAFETY: `piece` has checked that the offset lies within the descriptor.
        let memory = unsafe { bound.base.add(get.local_offset) };
        if self.portals.direct.has_imports()
            // SAFETY: the caller keeps the contract of `Ni::get`.
            && let Some(submitted) = unsafe { self.get_direct(get, &bound, memory) }
        {
            return submitted;
        }
        // The cast is lossless: a message's size fits in 32 bits.
        let kind = OperationKind::Get(get.length as u32);
        let operation = Operation {
            md: Some(get.md),
            memory,
            length: get.length,
            ..Operation::new(kind, get.token, get.target, bound.eq)
        };
        self.request("get", get.index, operation, |operation| {
            wire::Header::Get(wire::Get {
                index: get.index.0,
                match_bits: get.match_bits,
                offset: get.remote_offset,
                // The cast is lossless: a message's size fits in 32 bits.
                length: get.length as u32,
                operation,
            })
        })
    }

    pub(crate) fn atomic(&mut self, atomic: &Atomic) -> Result<Submit, NiError> {
        let submitted = self.try_atomic(atomic);
        self.submitted(submitted)
    }

    fn try_atomic(&mut self, atomic: &Atomic) -> Result<(), SubmitError> {
        self.portals.check_queue("atomic", atomic.eq)?;
        self.check("atomic", atomic.target, atomic.index)?;
        if self.portals.direct.has_imports()
            && let Some(submitted) = self.atomic_direct(atomic)
        {
            return submitted;
        }
        let kind = OperationKind::Atomic(atomic.fetch);
        let operation = Operation::new(kind, atomic.token, atomic.target, atomic.eq);
        self.request("atomic", atomic.index, operation, |operation| {
            wire::Header::Atomic(wire::Atomic {
                index: atomic.index.0,
                op: atomic.op,
                ty: atomic.ty,
                match_bits: atomic.match_bits,
                offset: atomic.remote_offset,
                operand: atomic.operand,
                comparand: atomic.comparand,
                operation,
            })
        })
    }

    /// Sends an operation without payload.
    fn request(
        &mut self,
        operation_name: &'static str,
        index: PtIndex,
        operation: Operation,
        header: impl FnOnce(u32) -> wire::Header,
    ) -> Result<(), SubmitError> {
        let (target, md) = (operation.target, operation.md);
        let to_self = target == self.portals.rank;
        if to_self && !self.portals.is_open(index) {
            return Err(SubmitError::Again);
        }
        let cost = Cost::of_header(index.0);
        self.reserve_window(operation_name, target, cost)?;
        let Some(operation) = self.portals.operations.add(operation) else {
            self.release_window(target, cost);
            return Err(SubmitError::Again);
        };
        if let Some(md) = md {
            self.portals.descriptors.start(md);
        }
        let header = header(operation);
        if to_self {
            let portals = &mut self.portals;
            portals.arrives_from_self(cost);
            let result = match header {
                wire::Header::Get(get) => portals.get_arrives(target, &get),
                wire::Header::Atomic(atomic) => portals.atomic_arrives(target, &atomic),
                _ => Ok(()),
            };
            debug_assert!(result.is_ok(), "this rank violated its own protocol");
            if !self.portals.native.waiting.is_empty() {
                self.resume_tasks();
            }
            return Ok(());
        }
        let posted = self.post(operation_name, target, &header, Payload::Copied(&[]));
        if posted.is_err() {
            self.abandon(operation, target, cost);
        }
        posted
    }
}

impl Portals {
    fn is_open(&self, index: PtIndex) -> bool {
        let index = self.indices.get(usize::from(index.0));
        index.is_some_and(|index| index.open.is_some())
    }

    fn arrives_from_self(&mut self, cost: Cost) {
        let (own, window) = (self.rank, self.window);
        if let Some(link) = self.links.get(own) {
            let within = link.receive.arrive(cost, window);
            debug_assert!(within, "the window was reserved");
        }
    }
}

/// Returns the maximum length of a put in a tiny fragment, in bytes.
#[inline]
fn tiny_payload(put: &wire::Put, acked: bool) -> usize {
    MAX_TINY - wire::put_header(put.offset != 0 || acked)
}
