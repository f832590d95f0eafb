//! The start of a job: reads the settings, finds the launcher, surveys the hosts, and starts the
//! network and the engine.

mod alone;
mod host;

use std::fmt;
use std::time::Duration;

use conduit_core::descriptors::occupy_standard_streams;
use conduit_core::engine::Engine;
use conduit_core::kernel::Error as EngineError;
use conduit_core::stderr;
use conduit_core::threads::{Mode, Seq};
use pmi::bootstrap::{Alone, Bootstrap};
use pmi::find::{Options, Way};

use crate::error::START;
use crate::settings::{Groups as _, Settings, Warning};
use crate::{Error, Job, Member, Result};
pub use alone::{check_alone, has_launcher};
use host::Survey;

/// Joins the job as a sequential rank. See [`start_as`].
///
/// ```
/// let job = conduit::start()?;
/// println!("rank {} of {}", job.rank(), job.size());
/// # job.attach(conduit::Handlers::new(), 0)?.finish()
/// # ;
/// # Ok::<(), conduit::Error>(())
/// ```
///
/// # Errors
/// Same as [`start_as`].
pub fn start() -> Result<Job<Seq>> {
    Ok(Job::new(join_by(START, |_, _| ())?))
}

/// Joins the job that this process was started in, in threading mode `M`. Collective; must be
/// called only once per process.
///
/// The launcher is found through the environment variables of PMI-1 (`conduit-run`, MPICH's hydra,
/// Slurm, Flux), PMIx (Open MPI's `mpirun`, PRRTE, Slurm), PMI-2 (Cray's PALS) and `torchrun`;
/// `CONDUIT_BOOTSTRAP` names one of them, an address or a folder. Without any of these, the process
/// is a job of one rank, unless the environment shows that a launcher has started it as one of
/// several. The call then fails with [`Error::Start`] unless `CONDUIT_ALONE` is set.
///
/// ```
/// let job = conduit::start_as::<conduit::Par>()?;
/// let conduit = job.attach(conduit::Handlers::new(), 4096)?;
/// let peer = conduit.rank();
/// std::thread::scope(|threads| {
///     threads.spawn(|| conduit.put(peer, 0, &1u32).expect("a put in the segment"));
///     threads.spawn(|| conduit.put(peer, 4, &2u32).expect("a put in the segment"));
/// });
/// assert_eq!((conduit.get_value(peer, 0, 4)?, conduit.get_value(peer, 4, 4)?), (1, 2));
/// # conduit.finish()?;
/// # Ok::<(), conduit::Error>(())
/// ```
///
/// # Errors
/// Returns [`Error::Settings`] if a setting is unknown, its value is not accepted, or it must agree
/// between ranks and differs. Returns [`Error::Start`] if the launcher fails or cannot be reached,
/// if a launcher has started several processes and no way to the others works, or if the name of a
/// host cannot be determined. Returns [`Error::Network`] if a network cannot be used, and
/// [`Error::Engine`] if the engine cannot start.
pub fn start_as<M: Mode>() -> Result<Job<M>> {
    Ok(Job::new(join_by("start_as", |_, _| ())?))
}

/// Like [`start_as`], for interfaces to other languages. `adjust` can change the settings before
/// they are used, and receives the number of ranks.
///
/// # Errors
/// Same as [`start_as`].
pub fn join<M: Mode>(adjust: impl FnOnce(&mut Settings, u32)) -> Result<Member<M>> {
    join_by(START, adjust)
}

/// Like [`join`], but errors name `call`.
fn join_by<M: Mode>(
    call: &'static str,
    adjust: impl FnOnce(&mut Settings, u32),
) -> Result<Member<M>> {
    occupy_standard_streams();
    let found = Settings::from_env().map_err(Error::settings);
    let found = found.and_then(|found| Ok((Launcher::find(&found.0)?, found)));
    let (mut launcher, (settings, warnings)) =
        found.map_err(|error| error.of_start(call, pmi::find::told_rank()))?;
    let rank = launcher.bootstrap().rank();
    start_on(launcher, settings, &warnings, adjust)
        .map_err(|error| error.of_start(call, Some(rank)))
}

fn start_on<M: Mode>(
    mut launcher: Launcher,
    mut settings: Settings,
    warnings: &[Warning],
    adjust: impl FnOnce(&mut Settings, u32),
) -> Result<Member<M>> {
    let bootstrap = launcher.bootstrap();
    adjust(&mut settings, bootstrap.size());
    if bootstrap.rank() == 0 {
        for warning in warnings {
            stderr::write_line(format_args!("conduit: {warning}"));
        }
    }
    let mut survey = Survey::take(bootstrap, &settings)?;
    survey.adapt(&mut settings);
    let room = survey.room(&settings, bootstrap.size());
    let network = networks::start(bootstrap, settings.of_network(), &mut survey.hosts, room)
        .map_err(|error| Error::Network {
            call: START,
            rank: None,
            error,
        })?;
    let rank = bootstrap.rank();
    let engine = Engine::start(network, bootstrap, &settings.engine);
    let engine = engine.map_err(|error| Error::of(START, rank, error))?;
    Ok(Member::new(
        engine,
        settings,
        launcher,
        survey.hosts,
        room.segment,
    ))
}

/// Returns the way that `CONDUIT_BOOTSTRAP` names.
fn way(text: &str) -> Result<Way> {
    let invalid = || {
        let accepted = Way::FORMS;
        Error::settings(format_args!(
            "CONDUIT_BOOTSTRAP={text:?} is not valid: expected {accepted}"
        ))
    };
    Way::parse(text).ok_or_else(invalid)
}

/// The launcher of this process.
pub(crate) struct Launcher(Box<dyn Bootstrap + Send>);

impl fmt::Debug for Launcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Launcher of rank {}", self.0.rank())
    }
}

impl Launcher {
    fn find(settings: &Settings) -> Result<Self> {
        let job = &settings.job;
        if job.alone && !pmi::find::has_pmi1() {
            return Ok(Self(Box::new(Alone::default())));
        }
        let options = Options {
            way: job.bootstrap.as_deref().map(way).transpose()?,
            rank: job.rank,
            size: job.size,
            timeout: Duration::from_secs(job.bootstrap_timeout.into()),
            pmix_library: job.pmix_library.clone(),
            pmi2_library: job.pmi2_library.clone(),
        };
        let found = pmi::find::find(&options).map_err(Error::start)?;
        Ok(Self(found.unwrap_or_else(|| Box::new(Alone::default()))))
    }

    pub(crate) fn bootstrap(&mut self) -> &mut dyn Bootstrap {
        &mut *self.0
    }

    /// Reports a clean end of this rank to the launcher.
    pub(crate) fn finalize(&mut self) -> Result<(), EngineError> {
        self.0.finalize().map_err(EngineError::from)
    }

    /// Asks the launcher to end the job with this code.
    pub(crate) fn abort(&mut self, code: i32, reason: &str) {
        self.0.abort(code, reason);
    }
}
