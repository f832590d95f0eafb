//! Calls on explicit handles, which wait for one, some or all of them, or test them with or without
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

    /// Waits for an operation and returns its value (the result of a fetching atomic; otherwise
    /// unspecified).
    pub(crate) fn wait_op(self, operation: &'static str, op: OpId) -> Result<u64> {
        self.engine
            .wait_for(operation, Awaits::Operation(op), |engine| {
                engine.kernel.take(operation, op)
            })
    }

    /// Ends an operation if it has completed; otherwise returns the handle. Polls once unless it
    /// has already completed.
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

    /// Returns whether the operation has ended or its handle is already synchronised. The call
    /// neither ends the operation nor polls.
    ///
    /// For parts of an operation that complete with it (GASNet-EX's leaf events): `handle` is then
    /// a second handle with the same number.
    pub fn has_ended(self, handle: &Handle) -> bool {
        handle
            .0
            .is_none_or(|op| self.kernel().operations.has_ended(op))
    }

    /// Waits for all handles; each becomes [`Handle::DONE`].
    pub fn wait_all(self, handles: &mut [Handle]) -> Result<()> {
        self.engine
            .wait_for("wait_all", Awaits::Operations, |engine| {
                Ok(engine.kernel.sweep("wait_all", handles)?.1.then_some(()))
            })
    }

    /// Waits until at least one operation in flight has ended, unless none is in flight. The
    /// handles of operations that have ended become [`Handle::DONE`]. Returns the number of these
    /// operations.
    pub fn wait_some(self, handles: &mut [Handle]) -> Result<usize> {
        self.engine
            .wait_for("wait_some", Awaits::Operations, |engine| {
                let (ended, all) = engine.kernel.sweep("wait_some", handles)?;
                Ok((ended > 0 || all).then_some(ended))
            })
    }

    /// Polls once and returns whether all operations have ended. Does what [`Calls::wait_all`]
    /// does, but without waiting.
    pub fn try_wait_all(self, handles: &mut [Handle]) -> Result<bool> {
        self.engine.poll()?;
        Ok(self.kernel().sweep("try_wait_all", handles)?.1)
    }

    /// Polls once and returns the number of operations that have ended. Does what
    /// [`Calls::wait_some`] does, but without waiting.
    pub fn try_wait_some(self, handles: &mut [Handle]) -> Result<usize> {
        self.engine.poll()?;
        Ok(self.kernel().sweep("try_wait_some", handles)?.0)
    }
}
