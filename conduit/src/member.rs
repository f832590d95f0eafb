//! This process as a member of a job. It is the basis of the Rust API and of interfaces to other
//! languages.

use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use conduit_core::engine::Engine;
use conduit_core::kernel::Error as EngineError;
use conduit_core::ni::{NiError, Rank};
use conduit_core::threads::{Mode, Seq};
use networks::Hosts;

use crate::settings::Settings;
use crate::start::Launcher;
use crate::{Error, Network, Result};

/// A member of a job, with access to its engine.
///
/// `Member` serves interfaces to other languages, which treat handlers, addresses and the exit of
/// the process in their own ways. Rust programs use [`crate::Job`] and [`crate::Conduit`].
pub struct Member<M: Mode = Seq> {
    engine: Engine<Network<M>, M>,
    settings: Settings,
    launcher: Mutex<Launcher>,
    hosts: Hosts,
    most_segment: usize,
}

impl<M: Mode> std::fmt::Debug for Member<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Member")
            .field("engine", &self.engine)
            .finish_non_exhaustive()
    }
}

/// Returns the exit code of the process for the exit code `code` of the job. The system keeps only
/// eight bits of the code, and a failure must not look like success.
///
/// ```
/// assert_eq!(conduit::process_code(3), 3);
/// assert_eq!(conduit::process_code(256 + 3), 3);
/// assert_eq!(conduit::process_code(256), 1); // 0 would mean success
/// ```
pub fn process_code(code: i32) -> i32 {
    match code & 0xff {
        0 if code != 0 => 1,
        low => low,
    }
}

/// The time within which the launcher ends this rank after another rank has died. It includes the
/// launcher's grace period.
const LAUNCHER_ENDS_RANKS: Duration = Duration::from_secs(3);
/// The time within which a rank that cannot start the job reports the reason and ends. It is long,
/// because a backtrace takes seconds if many ranks share a core.
const REASON_IS_TOLD: Duration = Duration::from_secs(30);

/// The time for which a process that is ending waits for another call to release the launcher.
const LAUNCHER_IS_BUSY: Duration = Duration::from_secs(1);

/// Waits up to `limit` for the launcher to end this process after another rank has failed. Waits
/// only if the launcher is `conduit-run`, which reports the failure and ends the other ranks, so
/// that they need not report it too.
fn await_launcher(limit: Duration) {
    if has_own_launcher() {
        std::thread::sleep(limit);
    }
}

fn has_own_launcher() -> bool {
    std::env::var_os("CONDUIT_LAUNCHER").is_some_and(|value| value == "1")
}

impl<M: Mode> Member<M> {
    pub(crate) fn new(
        engine: Engine<Network<M>, M>,
        settings: Settings,
        launcher: Launcher,
        hosts: Hosts,
        most_segment: usize,
    ) -> Self {
        Self {
            engine,
            settings,
            launcher: Mutex::new(launcher),
            hosts,
            most_segment,
        }
    }

    /// Returns the engine.
    #[inline]
    pub fn engine(&self) -> &Engine<Network<M>, M> {
        &self.engine
    }

    /// Returns the settings with which this rank runs.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns the number of hosts in the job.
    pub fn hosts(&self) -> u32 {
        self.hosts.count()
    }

    /// Returns the host of `rank`, or `None` if the job has no such rank. Hosts are numbered from 0
    /// in the order of their first ranks.
    pub fn host_of(&self, rank: Rank) -> Option<u32> {
        self.hosts.host_of(rank)
    }

    /// Returns the neighbourhood of `rank`, or `None` if the job has no such rank.
    ///
    /// A neighbourhood is a set of ranks that can map each other's memory: either all ranks of a
    /// host or, if ranks do not use shared memory, a single rank. Neighbourhoods are numbered in
    /// the same way as [hosts](Member::host_of).
    pub fn neighbourhood_of(&self, rank: Rank) -> Option<u32> {
        match self.shares_memory() {
            true => self.hosts.host_of(rank),
            false => (rank < self.engine.size()).then_some(rank),
        }
    }

    /// Returns the number of [neighbourhoods](Member::neighbourhood_of).
    pub fn neighbourhoods(&self) -> u32 {
        match self.shares_memory() {
            true => self.hosts.count(),
            false => self.engine.size(),
        }
    }

    /// Returns whether the ranks of a host map each other's memory.
    fn shares_memory(&self) -> bool {
        self.settings.engine.windows && self.settings.networks.allows_network("shm")
    }

    /// Returns the maximum size of a segment in bytes. It is a multiple of the page size and the
    /// same on all ranks.
    pub fn max_segment(&self) -> usize {
        self.most_segment
    }

    /// Registers these handlers and attaches a zeroed segment of `bytes` bytes, rounded up to whole
    /// pages. Collective; does not poll.
    ///
    /// # Errors
    /// Returns [`Error::SegmentTooLarge`] if `bytes` exceeds [`Member::max_segment`],
    /// [`EngineError::Register`](crate::EngineError::Register) if a handler's id is reserved or
    /// used twice or if no id is free,
    /// [`EngineError::AlreadyAttached`](crate::EngineError::AlreadyAttached) on a second call, and
    /// [`EngineError::Network`](crate::EngineError::Network) if the network cannot provide the
    /// memory. If one rank fails, the other ranks return
    /// [`EngineError::Bootstrap`](crate::EngineError::Bootstrap). This error is also returned if
    /// the launcher fails.
    pub fn attach(
        &self,
        handlers: &mut [am::handlers::Registration<Handler<M>>],
        bytes: usize,
    ) -> Result<()> {
        self.attach_prepared(handlers, bytes, &mut |_, _| {})
    }

    /// Like [`Member::attach`], but calls `prepare` with this rank's segment as soon as the segment
    /// is mapped here, before it is registered with a device and before other ranks can access it.
    /// `prepare` is not called for an empty segment, which needs no preparation. `prepare` must not
    /// call the member.
    ///
    /// # Errors
    /// Same as [`Member::attach`].
    pub fn attach_prepared(
        &self,
        handlers: &mut [am::handlers::Registration<Handler<M>>],
        bytes: usize,
        prepare: &mut dyn FnMut(*mut u8, usize),
    ) -> Result<()> {
        let (rank, limit) = (self.engine.rank(), self.most_segment);
        if bytes > limit {
            return Err(self.decline_attach(Error::SegmentTooLarge { rank, bytes, limit }));
        }
        let mut launcher = self.launcher();
        let bootstrap = launcher.bootstrap();
        let attached = self
            .engine
            .memory()
            .attach_prepared(bootstrap, handlers, bytes, prepare);
        if let Err(EngineError::Bootstrap(_)) = attached {
            // The rank that knows the cause reports it, so this rank waits to be ended.
            await_launcher(REASON_IS_TOLD);
        }
        attached.map_err(|error| Error::of("attach", rank, error))
    }

    /// Makes the whole memory of every rank its segment; see
    /// [`Calls::attach_everything`](conduit_core::engine::Calls::attach_everything). Collective;
    /// does not poll.
    ///
    /// # Errors
    /// Returns [`EngineError::Network`](crate::EngineError::Network) on all ranks if the network
    /// cannot access all memory or the system does not let a process copy its own memory,
    /// [`EngineError::AlreadyAttached`](crate::EngineError::AlreadyAttached) if a segment is
    /// attached, and [`EngineError::Bootstrap`](crate::EngineError::Bootstrap) if the launcher
    /// fails.
    ///
    /// # Safety
    /// Same as [`Calls::attach_everything`](conduit_core::engine::Calls::attach_everything).
    pub unsafe fn attach_everything(&self) -> Result<()> {
        let mut launcher = self.launcher();
        // SAFETY: the caller guarantees that all ranks write only to memory of this process that is
        // meant to be written by them.
        let attached = unsafe { self.engine.memory().attach_everything(launcher.bootstrap()) };
        attached.map_err(|error| Error::of("attach", self.engine.rank(), error))
    }

    /// Takes part in the other ranks' attach in such a way that it fails on all ranks, and returns
    /// `reason`.
    pub(crate) fn decline_attach(&self, reason: Error) -> Error {
        let mut launcher = self.launcher();
        match self.engine.memory().decline_attach(launcher.bootstrap()) {
            Ok(()) => reason,
            Err(error) => Error::of("attach", self.engine.rank(), error),
        }
    }

    /// Leaves the network, as all other ranks do at the same time, and reports a clean end to the
    /// launcher.
    pub(crate) fn finish(&self) -> Result<()> {
        let failed = |error| Error::of("finish", self.engine.rank(), error);
        self.engine.job().check_process().map_err(failed)?;
        self.leave_network();
        self.engine.retire();
        self.finalize().map_err(failed)
    }

    fn launcher(&self) -> MutexGuard<'_, Launcher> {
        self.launcher.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the launcher, or `None` if another call holds it for too long. A process that is
    /// ending must not block.
    fn launcher_at_end(&self) -> Option<MutexGuard<'_, Launcher>> {
        let end = Instant::now() + LAUNCHER_IS_BUSY;
        loop {
            match self.launcher.try_lock() {
                Ok(launcher) => return Some(launcher),
                Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) if Instant::now() < end => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(TryLockError::WouldBlock) => return None,
            }
        }
    }

    /// Reports a clean end of this rank to the launcher.
    fn finalize(&self) -> Result<(), EngineError> {
        let mut launcher = self.launcher();
        launcher.finalize()
    }

    fn finalize_at_end(&self) {
        if let Some(mut launcher) = self.launcher_at_end() {
            // If the report fails, the launcher still notices the end of the process.
            let _ = launcher.finalize();
        }
    }

    /// Gathers the bytes of each rank, in rank order. Collective; does not poll.
    pub(crate) fn allgather(&self, call: &'static str, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        let mut launcher = self.launcher();
        let gathered = launcher.bootstrap().allgather(bytes);
        gathered.map_err(|error| Error::of(call, self.engine.rank(), error.into()))
    }

    /// Ends the job with this code. Notifies the other ranks, waits for them for a bounded time,
    /// and then calls `prepare`; from then on the launcher may kill this process. The caller must
    /// then end the process with the same code. Does nothing in a child of the rank's process
    /// (`fork`) or after [`finish`](crate::Conduit::finish).
    pub fn end(&self, code: i32, prepare: impl FnOnce()) {
        let engine = &self.engine;
        let patience = engine.job().settings().exit_wait(engine.size());
        self.end_within(code, patience, prepare);
    }

    /// Does the same as [`end`](Self::end), but waits at most `patience` for the other ranks.
    pub(crate) fn end_within(&self, code: i32, patience: Duration, prepare: impl FnOnce()) {
        let engine = &self.engine;
        if engine.job().is_child() || matches!(engine.job().fault(), Some(EngineError::Finished)) {
            return;
        }
        let all_know = engine.announce_exit(code, patience);
        prepare();
        if let Some(mut launcher) = self.launcher_at_end() {
            if code == 0 && all_know {
                // All ranks end by themselves with the same code, so the launcher need not
                // intervene.
                let _ = launcher.finalize();
            } else if !all_know && (code == 0 || !has_own_launcher()) {
                // `conduit-run` ends the other ranks when this rank exits with a nonzero code, but
                // Slurm does not.
                launcher.abort(code, "not all ranks have been notified of its exit");
            }
        }
        self.leave_network();
    }

    fn leave_network(&self) {
        self.engine
            .job()
            .network()
            .leave(self.settings.of_network());
    }

    /// Leaves the job without ending it for the other ranks. Does nothing in a child of the rank's
    /// process (`fork`).
    pub fn leave(&self) {
        if self.engine.job().is_child() {
            return;
        }
        self.finalize_at_end();
        self.leave_network();
    }

    /// Returns the exit code of the job if `error` reports that another rank has ended the job. In
    /// that case this rank has left the network and the job when this call returns, and the process
    /// must exit with code 0.
    ///
    /// The exit code must be 0 because the rank that ended the job waits until all ranks have been
    /// notified, and only then exits with the job's code. If this process failed earlier, the
    /// launcher would end ranks that have not been notified yet, and would report the wrong rank.
    ///
    /// If `error` reports that a rank has died and a launcher is about to end this process, this
    /// call waits for the launcher. The launcher reports the rank that died first, whereas the rank
    /// in `error` may be one that the launcher has ended.
    #[cold]
    pub fn ended_by(&self, error: &EngineError) -> Option<i32> {
        let code = match *error {
            EngineError::Exited { code, .. } => code,
            EngineError::PeerFailed { .. } | EngineError::Network(NiError::PeerFailed { .. }) => {
                match self.engine.job().exit_code() {
                    Some(code) => code,
                    None => {
                        await_launcher(LAUNCHER_ENDS_RANKS);
                        return None;
                    }
                }
            }
            _ => return None,
        };
        // The answer to the rank that ends the job may still be queued.
        self.engine.drain(Duration::from_millis(100));
        self.finalize_at_end();
        self.leave_network();
        Some(code)
    }
}

impl<M: Mode> Member<M> {
    /// Translates the error of a call. If another rank has ended the job, ends this process.
    #[cold]
    pub(crate) fn failed(&self, call: &'static str, error: EngineError) -> Error {
        if self.ended_by(&error).is_some() {
            std::process::exit(0);
        }
        Error::of(call, self.engine.rank(), error)
    }
}

/// A handler that the engine of a [`Member`] calls for each message; see
/// [`conduit_core::engine::Handler`].
pub type Handler<M> = conduit_core::engine::Handler<Network<M>, M>;

/// A message as a [`Handler`] receives it.
pub type Message<'a, M> = conduit_core::engine::Call<'a, Network<M>, M>;
