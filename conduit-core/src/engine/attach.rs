//! Attaching, and where segments are.

use am::handlers::Registration;

use super::parts::memory::{Memory, Segment};
use super::{Engine, Error, Handler, Result};
use crate::bootstrap::Bootstrap;
use crate::ni::{Ni, Rank};
use crate::threads::Mode;

impl<N: Ni, M: Mode> Engine<N, M> {
    /// Registers handlers and attaches a segment of `bytes` (rounded up to whole pages). Collective, once.
    ///
    /// A rank that cannot attach makes all ranks fail, each with an error.
    pub fn attach(
        &self,
        bootstrap: &mut dyn Bootstrap,
        handlers: &mut [Registration<Handler<N, M>>],
        bytes: usize,
    ) -> Result<()>
    where
        N: 'static,
    {
        self.job.check_process()?;
        if self.memory.is_attached() {
            return Err(Error::AlreadyAttached {
                rank: self.job.rank,
            });
        }
        let registered = self.register(handlers);
        let attach = || {
            self.memory
                .attach(&self.job, self.safe_eq, bootstrap, registered, bytes)
        };
        match &self.reports {
            Some(reports) => reports.elsewhere("attach", attach),
            None => attach(),
        }
    }

    /// As [`Engine::attach`] with all of every rank's memory for its segment: offsets are then addresses of the target's process,
    /// and nothing is allocated or registered. Collective, once.
    ///
    /// # Errors
    /// The network can't, the system does not let a process copy its own memory (then on all ranks), or there is a segment.
    ///
    /// # Safety
    /// All calls of all ranks that write to this rank's segment write to memory of its process that is meant for it.
    pub unsafe fn attach_everything(&self, bootstrap: &mut dyn Bootstrap) -> Result<()> {
        self.job.check_process()?;
        // SAFETY: the caller's promise.
        unsafe { self.memory.attach_everything(&self.job, bootstrap) }
    }

    /// Takes part in the others' attach without one of its own: all of them fail.
    pub fn decline_attach(&self, bootstrap: &mut dyn Bootstrap) -> Result<()> {
        self.job.check_process()?;
        Memory::decline(bootstrap)
    }

    /// All ranks' segments. They stay where they are as long as the engine lives.
    pub fn all_segments(&self) -> Result<&[Segment]> {
        self.job.check_process()?;
        Ok(&self.memory.segments(&self.job, "all_segments")?.of)
    }

    /// This rank's segment: first byte and length.
    pub fn segment(&self) -> Result<(*mut u8, usize)> {
        self.job.check_process()?;
        let segments = self.memory.segments(&self.job, "segment")?;
        Ok((segments.own.0, segments.of[self.job.rank as usize].len))
    }

    /// A peer's segment: its length, its address at the peer, and where it is mapped here (null: it is not).
    pub fn segment_of(&self, rank: Rank) -> Result<(usize, u64, *mut u8)> {
        self.job.check_process()?;
        let segment = self.memory.remote(&self.job, "segment_of", rank, 0, 0)?;
        Ok((segment.len, segment.address, segment.window.0))
    }
}
