//! A rank that has joined its job but has not attached yet.

use std::time::Duration;

use conduit_core::ni::Rank;
use conduit_core::threads::{Mode, Seq};

use crate::settings::Settings;
use crate::{Conduit, Error, Handlers, Member, Result, agreement, process_code};

/// A job that this rank has joined, before the rank attaches its segment.
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
    ///
    /// ```
    /// let job = conduit::start()?;
    /// // The last rank gets a segment twice as large.
    /// let pages = if job.rank() + 1 == job.size() { 2 } else { 1 };
    /// let conduit = job.attach(conduit::Handlers::new(), pages * 65536)?;
    /// assert_eq!(conduit.segment().len(), pages * 65536);
    /// # conduit.finish()?;
    /// # Ok::<(), conduit::Error>(())
    /// ```
    pub fn rank(&self) -> Rank {
        self.member.engine().rank()
    }

    /// Returns the number of ranks in the job.
    ///
    /// ```
    /// let job = conduit::start()?;
    /// // 1 MiB in all, divided among the ranks.
    /// let share = (1usize << 20).div_ceil(job.size() as usize);
    /// let conduit = job.attach(conduit::Handlers::new(), share)?;
    /// assert!(conduit.segment().len() >= share);
    /// # conduit.finish()?;
    /// # Ok::<(), conduit::Error>(())
    /// ```
    pub fn size(&self) -> u32 {
        self.member.engine().size()
    }

    /// Returns the settings with which this rank runs.
    ///
    /// ```
    /// use conduit::settings::Groups;
    /// let job = conduit::start()?;
    /// let mut rows = job.settings().describe();
    /// rows.retain(|row| row.is_set);
    /// rows.iter().for_each(|row| println!("{} is set", row.name));
    /// assert!(rows.iter().all(|row| row.value.is_some()));
    /// # job.attach(conduit::Handlers::new(), 0)?.finish()?;
    /// # Ok::<(), conduit::Error>(())
    /// ```
    pub fn settings(&self) -> &Settings {
        self.member.settings()
    }

    /// Returns the maximum size of a segment in bytes. It is a multiple of the page size and the
    /// same on all ranks.
    ///
    /// ```
    /// let job = conduit::start()?;
    /// let bytes = job.max_segment().min(1 << 24);
    /// let conduit = job.attach(conduit::Handlers::new(), bytes)?;
    /// assert_eq!(conduit.segment().len(), bytes);
    /// # conduit.finish()?;
    /// # Ok::<(), conduit::Error>(())
    /// ```
    pub fn max_segment(&self) -> usize {
        self.member.max_segment()
    }

    /// Registers `handlers` and attaches a zeroed segment of `bytes` bytes, rounded up to whole
    /// pages. Collective.
    ///
    /// Sizes may differ between ranks. A rank that passes 0 has no segment. As soon as another rank
    /// has attached, handlers may run here, even before this call returns.
    ///
    /// ```
    /// use conduit::{Error, Handlers, start};
    /// let job = start()?;
    /// let most = job.max_segment();
    /// let error = job.attach(Handlers::new(), most + 1).unwrap_err();
    /// assert!(matches!(error, Error::SegmentTooLarge { limit, .. } if limit == most));
    /// # Ok::<(), conduit::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::SegmentTooLarge`] if `bytes` exceeds [`Job::max_segment`],
    /// [`Error::Handlers`] if a handler cannot be registered, and [`Error::HandlersDiffer`] on all
    /// ranks if handlers differ between ranks in id, kind, name, arguments or payload. If one rank
    /// fails, the other ranks return [`EngineError::Bootstrap`](crate::EngineError::Bootstrap).
    /// This error is also returned if the launcher fails.
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
            // The other ranks do not poll before they have attached, so they cannot answer.
            self.member.end_within(code, Duration::ZERO, || ());
            std::process::exit(process_code(code))
        }
    }
}
