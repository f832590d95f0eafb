//! The jobs that measure Conduit. They run one after another, their ranks run this same program,
//! and their rank 0 reports the results.

mod rank;

use std::io::Write;
use std::process::ExitCode;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use conduit_run::{Bind, How, Launch, Outcome, Stream};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::area::AREA_BYTES;
use crate::figure::Figure;
use crate::figures::{Job, names};
use crate::placement::Cores;
use crate::select::{self, UnknownFigure};
use crate::side::{PATIENCE, Side};
use crate::{Mapping, credits, lanes, ofi, portals4, survey, udp};

pub use rank::{launched, measure_here};

/// The environment variable that makes a process a rank of a measurement. Its name does not begin
/// with the prefix of Conduit's settings, because that prefix is reserved for them.
const ORDER: &str = "RANK_OF_CONDUIT_PERF";

/// The time limit of a job.
const LIMIT: Duration = Duration::from_secs(1800);

/// The options of a measurement of figures.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Whether to measure fewer and shorter rounds.
    pub quick: bool,
    /// The figures to measure, by name or by the first words of the name. If empty, all figures are
    /// measured.
    pub figures: Vec<String>,
    /// Whether, in a job started by a launcher, only ranks 0 and 1 measure, and only figures for
    /// two ranks.
    pub pair: bool,
}

/// The task of a job's ranks.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Measure figures over shared memory.
    Figures(rank::Order),
    /// Measure the bare limits.
    Limits(survey::Order),
    /// Run a pattern with few credits.
    Patterns(credits::patterns::Work),
    /// Run a flood with or without flow control.
    Flood(credits::cost::Flood),
    /// Run streams with or without wide windows.
    Lanes(lanes::Work),
    /// Measure figures over UDP.
    Udp(udp::Order),
    /// Measure figures over libfabric.
    Ofi(ofi::Order),
    /// Measure figures over Portals 4, or bare loops of a libportals.
    Portals4(portals4::Order),
}

/// Runs a rank's task and returns its exit code, if this program has started this process as a
/// rank. Otherwise returns `None`. A program that calls [`run_all`] must call this at the start of
/// `main`, because `run_all` starts the program itself as ranks.
#[must_use]
pub fn rank_main() -> Option<ExitCode> {
    libfabric_vendored::provide();
    let order = std::env::var(ORDER).ok()?;
    Some(match serve(&order) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            conduit::stderr::write_line(format_args!("{error:#}"));
            ExitCode::FAILURE
        }
    })
}

fn serve(order: &str) -> anyhow::Result<()> {
    match serde_json::from_str(order).context(ORDER)? {
        Order::Figures(order) => rank::serve(&order),
        Order::Limits(order) => survey::serve(&order),
        Order::Patterns(work) => credits::patterns::run_rank(&work),
        Order::Flood(flood) => credits::cost::run_rank(&flood),
        Order::Lanes(work) => lanes::run_rank(&work),
        Order::Udp(order) => udp::serve(&order),
        Order::Ofi(order) => ofi::serve(&order),
        Order::Portals4(order) => portals4::serve(&order),
    }
}

/// An event during the measurement of figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// A job starts.
    Started {
        /// The job.
        job: Job,
        /// The number of figures measured or left out before this job.
        done: usize,
        /// The total number of figures.
        of: usize,
    },
    /// A figure was measured.
    Figure(Figure),
    /// A figure cannot be measured here.
    LeftOut {
        /// The figure's name.
        name: String,
        /// The number of bytes per operation.
        size: usize,
        /// The reason.
        reason: String,
    },
}

/// The reason why there are no figures.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// There is no figure with a requested name.
    #[error(transparent)]
    Unknown(#[from] UnknownFigure),
    /// This process cannot measure.
    #[error(transparent)]
    Here(#[from] crate::Error),
    /// A job could not be started.
    #[error("starting the ranks: {0}")]
    Launch(#[from] conduit_run::Error),
    /// A job failed. The output of its ranks was written to standard error.
    #[error("the job of {ranks} ranks failed: {how}")]
    Failed {
        /// The number of the job's ranks.
        ranks: usize,
        /// How the job ended.
        how: How,
    },
}

/// Measures the figures requested in `options`, in jobs whose ranks run this same program. Its
/// `main` must start with [`rank_main`]. Reports every step to `progress` as it happens. The ranks'
/// standard error, and any standard output that is not meant for this function, goes to standard
/// error.
///
/// # Errors
/// Fails if a figure is unknown, or if a job cannot be started or fails.
pub fn run_all(
    options: &Options,
    mut progress: impl FnMut(&Event),
) -> Result<Vec<Figure>, RunError> {
    select::check(&options.figures, names())?;
    let orders = Job::ALL.map(|job| rank::Order::new(job, options));
    let of = orders.iter().map(|order| order.entries().count()).sum();
    let (mut figures, mut done) = (Vec::new(), 0);
    for order in orders {
        let (job, count) = (order.job, order.entries().count());
        if count == 0 {
            continue;
        }
        progress(&Event::Started { job, done, of });
        let order = Order::Figures(order);
        run_ranks(job.ranks(), job.cores(), &order, &[], |event| {
            progress(&event);
            if let Event::Figure(figure) = event {
                figures.push(figure);
            }
        })?;
        done += count;
    }
    Ok(figures)
}

/// Runs this program as the ranks of a job on `cores` cores, with additional environment variables.
/// `told` receives everything that rank 0 [reports](tell).
pub(crate) fn run_ranks<T: DeserializeOwned + Send + 'static>(
    ranks: usize,
    cores: usize,
    order: &Order,
    environment: &[(&str, &str)],
    told: impl FnMut(T),
) -> Result<(), RunError> {
    let text = serde_json::to_string(order).map_err(std::io::Error::from);
    let text = text.map_err(crate::Error::system("serialising"))?;
    let program = std::env::current_exe().map_err(crate::Error::system("current_exe"))?;
    let cores = Cores::allowed()?.first(cores);
    // Ranks over Portals 4 are bound to cores, so that the threads of a rank's libportals run on
    // the rank's core.
    let bind = match order {
        Order::Portals4(_) => Bind::Core,
        _ => Bind::None,
    };
    let (sender, words) = mpsc::channel();
    let launch = Launch::new(ranks, program)
        .env(ORDER, text)
        .envs(environment.iter().copied())
        .timeout(Some(LIMIT))
        .bind(bind)
        .quiet(true)
        .output(
            move |rank, stream, line| match (stream, serde_json::from_slice(line)) {
                // The result is ignored, because the receiver lives as long as the job.
                (Stream::Stdout, Ok(word)) => drop(sender.send(word)),
                _ => eprintln!("[{rank}] {}", String::from_utf8_lossy(line)),
            },
        );
    let outcome = thread::scope(|scope| {
        // A separate thread launches the ranks, which inherit its cores, so that the caller's cores
        // are unchanged.
        let job = scope.spawn(move || -> Result<Outcome, RunError> {
            cores.confine()?;
            Ok(launch.run()?)
        });
        // The loop ends when the job has ended, because the sender is dropped with it.
        words.iter().for_each(told);
        job.join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })?;
    match outcome.exit_code {
        0 => Ok(()),
        _ => Err(RunError::Failed {
            ranks,
            how: outcome.how,
        }),
    }
}

/// Runs ranks like [`run_ranks`], as [sides](as_side) that share memory of this process. The path
/// of that memory is passed to `order`. Returns the reports of rank 0.
pub(crate) fn run_sides<T: DeserializeOwned + Send + 'static>(
    ranks: usize,
    cores: usize,
    order: impl FnOnce(String) -> Order,
    environment: &[(&str, &str)],
) -> anyhow::Result<Vec<T>> {
    let memory = Mapping::anonymous(AREA_BYTES)?;
    let mut told = Vec::new();
    let order = order(memory.path());
    run_ranks(ranks, cores, &order, environment, |word| told.push(word))?;
    Ok(told)
}

/// Joins the measurement in the shared memory at the path `memory` as side `rank` of `ranks`, and
/// calls `measure`. Reports its results, which only rank 0 has.
pub(crate) fn as_side<T: Serialize>(
    memory: &str,
    rank: usize,
    ranks: usize,
    measure: impl FnOnce(&Side<'_>) -> anyhow::Result<Vec<T>>,
) -> anyhow::Result<()> {
    let memory = Mapping::open(memory)?;
    let side = Side::join(memory.area()?, Cores::allowed()?, rank, ranks, PATIENCE)?;
    let measured = measure(&side).inspect_err(|_| side.abort());
    for one in measured.with_context(|| format!("rank {rank}"))? {
        tell(&one)?;
    }
    // No side may leave before all sides have finished.
    Ok(side.meet()?)
}

/// Reports a value to the process that has started the job.
pub(crate) fn tell(word: &impl Serialize) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer(&mut out, word)?;
    Ok(writeln!(out)?)
}
