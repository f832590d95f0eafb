//! A rank of a measured job, which is this same program, started by [`super::run_all`] or by a
//! launcher.

use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};

use super::{Event, Options, tell};
use crate::Error;
use crate::alternate::Plan;
use crate::bench::Bench;
use crate::figure::Figure;
use crate::figures::{ENTRIES, Entry, Job, names};
use crate::placement::Cores;
use crate::select;
use crate::side::{PATIENCE, Side};

/// The task of such a job's ranks.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(super) job: Job,
    plan: Plan,
    figures: Vec<String>,
}

pub(super) fn serve(order: &Order) -> anyhow::Result<()> {
    measure(order, Bench::start()?, &mut |event| tell(&event))
}

/// Returns whether a launcher, rather than [`super::run_all`], has started this process as a rank
/// of a job.
#[must_use]
pub fn launched() -> bool {
    // Launchers set these variables of PMI-1.
    std::env::var_os("PMI_RANK").is_some() && std::env::var_os("PMI_SIZE").is_some()
}

/// Measures the figures requested in `options` as a rank of a job started by a launcher.
/// Collective. If the job has two ranks or [`Options::pair`] is set, measures the figures for two
/// ranks on two cores, otherwise those for many ranks. On rank 0, calls `progress` and returns the
/// figures; on the other ranks, returns `None`.
///
/// # Errors
/// Fails if a figure is unknown, or if an error ends the job.
pub fn measure_here(
    options: &Options,
    mut progress: impl FnMut(&Event),
) -> anyhow::Result<Option<Vec<Figure>>> {
    select::check(&options.figures, names())?;
    let bench = Bench::towards(|job| match options.pair {
        true => 1.min(job.size() - 1),
        false => job.size() - 1,
    })?;
    let rank = bench.conduit.rank();
    let job = match bench.conduit.size() {
        1 => bail!("figures need at least 2 ranks: start 2, or more for barriers"),
        2 => Job::Pair,
        _ if options.pair => Job::Pair,
        _ => Job::Crowd,
    };
    let mut figures = Vec::new();
    measure(&Order::new(job, options), bench, &mut |event| {
        progress(&event);
        if let Event::Figure(figure) = event {
            figures.push(figure);
        }
        Ok(())
    })?;
    Ok((rank == 0).then_some(figures))
}

/// Measures on all ranks, reports with `tell` on rank 0, and leaves the job.
fn measure(
    order: &Order,
    bench: Bench,
    tell: &mut dyn FnMut(Event) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    // The cores are queried here, before placing the sides changes them.
    let cores = Cores::allowed()?;
    let rank = bench.conduit.rank() as usize;
    // If a pair of a larger job is measured, the home rank is the last rank that takes part.
    let ranks = bench.home as usize + 1;
    if rank >= ranks {
        return stand_by(bench);
    }
    let in_turn = || -> anyhow::Result<()> {
        let side = Side::join(bench.area()?, cores, rank, ranks, PATIENCE)?;
        for (entry, size) in order.entries() {
            let event = one(order, &bench, &side, entry, size)?;
            if let Some(event) = event.filter(|_| rank == 0) {
                tell(event)?;
            }
        }
        // No side may leave before all sides have finished.
        Ok(side.meet()?)
    };
    in_turn().with_context(|| format!("rank {rank}"))?;
    if rank == 0 {
        for other in bench.home + 1..bench.conduit.size() {
            bench.conduit.request(other, bench.messages.finished, ())?;
        }
    }
    Ok(bench.conduit.finish()?)
}

/// Lets a rank that takes no part in the measurement sleep, so that the participating ranks have
/// the cores.
fn stand_by(bench: Bench) -> anyhow::Result<()> {
    const NAP: Duration = Duration::from_millis(10);
    while bench.seen.answers.load(Relaxed) == 0 {
        thread::sleep(NAP);
        bench.conduit.poll()?;
    }
    Ok(bench.conduit.finish()?)
}

/// Measures one figure. Returns the event to report on rank 0.
fn one(
    order: &Order,
    bench: &Bench,
    side: &Side<'_>,
    entry: &Entry,
    size: usize,
) -> Result<Option<Event>, Error> {
    let left_out = |reason: &str| {
        Some(Event::LeftOut {
            name: entry.name.to_owned(),
            size,
            reason: reason.to_owned(),
        })
    };
    let Some(mut comparison) = (entry.build)(bench, size) else {
        return Ok(left_out(
            "the settings do not allow messages of this size, or the figure needs all ranks of the job",
        ));
    };
    // The sides decide together, because ranks that a launcher has bound may use different cores.
    let fits = side.fits(comparison.limit.placement);
    if side.agree(u64::from(fits))? == 0 {
        return Ok(left_out(
            "each rank needs its own core, but rank 0 may use fewer cores than ranks",
        ));
    }
    let figure = comparison.measure(side, order.plan)?;
    Ok(figure.map(Event::Figure))
}

impl Order {
    pub(super) fn new(job: Job, options: &Options) -> Self {
        Self {
            job,
            plan: Plan::of(options.quick),
            figures: options.figures.clone(),
        }
    }

    /// Returns the requested figures of the job, in order, with their sizes.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&'static Entry, usize)> {
        ENTRIES
            .iter()
            .filter(|entry| entry.job == self.job && select::wanted(&self.figures, entry.name))
            .flat_map(|entry| entry.sizes.iter().map(move |&size| (entry, size)))
    }
}
