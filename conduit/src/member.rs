//! This process as a member of a job: what the Rust API and interfaces to other languages stand on.

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

/// A member of a job, with the engine in reach. For interfaces to other languages, which bring their own idea of
/// handlers, addresses and the end of a process; programs in Rust use [`crate::Job`] and [`crate::Conduit`].
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

/// The code with which a process ends that is to end its job with `code`: the system keeps eight
/// bits, and a failure must not look like success.
pub fn process_code(code: i32) -> i32 {
    match code & 0xff {
        0 if code != 0 => 1,
        low => low,
    }
}

/// Time in which the launcher ends a rank after another has died, with its grace.
const LAUNCHER_ENDS_RANKS: Duration = Duration::from_secs(3);
/// Time in which a rank that knows why the job can't start says so and ends. A backtrace takes seconds where many share a core.
const REASON_IS_TOLD: Duration = Duration::from_secs(30);

/// Time for another call to let go of the launcher when this process ends.
const LAUNCHER_IS_BUSY: Duration = Duration::from_secs(1);

/// Another rank has failed. Where the launcher reports that, as `conduit-run` does, the others needn't: it is about to end this
/// process.
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

    /// The engine.
    #[inline]
    pub fn engine(&self) -> &Engine<Network<M>, M> {
        &self.engine
    }

    /// The settings that this rank runs with.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Hosts of the job.
    pub fn hosts(&self) -> u32 {
        self.hosts.count()
    }

    /// The host of a rank, numbered from 0 in the order of the hosts' first ranks; `None`: there is no such rank.
    pub fn host_of(&self, rank: Rank) -> Option<u32> {
        self.hosts.host_of(rank)
    }

    /// The ranks whose memory can be mapped in each other, numbered like [hosts](Member::host_of): those of a host, or
    /// each rank by itself where shared memory is not used between ranks.
    pub fn neighbourhood_of(&self, rank: Rank) -> Option<u32> {
        match self.shares_memory() {
            true => self.hosts.host_of(rank),
            false => (rank < self.engine.size()).then_some(rank),
        }
    }

    /// How many [neighbourhoods](Member::neighbourhood_of) there are.
    pub fn neighbourhoods(&self) -> u32 {
        match self.shares_memory() {
            true => self.hosts.count(),
            false => self.engine.size(),
        }
    }

    /// Whether the ranks of a host map each other's memory.
    fn shares_memory(&self) -> bool {
        self.settings.engine.windows && self.settings.networks.allows_network("shm")
    }

    /// Bytes of the largest segment, a multiple of the page size; the same on all ranks.
    pub fn max_segment(&self) -> usize {
        self.most_segment
    }

    /// Attaches a segment of `bytes`, rounded up to whole pages and zeroed, after registering these handlers. Collective,
    /// does not poll.
    ///
    /// # Errors
    /// Returns [`Error::SegmentTooLarge`] if `bytes` exceeds [`Member::max_segment`],
    /// [`EngineError::Register`](crate::EngineError::Register) if a handler's id is reserved or
    /// used twice or no id is free,
    /// [`EngineError::AlreadyAttached`](crate::EngineError::AlreadyAttached) on a second call, and
    /// [`EngineError::Network`](crate::EngineError::Network) if the network cannot provide the
    /// memory. When one rank fails, the others return
    /// [`EngineError::Bootstrap`](crate::EngineError::Bootstrap), which is also the error if the
    /// launcher fails.
    pub fn attach(
        &self,
        handlers: &mut [am::handlers::Registration<Handler<M>>],
        bytes: usize,
    ) -> Result<()> {
        self.attach_prepared(handlers, bytes, &mut |_, _| {})
    }

    /// As [`Member::attach`], and calls `prepare` with this rank's segment as soon as it is mapped
    /// here: before it is registered with a device, and before other ranks can reach it. `prepare`
    /// must not call the member.
    ///
    /// # Errors
    /// As for [`Member::attach`].
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
            // Who knows why has the word.
            await_launcher(REASON_IS_TOLD);
        }
        attached.map_err(|error| Error::of("attach", rank, error))
    }

    /// Makes all of every rank's memory its segment, see [`Calls::attach_everything`](conduit_core::engine::Calls::attach_everything). Collective, does not poll.
    ///
    /// # Errors
    /// Returns [`EngineError::Network`](crate::EngineError::Network) if the network cannot access
    /// all memory or the system does not let a process copy its own (then on all ranks),
    /// [`EngineError::AlreadyAttached`](crate::EngineError::AlreadyAttached) if there is a segment,
    /// and [`EngineError::Bootstrap`](crate::EngineError::Bootstrap) if the launcher fails.
    ///
    /// # Safety
    /// As for [`Calls::attach_everything`](conduit_core::engine::Calls::attach_everything).
    pub unsafe fn attach_everything(&self) -> Result<()> {
        let mut launcher = self.launcher();
        // SAFETY: the caller's promise.
        let attached = unsafe { self.engine.memory().attach_everything(launcher.bootstrap()) };
        attached.map_err(|error| Error::of("attach", self.engine.rank(), error))
    }

    /// Takes part in the others' attach, which fails for all; gives the reason back.
    pub(crate) fn decline_attach(&self, reason: Error) -> Error {
        let mut launcher = self.launcher();
        match self.engine.memory().decline_attach(launcher.bootstrap()) {
            Ok(()) => reason,
            Err(error) => Error::of("attach", self.engine.rank(), error),
        }
    }

    /// Leaves the network, as all others do, and tells the launcher that this rank ends as it should.
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

    /// The launcher, unless another call holds it for long: a process that ends must not block.
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

    /// Tells the launcher that this rank ends as it should.
    fn finalize(&self) -> Result<(), EngineError> {
        let mut launcher = self.launcher();
        launcher.finalize()
    }

    fn finalize_at_end(&self) {
        if let Some(mut launcher) = self.launcher_at_end() {
            // If this fails, the launcher notices the end of the process.
            let _ = launcher.finalize();
        }
    }

    /// What each rank says in this call, by rank. Collective, does not poll.
    pub(crate) fn allgather(&self, call: &'static str, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        let mut launcher = self.launcher();
        let gathered = launcher.bootstrap().allgather(bytes);
        gathered.map_err(|error| Error::of(call, self.engine.rank(), error.into()))
    }

    /// Ends the job with this code: tells the others and waits for them for a bounded time, then
    /// calls `prepare`, after which the launcher may kill this process. The caller then ends the
    /// process with the same code. In a child of the rank's process (`fork`), and of a rank that
    /// has finished, this does nothing.
    pub fn end(&self, code: i32, prepare: impl FnOnce()) {
        let engine = &self.engine;
        if engine.job().is_child() || matches!(engine.job().fault(), Some(EngineError::Finished)) {
            return;
        }
        let all_know = engine.announce_exit(code, engine.job().settings().exit_wait(engine.size()));
        prepare();
        if let Some(mut launcher) = self.launcher_at_end() {
            if code == 0 && all_know {
                // All end with the same code, each on its own; the launcher need not step in.
                let _ = launcher.finalize();
            } else if !all_know && (code == 0 || !has_own_launcher()) {
                // Ours ends the others when this rank exits with a code. Slurm lets them run on.
                launcher.abort(code, "not all ranks have heard of its exit");
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

    /// Leaves the job without ending it for the others. Nothing in a child of the rank's process (`fork`).
    pub fn leave(&self) {
        if self.engine.job().is_child() {
            return;
        }
        self.finalize_at_end();
        self.leave_network();
    }

    /// If the error says that another rank has ended the job: its code. This process is to end now, with 0: that rank waits until
    /// all know of it, and is the one to fail, while a failure seen earlier would have the launcher end ranks that have not been
    /// told yet and name the wrong one. All else that a rank does at its end has been done.
    ///
    /// If the error says that a rank has died and a launcher is about to end this process, waits for that: it names the
    /// rank that died first, while the one found here may have been ended by it already.
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
        // The answer to the rank that ends the job may still be waiting to go out.
        self.engine.drain(Duration::from_millis(100));
        self.finalize_at_end();
        self.leave_network();
        Some(code)
    }
}

impl<M: Mode> Member<M> {
    /// The error of a call that a rank has made. Where another rank has ended the job, this process ends here.
    #[cold]
    pub(crate) fn failed(&self, call: &'static str, error: EngineError) -> Error {
        if self.ended_by(&error).is_some() {
            std::process::exit(0);
        }
        Error::of(call, self.engine.rank(), error)
    }
}

/// What the engine of a [`Member`] calls with each message: see [`conduit_core::engine::Handler`].
pub type Handler<M> = conduit_core::engine::Handler<Network<M>, M>;

/// A message in the hands of a [`Handler`].
pub type Message<'a, M> = conduit_core::engine::Call<'a, Network<M>, M>;
