//! A rank of a measured job: this very program, started again by [`super::run`].

use std::io::Write;
use std::process::ExitCode;

use anyhow::Context;

use super::{Event, ORDER, Order};
use crate::area::SharedArea;
use crate::bench::Bench;
use crate::figures::{ENTRIES, Entry};
use crate::placement::Cores;
use crate::select;
use crate::side::{PATIENCE, Side};

/// Does a rank's part if this process is a rank that [`super::run`] has started; `None` if it is not. To be called at
/// the start of `main` by every program that calls [`super::run`], which starts the program itself as ranks.
#[must_use]
pub fn rank_main() -> Option<ExitCode> {
    let order = std::env::var(ORDER).ok()?;
    Some(match serve(&order) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    })
}

fn serve(order: &str) -> anyhow::Result<()> {
    let order: Order = serde_json::from_str(order).context(ORDER)?;
    // Before Conduit starts, which may not change it, and before the sides are placed, which does.
    let cores = Cores::allowed()?;
    let bench = Bench::start()?;
    measure(&order, &bench, bench.area()?, cores)
        .with_context(|| format!("rank {}", bench.conduit.rank()))?;
    Ok(bench.conduit.finish()?)
}

fn measure(order: &Order, bench: &Bench, area: SharedArea<'_>, cores: Cores) -> anyhow::Result<()> {
    let (rank, size) = (bench.conduit.rank() as usize, bench.conduit.size() as usize);
    let side = Side::join(area, cores, rank, size, PATIENCE)?;
    for (entry, size) in order.entries() {
        let event = one(order, bench, &side, entry, size)?;
        if rank == 0 {
            let mut out = std::io::stdout().lock();
            serde_json::to_writer(&mut out, &event)?;
            writeln!(out)?;
        }
    }
    // Nobody leaves before all have done their part.
    Ok(side.meet()?)
}

fn one(
    order: &Order,
    bench: &Bench,
    side: &Side<'_>,
    entry: &Entry,
    size: usize,
) -> anyhow::Result<Event> {
    let left_out = |reason: &str| Event::LeftOut {
        name: entry.name.to_owned(),
        size,
        reason: reason.to_owned(),
    };
    let Some(mut comparison) = (entry.build)(bench, size) else {
        return Ok(left_out(
            "Conduit's settings allow no messages of this size",
        ));
    };
    if !side.fits(comparison.limit.placement) {
        return Ok(left_out("it needs a core for each rank"));
    }
    Ok(match comparison.measure(side, order.plan(), &mut |_| {})? {
        Some(figure) => Event::Figure(figure),
        None => left_out("it was measured by rank 0"),
    })
}

impl Order {
    /// The figures of the job that were asked for, in order, with their sizes.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&'static Entry, usize)> {
        ENTRIES
            .iter()
            .filter(|entry| entry.job == self.job && select::wanted(&self.figures, entry.name))
            .flat_map(|entry| entry.sizes.iter().map(move |&size| (entry, size)))
    }
}
