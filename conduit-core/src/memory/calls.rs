//! The calls that attach and locate segments.

use am::handlers::Registration;

use crate::engine::{Calls, Handler, subject};
use crate::kernel::error::{Error, Result};
use crate::memory::{Memory, Segment};
use crate::ni::{Ni, Rank};
use crate::threads::Mode;
use pmi::bootstrap::Bootstrap;

impl<'e, N: Ni, M: Mode> Calls<'e, N, M, subject::Memory> {
    /// Registers handlers and attaches a segment of `bytes` bytes, rounded up to whole pages.
    /// Collective; may be called once.
    ///
    /// If one rank cannot attach, the call fails on all ranks.
    pub fn attach(
        self,
        bootstrap: &mut dyn Bootstrap,
        handlers: &mut [Registration<Handler<N, M>>],
        bytes: usize,
    ) -> Result<()>
    where
        N: 'static,
    {
        self.attach_prepared(bootstrap, handlers, bytes, &mut |_, _| {})
    }

    /// Attaches as [`Calls::attach`] does. Calls `prepare` with this rank's segment as soon as it
    /// is mapped here, before it is registered with a device and before other ranks can access it.
    /// `prepare` is not called for an empty segment. It must not call the engine.
    pub fn attach_prepared(
        self,
        bootstrap: &mut dyn Bootstrap,
        handlers: &mut [Registration<Handler<N, M>>],
        bytes: usize,
        prepare: &mut dyn FnMut(*mut u8, usize),
    ) -> Result<()>
    where
        N: 'static,
    {
        self.job().check_process()?;
        if self.engine.memory.is_attached() {
            if self.engine.memory.is_process() {
                // The other ranks wait for this rank, and don't know that it has bound a segment.
                Memory::decline(bootstrap)?;
            }
            return Err(Error::AlreadyAttached {
                rank: self.job().rank,
            });
        }
        let registered = self.engine.register(handlers);
        let attach = || {
            let eq = self.kernel().queues.safe;
            self.engine
                .memory
                .attach(self.kernel(), eq, bootstrap, registered, bytes, prepare)
        };
        match &self.kernel().reports {
            Some(reports) => reports.elsewhere("attach", attach),
            None => attach(),
        }
    }

    /// Attaches as [`Calls::attach`] does, but makes all memory of each rank's process its segment.
    /// Offsets are then addresses in the target's process, and nothing is allocated or registered.
    /// Collective; may be called once.
    ///
    /// # Errors
    /// If the network does not support this, the system does not let a process copy its own memory
    /// (in which case the call fails on all ranks), or a segment is already attached.
    ///
    /// # Safety
    /// Every call of any rank that writes to this rank's segment must write only to memory of this
    /// process that is meant to be written by it.
    pub unsafe fn attach_everything(self, bootstrap: &mut dyn Bootstrap) -> Result<()> {
        self.job().check_process()?;
        // SAFETY: the caller guarantees that ranks write only to memory of this process that is
        // meant to be written by them.
        unsafe {
            self.engine
                .memory
                .attach_everything(self.kernel(), bootstrap)
        }
    }

    /// Takes part, without a segment, in the other ranks' attach. Attach then fails on all ranks.
    pub fn decline_attach(self, bootstrap: &mut dyn Bootstrap) -> Result<()> {
        self.job().check_process()?;
        Memory::decline(bootstrap)
    }

    /// Returns the address and length of this rank's segment.
    pub fn segment(self) -> Result<(*mut u8, usize)> {
        self.job().check_process()?;
        let (base, len) = self.engine.memory.own(self.kernel(), "segment")?;
        Ok((base.0, len))
    }

    /// Returns a rank's segment. Its location does not change while the engine lives. In jobs where
    /// ranks [bind](Self::bind) their segments, however, an empty segment may still become
    /// non-empty.
    pub fn segment_of(self, rank: Rank) -> Result<Segment> {
        self.job().check_process()?;
        self.engine
            .memory
            .remote(self.kernel(), "segment_of", rank, 0, 0)
            .copied()
    }
}
