//! A rank's place in its job: the network that connects it, its settings, and whether the job goes
//! on.

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

/// What every subject may ask, and tell of a fault.
pub struct Job<N: Ni> {
    pub(crate) ni: N,
    pub(crate) rank: Rank,
    pub(crate) size: u32,
    pub(crate) settings: Settings,
    /// Bytes of a chunk of the send buffers.
    pub(crate) chunk: usize,
    /// By rank: requests to it need no check and go straight into a queue that is mapped here. None
    /// does once the job has failed, with checks, or in a child. 1 byte a rank.
    short_cuts: Wiped<AtomicBool>,
    /// Send tickets: for messages whose bytes are still this rank's memory's.
    pub(crate) tickets: Tickets,
    /// Who is inside a poll, in PAR.
    pub(crate) polling: Polling,
    /// Falls when something has gone wrong for good, which `fault` tells. Whoever calls looks at
    /// it.
    standing: Standing,
    fault: OnceLock<Error>,
    /// The rank that ends the job, its code, and when this rank ends for it.
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

    /// The network below.
    pub fn network(&self) -> &N {
        &self.ni
    }

    /// What this rank was started with.
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

    /// Whether callers are checked. Never in optimised builds, where looking for it would cost
    /// every call.
    #[inline(always)]
    pub(crate) fn has_checks(&self) -> bool {
        cfg!(debug_assertions) && self.settings.checks
    }

    /// With checks: may this thread do that where it is?
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

    /// Records what ends the job; the first reason stays.
    #[cold]
    pub(crate) fn fail(&self, error: Error) {
        let _ = self.fault.set(error);
        self.standing.fall();
        // Who takes a short cut does not look for a fault.
        for short_cut in &*self.short_cuts {
            short_cut.store(false, Relaxed);
        }
    }

    /// Records that another rank ends the job. After a success this one has a grace to end by
    /// itself: the last rank to hear of a barrier may still have something to write. A launcher
    /// that is not ours may kill the ranks at once after a failure, and so they end at once.
    #[cold]
    pub(crate) fn exited(&self, by: Rank, code: i32) {
        let grace = match code {
            0 => self.settings.exit_grace(),
            _ => Duration::ZERO,
        };
        let _ = self.exit.set((by, code, Instant::now() + grace));
        self.end_when_due();
    }

    /// Ends the job here when the grace after another rank's exit is over; until then each poll is
    /// to look again.
    pub(crate) fn end_when_due(&self) {
        if let Some(&(by, code, end)) = self.exit.get() {
            match Instant::now() < end {
                true => self.want_poll(),
                false => self.fail(Error::Exited { by, code }),
            }
        }
    }

    /// The code with which another rank ends the job, once it has said so. From then on a peer that
    /// is gone has not failed.
    pub fn exit_code(&self) -> Option<i32> {
        self.exit.get().map(|&(_, code, _)| code)
    }

    /// Records that a message of this rank makes no sense.
    #[cold]
    pub fn fail_by_message(&self, source_rank: Rank, reason: String) {
        self.fail(Error::BadMessage {
            rank: self.rank,
            source_rank,
            reason,
        });
    }

    /// Something could not be done now and no event will tell when it can: each poll is to try
    /// again.
    #[inline]
    pub(crate) fn want_poll(&self) {
        self.wants_poll.store(true, Relaxed);
    }

    /// Whether a poll has to try something again.
    #[inline]
    pub(crate) fn wants_poll(&self) -> bool {
        self.wants_poll.load(Relaxed)
    }

    /// A poll tries all of it now. What can't be done yet, or can't be looked at now, asks for the
    /// next one; so what another thread adds meanwhile is either found by this poll or asks for
    /// another. Until this one is through, the flag alone does not tell whether something waits.
    pub(crate) fn begin_retries(&self) {
        self.wants_poll.store(false, Relaxed);
    }

    /// The reason for which this rank can't go on, if there is one.
    pub fn fault(&self) -> Option<&Error> {
        self.fault.get()
    }

    /// Whether there is none.
    #[inline(always)]
    pub(crate) fn stands(&self) -> bool {
        self.standing.stands()
    }

    /// The same in the one order in which a fault is seen by all.
    #[inline(always)]
    pub(crate) fn stands_for_all(&self) -> bool {
        self.standing.stands_for_all()
    }

    /// Whether this process is a child of the rank's, in which nothing of the network may be used:
    /// see [`crate::fork`].
    #[inline]
    pub fn is_child(&self) -> bool {
        self.standing.is_child()
    }

    /// Refuses in a child, for what is done after a fault too, or without a look for one.
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

    /// Finds out for which ranks requests need no check and go straight into a queue.
    pub(crate) fn find_short_cuts(&mut self) {
        let is_mapped = |rank| !self.has_checks() && self.is_mapped(self.ni.reach(rank));
        let short_cuts = (0..self.size).map(|rank| AtomicBool::new(is_mapped(rank)));
        // SAFETY: zero is false.
        self.short_cuts = unsafe { Wiped::new(short_cuts.collect()) };
    }

    /// Whether requests to a rank need no check and go straight into a queue.
    #[inline(always)]
    pub(crate) fn is_short_cut(&self, target: Rank) -> bool {
        let short_cut = self.short_cuts.get(target as usize);
        short_cut.is_some_and(|short_cut| short_cut.load(Relaxed))
    }

    /// Whether replies from a peer that is reached so need no chunk, and implied ones are
    /// coalesced.
    #[inline]
    pub(crate) fn is_mapped(&self, reach: &Reach) -> bool {
        reach.capabilities.contains(Capabilities::WINDOW) && reach.inject_size >= self.chunk
    }
}

/// Send tickets there are; without a limit, as many as are counted.
pub(crate) fn send_tickets(settings: &Settings) -> u32 {
    match settings.msg_limit {
        0 => u32::MAX / 2,
        limit => limit,
    }
}
