//! Puts and gets on imported entries.

use conduit_core::ni::{Ack, EqId, Get, MdId, MeId, MeOptions, Put, Rank};

use super::imported::Request;
use crate::matching::Bound;
use crate::transport::Inner;
use crate::transport::fragment::Refused;
use crate::transport::interface::{Access, Remote, Transport};
use crate::transport::operation::{Completion, End, Operation, OperationKind};
use crate::transport::send::SubmitError;

/// The initiator's side of an operation.
struct LocalPart {
    name: &'static str,
    end: End,
    token: u64,
    md: MdId,
    eq: EqId,
    memory: *mut u8,
}

impl<T: Transport> Inner<T> {
    /// Submits a put as a direct write. Returns `None` if it must be sent as a message instead.
    ///
    /// # Safety
    /// Same as for [`conduit_core::ni::Ni::put`]; `memory` must be the address of the put's source,
    /// which must lie in its descriptor.
    pub(crate) unsafe fn put_direct(
        &mut self,
        put: &Put,
        bound: &Bound,
        memory: *mut u8,
    ) -> Option<Result<(), SubmitError>> {
        let request = Request {
            peer: put.target,
            index: put.index.0,
            option: MeOptions::PUT,
            match_bits: put.match_bits,
            offset: put.remote_offset,
            length: put.length,
        };
        let found = self.portals.direct.find(&request)?;
        let own = LocalPart {
            name: "put",
            end: match put.ack {
                Ack::Local => End::Send,
                Ack::Remote => End::Ack,
            },
            token: put.token,
            md: put.md,
            eq: bound.eq,
            memory,
        };
        self.submit_direct(&own, &request, found, |transport, access| {
            // SAFETY: the source is valid until its descriptor is released, which waits for the
            // operation, and the caller guarantees that the source is not written before the
            // operation has ended.
            unsafe { transport.write(put.target, access) }
        })
    }

    /// Submits a get as a direct read. Returns `None` if it must be sent as a message instead.
    ///
    /// # Safety
    /// Same as for [`conduit_core::ni::Ni::get`]; `memory` must be the address of the get's
    /// destination, which must lie in its descriptor.
    pub(crate) unsafe fn get_direct(
        &mut self,
        get: &Get,
        bound: &Bound,
        memory: *mut u8,
    ) -> Option<Result<(), SubmitError>> {
        let request = Request {
            peer: get.target,
            index: get.index.0,
            option: MeOptions::GET,
            match_bits: get.match_bits,
            offset: get.remote_offset,
            length: get.length,
        };
        let found = self.portals.direct.find(&request)?;
        let own = LocalPart {
            name: "get",
            end: End::Reply,
            token: get.token,
            md: get.md,
            eq: bound.eq,
            memory,
        };
        self.submit_direct(&own, &request, found, |transport, access| {
            // SAFETY: the destination is valid until its descriptor is released, which waits for
            // the operation, and the caller guarantees that the destination is not accessed before
            // the operation has ended.
            unsafe { transport.read(get.target, access) }
        })
    }

    /// Submits an operation on an imported entry to the transport.
    fn submit_direct(
        &mut self,
        own: &LocalPart,
        request: &Request,
        (entry, remote): (MeId, Remote),
        submit: impl FnOnce(&mut T, &Access) -> Result<(), Refused>,
    ) -> Option<Result<(), SubmitError>> {
        if request.length == 0 {
            self.complete_empty(own);
            return Some(Ok(()));
        }
        let kind = OperationKind::Direct(own.end, entry);
        let operation = Operation {
            md: Some(own.md),
            memory: own.memory,
            length: request.length,
            ..Operation::new(kind, own.token, request.peer, own.eq)
        };
        let Some(id) = self.portals.operations.add(operation) else {
            self.portals.counters.waited_for_room += 1;
            return Some(Err(SubmitError::Again));
        };
        self.portals.descriptors.start(own.md);
        self.portals.direct.begin(request.peer, entry);
        let access = Access {
            remote,
            memory: own.memory,
            length: request.length,
            token: u64::from(id),
        };
        let Err(refused) = submit(&mut self.transport, &access) else {
            self.portals.counters.direct += 1;
            return Some(Ok(()));
        };
        self.undo(id);
        self.direct_refused(own.name, request.peer, refused)
    }

    /// Undoes an operation that the transport has refused.
    pub(crate) fn undo(&mut self, id: u32) {
        if let Some(operation) = self.portals.operations.remove(id) {
            self.portals.release_operation(operation);
        }
    }

    /// Returns the result for a refused operation, or `None` if the operation has to be sent as a
    /// message.
    pub(super) fn direct_refused(
        &mut self,
        operation: &'static str,
        peer: Rank,
        refused: Refused,
    ) -> Option<Result<(), SubmitError>> {
        match refused {
            Refused::Full => {
                self.portals.counters.waited_for_room += 1;
                Some(Err(SubmitError::Again))
            }
            Refused::Dead => Some(Err(self.dead(operation, peer))),
            // The operation is sent as a message. If there is no such rank, sending the message
            // reports the error.
            Refused::TooLong | Refused::NoSuchRank => None,
        }
    }

    /// Completes an operation of length 0 at once, because the entry accepts the operation and
    /// there is nothing to transfer.
    fn complete_empty(&mut self, own: &LocalPart) {
        let event = own.end.event(own.token, Completion::done(0));
        self.portals.counters.direct += 1;
        self.portals.post_event(own.eq, event);
    }
}
