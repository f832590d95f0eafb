//! The performance of Conduit over libfabric compared with bare loops of the same library and
//! provider: `conduit-perf ofi`.
//!
//! Two processes run on two cores, each with the engine and bare endpoints. For each provider,
//! there are these rows:
//!
//! | row | compared with |
//! |---|---|
//! | `am-round-trip`: a short request and its reply | messages of the same size back and forth, with the library's usual locks (as `fi_pingpong` and fabtests measure) and without them (as Conduit uses it); `fi_pingpong` itself |
//! | `am-medium`: a medium and a reply with the same bytes | messages of the same size back and forth |
//! | `put`: puts to one destination, several under way | as many calls of `fi_write`; as many calls of `fi_writemsg` that complete on delivery, as a put does |

mod bare;
mod engine;
mod loops;
mod pingpong;
mod rows;

use anyhow::Context;
use clap::Args;
use conduit_ofi::job::OfiConfig;
use conduit_ofi::library::Which;
use conduit_ofi::provider::{Hints, choose};
use libfabric_sys::{Library, fi_version};
use serde::{Deserialize, Serialize};

use crate::alternate::Plan;
use crate::figure::Figure;
use crate::figures::Job;
use crate::job;
use crate::limits::alone::Private;
use crate::placement::Placement;
use crate::pool::{Pooled, pool};
use crate::select::{self, Judged};
use crate::side::Side;

use bare::{Bare, Locks};
use engine::End;
use pingpong::Program;
pub use pingpong::main_if_asked;
use rows::{Endpoints, ROWS, Row};

/// The number of jobs for each provider.
const JOBS: usize = 9;
/// The number of jobs for each provider in a quick measurement.
const QUICK_JOBS: usize = 3;
/// The first version of the library that can leave out its locks.
const UNLOCKED: u32 = fi_version(1, 21);

/// The maximum number of writes or puts that are under way at once.
const UNDER_WAY: u64 = 8;

/// The number of bytes of each segment, and of the puts' source memory.
const SEGMENT: usize = 1 << 20;

/// The index of the shared word in which side 0 signals that it is done.
const OVER: usize = 12;

/// The parameters of measurements over libfabric.
#[derive(Clone, Debug, Args)]
pub struct Options {
    #[command(flatten)]
    judged: Judged,
    /// The providers to measure
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "tcp,shm"
    )]
    provider: Vec<String>,
    /// The domain [default: "lo" for tcp and udp, the first one for others]
    #[arg(long)]
    domain: Option<String>,
    /// The libfabric to use: "system", "vendored" or a file [default: the system's, or the vendored
    /// one if there is none]
    #[arg(long, value_name = "WHICH", default_value = "")]
    library: String,
    /// Print the counters of each rank's network to standard error
    #[arg(long)]
    counters: bool,
}

impl Options {
    fn hints(&self, provider: &str) -> Hints {
        Hints {
            provider: Some(provider.to_owned()),
            domain: self.domain(provider),
            one_host: true,
            ..Hints::default()
        }
    }

    fn domain(&self, provider: &str) -> Option<String> {
        let local = matches!(provider.split(';').next(), Some("tcp" | "udp" | "sockets"));
        let lo = local.then(|| "lo".to_owned());
        self.domain.clone().or(lo)
    }
}

/// The task of a job's ranks.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    provider: String,
    domain: Option<String>,
    library: String,
    plan: Plan,
    figures: Vec<String>,
    /// Whether the library can leave out its locks.
    unlocked: bool,
    counters: bool,
    /// The memory that the sides share.
    memory: String,
}

impl Order {
    fn rows(&self) -> impl Iterator<Item = Row> {
        wanted(&self.figures, self.unlocked)
    }
}

fn wanted(figures: &[String], unlocked: bool) -> impl Iterator<Item = Row> {
    ROWS.into_iter()
        .filter(move |row| select::wanted(figures, row.name) && (unlocked || !row.wants_no_locks()))
}

/// Measures and prints the results. Returns `false` if a check failed.
///
/// # Errors
/// Fails if the library or a provider does not exist, if a measurement fails, or if the results
/// cannot be written.
pub fn run(options: &Options) -> anyhow::Result<bool> {
    let choice = &options.judged.choice;
    if !choice.measures(ROWS.iter().map(|row| row.name))? {
        return Ok(true);
    }
    // The library is loaded before any job starts, so that a missing library is reported once.
    let library = (Which::named(&options.library).load()).map_err(anyhow::Error::msg)?;
    eprintln!("{library:?}");
    let pingpong = Program::find(&Which::named(&options.library))?;
    let (mut figures, mut wanted_of_all) = (Vec::new(), 0);
    for provider in &options.provider {
        let measured = provider_figures(options, &library, provider, pingpong.as_ref())
            .with_context(|| format!("provider {provider}"))?;
        let wanted = wanted(&choice.figures, is_unlocked(&library)).count();
        // `measured` may have one figure more, that of `fi_pingpong`.
        wanted_of_all += wanted.max(measured.len());
        for Pooled { figure, between } in measured {
            if let Some((low, high)) = between {
                let Figure {
                    name, limit_name, ..
                } = &figure;
                eprintln!(
                    "{name} of {} bytes beside {limit_name}: {low:.2} to {high:.2}",
                    figure.size
                );
            }
            figures.push(figure);
        }
    }
    Ok(options.judged.judge_of(&figures, wanted_of_all)?)
}

fn is_unlocked(library: &Library) -> bool {
    library.version() >= UNLOCKED
}

/// Runs the jobs of a provider.
fn provider_figures(
    options: &Options,
    library: &Library,
    provider: &str,
    pingpong: Option<&Program>,
) -> anyhow::Result<Vec<Pooled>> {
    let choice = &options.judged.choice;
    let jobs = if choice.quick { QUICK_JOBS } else { JOBS };
    let plan = choice.plan().shared(jobs);
    let full_name = choose(library, &options.hints(provider))
        .map(|offer| offer.provider())
        .map_err(|(reason, offered)| anyhow::anyhow!("{reason}; available: {offered}"))?;
    let mut all = Vec::new();
    for _ in 0..jobs {
        let mut figures = run_job(options, provider, is_unlocked(library), plan)?;
        let trip = figures
            .first()
            .filter(|figure| figure.name.ends_with(ROWS[0].name));
        if let (Some(program), Some(trip)) = (pingpong, trip) {
            let beside = pingpong::beside(trip, program.seconds(&full_name)?);
            figures.extend(beside);
        }
        all.push(figures);
    }
    Ok(pool(all))
}

/// Runs one job.
fn run_job(
    options: &Options,
    provider: &str,
    unlocked: bool,
    plan: Plan,
) -> anyhow::Result<Vec<Figure>> {
    let order = |memory| {
        job::Order::Ofi(Order {
            provider: provider.to_owned(),
            domain: options.domain(provider),
            library: options.library.clone(),
            plan,
            figures: options.judged.choice.figures.clone(),
            unlocked,
            counters: options.counters,
            memory,
        })
    };
    job::run_sides(Job::Pair.ranks(), Job::Pair.cores(), order, &[])
}

/// Runs a rank of such a job.
pub(crate) fn serve(order: &Order) -> anyhow::Result<()> {
    // This rank joins the job only so that the launcher knows when the rank has started and ended.
    let job = conduit::start()?;
    let (rank, ranks) = (job.rank() as usize, job.size() as usize);
    job::as_side(&order.memory, rank, ranks, |side| measure(side, order))?;
    Ok(job.attach(conduit::Handlers::new(), 0)?.finish()?)
}

fn measure(side: &Side<'_>, order: &Order) -> anyhow::Result<Vec<Figure>> {
    if !side.fits(Placement::Apart) {
        return Ok(Vec::new());
    }
    side.place(Placement::Apart)?;
    let which = Which::named(&order.library);
    let hints = Hints {
        provider: Some(order.provider.clone()),
        domain: order.domain.clone(),
        one_host: true,
        ..Hints::default()
    };
    let config = OfiConfig {
        library: which.clone(),
        ..OfiConfig::new(hints, "this".to_owned())
    };
    let end = End::open(side, &config, SEGMENT)?;
    let source = Private::new(SEGMENT);
    let loaded = || which.load().map_err(bare::failed);
    // The engine and the bare endpoints use exactly the same offer.
    let offer = choose(&loaded()?, &config.hints).map_err(|(reason, _)| bare::failed(reason))?;
    if side.rank() == 0 {
        eprintln!("{offer:?}");
    }
    let open = |locks| {
        let (provider, domain) = (offer.provider(), offer.domain());
        let segment = end.segment()?;
        // SAFETY: the engine owns the segment and is dropped after the endpoints, so the segment
        // stays valid. No code relies on its contents.
        let bare = unsafe {
            Bare::open(
                side,
                loaded()?,
                &provider,
                &domain,
                locks,
                segment,
                source.clone(),
            )
        };
        bare.map(Endpoints::share)
    };
    let endpoints = Endpoints {
        usual: open(Locks::Usual)?,
        unlocked: order
            .rows()
            .any(|row| row.wants_no_locks())
            .then(|| open(Locks::None))
            .transpose()?,
    };
    let figures = rows::measure(side, order, &end, &source, &endpoints)?;
    if order.counters {
        eprintln!("{}", end.counters());
    }
    // No side may close anything before all sides have finished.
    side.meet()?;
    end.leave();
    drop(endpoints);
    side.meet()?;
    Ok(figures)
}
