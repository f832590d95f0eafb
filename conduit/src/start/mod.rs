//! Joining a job: settings, place, host, network, engine.

mod host;
mod pmi;

use conduit_core::bootstrap::{Alone, Bootstrap, BootstrapError};
use conduit_core::engine::Engine;
use conduit_core::settings::Settings;
use conduit_core::threads::{Mode, Seq};
use conduit_portals::shm::{Shm, ShmConfig};

use crate::{Error, Job, Member, Result, network};
use host::Host;

/// Joins the job as a sequential rank. See [`start_as`].
///
/// ```
/// let job = conduit::start()?;
/// println!("rank {} of {}", job.rank(), job.size());
/// # job.attach(conduit::Handlers::new(), 0)?.finish()
/// # ;
/// # Ok::<(), conduit::Error>(())
/// ```
pub fn start() -> Result<Job<Seq>> {
    start_as::<Seq>()
}

/// Joins the job that this process was started in, in threading mode `M`. Collective, once per process.
///
/// The launcher is found by PMI-1's environment variables (`conduit-run`, MPICH's hydra, Slurm); without them this is a
/// job of one rank.
///
/// # Errors
/// A setting that is unknown or out of range, a network that can't be used, a launcher that fails.
pub fn start_as<M: Mode>() -> Result<Job<M>> {
    Ok(Job::new(join(|_, _| ())?))
}

/// As [`start_as`], for interfaces to other languages. `adjust` sees the settings and the number of ranks
/// before they are used.
pub fn join<M: Mode>(adjust: impl FnOnce(&mut Settings, u32)) -> Result<Member<M>> {
    let (mut settings, warnings) =
        Settings::from_env().map_err(|error| Error::Settings(error.to_string()))?;
    let mut launcher = Launcher::find()?;
    let bootstrap = launcher.bootstrap();
    adjust(&mut settings, bootstrap.size());
    if bootstrap.rank() == 0 {
        for warning in &warnings {
            eprintln!("conduit: {warning}");
        }
    }
    network::choose(&settings)?;
    let host = Host::survey(bootstrap).map_err(start_error)?;
    host.adapt(&mut settings);
    let most_segment = host.segment_limit(&settings);
    let config = shm_config(&settings, bootstrap.size(), most_segment);
    let shm = Shm::<M>::start(bootstrap, &config).map_err(|error| Error::Shm(error.to_string()))?;
    let engine = Engine::start(shm, bootstrap, &settings)?;
    Ok(Member::new(engine, launcher, most_segment))
}

fn start_error(error: BootstrapError) -> Error {
    Error::Start(error.to_string())
}

/// Memory that the engine needs besides a segment: see `Engine::start`.
fn shm_config(settings: &Settings, size: u32, segment: usize) -> ShmConfig {
    let chunk = settings.chunk.next_multiple_of(64);
    let chunks = (settings.sb_chunks + settings.rpl_chunks) as usize * chunk;
    let control = size as usize * 8 + (1 << 20);
    ShmConfig {
        region_bytes: segment + chunks + control,
        huge_pages: settings.huge_pages,
        windows: settings.windows,
        inject_size: if settings.inject { chunk } else { 0 },
        max_managed: chunk,
        ..ShmConfig::default()
    }
}

/// Whoever started this process.
#[derive(Debug)]
pub(crate) enum Launcher {
    Pmi(pmi::Pmi),
    Alone(Alone),
}

impl Launcher {
    fn find() -> Result<Self> {
        Ok(match pmi::Pmi::from_env()? {
            Some(pmi) => Self::Pmi(pmi),
            None => Self::Alone(Alone),
        })
    }

    pub(crate) fn bootstrap(&mut self) -> &mut dyn Bootstrap {
        match self {
            Self::Pmi(pmi) => pmi,
            Self::Alone(alone) => alone,
        }
    }

    /// Tells the launcher that this rank ends as it should.
    pub(crate) fn finalize(&mut self) -> Result<()> {
        match self {
            Self::Pmi(pmi) => pmi.finalize(),
            Self::Alone(_) => Ok(()),
        }
    }
}
