//! A rank's view of its job: the network, the settings, and whether the job can continue.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::fork::{Standing, Wiped};
use crate::kernel::context;
use crate::kernel::error::{Error, Result};
use crate::kernel::polling::Polling;
use crate::kernel::tickets::Tickets;
use crate::ni::{Capabilities, Ni, Rank, Reach};
use crate::settings::Settings;

/// The state that every subject may read, and to which it reports faults.
pub struct Job<N: Ni> {
    pub(crate) ni: N,
    pub(crate) rank: Rank,
    pub(crate) size: u32,
    pub(crate) settings: Settings,
    /// Size in bytes of a chunk of the send buffers.
    pub(crate) chunk: usize,
    /// For each rank, whether requests to it need no check and go straight into a mapped queue. All
    /// entries are false once the job has failed, if checks are on, and in a child. The table takes
    /// 1 byte per rank.
    short_cuts: Wiped<AtomicBool>,
    /// The send tickets, which limit the number of messages whose bytes are still in this rank's
    /// memory.
    pub(crate) tickets: Tickets,
    /// The threads inside a poll. Used only in PAR mode.
    pub(crate) polling: Polling,
    /// Whether the rank may continue. Every call checks this. It changes at a permanent failure,
    /// which `fault` describes.
    standing: Standing,
    fault: OnceLock<Error>,
    /// The rank that ends the job, the exit code, and the time at which this rank must end in turn.
    exit: OnceLock<(Rank, i32, Instant)>,
    /// See [`Job::want_poll`].
    wants_poll: AtomicBool,
}

impl<N: Ni> Job<N> {
    pub(crate) fn new(ni: N, settings: &Settings) -> Self {
        Self {
            rank: ni.rank(),
            size: ni.size(),
            settings: settings.clone(),
            chunk: settings.chunk_bytes(),
            short_cuts: Wiped::EMPTY,
            tickets: Tickets::new(send_tickets(settings)),
            polling: Polling::default(),
            standing: Standing::new(),
            fault: OnceLock::new(),
            exit: OnceLock::new(),
            wants_poll: AtomicBool::new(false),
            ni,
        }
    }

    /// Returns the network below.
    pub fn network(&self) -> &N {
        &self.ni
    }

    /// Returns the settings that this rank was started with.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    #[inline]
    pub(crate) fn check_rank(&self, operation: &'static str, rank: Rank) -> Result<()> {
        if rank < self.size {
            Ok(())
        } else {
            Err(Error::NoSuchRank {
                operation,
                rank,
                size: self.size,
            })
        }
    }

    /// Returns whether calls check their context. Always false in optimised builds, because reading
    /// the setting would slow down every call.
    #[inline(always)]
    pub(crate) fn has_checks(&self) -> bool {
        cfg!(debug_assertions) && self.settings.checks
    }

    /// If checks are on, checks that this thread may do `what` in its context.
    #[inline]
    pub(crate) fn check_context(&self, operation: &'static str, what: am::Operation) -> Result<()> {
        if self.has_checks() {
            context::check(what).map_err(|reason| Error::Context {
                operation,
                rank: self.rank,
                reason,
            })?;
        }
        Ok(())
    }

    #[cold]
    pub(crate) fn not_allowed(
        &self,
        operation: &'static str,
        what: am::Operation,
        context: am::Context,
    ) -> Error {
        Error::Context {
            operation,
            rank: self.rank,
            reason: am::ContextError::NotAllowed {
                operation: what,
                context,
            },
        }
    }

    /// Records the error that ends the job. Only the first error is kept.
    #[cold]
    pub(crate) fn fail(&self, error: Error) {
        let _ = self.fault.set(error);
        self.standing.fall();
        // Every shortcut is disabled, because shortcuts do not check for a fault.
        for short_cut in &*self.short_cuts {
            short_cut.store(false, Relaxed);
        }
    }

    /// Records that another rank ends the job. If the exit code is 0, this rank has a grace period
    /// to end by itself: the last rank that learns of a barrier's end may still have output to
    /// write. After a failure this rank ends at once, because launchers other than `conduit-run`
    /// may kill all ranks at once anyway.
    #[cold]
    pub(crate) fn exited(&self, by: Rank, code: i32) {
        let grace = match code {
            0 => self.settings.exit_grace(),
            _ => Duration::ZERO,
        };
        let _ = self.exit.set((by, code, Instant::now() + grace));
        self.end_when_due();
    }

    /// Ends the job here once the grace period after another rank's exit is over. Until then,
    /// requests another poll.
    pub(crate) fn end_when_due(&self) {
        if let Some(&(by, code, end)) = self.exit.get() {
            match Instant::now() < end {
                true => self.want_poll(),
                false => self.fail(Error::Exited { by, code }),
            }
        }
    }

    /// Returns the code with which another rank ends the job, once that rank has announced it. From
    /// then on, an unreachable peer does not count as failed.
    pub fn exit_code(&self) -> Option<i32> {
        self.exit.get().map(|&(_, code, _)| code)
    }

    /// Records that a message from `source_rank` is malformed.
    #[cold]
    pub fn fail_by_message(&self, source_rank: Rank, reason: String) {
        self.fail(Error::BadMessage {
            rank: self.rank,
            source_rank,
            reason,
        });
    }

    /// Requests that the next poll retry work that could not be done, because no event will
    /// announce when it can be done.
    #[inline]
    pub(crate) fn want_poll(&self) {
        self.wants_poll.store(true, Relaxed);
    }

    /// Returns whether a poll must retry something.
    #[inline]
    pub(crate) fn wants_poll(&self) -> bool {
        self.wants_poll.load(Relaxed)
    }

    /// Begins a poll's retries. Work that still can't be done, or that is locked at the moment,
    /// requests the next poll. Work that another thread adds meanwhile is therefore either found by
    /// this poll or requests another. Until this poll's retries are finished, the flag alone does
    /// not show whether work is pending.
    pub(crate) fn begin_retries(&self) {
        self.wants_poll.store(false, Relaxed);
    }

    /// Returns the reason why this rank can't continue, if any.
    pub fn fault(&self) -> Option<&Error> {
        self.fault.get()
    }

    /// Returns whether there is no fault.
    #[inline(always)]
    pub(crate) fn stands(&self) -> bool {
        self.standing.stands()
    }

    /// Returns whether there is no fault. The load is sequentially consistent with the recording of
    /// a fault.
    #[inline(always)]
    pub(crate) fn stands_for_all(&self) -> bool {
        self.standing.stands_for_all()
    }

    /// Returns whether this process is a child of the rank's process. A child must not use the
    /// network; see [`crate::fork`].
    #[inline]
    pub fn is_child(&self) -> bool {
        self.standing.is_child()
    }

    /// Fails in a child. Used by calls that are allowed after a fault, or that do not check for
    /// one.
    #[inline]
    pub fn check_process(&self) -> Result<()> {
        match self.is_child() {
            true => Err(self.forked()),
            false => Ok(()),
        }
    }

    #[cold]
    pub(crate) fn forked(&self) -> Error {
        Error::Forked {
            rank: self.rank,
            process: std::process::id(),
        }
    }

    /// Determines for which ranks requests need no check and go straight into a mapped queue.
    pub(crate) fn find_short_cuts(&mut self) {
        let is_mapped = |rank| !self.has_checks() && self.is_mapped(self.ni.reach(rank));
        let short_cuts = (0..self.size).map(|rank| AtomicBool::new(is_mapped(rank)));
        // SAFETY: all-zero bytes are a valid `AtomicBool`, which is false.
        self.short_cuts = unsafe { Wiped::new(short_cuts.collect()) };
    }

    /// Returns whether requests to a rank need no check and go straight into a mapped queue.
    #[inline(always)]
    pub(crate) fn is_short_cut(&self, target: Rank) -> bool {
        let short_cut = self.short_cuts.get(target as usize);
        short_cut.is_some_and(|short_cut| short_cut.load(Relaxed))
    }

    /// Returns whether a peer with this reach is mapped and takes a whole chunk in one injected
    /// message. If so, replies from the peer need no chunk, and its implied replies are coalesced.
    #[inline]
    pub(crate) fn is_mapped(&self, reach: &Reach) -> bool {
        reach.capabilities.contains(Capabilities::WINDOW) && reach.inject_size >= self.chunk
    }
}

/// Returns the number of send tickets. If the setting has no limit, this is the largest number that
/// can be counted.
pub(crate) fn send_tickets(settings: &Settings) -> u32 {
    match settings.msg_limit {
        0 => u32::MAX / 2,
        limit => limit,
    }
}
