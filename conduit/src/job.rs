//! A rank that has joined and not attached yet.

use conduit_core::engine::Engine;
use conduit_core::ni::Rank;
use conduit_core::settings::Settings;
use conduit_core::threads::{Mode, Seq};

use crate::network::Network;
use crate::start::Launcher;
use crate::{Conduit, Error, Handlers, Result};

/// A joined job: what a rank can ask before it attaches its segment.
#[must_use = "attach a segment to communicate"]
pub struct Job<M: Mode = Seq> {
    engine: Engine<Network<M>, M>,
    launcher: Launcher,
    most_segment: usize,
}

impl<M: Mode> std::fmt::Debug for Job<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Job")
            .field("rank", &self.rank())
            .field("size", &self.size())
            .finish_non_exhaustive()
    }
}

impl<M: Mode> Job<M> {
    pub(crate) fn new(
        engine: Engine<Network<M>, M>,
        launcher: Launcher,
        most_segment: usize,
    ) -> Self {
        Self {
            engine,
            launcher,
            most_segment,
        }
    }

    /// This rank, `0..size`.
    pub fn rank(&self) -> Rank {
        self.engine.rank()
    }

    /// Ranks in the job.
    pub fn size(&self) -> u32 {
        self.engine.size()
    }

    /// The settings that this rank runs with.
    pub fn settings(&self) -> &Settings {
        self.engine.settings()
    }

    /// Bytes of the largest segment, a multiple of the page size; the same on all ranks.
    pub fn max_segment(&self) -> usize {
        self.most_segment
    }

    /// Registers handlers and attaches a segment of `bytes`, rounded up to whole pages and zeroed. Sizes may differ
    /// between ranks; 0 is a rank without a segment. Collective.
    ///
    /// # Errors
    /// A segment that doesn't fit, on any rank: all ranks then fail.
    pub fn attach(mut self, handlers: Handlers<M>, bytes: usize) -> Result<Conduit<M>> {
        let Handlers {
            mut list, error, ..
        } = handlers;
        let (rank, limit) = (self.rank(), self.most_segment);
        let too_large = (bytes > limit).then_some(Error::SegmentTooLarge { rank, bytes, limit });
        if let Some(error) = error.or(too_large) {
            self.engine.decline_attach(self.launcher.bootstrap())?;
            return Err(error);
        }
        self.engine
            .attach(self.launcher.bootstrap(), &mut list, bytes)?;
        Ok(Conduit::new(self.engine, self.launcher))
    }

    /// Ends the whole job with this exit code. Does not return.
    pub fn exit(mut self, code: i32) -> ! {
        crate::conduit::exit(&self.engine, &mut self.launcher, code)
    }
}
