//! Measures Conduit: jobs of this very program, one after the other, whose rank 0 tells of each figure.

mod rank;

use std::ffi::OsString;
use std::io::Write;
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::Duration;

use conduit_run::{How, Launch, Outcome, Stream};
use serde::{Deserialize, Serialize};

use crate::alternate::Plan;
use crate::figure::Figure;
use crate::figures::{Job, names};
use crate::placement::Cores;
use crate::select::{self, UnknownFigure};

pub use rank::{launched, measure_here, rank_main};

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
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Order {
    job: Job,
    quick: bool,
    figures: Vec<String>,
}

impl Order {
    fn new(job: Job, options: &Options) -> Self {
        Self {
            job,
            quick: options.quick,
            figures: options.figures.clone(),
        }
    }

    fn plan(&self) -> Plan {
        if self.quick { Plan::QUICK } else { Plan::FULL }
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
    let orders = Job::ALL.map(|job| Order::new(job, options));
    let of = orders.iter().map(|order| order.entries().count()).sum();
    let (mut figures, mut done) = (Vec::new(), 0);
    for order in &orders {
        if order.entries().next().is_none() {
            continue;
        }
        progress(&Event::Started {
            job: order.job,
            done,
            of,
        });
        run_job(order, |event| {
            progress(&event);
            if let Event::Figure(figure) = event {
                figures.push(figure);
            }
        })?;
        done += order.entries().count();
    }
    Ok(figures)
}

/// Runs one job to its end.
fn run_job(order: &Order, mut progress: impl FnMut(Event)) -> Result<(), RunError> {
    let text = serde_json::to_string(order).map_err(std::io::Error::from);
    let text = text.map_err(crate::Error::system("serialising"))?;
    let environment = [(ORDER, OsString::from(text))];
    run_ranks(order.job, environment, &mut progress)
}

/// Runs this program as the ranks of a job, with this environment besides; its rank 0 tells of events on standard output.
pub(crate) fn run_ranks<'n>(
    job: Job,
    environment: impl IntoIterator<Item = (&'n str, OsString)>,
    mut progress: impl FnMut(Event),
) -> Result<(), RunError> {
    let ranks = job.ranks();
    let program = std::env::current_exe().map_err(crate::Error::system("current_exe"))?;
    let cores = Cores::allowed()?.first(job.cores());
    let (sender, events) = mpsc::channel();
    let mut launch = Launch::new(ranks, program)
        .timeout(Some(LIMIT))
        .quiet(true)
        .output(move |rank, stream, line| hear(&sender, rank, stream, line));
    for (name, value) in environment {
        launch = launch.env(name, value);
    }
    let outcome = thread::scope(|scope| {
        // A thread of its own, whose cores its ranks inherit: those of the caller stay as they are.
        let job = scope.spawn(move || -> Result<Outcome, RunError> {
            cores.confine()?;
            Ok(launch.run()?)
        });
        // Ends when the job has ended and with it the sender.
        events.iter().for_each(&mut progress);
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

/// What a rank has to tell the one that has started the job.
pub(crate) fn tell(event: &Event) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer(&mut out, event)?;
    Ok(writeln!(out)?)
}

/// A line of a rank.
fn hear(events: &Sender<Event>, rank: usize, stream: Stream, line: &[u8]) {
    match (stream, serde_json::from_slice(line)) {
        // The receiver is there as long as the job.
        (Stream::Stdout, Ok(event)) => drop(events.send(event)),
        _ => eprintln!("[{rank}] {}", String::from_utf8_lossy(line)),
    }
}
