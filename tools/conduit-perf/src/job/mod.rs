//! Measures Conduit: jobs of this very program, one after the other, whose rank 0 tells what it has measured.

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

/// The environment variable that makes a process a rank of a measurement. Not one of Conduit's settings, of whose
/// prefix no other names are allowed.
const ORDER: &str = "RANK_OF_CONDUIT_PERF";

/// No job takes longer than this.
const LIMIT: Duration = Duration::from_secs(1800);

/// What to measure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Measure less often and more briefly.
    pub quick: bool,
    /// Only these figures, by name or the first words of it; all if empty.
    pub figures: Vec<String>,
    /// In a job that a launcher has started: only its ranks 0 and 1 measure, what is made for two ranks.
    pub pair: bool,
}

/// What the ranks of a job are told.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// The figures of shared memory.
    Figures(rank::Order),
    /// The bare limits.
    Limits(survey::Order),
    /// Patterns with few credits.
    Patterns(credits::patterns::Work),
    /// A flood with flow control or without.
    Flood(credits::cost::Flood),
    /// Streams with wide windows or without.
    Lanes(lanes::Work),
    /// Figures over UDP.
    Udp(udp::Order),
    /// Figures over libfabric.
    Ofi(ofi::Order),
    /// Figures over Portals 4, or bare loops of a libportals.
    Portals4(portals4::Order),
}

/// Does a rank's part if this process is a rank that this program has started; `None` if it is not. To be called at the start
/// of `main` by every program that calls [`run_all`], which starts the program itself as ranks.
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

/// What happens while figures are measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// A job starts; so many figures were measured or left out before, of so many.
    Started {
        /// The job.
        job: Job,
        /// Figures before it.
        done: usize,
        /// Figures altogether.
        of: usize,
    },
    /// A figure was measured.
    Figure(Figure),
    /// A figure can't be measured here.
    LeftOut {
        /// Its name.
        name: String,
        /// Bytes per operation.
        size: usize,
        /// Why.
        reason: String,
    },
}

/// Why there are no figures.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A figure that doesn't exist was asked for.
    #[error(transparent)]
    Unknown(#[from] UnknownFigure),
    /// This process can't measure.
    #[error(transparent)]
    Here(#[from] crate::Error),
    /// A job could not be started.
    #[error("starting the ranks: {0}")]
    Launch(#[from] conduit_run::Error),
    /// A job failed; what its ranks had to say was written to standard error.
    #[error("the job of {ranks} ranks failed: {how}")]
    Failed {
        /// Its ranks.
        ranks: usize,
        /// How it ended.
        how: How,
    },
}

/// Measures the figures that `options` ask for, in jobs of this program's own: its `main` must start with
/// [`rank_main`]. `progress` is told of every step as it happens. What ranks write to standard error, and what isn't
/// for this function, goes to standard error.
///
/// # Errors
/// An unknown figure, a job that can't be started or fails.
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

/// Runs this program as the ranks of a job on so many cores, with this environment besides. `told` gets what rank 0
/// [tells](tell).
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
    // The threads of a libportals are a rank's, and run where it runs.
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
                // The receiver is there as long as the job.
                (Stream::Stdout, Ok(word)) => drop(sender.send(word)),
                _ => eprintln!("[{rank}] {}", String::from_utf8_lossy(line)),
            },
        );
    let outcome = thread::scope(|scope| {
        // A thread of its own, whose cores its ranks inherit: those of the caller stay as they are.
        let job = scope.spawn(move || -> Result<Outcome, RunError> {
            cores.confine()?;
            Ok(launch.run()?)
        });
        // Ends when the job has ended and with it the sender.
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

/// As [`run_ranks`], for ranks that are [sides](as_side) in memory of this process: its path is for `order`. Gives what
/// rank 0 has told.
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

/// As rank `rank` of `ranks`: is a side in the memory at this path, and tells what `measure` gives on rank 0.
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
    // Nobody leaves before all have done their part.
    Ok(side.meet()?)
}

/// What a rank has to tell the one that has started the job.
pub(crate) fn tell(word: &impl Serialize) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer(&mut out, word)?;
    Ok(writeln!(out)?)
}
