//! Operations on what peers have told.

use conduit_core::ni::{Ack, EqId, Event, Get, MdId, MeId, MeOptions, Outcome, Put, Rank};

use super::known::Wanted;
use crate::matching::Bound;
use crate::transport::Inner;
use crate::transport::fragment::Refused;
use crate::transport::interface::{Access, Remote, Transport};
use crate::transport::operation::{End, Kind, Operation};
use crate::transport::submit::Not;

/// An operation, and this rank's piece of memory for it.
struct Own {
    name: &'static str,
    end: End,
    token: u64,
    md: MdId,
    eq: EqId,
    memory: *mut u8,
}

impl<T: Transport> Inner<T> {
    /// Puts directly. `None`: it has to go by message.
    ///
    /// # Safety
    /// As for [`conduit_core::ni::Ni::put`]; `memory` is the put's piece of its descriptor.
    pub(crate) unsafe fn put_directly(
        &mut self,
        put: &Put,
        bound: &Bound,
        memory: *mut u8,
    ) -> Option<Result<(), Not>> {
        let wanted = Wanted {
            peer: put.target,
            index: put.index.0,
            option: MeOptions::PUT,
            match_bits: put.match_bits,
            offset: put.remote_offset,
            length: put.length,
        };
        let found = self.portals.direct.find(&wanted)?;
        let own = Own {
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
        self.do_directly(&own, &wanted, found, |transport, access| {
            // SAFETY: the source is valid until its descriptor is released, which waits for the operation, and is not written
            // before that has ended (the caller's promise).
            unsafe { transport.write(put.target, access) }
        })
    }

    /// Gets directly. `None`: it has to go by message.
    ///
    /// # Safety
    /// As for [`conduit_core::ni::Ni::get`]; `memory` is the get's piece of its descriptor.
    pub(crate) unsafe fn get_directly(
        &mut self,
        get: &Get,
        bound: &Bound,
        memory: *mut u8,
    ) -> Option<Result<(), Not>> {
        let wanted = Wanted {
            peer: get.target,
            index: get.index.0,
            option: MeOptions::GET,
            match_bits: get.match_bits,
            offset: get.remote_offset,
            length: get.length,
        };
        let found = self.portals.direct.find(&wanted)?;
        let own = Own {
            name: "get",
            end: End::Reply,
            token: get.token,
            md: get.md,
            eq: bound.eq,
            memory,
        };
        self.do_directly(&own, &wanted, found, |transport, access| {
            // SAFETY: the destination is valid until its descriptor is released, which waits for the operation, and nobody looks
            // at it before that has ended (the caller's promise).
            unsafe { transport.read(get.target, access) }
        })
    }

    /// Has the transport do an operation on an entry that takes it.
    fn do_directly(
        &mut self,
        own: &Own,
        wanted: &Wanted,
        (entry, remote): (MeId, Remote),
        submit: impl FnOnce(&mut T, &Access) -> Result<(), Refused>,
    ) -> Option<Result<(), Not>> {
        if wanted.length == 0 {
            self.tell_of_nothing(own);
            return Some(Ok(()));
        }
        let operation = Operation {
            kind: Kind::Direct(own.end, entry),
            token: own.token,
            target: wanted.peer,
            md: Some(own.md),
            eq: own.eq,
            memory: own.memory,
            length: wanted.length,
            unsent: false,
            answer: None,
            abandoned: false,
        };
        let Some(name) = self.portals.operations.add(operation) else {
            self.portals.counters.waited_for_room += 1;
            return Some(Err(Not::Again));
        };
        self.portals.descriptors.start(own.md);
        self.portals.direct.begin(wanted.peer, entry);
        let access = Access {
            remote,
            memory: own.memory,
            length: wanted.length,
            token: u64::from(name),
        };
        let Err(refused) = submit(&mut self.transport, &access) else {
            self.portals.counters.direct += 1;
            return Some(Ok(()));
        };
        self.undo(name);
        self.not_taken(own.name, wanted.peer, refused)
    }

    /// Undoes an operation that the transport has not taken.
    pub(super) fn undo(&mut self, name: u32) {
        if let Some(operation) = self.portals.operations.remove(name) {
            self.portals.operation_dropped(operation);
        }
    }

    /// What follows then; `None`: it goes by message.
    pub(super) fn not_taken(
        &mut self,
        operation: &'static str,
        peer: Rank,
        refused: Refused,
    ) -> Option<Result<(), Not>> {
        match refused {
            Refused::Full => {
                self.portals.counters.waited_for_room += 1;
                Some(Err(Not::Again))
            }
            Refused::Dead => Some(Err(self.dead(operation, peer))),
            // The message finds no such rank either, and says so.
            Refused::TooLong | Refused::NoSuchRank => None,
        }
    }

    /// The end of an operation that moves nothing: the entry takes it, so it has ended.
    fn tell_of_nothing(&mut self, own: &Own) {
        let (token, outcome) = (own.token, Outcome::Done);
        let event = match own.end {
            End::Send => Event::Send { token },
            End::Ack => Event::Ack {
                token,
                outcome,
                length: 0,
            },
            End::Reply => Event::Reply {
                token,
                outcome,
                length: 0,
                value: 0,
            },
        };
        self.portals.counters.direct += 1;
        self.portals.tell(own.eq, event);
    }
}
