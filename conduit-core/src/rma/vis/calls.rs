//! Puts and gets of many ranges (GASNet's vector, indexed and strided puts and gets). For a mapped
//! peer they are copies. Otherwise their pieces are packed, as many as fit, into messages to the
//! library's own handlers. The message of a put carries the bytes and is answered by a short reply.
//! The message of a get carries a list of ranges, and the reply carries the bytes. Each large piece
//! is an ordinary put or get of its own.
//!
//! For each message of a get, a rank keeps a list of the destinations of the bytes. For a put it
//! keeps no list. Credits and chunks limit the number of messages in flight, as they do for other
//! messages.

use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::atomic::fence;

use am::MAX_ARGS;

use crate::engine::{Calls, subject};
use crate::kernel::error::{Error, Result};
use crate::kernel::handle::{Handle, OpId};
use crate::kernel::options::{Blocking, Completion};
use crate::memory::{Local, Remote, Segment, Source};
use crate::ni::{Ni, Rank};
use crate::rma::implicit::Class;
use crate::rma::transfer::Transfer as Started;
use crate::rma::vis::handlers::{COMPLETE, GET, PUT};
use crate::rma::vis::{Message, Piece, Pieces, Places, Room, copy_all, overlapping};
use crate::threads::Mode;

/// The direction of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Put,
    Get,
}

/// The parameters of a call. Local places are addresses, and remote places are offsets in the
/// target's segment.
#[derive(Debug, Clone, Copy)]
struct Transfer<'a> {
    operation: &'static str,
    way: Way,
    target: Rank,
    remote: &'a Places<'a>,
    local: &'a Places<'a>,
}

impl Transfer<'_> {
    /// Returns the local side of a piece.
    fn local(&self, piece: &Piece) -> Local {
        let (base, len) = (
            std::ptr::with_exposed_provenance_mut(piece.local),
            piece.len,
        );
        match self.way {
            Way::Put => Local::Source(Source { base, len }),
            Way::Get => Local::Destination { base, len },
        }
    }
}

/// A transfer that is performed by messages.
struct ByMessage<'a> {
    transfer: &'a Transfer<'a>,
    op: OpId,
    room: Room,
}

impl<'e, N: Ni, M: Mode> Calls<'e, N, M, subject::Rma> {
    /// Copies ranges of this process's memory (places are addresses) to ranges of the target's
    /// segment (places are offsets). The data is in place when this call returns. The two sides
    /// must have the same number of bytes, but may differ in shape.
    ///
    /// # Errors
    /// If the rank does not exist; if ranges lie outside the segment; if the two sides have
    /// different numbers of bytes, or one side has different numbers of counts and strides; if the
    /// call is made in a handler; or, with checks, if ranges to be written overlap. In these cases
    /// nothing has been written.
    ///
    /// # Safety
    /// All of `local` must be valid for reads and must not be written until this call returns. The
    /// provenance of `local` must be exposed.
    pub unsafe fn put_ranges(
        self,
        target: Rank,
        remote: &Places<'_>,
        local: &Places<'_>,
    ) -> Result<()> {
        let transfer = Transfer {
            operation: "put_ranges",
            way: Way::Put,
            target,
            remote,
            local,
        };
        // SAFETY: the caller guarantees that `local` is valid until this call returns, and this
        // call waits for the operation.
        unsafe { self.move_ranges_and_wait(&transfer) }
    }

    /// Copies ranges of the target's segment to ranges of this process's memory. The counterpart of
    /// [`Calls::put_ranges`].
    ///
    /// # Errors
    /// Same as [`Calls::put_ranges`].
    ///
    /// # Safety
    /// All of `local` must be valid for writes and must not be accessed in any other way until this
    /// call returns. The provenance of `local` must be exposed.
    pub unsafe fn get_ranges(
        self,
        local: &Places<'_>,
        target: Rank,
        remote: &Places<'_>,
    ) -> Result<()> {
        let transfer = Transfer {
            operation: "get_ranges",
            way: Way::Get,
            target,
            remote,
            local,
        };
        // SAFETY: the caller guarantees that `local` is valid until this call returns, and this
        // call waits for the operation.
        unsafe { self.move_ranges_and_wait(&transfer) }
    }

    /// Starts a put of ranges. The descriptions of the places are used only during this call.
    /// Returns `None` if the put was not started because it would have blocked. If the put needs
    /// more than one message, the call may wait for room once the first message has been sent.
    ///
    /// # Errors
    /// Same as [`Calls::put_ranges`].
    ///
    /// # Safety
    /// The conditions of [`Calls::put_ranges`] apply, but must hold until the handle, or this
    /// thread's implicit puts (or access region), have been synchronised.
    pub unsafe fn put_ranges_nb(
        self,
        target: Rank,
        remote: &Places<'_>,
        local: &Places<'_>,
        completion: Completion,
        blocking: Blocking,
    ) -> Result<Option<Handle>> {
        let transfer = Transfer {
            operation: completion.name("put_ranges_nb", "put_ranges_nbi"),
            way: Way::Put,
            target,
            remote,
            local,
        };
        // SAFETY: the caller guarantees that `local` is valid until the put has been synchronised.
        unsafe { self.move_ranges(&transfer, completion, blocking) }
    }

    /// Starts a get of ranges. The counterpart of [`Calls::put_ranges_nb`].
    ///
    /// # Errors
    /// Same as [`Calls::put_ranges`].
    ///
    /// # Safety
    /// The conditions of [`Calls::get_ranges`] apply, but must hold until the handle, or this
    /// thread's implicit gets (or access region), have been synchronised.
    pub unsafe fn get_ranges_nb(
        self,
        local: &Places<'_>,
        target: Rank,
        remote: &Places<'_>,
        completion: Completion,
        blocking: Blocking,
    ) -> Result<Option<Handle>> {
        let transfer = Transfer {
            operation: completion.name("get_ranges_nb", "get_ranges_nbi"),
            way: Way::Get,
            target,
            remote,
            local,
        };
        // SAFETY: the caller guarantees that `local` is valid until the get has been synchronised.
        unsafe { self.move_ranges(&transfer, completion, blocking) }
    }

    /// Runs the client's handler with id `handler` at the target, with these bytes as payload. The
    /// handler runs as it would for a medium reply without arguments.
    ///
    /// # Errors
    /// Same as [`Calls::request_medium`].
    pub fn complete_at_peer(self, target: Rank, handler: u8, payload: &[u8]) -> Result<()> {
        self.engine
            .messages()
            .request_medium(target, COMPLETE, &[handler.into()], payload, Blocking::Wait)
            .map(drop)
    }

    /// # Safety
    /// The conditions of [`Calls::move_ranges`] apply, but need to hold only until this call
    /// returns.
    unsafe fn move_ranges_and_wait(self, transfer: &Transfer<'_>) -> Result<()> {
        let (completion, blocking) = (Completion::Handle, Blocking::Wait);
        // SAFETY: the caller guarantees that the local places are valid until this call returns,
        // and this call waits for the operation.
        let started = unsafe { self.move_ranges(transfer, completion, blocking)? };
        self.wait_in(transfer.operation, started.unwrap_or(Handle::DONE))
    }

    /// # Safety
    /// The local places must be valid, as [`Local`] describes for this direction, until the
    /// operation has been synchronised.
    unsafe fn move_ranges(
        self,
        transfer: &Transfer<'_>,
        completion: Completion,
        blocking: Blocking,
    ) -> Result<Option<Handle>> {
        let &Transfer {
            operation,
            way,
            target,
            remote,
            local,
        } = transfer;
        let segment = self
            .engine
            .memory
            .remote_access(self.kernel(), operation, target, 0, 0)?;
        if self.check_ranges(transfer, segment)? == 0 {
            return Ok(Some(Handle::DONE));
        }
        if self.job().has_checks() {
            self.check_disjoint(transfer)?;
        }
        let window = segment.window.0;
        if window.is_null() {
            // SAFETY: the caller guarantees that the local places are valid until the operation has
            // been synchronised.
            return unsafe { self.start_ranges(transfer, completion, blocking) };
        }
        let mapped = Places {
            origin: window.expose_provenance().wrapping_add(remote.origin),
            ..*remote
        };
        // SAFETY: `check_ranges` has checked that the remote ranges lie in the window, and the
        // caller guarantees that the local ranges are valid. The fences have the same purpose as in
        // `Segment::store` and `load`, and races are the program's own, as there.
        unsafe {
            match way {
                Way::Put => {
                    fence(Release);
                    copy_all(&mapped, local);
                }
                Way::Get => {
                    copy_all(local, &mapped);
                    fence(Acquire);
                }
            }
        }
        Ok(Some(Handle::DONE))
    }

    /// Checks a transfer and returns its number of bytes.
    fn check_ranges(self, transfer: &Transfer<'_>, segment: &Segment) -> Result<usize> {
        let &Transfer {
            operation, target, ..
        } = transfer;
        let refuse = |reason: String| Error::Ranges {
            operation,
            rank: target,
            reason,
        };
        let bytes = |side, places: &Places<'_>| {
            let count = places.bytes();
            count.ok_or_else(|| {
                refuse(format!(
                    "the {side} ranges have too many bytes, or different numbers of counts and strides"
                ))
            })
        };
        let there = bytes("remote", transfer.remote)?;
        let here = bytes("local", transfer.local)?;
        if there != here {
            let reason = format!("the remote ranges have {there} bytes, the local ones {here}");
            return Err(refuse(reason));
        }
        if let Err(outside) = transfer.remote.check(segment.len) {
            self.engine.memory.remote(
                self.kernel(),
                operation,
                target,
                outside.start,
                outside.len,
            )?;
            // The array wraps around the end of the address space.
            return Err(refuse("an array extends beyond the segment".to_owned()));
        }
        Ok(there)
    }

    /// Fails if a byte would be written twice, because the result would then be unspecified. The
    /// location in the error is an address for local ranges and an offset for remote ranges.
    fn check_disjoint(self, transfer: &Transfer<'_>) -> Result<()> {
        let (side, written) = match transfer.way {
            Way::Put => ("remote", transfer.remote),
            Way::Get => ("local", transfer.local),
        };
        match overlapping(written) {
            None => Ok(()),
            Some(run) => Err(Error::Ranges {
                operation: transfer.operation,
                rank: transfer.target,
                reason: format!("{side} destination ranges overlap at {:#x}", run.start),
            }),
        }
    }

    /// Starts a transfer that is not a copy to or from mapped memory.
    ///
    /// # Safety
    /// Same as [`Calls::move_ranges`].
    unsafe fn start_ranges(
        self,
        transfer: &Transfer<'_>,
        completion: Completion,
        blocking: Blocking,
    ) -> Result<Option<Handle>> {
        let &Transfer {
            operation,
            way,
            target,
            ..
        } = transfer;
        self.engine
            .check_outside(operation, am::Operation::Request)?;
        self.engine.check_fault()?;
        let pieces = Pieces::new(transfer.local, transfer.remote);
        if let Some(start) = self
            .engine
            .memory
            .address_at_once(Remote::segment(target, 0))
        {
            for piece in pieces {
                let local = transfer.local(&piece);
                let address = start.wrapping_add(piece.remote);
                // SAFETY: the caller guarantees that the local places are valid. For a range of
                // this process, the program guarantees that it is valid memory.
                unsafe {
                    self.engine
                        .memory
                        .transfer_anywhere(self.kernel(), target, address, local)?
                };
            }
            return Ok(Some(Handle::DONE));
        }
        let class = match way {
            Way::Put => Class::PUTS,
            Way::Get => Class::GETS,
        };
        let group = match completion {
            Completion::Handle => None,
            Completion::Implicit => Some(self.implicit_group(operation, class)?),
        };
        if blocking == Blocking::Immediate {
            // A poll frees credits and chunks. It is needed here because a caller that retries may
            // not poll in any other way.
            self.engine.poll_for(1);
        }
        let op = self.kernel().begin(operation, group, Some(target))?;
        let by_message = ByMessage {
            transfer,
            op,
            room: Room {
                payload: self.engine.messages().max_medium(MAX_ARGS),
                shared: way == Way::Put,
            },
        };
        let mut message = self.engine.rma.transfers.take_room();
        // SAFETY: the caller guarantees that the local places are valid until the operation has
        // been synchronised.
        let posted = unsafe { self.post_ranges(&by_message, pieces, &mut message, blocking) };
        self.engine.rma.transfers.give_room(message);
        match posted {
            Ok(true) => {}
            Ok(false) => {
                self.kernel().operations.forget(op);
                return Ok(None);
            }
            Err(error) => {
                // As with a transfer in pieces, some pieces are in flight, and the caller does not
                // wait for them.
                self.job().fail(error.clone());
                self.engine.check_fault()?;
                return Err(error);
            }
        }
        // The initiation itself counted as a piece, which ends here.
        self.kernel().finish(op);
        Ok(Some(match completion {
            Completion::Handle => Handle(Some(op)),
            Completion::Implicit => Handle::DONE,
        }))
    }

    /// Sends all messages of a transfer in order. Returns `false` if the first message would have
    /// had to wait but may not.
    ///
    /// # Safety
    /// Same as [`Calls::move_ranges`].
    unsafe fn post_ranges(
        self,
        by_message: &ByMessage<'_>,
        mut pieces: Pieces<'_>,
        message: &mut Message,
        mut blocking: Blocking,
    ) -> Result<bool> {
        let &ByMessage { transfer, op, room } = by_message;
        loop {
            message.clear();
            let first = pieces.clone();
            while let Some(large) = message.fill(&mut pieces, room) {
                // SAFETY: the caller guarantees that the local places are valid, and the piece is
                // part of a checked range.
                let started = unsafe {
                    self.transfer(
                        transfer.operation,
                        Remote::segment(transfer.target, large.remote),
                        transfer.local(&large),
                        Some(op),
                        blocking,
                    )?
                };
                if started == Started::NotStarted {
                    return Ok(false);
                }
                blocking = Blocking::Wait;
            }
            if message.data == 0 {
                return Ok(true);
            }
            // SAFETY: the caller guarantees that the local places are valid until the operation has
            // been synchronised.
            if !unsafe { self.post_message(by_message, first, message, blocking)? } {
                return Ok(false);
            }
            blocking = Blocking::Wait;
        }
    }

    /// Sends a message with the pieces from `first` on, except large pieces. Returns `false` if the
    /// message would have had to wait but may not.
    ///
    /// # Safety
    /// Same as [`Calls::move_ranges`].
    unsafe fn post_message(
        self,
        by_message: &ByMessage<'_>,
        first: Pieces<'_>,
        message: &mut Message,
        blocking: Blocking,
    ) -> Result<bool> {
        let (target, op, data) = (by_message.transfer.target, by_message.op, message.data);
        let (handler, carried, brought) = match by_message.transfer.way {
            Way::Put => (PUT, data, 0),
            Way::Get => (GET, 0, data),
        };
        let list = message.remote.finish();
        let length = carried + list.len();
        let operation = by_message.transfer.operation;
        let prepared = self
            .engine
            .messages()
            .prepare(operation, target, length, length, blocking)?;
        let Some(mut prepared) = prepared else {
            return Ok(false);
        };
        let payload = prepared.payload();
        payload[carried..length].copy_from_slice(list);
        let mut at = 0;
        for piece in first.filter(|piece| piece.len < by_message.room.large()) {
            if at == carried {
                break;
            }
            let to = payload[at..carried][..piece.len].as_mut_ptr();
            let from = std::ptr::with_exposed_provenance(piece.local);
            // SAFETY: the caller guarantees that the source is valid, and the payload has room for
            // the piece.
            unsafe { crate::shared::copy(from, to, piece.len) };
            at += piece.len;
        }
        self.kernel().operations.add(op);
        let number = self
            .engine
            .rma
            .transfers
            .add(op, target, brought, message.local.finish());
        // The cast is lossless: the data fits in a message or its reply.
        prepared.commit(handler, &[number, data as u32], length)?;
        Ok(true)
    }
}
