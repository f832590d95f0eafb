//! Explicit handles: waiting for one, some or all, with and without polling.

use super::operations::OpId;
use super::{Engine, Error, Result};
use crate::ni::Ni;
use crate::threads::{Lock, Mode};

/// An operation under way. Has to be synchronised: until then it keeps an operation id, and memory that it uses is not
/// the caller's.
///
/// Dropping it does neither harm nor good: the operation goes on, and its id stays in use.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "an operation is complete only when its handle has been synchronised"]
pub struct Handle(pub(super) Option<OpId>);

impl Handle {
    /// The handle of an operation that has ended.
    pub const DONE: Self = Self(None);

    /// Whether it is the handle of an operation that had ended when it was started.
    #[inline]
    pub fn is_done(&self) -> bool {
        self.0.is_none()
    }

    /// The handle as a number for foreign interfaces; 0 is done.
    pub fn into_bits(self) -> u32 {
        self.0.map_or(0, OpId::bits)
    }

    /// The handle of a number from [`Handle::into_bits`], used once. Another number gives a stale handle, which is an error
    /// when it is synchronised, or somebody else's operation, which is then lost to its owner.
    pub fn from_bits(bits: u32) -> Self {
        Self(OpId::from_bits(bits))
    }
}

impl<N: Ni, M: Mode> Engine<N, M> {
    /// Waits for an operation.
    #[inline]
    pub fn wait(&self, handle: Handle) -> Result<()> {
        match handle.0 {
            None => Ok(()),
            Some(op) => self.wait_op("wait", op).map(drop),
        }
    }

    /// Waits for an operation, and gives its value (a fetching atomic's; otherwise 0).
    pub(super) fn wait_op(&self, operation: &'static str, op: OpId) -> Result<u64> {
        self.wait_for(operation, |engine| engine.take_op(operation, op))
    }

    /// Ends an operation if it is done.
    pub(super) fn take_op(&self, operation: &'static str, op: OpId) -> Result<Option<u64>> {
        let mut operations = self.operations.lock();
        match operations.is_done(op) {
            Some(true) => Ok(operations.take(op)),
            Some(false) => Ok(None),
            None => Err(Error::StaleHandle {
                operation,
                rank: self.rank,
            }),
        }
    }

    /// Ends an operation if it is done; gives the handle back if not. Polls once unless it is done already.
    #[inline]
    pub fn try_wait(&self, handle: Handle) -> Result<Option<Handle>> {
        let Some(op) = handle.0 else {
            return Ok(None);
        };
        if self.take_op("try_wait", op)?.is_some() {
            return Ok(None);
        }
        self.poll()?;
        self.test(Handle(Some(op)))
    }

    /// As [`Engine::try_wait`], without polling (GASNet-EX's test).
    #[inline]
    pub fn test(&self, handle: Handle) -> Result<Option<Handle>> {
        let Some(op) = handle.0 else {
            return Ok(None);
        };
        Ok(if self.take_op("test", op)?.is_some() {
            None
        } else {
            Some(Handle(Some(op)))
        })
    }

    /// Has the operation ended, or has its handle been synchronised already? Ends nothing, does not poll.
    ///
    /// For parts of an operation that are done when it is (GASNet-EX's leaf events): `handle` is a second one of the
    /// same number.
    pub fn has_ended(&self, handle: &Handle) -> bool {
        handle
            .0
            .is_none_or(|op| self.operations.lock().is_done(op) != Some(false))
    }

    /// Waits for all of them; each becomes [`Handle::DONE`].
    pub fn wait_all(&self, handles: &mut [Handle]) -> Result<()> {
        self.wait_for("wait_all", |engine| {
            Ok(engine.sweep("wait_all", handles)?.1.then_some(()))
        })
    }

    /// Waits for at least one that was under way, unless none was; those that have ended become [`Handle::DONE`]. Gives
    /// how many have ended.
    pub fn wait_some(&self, handles: &mut [Handle]) -> Result<usize> {
        self.wait_for("wait_some", |engine| {
            let (ended, all) = engine.sweep("wait_some", handles)?;
            Ok((ended > 0 || all).then_some(ended))
        })
    }

    /// As [`Engine::wait_all`] without waiting, after one poll: have all ended?
    pub fn try_wait_all(&self, handles: &mut [Handle]) -> Result<bool> {
        self.poll()?;
        Ok(self.sweep("try_wait_all", handles)?.1)
    }

    /// As [`Engine::wait_some`] without waiting, after one poll.
    pub fn try_wait_some(&self, handles: &mut [Handle]) -> Result<usize> {
        self.poll()?;
        Ok(self.sweep("try_wait_some", handles)?.0)
    }

    /// Ends those that are done: how many that were under way have ended, and whether none is under way any more.
    fn sweep(&self, operation: &'static str, handles: &mut [Handle]) -> Result<(usize, bool)> {
        let (mut ended, mut all) = (0, true);
        for handle in handles {
            if let Some(op) = handle.0 {
                if self.take_op(operation, op)?.is_some() {
                    *handle = Handle::DONE;
                    ended += 1;
                } else {
                    all = false;
                }
            }
        }
        Ok((ended, all))
    }

    pub(super) fn handle_of(op: OpId) -> Handle {
        Handle(Some(op))
    }
}
