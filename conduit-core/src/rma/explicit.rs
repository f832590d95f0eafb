//! Calls on explicit handles. They wait for one, some or all handles, or test them with or without
//! polling.

use crate::engine::report::Awaits;
use crate::engine::{Calls, subject};
use crate::kernel::error::Result;
use crate::kernel::handle::{Handle, OpId};
use crate::ni::Ni;
use crate::threads::Mode;

impl<'e, N: Ni, M: Mode> Calls<'e, N, M, subject::Rma> {
    /// Waits for an operation.
    #[inline]
    pub fn wait(self, handle: Handle) -> Result<()> {
        self.wait_in("wait", handle)
    }

    /// Waits for an operation as a part of another call. Errors and reports name that call.
    #[inline]
    pub fn wait_in(self, operation: &'static str, handle: Handle) -> Result<()> {
        match handle.0 {
            None => Ok(()),
            Some(op) => self.wait_op(operation, op).map(drop),
        }
    }

    /// Waits for an operation and returns its value, which is the result of a fetching atomic and
    /// otherwise unspecified.
    pub(crate) fn wait_op(self, operation: &'static str, op: OpId) -> Result<u64> {
        self.engine
            .wait_for(operation, Awaits::Operation(op), |engine| {
                engine.kernel.take(operation, op)
            })
    }

    /// Ends an operation if it has completed, and otherwise returns its handle. Polls once unless
    /// the operation has already completed.
    #[inline]
    pub fn try_wait(self, handle: Handle) -> Result<Option<Handle>> {
        let Some(op) = handle.0 else {
            return Ok(None);
        };
        if self.kernel().take("try_wait", op)?.is_some() {
            return Ok(None);
        }
        self.engine.poll()?;
        self.test(Handle(Some(op)))
    }

    /// Tests a handle as [`Calls::try_wait`] does, but without polling (GASNet-EX's test).
    #[inline]
    pub fn test(self, handle: Handle) -> Result<Option<Handle>> {
        let Some(op) = handle.0 else {
            return Ok(None);
        };
        Ok(if self.kernel().take("test", op)?.is_some() {
            None
        } else {
            Some(Handle(Some(op)))
        })
    }

    /// Returns whether the operation has ended or its handle has already been synchronised. This
    /// call neither ends the operation nor polls.
    ///
    /// Used for parts of an operation that complete together with it (GASNet-EX's leaf events). In
    /// that case `handle` is a second handle with the same number.
    pub fn has_ended(self, handle: &Handle) -> bool {
        handle
            .0
            .is_none_or(|op| self.kernel().operations.has_ended(op))
    }

    /// Waits for all operations. Each handle becomes [`Handle::DONE`].
    pub fn wait_all(self, handles: &mut [Handle]) -> Result<()> {
        self.engine
            .wait_for("wait_all", Awaits::Operations, |engine| {
                Ok(engine.kernel.sweep("wait_all", handles)?.1.then_some(()))
            })
    }

    /// Waits until at least one of the operations in flight has ended, or returns at once if none
    /// is in flight. The handles of the operations that have ended become [`Handle::DONE`]. Returns
    /// the number of these operations.
    pub fn wait_some(self, handles: &mut [Handle]) -> Result<usize> {
        self.engine
            .wait_for("wait_some", Awaits::Operations, |engine| {
                let (ended, all) = engine.kernel.sweep("wait_some", handles)?;
                Ok((ended > 0 || all).then_some(ended))
            })
    }

    /// Polls once and returns whether all operations have ended. Otherwise the same as
    /// [`Calls::wait_all`], but does not wait.
    pub fn try_wait_all(self, handles: &mut [Handle]) -> Result<bool> {
        self.engine.poll()?;
        Ok(self.kernel().sweep("try_wait_all", handles)?.1)
    }

    /// Polls once and returns the number of operations that have ended. Otherwise the same as
    /// [`Calls::wait_some`], but does not wait.
    pub fn try_wait_some(self, handles: &mut [Handle]) -> Result<usize> {
        self.engine.poll()?;
        Ok(self.kernel().sweep("try_wait_some", handles)?.0)
    }
}
