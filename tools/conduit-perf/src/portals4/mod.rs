//! The performance of Conduit over Portals 4 compared with bare loops of the same libportals:
//! `conduit-perf portals4`.
//!
//! Two processes run on two cores. Conduit and the bare loops run in separate jobs, which
//! alternate, because a process's libportals has only one interface and its threads run even when
//! it is idle. The measured figures are those of the figures over shared memory that do not need
//! windows. Each is compared with the least that the library has to do for the operation:
//!
//! | figure | compared with |
//! |---|---|
//! | `am-short-round-trip` | puts of 8 bytes back and forth, each with an event at its target |
//! | `put`, `put-bandwidth` | a put and its acknowledgement |
//! | `get`, `get-bandwidth` | a get and its reply |
//! | `put-nbi-rate` | acknowledged puts, several under way |
//! | `am-short-flood`, `am-medium-flood`, `am-long` | acknowledged puts, several under way, with events at the target |

mod bare;

use std::path::PathBuf;

use clap::Args;
use conduit_portals::portals4::start::library;
use indicatif::ProgressBar;
use portals4_sys::Library;
use serde::{Deserialize, Serialize};

use crate::alternate::Plan;
use crate::bench::Bench;
use crate::compare::{calibrate, reading};
use crate::figure::{Figure, Subject, Target, Unit};
use crate::figures::{ENTRIES, Entry, Job};
use crate::job;
use crate::limits::BULK_SIZES;
use crate::select::{self, Judged};
use crate::side::Side;

use bare::{Bare, Loop, failed};

/// The number of jobs of each kind.
const JOBS: usize = 9;
/// The number of jobs of each kind in a quick measurement.
const QUICK_JOBS: usize = 3;

/// Conduit's setting that names the library. The bare loops use the same library.
const LIBRARY: &str = "CONDUIT_PORTALS4_LIBRARY";

/// The parameters of measurements over Portals 4.
#[derive(Clone, Debug, Args)]
pub struct Options {
    #[command(flatten)]
    judged: Judged,
}

/// A figure and its bare loop.
struct Row {
    name: &'static str,
    beside: Loop,
    target: Option<Target>,
}

const fn row(name: &'static str, beside: Loop, target: Option<Target>) -> Row {
    Row {
        name,
        beside,
        target,
    }
}

const ROWS: &[Row] = &[
    row(
        "am-short-round-trip",
        Loop::ToAndFro,
        Some(Target::AtMost(1.5)),
    ),
    row("put", Loop::Put, Some(Target::AtMost(1.2))),
    row("get", Loop::Get, None),
    row("put-nbi-rate", Loop::Puts, None),
    row("am-short-flood", Loop::Stream, None),
    row("am-medium-flood", Loop::Stream, None),
    row("am-long", Loop::Stream, None),
    row("put-bandwidth", Loop::Put, None),
    row("get-bandwidth", Loop::Get, None),
];

/// The number of bytes in the bare loop's message if the figure's message has no payload.
const WORD: usize = 8;

/// The task of a job's ranks.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    /// Whether to measure the bare loops instead of Conduit.
    bare: bool,
    plan: Plan,
    figures: Vec<String>,
    /// The memory that the sides share, because their segments are not mapped in each other.
    memory: String,
}

/// A measured value of a job.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Reading {
    name: String,
    size: usize,
    unit: Unit,
    /// The number of seconds per operation.
    seconds: f64,
}

/// Returns the requested figures with their sizes.
fn entries(asked: &[String]) -> impl Iterator<Item = (&'static Row, &'static Entry, usize)> {
    let wanted = ROWS.iter().filter(|row| select::wanted(asked, row.name));
    wanted.flat_map(|row| {
        let same = ENTRIES.iter().filter(|entry| entry.name == row.name);
        same.flat_map(move |entry| entry.sizes.iter().map(move |size| (row, entry, *size)))
    })
}

fn load() -> Result<Library, String> {
    let path = std::env::var_os(LIBRARY).map(PathBuf::from);
    library(path.as_deref())
}

/// Measures and prints the results. Returns `false` if a check failed.
///
/// # Errors
/// Fails if there is no libportals, if a job fails, or if the results cannot be written.
pub fn run(options: &Options) -> anyhow::Result<bool> {
    let choice = &options.judged.choice;
    if !choice.measures(ROWS.iter().map(|row| row.name))? {
        return Ok(true);
    }
    // The library is loaded before any job starts, so that a missing library is reported once.
    eprintln!("{:?}", load().map_err(anyhow::Error::msg)?);
    let jobs = if choice.quick { QUICK_JOBS } else { JOBS };
    let bar = ProgressBar::new(2 * jobs as u64);
    let mut measured = [const { Vec::new() }; 2];
    for round in 0..jobs {
        // The order alternates, so that both kinds of job come first equally often.
        let first = round % 2 == 1;
        for bare in [first, !first] {
            let order = |memory| {
                job::Order::Portals4(Order {
                    bare,
                    plan: choice.plan(),
                    figures: choice.figures.clone(),
                    memory,
                })
            };
            // Ranks with bare loops use Conduit only for the connection to the launcher, so they
            // use shared memory.
            let network = if bare { "shm" } else { "portals4" };
            let environment = [("CONDUIT_NETWORK", network)];
            let (ranks, cores) = (Job::Pair.ranks(), Job::Pair.cores());
            let told: Vec<Reading> = job::run_sides(ranks, cores, order, &environment)?;
            measured[usize::from(bare)].push(told);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    let figures: Vec<_> = entries(&choice.figures)
        .filter_map(|(row, _, size)| figure(row, size, &measured))
        .collect();
    let left_out = entries(&choice.figures).count() - figures.len();
    if left_out > 0 {
        eprintln!(
            "{left_out} figures left out: the settings or the library do not allow messages of these sizes"
        );
    }
    Ok(options.judged.judge(&figures, left_out)?)
}

/// Returns a row's figure from the readings of the jobs with Conduit and of the jobs with bare
/// loops.
fn figure(row: &Row, size: usize, [conduit, bare]: &[Vec<Vec<Reading>>; 2]) -> Option<Figure> {
    fn find<'r>(job: &'r [Reading], row: &Row, size: usize) -> Option<&'r Reading> {
        let mut same = job.iter().filter(|one| one.name == row.name);
        same.find(|one| one.size == size)
    }
    let rounds: Vec<_> = conduit
        .iter()
        .zip(bare)
        .filter_map(|(conduit, bare)| Some((find(conduit, row, size)?, find(bare, row, size)?)))
        .collect();
    let subject = Subject {
        name: row.name,
        size,
        limit_name: row.beside.name(),
        unit: rounds.first()?.0.unit,
        target: row.target,
    };
    let seconds = rounds
        .iter()
        .map(|(one, other)| (one.seconds, other.seconds));
    Figure::of_rounds(&subject, Job::Pair.ranks(), seconds)
}

/// Runs a rank of such a job.
pub(crate) fn serve(order: &Order) -> anyhow::Result<()> {
    let bench = Bench::start()?;
    let (rank, ranks) = (bench.conduit.rank(), bench.conduit.size());
    job::as_side(&order.memory, rank as usize, ranks as usize, |side| {
        Ok(match order.bare {
            true => measure_bare(side, &bench, order)?,
            false => measure(side, &bench, order)?,
        })
    })?;
    Ok(bench.conduit.finish()?)
}

/// Takes one reading on all sides. Side 0's reading counts.
fn read(
    side: &Side<'_>,
    plan: Plan,
    (name, size, unit): (&str, usize, Unit),
    piece: &mut (impl crate::Piece + ?Sized),
) -> Result<Option<Reading>, crate::Error> {
    let count = calibrate(side, piece, plan.time)?;
    let seconds = reading(side, piece, count, plan.runs)?;
    Ok((side.rank() == 0).then(|| Reading {
        name: name.to_owned(),
        size,
        unit,
        seconds,
    }))
}

fn measure(side: &Side<'_>, bench: &Bench, order: &Order) -> Result<Vec<Reading>, crate::Error> {
    let mut readings = Vec::new();
    for (row, entry, size) in entries(&order.figures) {
        if let Some(mut comparison) = (entry.build)(bench, size) {
            let what = (row.name, size, comparison.limit.unit);
            readings.extend(read(side, order.plan, what, &mut *comparison.figure)?);
        }
    }
    Ok(readings)
}

fn measure_bare(
    side: &Side<'_>,
    bench: &Bench,
    order: &Order,
) -> Result<Vec<Reading>, crate::Error> {
    let largest = BULK_SIZES.into_iter().max().unwrap_or(WORD);
    let mut bare = Bare::open(side, load().map_err(failed)?, largest)?;
    let mut readings = Vec::new();
    for (row, entry, size) in entries(&order.figures) {
        // The comparison is built only because its unit is needed.
        let Some(comparison) = (entry.build)(bench, size) else {
            continue;
        };
        let bytes = size.max(WORD);
        if bare.takes(bytes) {
            let what = (row.name, size, comparison.limit.unit);
            let mut piece = row.beside.piece(&mut bare, bytes);
            readings.extend(read(side, order.plan, what, &mut piece)?);
        }
    }
    // No side may close anything before all sides have finished.
    side.meet()?;
    Ok(readings)
}
