//! Remote atomics on 32- and 64-bit numbers of a segment.
//!
//! The processor performs the atomics on mapped memory. These are atomic with respect to the
//! atomics that the network performs for the memory's owner.

use super::AtomicRequest;
use crate::engine::report::Awaits;
use crate::engine::{Calls, subject};
use crate::kernel::control::SharedPtr;
use crate::kernel::error::{Error, Result};
use crate::kernel::handle::{Handle, OpId};
use crate::kernel::operations::ResultPlace;
use crate::kernel::options::{Blocking, Completion};
use crate::kernel::portal_table::index;
use crate::kernel::token::{Role, Token};
use crate::memory::{Remote, Segment};
use crate::ni::{Atomic, AtomicOp, AtomicType, Ni, NiError, Rank, Submit};
use crate::rma::implicit::Class;
use crate::threads::Mode;

/// The destination of the old value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Old {
    /// Discarded.
    Dropped,
    /// Returned when the operation ends.
    Kept,
    /// Written to memory of the caller.
    To(SharedPtr),
}

impl Old {
    /// Returns the class of implicit operations that the atomic belongs to.
    fn class(self, op: AtomicOp) -> Class {
        match (op, self) {
            (AtomicOp::Set, Self::Dropped) => Class::PUTS,
            (AtomicOp::Get, _) => Class::GETS,
            _ => Class::ATOMICS,
        }
    }
}

impl<'e, N: Ni, M: Mode> Calls<'e, N, M, subject::Atomics> {
    /// Returns true if the processor performs the atomics on mapped memory, and false if the
    /// network performs them.
    pub fn has_processor_atomics(self) -> bool {
        self.engine.atomics.by_processor
    }

    /// Performs an atomic and returns the old value.
    #[inline]
    pub fn atomic_fetch(self, target: Rank, offset: usize, request: AtomicRequest) -> Result<u64> {
        self.atomic_fetch_in("atomic_fetch", target, offset, request)
    }

    /// Performs an atomic as a part of another call. Errors and reports name that call.
    #[inline]
    pub fn atomic_fetch_in(
        self,
        operation: &'static str,
        target: Rank,
        offset: usize,
        request: AtomicRequest,
    ) -> Result<u64> {
        let (old, wait) = (Old::Kept, Blocking::Wait);
        match self.atomic_start(operation, target, offset, request, old, None, wait)? {
            Started::Done(value) => Ok(value),
            Started::Going(op) => self.engine.rma().wait_op(operation, op),
            // Never reached: only an immediate atomic can be refused.
            Started::Refused => Ok(0),
        }
    }

    /// Performs an atomic and waits for its completion.
    #[inline]
    pub fn atomic(self, target: Rank, offset: usize, request: AtomicRequest) -> Result<()> {
        self.atomic_in("atomic", target, offset, request)
    }

    #[inline]
    pub(crate) fn atomic_in(
        self,
        operation: &'static str,
        target: Rank,
        offset: usize,
        request: AtomicRequest,
    ) -> Result<()> {
        let (old, wait) = (Old::Dropped, Blocking::Wait);
        match self.atomic_start(operation, target, offset, request, old, None, wait)? {
            Started::Going(op) => self.engine.rma().wait_op(operation, op).map(drop),
            Started::Done(_) | Started::Refused => Ok(()),
        }
    }

    /// Starts an atomic that doesn't fetch. Returns `None` if the atomic was not started.
    #[inline]
    pub fn atomic_nb(
        self,
        target: Rank,
        offset: usize,
        request: AtomicRequest,
        completion: Completion,
        blocking: Blocking,
    ) -> Result<Option<Handle>> {
        let operation = completion.name("atomic_nb", "atomic_nbi");
        self.atomic_begin(
            operation,
            target,
            offset,
            request,
            Old::Dropped,
            completion,
            blocking,
        )
    }

    /// Starts an atomic whose old value is written to `result`, in this machine's byte order and
    /// with the type's size. Returns `None` if the atomic was not started.
    ///
    /// # Safety
    /// `result` must be valid for a write of that many bytes. It must be neither read nor written
    /// until the handle, or this thread's implicit operations (or access region), have been
    /// synchronised. `result` need not be aligned.
    #[inline]
    pub unsafe fn atomic_fetch_nb(
        self,
        result: *mut u8,
        target: Rank,
        offset: usize,
        request: AtomicRequest,
        completion: Completion,
        blocking: Blocking,
    ) -> Result<Option<Handle>> {
        let operation = completion.name("atomic_fetch_nb", "atomic_fetch_nbi");
        self.atomic_begin(
            operation,
            target,
            offset,
            request,
            Old::To(SharedPtr(result)),
            completion,
            blocking,
        )
    }

    #[inline]
    #[expect(
        clippy::too_many_arguments,
        reason = "passes on the arguments of the public calls"
    )]
    fn atomic_begin(
        self,
        operation: &'static str,
        target: Rank,
        offset: usize,
        request: AtomicRequest,
        old: Old,
        completion: Completion,
        blocking: Blocking,
    ) -> Result<Option<Handle>> {
        let class = match completion {
            Completion::Handle => None,
            Completion::Implicit => Some(old.class(request.op)),
        };
        let started =
            self.atomic_start(operation, target, offset, request, old, class, blocking)?;
        Ok(match started {
            Started::Done(value) => {
                if let Old::To(base) = old {
                    let ty = request.ty;
                    // SAFETY: the caller of `atomic_fetch_nb` guarantees that `result`, which
                    // `base` points to, is valid for this write until that call has returned.
                    unsafe { ResultPlace { base, ty }.write(value) };
                }
                Some(Handle::DONE)
            }
            Started::Going(op) if class.is_none() => Some(Handle(Some(op))),
            Started::Going(_) => Some(Handle::DONE),
            Started::Refused => None,
        })
    }

    /// Performs an atomic on this rank's own segment and returns the old value. The operation is
    /// atomic with respect to the atomics of all ranks. Handlers may call this function.
    ///
    /// # Errors
    /// If the number lies outside the segment or is misaligned, or if the caller is a handler and
    /// the job uses the network's own atomics.
    #[inline]
    pub fn atomic_own(
        self,
        operation: &'static str,
        offset: usize,
        request: AtomicRequest,
    ) -> Result<u64> {
        let place = self.own_number(operation, offset, request.ty)?;
        if !self.engine.atomics.by_processor {
            return self.atomic_fetch_in(operation, self.job().rank, offset, request);
        }
        // SAFETY: `own_number` checked that `place` is the address of an aligned number in this
        // rank's segment. Other ranks and threads access the number with atomics, or race by the
        // program's own choice.
        Ok(unsafe { request.apply(place) })
    }

    /// Returns the address, in this process, of a number in this rank's segment.
    #[inline]
    fn own_number(self, operation: &'static str, offset: usize, ty: AtomicType) -> Result<*mut u8> {
        let rank = self.job().rank;
        let segment =
            self.engine
                .memory
                .remote(self.kernel(), operation, rank, offset, ty.size())?;
        aligned(operation, rank, segment, offset, ty.size())?;
        self.own_range(operation, offset, ty.size())
    }

    /// Returns the address, in this process, of a range in this rank's segment.
    ///
    /// # Errors
    /// If the range does not lie in the segment, no segment is attached, or the job uses segments
    /// of everything.
    #[inline]
    pub fn own_range(
        self,
        operation: &'static str,
        offset: usize,
        length: usize,
    ) -> Result<*mut u8> {
        let rank = self.job().rank;
        self.check_segments(operation)?;
        self.engine
            .memory
            .remote(self.kernel(), operation, rank, offset, length)?;
        let (own, _) = self.engine.memory.own(self.kernel(), operation)?;
        Ok(own.0.wrapping_add(offset))
    }

    /// Fails if the job uses segments of everything, because no check can then tell whether a range
    /// is valid memory.
    pub(crate) fn check_segments(self, operation: &'static str) -> Result<()> {
        match self.engine.memory.is_everything() {
            false => Ok(()),
            true => Err(NiError::System {
                operation,
                rank: self.job().rank,
                reason: "not supported with segment everything".to_owned(),
            }
            .into()),
        }
    }

    /// Returns the segment of `target`, once it has checked that an aligned number lies there.
    #[inline]
    pub(crate) fn remote_number(
        self,
        operation: &'static str,
        target: Rank,
        offset: usize,
        ty: AtomicType,
    ) -> Result<&'e Segment> {
        let segment = self.engine.memory.remote_access(
            self.kernel(),
            operation,
            target,
            offset,
            ty.size(),
        )?;
        aligned(operation, target, segment, offset, ty.size())?;
        Ok(segment)
    }

    /// Starts an atomic. `class` names the implicit operations that the atomic belongs to; it is
    /// `None` if the atomic has a handle.
    #[inline]
    #[expect(clippy::too_many_arguments, reason = "an atomic needs all of these")]
    fn atomic_start(
        self,
        operation: &'static str,
        target: Rank,
        offset: usize,
        request: AtomicRequest,
        old: Old,
        class: Option<Class>,
        blocking: Blocking,
    ) -> Result<Started> {
        let segment = self.remote_number(operation, target, offset, request.ty)?;
        if self.engine.atomics.by_processor && !segment.window.0.is_null() {
            // SAFETY: `remote_number` checked that the number lies in the window and that its
            // offset is aligned. The address is aligned too, because the window either is the
            // segment or, like the segment, starts at a page boundary. Other ranks and threads
            // access the number with atomics, or race by the program's own choice.
            let old = unsafe { request.apply(segment.window.0.add(offset)) };
            return Ok(Started::Done(old));
        }
        self.atomic_by_message(operation, target, offset, request, old, class, blocking)
    }

    /// Starts an atomic on a number that is not mapped here.
    #[inline(never)]
    #[expect(clippy::too_many_arguments, reason = "an atomic needs all of these")]
    fn atomic_by_message(
        self,
        operation: &'static str,
        target: Rank,
        offset: usize,
        request: AtomicRequest,
        old: Old,
        class: Option<Class>,
        blocking: Blocking,
    ) -> Result<Started> {
        self.engine
            .check_outside(operation, am::Operation::Request)?;
        self.engine.check_fault()?;
        let remote = Remote::segment(target, offset);
        if target == self.job().rank
            && let Some(address) = self.engine.memory.address_at_once(remote)
        {
            let number = std::ptr::with_exposed_provenance_mut(address);
            // SAFETY: `remote_number` checked the alignment. The program guarantees, as it does for
            // a put, that the number is valid memory, and that it is accessed only with atomics.
            let old = unsafe { request.apply(number) };
            return Ok(Started::Done(old));
        }
        // The operation id is taken first: running out of ids is an error from which the caller may
        // recover, so nothing else may be held at that point.
        let group = class
            .map(|class| self.engine.rma().implicit_group(operation, class))
            .transpose()?;
        let id = self.kernel().begin(operation, group, Some(target))?;
        self.engine.memory.note_asked(id, remote, request.ty.size());
        if let Old::To(base) = old {
            let ty = request.ty;
            self.kernel()
                .operations
                .set_result(id, ResultPlace { base, ty });
        }
        match blocking {
            Blocking::Wait => self.engine.rma().take_ticket(operation)?,
            Blocking::Immediate => {
                self.engine.poll_for(1);
                if !self.job().tickets.take(1) {
                    self.kernel().operations.forget(id);
                    return Ok(Started::Refused);
                }
            }
        }
        let atomic = Atomic {
            op: request.op,
            ty: request.ty,
            operand: request.operand,
            comparand: request.comparand,
            fetch: old != Old::Dropped,
            target,
            index: index::RAR,
            match_bits: remote.match_bits,
            remote_offset: offset as u64,
            eq: self.kernel().queues.safe,
            token: Token::new(Role::Atomic, Some(id)).bits(),
        };
        match blocking {
            Blocking::Wait => self
                .engine
                .wait_for(operation, Awaits::Room(target), |engine| {
                    Ok((engine.job().ni.atomic(&atomic)? == Submit::Posted).then_some(()))
                })?,
            Blocking::Immediate => {
                if self.job().ni.atomic(&atomic)? == Submit::Again {
                    self.job().tickets.give(1);
                    self.kernel().operations.forget(id);
                    return Ok(Started::Refused);
                }
            }
        }
        Ok(Started::Going(id))
    }
}

#[inline]
fn aligned(
    operation: &'static str,
    rank: Rank,
    segment: &Segment,
    offset: usize,
    size: usize,
) -> Result<()> {
    let address = (segment.address as usize).wrapping_add(offset);
    match address.is_multiple_of(size) {
        true => Ok(()),
        false => Err(Error::Misaligned {
            operation,
            rank,
            offset,
            size,
        }),
    }
}

/// The outcome of starting an atomic.
enum Started {
    Done(u64),
    Going(OpId),
    /// The atomic would have blocked.
    Refused,
}
