//! Attaching, and where segments are.

use am::handlers::Registration;

use crate::bootstrap::Bootstrap;
use crate::engine::{Calls, Handler, subject};
use crate::kernel::error::{Error, Result};
use crate::memory::{Memory, Segment};
use crate::ni::{Ni, Rank};
use crate::threads::Mode;

impl<'e, N: Ni, M: Mode> Calls<'e, N, M, subject::Memory> {
    /// Registers handlers and attaches a segment of `bytes` (rounded up to whole pages).
    /// Collective, once.
    ///
    /// A rank that cannot attach makes all ranks fail, each with an error.
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

    /// As [`Calls::attach`], and calls `prepare` with this rank's segment as soon as it is mapped
    /// here: before it is registered with a device, and before other ranks can reach it. Not called
    /// for a segment of no bytes. `prepare` must not call the engine.
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
                // What it has bound the others do not know of, who wait.
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

    /// As [`Calls::attach`] with all of every rank's memory for its segment: offsets are then
    /// addresses of the target's process, and nothing is allocated or registered. Collective, once.
    ///
    /// # Errors
    /// The network can't, the system does not let a process copy its own memory (then on all
    /// ranks), or there is a segment.
    ///
    /// # Safety
    /// All calls of all ranks that write to this rank's segment write to memory of its process that
    /// is meant for it.
    pub unsafe fn attach_everything(self, bootstrap: &mut dyn Bootstrap) -> Result<()> {
        self.job().check_process()?;
        // SAFETY: the caller's promise.
        unsafe {
            self.engine
                .memory
                .attach_everything(self.kernel(), bootstrap)
        }
    }

    /// Takes part in the others' attach without one of its own: all of them fail.
    pub fn decline_attach(self, bootstrap: &mut dyn Bootstrap) -> Result<()> {
        self.job().check_process()?;
        Memory::decline(bootstrap)
    }

    /// This rank's segment: first byte and length.
    pub fn segment(self) -> Result<(*mut u8, usize)> {
        self.job().check_process()?;
        let (base, len) = self.engine.memory.own(self.kernel(), "segment")?;
        Ok((base.0, len))
    }

    /// A rank's segment. It stays where it is as long as the engine lives; one of no bytes may yet
    /// become one of some, where ranks [bind](Self::bind) their own.
    pub fn segment_of(self, rank: Rank) -> Result<Segment> {
        self.job().check_process()?;
        self.engine
            .memory
            .remote(self.kernel(), "segment_of", rank, 0, 0)
            .copied()
    }
}
