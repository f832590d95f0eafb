//! The implementation of [`FragmentHandler`] for the portals, and the completion of this rank's
//! operations.

use std::ptr;

use conduit_core::ni::{Outcome, Rank};

use crate::transport::fragment::{Failure, FragmentHandler};

use super::inbound::{Arrival, LongReply, ProtocolError};
use super::operation::{Completion, Operation, OperationKind};
use super::state::Portals;
use super::window::Cost;
use super::wire::Header;

/// Marks a token as that of a long reply, as opposed to an operation of this rank.
pub(crate) const LONG_REPLY: u64 = 1 << 32;
/// Room for arriving fragments that is advertised to transports. This much room is never used up,
/// because the windows bound what peers may send.
const ROOM: usize = 1 << 30;

impl Portals {
    /// Decodes a fragment's header and applies its window update.
    #[inline]
    fn header(&mut self, peer: Rank, header: &[u8]) -> Result<Header, ProtocolError> {
        let (header, update) = Header::decode(header).ok_or(ProtocolError)?;
        if let Some(update) = update {
            let link = self.links.get(peer).ok_or(ProtocolError)?;
            if !link.send.apply(update) {
                return Err(ProtocolError);
            }
        }
        Ok(header)
    }

    /// Counts an operation of a peer against its window.
    #[inline]
    fn arrives(&mut self, peer: Rank, cost: Cost) -> Result<(), ProtocolError> {
        let link = self.links.get(peer).ok_or(ProtocolError)?;
        match link.receive.arrive(cost, link.receive_size) {
            true => Ok(()),
            false => Err(ProtocolError),
        }
    }

    #[inline(never)]
    fn handle_fragment(
        &mut self,
        peer: Rank,
        header: &[u8],
        payload: &[u8],
    ) -> Result<(), ProtocolError> {
        if let Some((put, update)) = Header::decode_short(header) {
            return self.short_put_arrives(peer, &put, update, payload);
        }
        let header = self.header(peer, header)?;
        let has_payload = matches!(header, Header::Put(_) | Header::Reply { .. });
        if !has_payload && !payload.is_empty() {
            return Err(ProtocolError);
        }
        match header {
            Header::Put(put) => {
                if payload.len() > self.config.max_message {
                    return Err(ProtocolError);
                }
                let cost = Cost::of_put(put.index, payload.len(), self.config.max_managed);
                self.arrives(peer, cost)?;
                // SAFETY: `payload` is a slice, so its pointer is valid for its length.
                unsafe { self.put_arrives(peer, &put, payload.as_ptr(), payload.len(), cost) }
            }
            Header::Get(get) => {
                self.arrives(peer, Cost::of_header(get.index))?;
                self.get_arrives(peer, &get)
            }
            Header::Atomic(atomic) => {
                self.arrives(peer, Cost::of_header(atomic.index))?;
                self.atomic_arrives(peer, &atomic)
            }
            Header::Response {
                operation,
                outcome,
                length,
                value,
            } => self.response_arrives(peer, operation, outcome, length, value),
            // SAFETY: `payload` is a slice, so its pointer is valid for its length.
            Header::Reply { operation, outcome } => unsafe {
                self.reply_arrives(peer, operation, outcome, payload.as_ptr(), payload.len())
            },
            Header::WindowUpdate => Ok(()),
            Header::Leave(left) => {
                self.links.get(peer).ok_or(ProtocolError)?.left = Some(left);
                self.forget_direct(peer);
                self.lanes_lost(peer);
                Ok(())
            }
            Header::Advertise(entry) => self.advertise_arrives(peer, &entry),
            Header::Withdraw(entry) => self.withdraw_arrives(peer, entry),
            Header::Withdrawn(entry) => self.withdrawn_arrives(peer, entry),
            Header::Lane(message) => self.lane_message_arrives(peer, message),
        }
    }

    fn handle_begin(
        &mut self,
        peer: Rank,
        header: &[u8],
        length: usize,
    ) -> Result<Option<Arrival>, ProtocolError> {
        if length > self.config.max_message {
            return Err(ProtocolError);
        }
        match self.header(peer, header)? {
            Header::Put(put) => {
                if !self.can_begin(&put, length) {
                    return Ok(None);
                }
                let cost = Cost::of_put(put.index, length, self.config.max_managed);
                self.arrives(peer, cost)?;
                self.put_begins(peer, &put, length, cost).map(Some)
            }
            Header::Reply { operation, outcome } => {
                self.own_get(peer, operation, length)?;
                Ok(Some(Arrival::Reply {
                    source: peer,
                    operation,
                    outcome,
                    length,
                }))
            }
            _ => Err(ProtocolError),
        }
    }

    // ---- completion of this rank's operations ----

    /// Returns the get to `peer` that a reply of `length` bytes answers.
    fn own_get(
        &mut self,
        peer: Rank,
        operation: u32,
        length: usize,
    ) -> Result<&mut Operation, ProtocolError> {
        let operation = self.operations.get(operation).ok_or(ProtocolError)?;
        match operation.kind {
            OperationKind::Get(asked) if operation.target == peer && length <= asked as usize => {
                Ok(operation)
            }
            _ => Err(ProtocolError),
        }
    }

    /// Handles a reply with all of a get's data.
    ///
    /// # Safety
    /// `[bytes, bytes + length)` must be valid for reads.
    pub(crate) unsafe fn reply_arrives(
        &mut self,
        from: Rank,
        operation: u32,
        outcome: Outcome,
        bytes: *const u8,
        length: usize,
    ) -> Result<(), ProtocolError> {
        let found = self.own_get(from, operation, length)?;
        if !found.abandoned {
            // SAFETY: the caller guarantees that `bytes` is valid for reads. `own_get` has checked
            // that the length is within the operation's part of its descriptor, which is valid
            // while the operation is in flight and not given up. The source and the destination may
            // overlap in a get from this rank itself.
            unsafe { ptr::copy(bytes, found.memory, length) };
        }
        self.end_get(from, operation, outcome, length)
    }

    /// Ends a get whose data have been written to its memory.
    pub(crate) fn end_get(
        &mut self,
        from: Rank,
        operation: u32,
        outcome: Outcome,
        length: usize,
    ) -> Result<(), ProtocolError> {
        self.own_get(from, operation, length)?.completion = Some(Completion {
            outcome,
            // The cast is lossless: a message's size fits in 32 bits.
            length: length as u32,
            value: 0,
        });
        self.end_operation(operation);
        Ok(())
    }

    /// Handles a response to a put or an atomic.
    pub(crate) fn response_arrives(
        &mut self,
        from: Rank,
        id: u32,
        outcome: Outcome,
        length: u32,
        value: u64,
    ) -> Result<(), ProtocolError> {
        let operation = self.operations.get(id).ok_or(ProtocolError)?;
        let has_response = matches!(
            operation.kind,
            OperationKind::AckedPut | OperationKind::Atomic(_)
        );
        if operation.target != from || !has_response || operation.completion.is_some() {
            return Err(ProtocolError);
        }
        operation.completion = Some(Completion {
            outcome,
            length,
            value,
        });
        // The response may arrive before `sent` is called, which then ends the operation.
        if !operation.unsent {
            self.end_operation(id);
        }
        Ok(())
    }

    /// Ends an operation with its event.
    pub(crate) fn end_operation(&mut self, id: u32) {
        if let Some(operation) = self.operations.remove(id) {
            self.finish_operation(operation);
        }
    }

    /// Does the same as [`Self::end_operation`], for an operation that has no id any more.
    pub(crate) fn finish_operation(&mut self, operation: Operation) {
        let completion = operation.completion.unwrap_or(Completion::done(0));
        let (token, eq) = (operation.token, operation.eq);
        let end = operation.kind.end().filter(|_| !operation.abandoned);
        let event = end.map(|end| end.event(token, completion));
        self.release_operation(operation);
        if let Some(event) = event {
            self.post_event(eq, event);
        }
    }

    /// Releases the resources of an operation.
    pub(crate) fn release_operation(&mut self, operation: Operation) {
        if let Some(md) = operation.md {
            let finished = self.descriptors.finish(md.0);
            debug_assert!(finished.is_some(), "counted when it was submitted");
        }
        match operation.kind {
            OperationKind::Inject(buffer) => {
                self.inject_room += buffer.bytes().len();
                self.pool.give(buffer);
            }
            OperationKind::Direct(_, entry) => self.direct_ended(operation.target, entry),
            _ => {}
        }
    }
}

impl Portals {
    /// Returns the location of `length` bytes of an operation, from `offset` on. These bytes lie
    /// within a buffer or within the operation's part of its descriptor. By the contract of
    /// `Ni::put`, that memory is valid and not written until the transport is done with it or has
    /// abandoned it.
    #[inline]
    fn source_of(&self, token: u64, offset: usize, length: usize) -> Option<*const u8> {
        let operation = self
            .operations
            .peek(token as u32)
            .filter(|o| !o.abandoned)?;
        let (from, all): (*const u8, usize) = match &operation.kind {
            OperationKind::Inject(buffer) => (buffer.bytes().as_ptr(), buffer.bytes().len()),
            _ => (operation.memory.cast_const(), operation.length),
        };
        let end = offset.checked_add(length)?;
        // SAFETY: the offset lies within the `all` bytes at `from`.
        (end <= all).then(|| unsafe { from.add(offset) })
    }

    /// Copies bytes of a long reply.
    #[inline]
    fn read_reply(&mut self, token: u64, offset: usize, into: &mut [u8]) {
        let reply = self.long_replies.get(token as u32 as usize);
        let within = |reply: &&LongReply| {
            let end = offset.checked_add(into.len());
            end.is_some_and(|end| end <= reply.length)
        };
        let Some(reply) = reply.filter(within) else {
            debug_assert!(false, "the transport reads beyond a reply");
            return;
        };
        // SAFETY: `within` has checked that the bytes lie within the reply.
        if !unsafe { reply.source.read(offset, into) } {
            // This process has unmapped the memory while it was being read. The reply can't be
            // completed, so the job has to end.
            let to = reply.to;
            self.protocol_error(to);
        }
    }
}

impl FragmentHandler for Portals {
    fn link_idle(&mut self, peer: Rank) {
        self.links.make_idle(peer);
    }

    #[inline]
    fn read(&mut self, _: Rank, token: u64, offset: usize, into: &mut [u8]) {
        if token & LONG_REPLY != 0 {
            return self.read_reply(token, offset, into);
        }
        let Some(from) = self.source_of(token, offset, into.len()) else {
            debug_assert!(false, "the transport reads beyond an operation");
            return;
        };
        // SAFETY: `source_of` has returned a location that is valid for reads of `into.len()`
        // bytes.
        unsafe { ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len()) };
    }

    #[inline]
    fn source(&self, _: Rank, token: u64, offset: usize, length: usize) -> Option<&[u8]> {
        // A long reply is read from a region, which other threads and ranks may write.
        if token & LONG_REPLY != 0 {
            return None;
        }
        let from = self.source_of(token, offset, length)?;
        // SAFETY: `source_of` has returned a location that is valid for reads of `length` bytes.
        // The operation does not end while `self` is borrowed.
        Some(unsafe { std::slice::from_raw_parts(from, length) })
    }

    fn sent(&mut self, _: Rank, token: u64) {
        if token & LONG_REPLY != 0 {
            if let Some(reply) = self.long_replies.try_remove(token as u32 as usize) {
                self.end_long_reply(reply, true);
            }
            return;
        }
        let id = token as u32;
        let Some(operation) = self.operations.get(id) else {
            return;
        };
        operation.unsent = false;
        let ended = match operation.kind {
            OperationKind::Put | OperationKind::Inject(_) => true,
            _ => operation.completion.is_some(),
        };
        if ended {
            self.end_operation(id);
        }
    }

    #[inline]
    fn fragment(&mut self, peer: Rank, header: &[u8], payload: &[u8]) -> bool {
        let is_mailed = match Header::decode_short(header) {
            Some((put, update)) => self.mail_short_put(peer, &put, update, payload),
            None => false,
        };
        if !is_mailed && self.handle_fragment(peer, header, payload).is_err() {
            self.protocol_error(peer);
        }
        true
    }

    fn begin(&mut self, peer: Rank, header: &[u8], length: usize) -> Option<u64> {
        let arrival = match self.handle_begin(peer, header, length) {
            Ok(arrival) => arrival?,
            Err(ProtocolError) => {
                self.protocol_error(peer);
                Arrival::Discarded { source: peer }
            }
        };
        Some(self.arrivals.insert(arrival) as u64)
    }

    #[inline]
    fn place(&mut self, id: u64, offset: usize, bytes: &[u8]) {
        self.piece_arrives(id as usize, offset, bytes);
    }

    fn end(&mut self, id: u64) {
        self.arrival_ends(id as usize);
    }

    fn done(&mut self, peer: Rank, token: u64, value: u64) {
        if self.task_done(peer, token, value) {
            return;
        }
        let id = token as u32;
        let Some(operation) = self.operations.get(id) else {
            return;
        };
        if operation.target != peer || !matches!(operation.kind, OperationKind::Direct(..)) {
            return;
        }
        // The cast is lossless: a message's size fits in 32 bits.
        operation.completion = Some(Completion::done(operation.length as u32));
        self.end_operation(id);
    }

    fn failed(&mut self, peer: Rank, failure: Failure) {
        self.peer_failed(peer, failure);
    }

    fn room(&self) -> usize {
        ROOM
    }
}
