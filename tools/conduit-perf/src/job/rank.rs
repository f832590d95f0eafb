//! A rank of a measured job: this very program, started again by [`super::run_all`].

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

/// What the ranks of such a job are told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(super) job: Job,
    plan: Plan,
    figures: Vec<String>,
}

pub(super) fn serve(order: &Order) -> anyhow::Result<()> {
    measure(order, Bench::start()?, &mut |event| tell(&event))
}

/// Whether a launcher has started this process as a rank of a job, and not [`super::run_all`].
#[must_use]
pub fn launched() -> bool {
    // As PMI-1 says it.
    std::env::var_os("PMI_RANK").is_some() && std::env::var_os("PMI_SIZE").is_some()
}

/// As a rank of a job that a launcher has started: measures those of `options`' figures that are made for two ranks on
/// two cores if it has two or [`Options::pair`] says so, and those for many if it has more. Collective. `progress` is called on
/// rank 0 only; the figures are rank 0's, the others get `None`.
///
/// # Errors
/// An unknown figure, or what ends the job.
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
        1 => bail!("nothing is measured with one rank: start two, or more for barriers"),
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

/// Measures on all ranks, tells rank 0's caller, and leaves the job.
fn measure(
    order: &Order,
    bench: Bench,
    tell: &mut dyn FnMut(Event) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    // Before the sides are placed, which changes it.
    let cores = Cores::allowed()?;
    let rank = bench.conduit.rank() as usize;
    // Of a pair in a larger job, the home rank is the last that takes part.
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
        // Nobody leaves before all have done their part.
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

/// Is one of the job's ranks without taking part: asleep, so that those that do have the cores.
fn stand_by(bench: Bench) -> anyhow::Result<()> {
    const NAP: Duration = Duration::from_millis(10);
    while bench.seen.answers.load(Relaxed) == 0 {
        thread::sleep(NAP);
        bench.conduit.poll()?;
    }
    Ok(bench.conduit.finish()?)
}

/// One figure; rank 0 has something to tell of it.
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
            "the settings allow no messages of this size, or all ranks of the job would have to take part",
        ));
    };
    // Ranks that a launcher has bound see different cores.
    let fits = side.fits(comparison.limit.placement);
    if side.agree(u64::from(fits))? == 0 {
        return Ok(left_out(
            "each rank needs a core, and rank 0 may not use as many",
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

    /// The figures of the job that were asked for, in order, with their sizes.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&'static Entry, usize)> {
        ENTRIES
            .iter()
            .filter(|entry| entry.job == self.job && select::wanted(&self.figures, entry.name))
            .flat_map(|entry| entry.sizes.iter().map(move |&size| (entry, size)))
    }
}
