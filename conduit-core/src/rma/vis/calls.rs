//! Puts and gets of many ranges (GASNet's vector, indexed and strided ones). To and from a mapped
//! peer they are copies. Otherwise their pieces go together, as many as fit, in messages of the
//! library's own handlers: a put's with their bytes, to which the answer is short, a get's as a
//! list, to which the bytes are the answer. Large pieces go by themselves, as any put or get.
//!
//! Nothing is kept of what is put, and of a get only where the bytes go, message by message. So
//! what is under way is bounded as messages are: by credits and chunks.

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

/// A transfer's direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Put,
    Get,
}

/// A call: local places are addresses, remote ones offsets in the target's segment.
#[derive(Debug, Clone, Copy)]
struct Transfer<'a> {
    operation: &'static str,
    way: Way,
    target: Rank,
    remote: &'a Places<'a>,
    local: &'a Places<'a>,
}

impl Transfer<'_> {
    /// The local side of a piece.
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

/// A transfer by messages.
struct ByMessage<'a> {
    transfer: &'a Transfer<'a>,
    op: OpId,
    room: Room,
}

impl<'e, N: Ni, M: Mode> Calls<'e, N, M, subject::Rma> {
    /// Copies ranges of this process's memory, places that are addresses, to ranges of the target's
    /// segment, places that are offsets; it is there when the call returns. Both sides are of the
    /// same number of bytes, whatever their shapes.
    ///
    /// # Errors
    /// No such rank; ranges outside of the segment; sides that differ in their bytes, or a side
    /// whose counts do not go with its strides; in a handler; with checks, ranges that are written
    /// and overlap. Nothing has been written then.
    ///
    /// # Safety
    /// All of `local` is valid for reads and not written until return, and has exposed its
    /// provenance.
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
        // SAFETY: the caller's promise.
        unsafe { self.move_ranges_and_wait(&transfer) }
    }

    /// Copies ranges of the target's segment to ranges of this process's memory, as
    /// [`Calls::put_ranges`] the other way.
    ///
    /// # Errors
    /// As for [`Calls::put_ranges`].
    ///
    /// # Safety
    /// All of `local` is valid for writes and used by nobody else until return, and has exposed its
    /// provenance.
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
        // SAFETY: the caller's promise.
        unsafe { self.move_ranges_and_wait(&transfer) }
    }

    /// Starts a put of ranges. The descriptions of the places are used only during the call.
    /// `None`: not started, it would have blocked; one that has been started may wait for room for
    /// what does not fit its first message.
    ///
    /// # Errors
    /// As for [`Calls::put_ranges`].
    ///
    /// # Safety
    /// As for [`Calls::put_ranges`], until the handle, or this thread's implicit puts (or access
    /// region), have been synchronised.
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
        // SAFETY: the caller's promise.
        unsafe { self.move_ranges(&transfer, completion, blocking) }
    }

    /// Starts a get of ranges, as [`Calls::put_ranges_nb`] a put.
    ///
    /// # Errors
    /// As for [`Calls::put_ranges`].
    ///
    /// # Safety
    /// As for [`Calls::get_ranges`], until the handle, or this thread's implicit gets (or access
    /// region), have been synchronised.
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
        // SAFETY: the caller's promise.
        unsafe { self.move_ranges(&transfer, completion, blocking) }
    }

    /// Has `handler` of the target's client run there with these bytes, as the handler of a reply:
    /// a medium without arguments.
    ///
    /// # Errors
    /// As for [`Calls::request_medium`].
    pub fn complete_at_peer(self, target: Rank, handler: u8, payload: &[u8]) -> Result<()> {
        self.engine
            .messages()
            .request_medium(target, COMPLETE, &[handler.into()], payload, Blocking::Wait)
            .map(drop)
    }

    /// # Safety
    /// As for [`Calls::move_ranges`], until return.
    unsafe fn move_ranges_and_wait(self, transfer: &Transfer<'_>) -> Result<()> {
        let (completion, blocking) = (Completion::Handle, Blocking::Wait);
        // SAFETY: the caller's promise; the call waits.
        let started = unsafe { self.move_ranges(transfer, completion, blocking)? };
        self.wait_in(transfer.operation, started.unwrap_or(Handle::DONE))
    }

    /// # Safety
    /// The local places are valid as [`Local`] says for this way, until the operation has been
    /// synchronised.
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
            // SAFETY: the caller's promise.
            return unsafe { self.start_ranges(transfer, completion, blocking) };
        }
        let mapped = Places {
            origin: window.expose_provenance().wrapping_add(remote.origin),
            ..*remote
        };
        // SAFETY: the remote ranges lie in the window, as just checked, the local ones are the
        // caller's promise. Fences and races are as in `Segment::store` and `load`.
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

    /// How many bytes a transfer has, if it is one.
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
                    "the {side} ones have no number of bytes: too many, or not as many counts as strides"
                ))
            })
        };
        let there = bytes("remote", transfer.remote)?;
        let here = bytes("local", transfer.local)?;
        if there != here {
            let reason = format!("{there} bytes there and {here} bytes here");
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
            // Of an array that goes around all of the address space.
            return Err(refuse("not in the segment".to_owned()));
        }
        Ok(there)
    }

    /// Refuses to write a byte twice: which of the two would stay is not said. Of local ranges the
    /// place is an address, of remote ones an offset.
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
                reason: format!(
                    "{side} ranges that are written overlap, at {:#x}",
                    run.start
                ),
            }),
        }
    }

    /// Starts what is no copy to or from mapped memory.
    ///
    /// # Safety
    /// As for [`Calls::move_ranges`].
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
                // SAFETY: the caller's promise. Of a range of this very process it is the program's
                // word that it is memory.
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
            // Credits and chunks come back by polls, and who tries again may do nothing else.
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
        // SAFETY: the caller's promise.
        let posted = unsafe { self.post_ranges(&by_message, pieces, &mut message, blocking) };
        self.engine.rma.transfers.give_room(message);
        match posted {
            Ok(true) => {}
            Ok(false) => {
                self.kernel().operations.forget(op);
                return Ok(None);
            }
            Err(error) => {
                // As for a transfer in pieces: some are under way, and the caller doesn't wait for
                // them.
                self.job().fail(error.clone());
                self.engine.check_fault()?;
                return Err(error);
            }
        }
        // The initiation itself was a piece.
        self.kernel().finish(op);
        Ok(Some(match completion {
            Completion::Handle => Handle(Some(op)),
            Completion::Implicit => Handle::DONE,
        }))
    }

    /// Sends all messages of a transfer, one after the other. `false`: the first would have had to
    /// wait, and may not.
    ///
    /// # Safety
    /// As for [`Calls::move_ranges`].
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
                // SAFETY: the caller's promise; a piece of what has been checked.
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
            // SAFETY: the caller's promise.
            if !unsafe { self.post_message(by_message, first, message, blocking)? } {
                return Ok(false);
            }
            blocking = Blocking::Wait;
        }
    }

    /// Sends a message, whose pieces are those from `first` on that are not large. `false`: it
    /// would have had to wait.
    ///
    /// # Safety
    /// As for [`Calls::move_ranges`].
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
            // SAFETY: the source is the caller's promise; there is room for the piece.
            unsafe { crate::shared::copy(from, to, piece.len) };
            at += piece.len;
        }
        self.kernel().operations.add(op);
        let number = self
            .engine
            .rma
            .transfers
            .add(op, target, brought, message.local.finish());
        // Fits: what a message carries or brings does.
        prepared.commit(handler, &[number, data as u32], length)?;
        Ok(true)
    }
}
