//! A rank that has joined its job but has not attached yet.

use conduit_core::ni::Rank;
use conduit_core::threads::{Mode, Seq};

use crate::settings::Settings;
use crate::{Conduit, Error, Handlers, Member, Result, agreement, process_code};

/// A joined job, before its segment is attached.
#[must_use = "attach a segment to communicate"]
pub struct Job<M: Mode = Seq> {
    member: Member<M>,
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
    pub(crate) fn new(member: Member<M>) -> Self {
        Self { member }
    }

    /// Returns this rank, in `0..size`.
    pub fn rank(&self) -> Rank {
        self.member.engine().rank()
    }

    /// Returns the number of ranks in the job.
    pub fn size(&self) -> u32 {
        self.member.engine().size()
    }

    /// Returns the settings that this rank runs with.
    pub fn settings(&self) -> &Settings {
        self.member.settings()
    }

    /// Returns the maximum size of a segment in bytes, a multiple of the page size and the same on
    /// all ranks.
    pub fn max_segment(&self) -> usize {
        self.member.max_segment()
    }

    /// Registers `handlers` and attaches a zeroed segment of `bytes` bytes, rounded up to whole
    /// pages. Collective.
    ///
    /// Sizes may differ between ranks; a rank with size 0 has no segment. As soon as another rank
    /// has attached, handlers may run, even before this call returns.
    ///
    /// # Errors
    /// Returns [`Error::SegmentTooLarge`] if `bytes` exceeds [`Job::max_segment`],
    /// [`Error::Handlers`] if a handler cannot be registered, and [`Error::HandlersDiffer`] on all
    /// ranks if handlers differ between ranks in id, kind, name, arguments or payload. If one rank
    /// fails, the others return [`EngineError::Bootstrap`](crate::EngineError::Bootstrap), which is
    /// also the error if the launcher fails.
    pub fn attach(self, handlers: Handlers<M>, bytes: usize) -> Result<Conduit<M>> {
        let (mut list, signatures) = match handlers.checked() {
            Ok(checked) => checked,
            Err(problem) => {
                let rank = self.rank();
                let error = Error::Handlers { rank, problem };
                return Err(self.member.decline_attach(error));
            }
        };
        self.member.attach(&mut list, bytes)?;
        agreement::check(&self.member, &signatures)?;
        Ok(Conduit::new(self.member))
    }

    /// Ends the whole job with this exit code, like [`Conduit::exit`].
    pub fn exit(self, code: i32) -> ! {
        {
            self.member.end(code, || ());
            std::process::exit(process_code(code))
        }
    }
}
