//! Remote atomics on 32- and 64-bit integers of a segment.
//!
//! On mapped memory the processor does them, which is atomic with what the network does at its owner.

use super::options::Blocking;
use super::parts::handle::{Handle, OpId};
use super::parts::memory::Segment;
use super::parts::table::index;
use super::parts::token::{Role, Token};
use super::report::Awaits;
use super::{Engine, Error, Result};
use crate::ni::{Atomic, AtomicOp, AtomicType, Ni, NiError, Rank, Submit, apply_atomic};
use crate::threads::Mode;

/// What an atomic does: see [`AtomicOp`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AtomicRequest {
    /// The operation.
    pub op: AtomicOp,
    /// The integer's type.
    pub ty: AtomicType,
    /// The operand; the low half for 32-bit types.
    pub operand: u64,
    /// The comparand of [`AtomicOp::CompareSwap`].
    pub comparand: u64,
}

impl<N: Ni, M: Mode> Engine<N, M> {
    /// Does an atomic and gives the value from before it.
    #[inline]
    pub fn atomic_fetch(&self, target: Rank, offset: usize, request: AtomicRequest) -> Result<u64> {
        self.atomic_fetch_in("atomic_fetch", target, offset, request)
    }

    /// The same as a part of another call, whose name it has in errors and reports.
    #[inline]
    pub fn atomic_fetch_in(
        &self,
        operation: &'static str,
        target: Rank,
        offset: usize,
        request: AtomicRequest,
    ) -> Result<u64> {
        match self.atomic_start(operation, target, offset, request, true, Blocking::Wait)? {
            Started::Done(value) => Ok(value),
            Started::Going(handle) => match OpId::from_bits(handle.into_bits()) {
                Some(op) => self.wait_op(operation, op),
                None => Ok(0),
            },
            // Only an immediate atomic is not started.
            Started::Refused => Ok(0),
        }
    }

    /// Does an atomic and waits until it has been done.
    #[inline]
    pub fn atomic(&self, target: Rank, offset: usize, request: AtomicRequest) -> Result<()> {
        self.atomic_in("atomic", target, offset, request)
    }

    #[inline]
    pub(super) fn atomic_in(
        &self,
        operation: &'static str,
        target: Rank,
        offset: usize,
        request: AtomicRequest,
    ) -> Result<()> {
        match self.atomic_start(operation, target, offset, request, false, Blocking::Wait)? {
            Started::Going(handle) => match OpId::from_bits(handle.into_bits()) {
                Some(op) => self.wait_op(operation, op).map(drop),
                None => Ok(()),
            },
            Started::Done(_) | Started::Refused => Ok(()),
        }
    }

    /// Starts an atomic that doesn't fetch. `None`: not started.
    pub fn atomic_nb(
        &self,
        target: Rank,
        offset: usize,
        request: AtomicRequest,
        blocking: Blocking,
    ) -> Result<Option<Handle>> {
        Ok(
            match self.atomic_start("atomic_nb", target, offset, request, false, blocking)? {
                Started::Done(_) => Some(Handle::DONE),
                Started::Going(handle) => Some(handle),
                Started::Refused => None,
            },
        )
    }

    /// Does an atomic on this rank's own segment, also in a handler, and gives the value from before it. Atomic with those
    /// of all ranks.
    ///
    /// # Errors
    /// An integer outside of the segment or misaligned. In a handler, where the network's own atomics are used.
    #[inline]
    pub fn atomic_own(
        &self,
        operation: &'static str,
        offset: usize,
        request: AtomicRequest,
    ) -> Result<u64> {
        let place = self.own_integer(operation, offset, request.ty)?;
        if !self.processor_atomics {
            return self.atomic_fetch_in(operation, self.job.rank, offset, request);
        }
        let AtomicRequest {
            op,
            ty,
            operand,
            comparand,
        } = request;
        // SAFETY: an aligned integer of this rank's segment, which others access as in `atomic_start`.
        Ok(unsafe { apply_atomic(place, op, ty, operand, comparand) })
    }

    /// An integer of this rank's segment, where it is in this process.
    #[inline]
    fn own_integer(
        &self,
        operation: &'static str,
        offset: usize,
        ty: AtomicType,
    ) -> Result<*mut u8> {
        aligned(operation, self.job.rank, offset, ty.size())?;
        self.own_range(operation, offset, ty.size())
    }

    /// Bytes of this rank's segment, where they are in this process.
    ///
    /// # Errors
    /// They do not lie in the segment, or there is none that is not everything.
    #[inline]
    pub fn own_range(
        &self,
        operation: &'static str,
        offset: usize,
        length: usize,
    ) -> Result<*mut u8> {
        let rank = self.job.rank;
        self.check_segments(operation)?;
        self.memory
            .remote(&self.job, operation, rank, offset, length)?;
        let own = self.memory.segments(&self.job, operation)?.own;
        Ok(own.0.wrapping_add(offset))
    }

    /// Refuses atomics where segments are everything: there is no entry for them.
    pub(super) fn check_segments(&self, operation: &'static str) -> Result<()> {
        match self.memory.is_everything() {
            false => Ok(()),
            true => Err(NiError::System {
                operation,
                rank: self.job.rank,
                reason: "atomics need segments that are not everything".to_owned(),
            }
            .into()),
        }
    }

    /// The segment of a rank that has an aligned integer there.
    #[inline]
    pub(super) fn remote_integer(
        &self,
        operation: &'static str,
        target: Rank,
        offset: usize,
        ty: AtomicType,
    ) -> Result<&Segment> {
        let segment = self
            .memory
            .remote_access(&self.job, operation, target, offset, ty.size())?;
        aligned(operation, target, offset, ty.size())?;
        Ok(segment)
    }

    #[inline]
    fn atomic_start(
        &self,
        operation: &'static str,
        target: Rank,
        offset: usize,
        request: AtomicRequest,
        fetch: bool,
        blocking: Blocking,
    ) -> Result<Started> {
        let segment = self.remote_integer(operation, target, offset, request.ty)?;
        let AtomicRequest {
            op,
            ty,
            operand,
            comparand,
        } = request;
        if self.processor_atomics && !segment.window.0.is_null() {
            // SAFETY: the range lies in the window (`remote`), a window starts at a page and `offset` is a multiple of
            // the size. Others access it at the same time by atomics, or race by the program's own choice.
            let old =
                unsafe { apply_atomic(segment.window.0.add(offset), op, ty, operand, comparand) };
            return Ok(Started::Done(old));
        }
        self.check_segments(operation)?;
        self.check_outside(operation, am::Operation::Request)?;
        self.check_fault()?;
        // The id first: to have none is an error that the caller may recover from, and then nothing else may be held.
        let id = self
            .operations
            .begin(&self.job, operation, None, Some(target))?;
        match blocking {
            Blocking::Wait => self.take_ticket(operation)?,
            Blocking::Immediate if self.job.tickets.take(1) => {}
            Blocking::Immediate => {
                self.operations.forget(id);
                return Ok(Started::Refused);
            }
        }
        let atomic = Atomic {
            op,
            ty,
            operand,
            comparand,
            fetch,
            target,
            index: index::RAR,
            match_bits: am::select::RAR.into(),
            remote_offset: offset as u64,
            eq: self.safe_eq,
            token: Token::new(Role::Atomic, Some(id)).bits(),
        };
        match blocking {
            Blocking::Wait => self.wait_for(operation, Awaits::Room(target), |engine| {
                Ok((engine.job.ni.atomic(&atomic)? == Submit::Posted).then_some(()))
            })?,
            Blocking::Immediate => {
                if self.job.ni.atomic(&atomic)? == Submit::Again {
                    self.job.tickets.give(1);
                    self.operations.forget(id);
                    return Ok(Started::Refused);
                }
            }
        }
        Ok(Started::Going(Handle(Some(id))))
    }
}

#[inline]
fn aligned(operation: &'static str, rank: Rank, offset: usize, size: usize) -> Result<()> {
    match offset.is_multiple_of(size) {
        true => Ok(()),
        false => Err(Error::Misaligned {
            operation,
            rank,
            offset,
            size,
        }),
    }
}

/// What became of an atomic.
enum Started {
    Done(u64),
    Going(Handle),
    /// It would have blocked.
    Refused,
}
