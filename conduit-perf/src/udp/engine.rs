//! The whole engine over UDP: jobs of two ranks on the loopback interface that may use no other network.

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use anyhow::Context;
use serde::{Deserialize, Serialize};

use crate::alternate::Plan;
use crate::bench::{Bench, failed};
use crate::compare::Comparison;
use crate::figure::{Figure, Target, Unit};
use crate::figures::{Job, messages, rma};
use crate::job::{Event, run_ranks, tell};
use crate::limits::copy::Private;
use crate::limits::udp::{BLOCK, Waiting};
use crate::limits::{Limit, best_udp_stream, udp_round_trip, udp_stream};
use crate::placement::{Cores, Placement};
use crate::side::{PATIENCE, Side};
use crate::{Error, Mapping, area, select};

use super::{Options, wire};

/// The environment variable that makes a process a rank of such a job.
const ORDER: &str = "UDP_RANK_OF_CONDUIT_PERF";

/// Where the ranks' sockets are, and that shared memory is not for them.
const LOOPBACK: [(&str, &str); 2] = [("CONDUIT_NETWORK", "udp"), ("CONDUIT_UDP_INTERFACE", "lo")];

/// Jobs of each kind, among which the rounds are shared out. A job's ratios are nearer to each other than to those of the next one,
/// whose memory lies elsewhere.
const JOBS: usize = 3;

/// What a row does.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// A short and its reply.
    RoundTrip,
    /// Puts of [`BLOCK`] bytes, waited for together.
    Puts,
}

/// A figure of a job.
struct Row {
    name: &'static str,
    kind: Kind,
    limit: fn() -> Limit,
    /// Of small packets none: what is asked for is a part of the best stream.
    target: Option<Target>,
}

/// A job with settings of its own.
struct Setup {
    environment: &'static [(&'static str, &'static str)],
    rows: &'static [Row],
}

const ROUND_TRIP: Target = Target::AtMost(1.3);
const PUTS: Target = Target::AtLeast(0.7);
/// Of one packet in a hundred lost, beside what the same packets give where none is.
const LOSSY: Target = Target::AtLeast(0.5);

const SETUPS: &[Setup] = &[
    Setup {
        environment: &[],
        rows: &[
            Row {
                name: "am-round-trip",
                kind: Kind::RoundTrip,
                limit: || udp_round_trip(8, Waiting::Polling),
                target: Some(ROUND_TRIP),
            },
            Row {
                name: "put-bandwidth",
                kind: Kind::Puts,
                limit: best_udp_stream,
                target: Some(PUTS),
            },
        ],
    },
    // Asleep as soon as there is nothing to do, as a blocking socket is.
    Setup {
        environment: &[("CONDUIT_SPIN", "0"), ("CONDUIT_YIELD", "0")],
        rows: &[Row {
            name: "am-round-trip-blocking",
            kind: Kind::RoundTrip,
            limit: || udp_round_trip(8, Waiting::Blocking),
            target: Some(ROUND_TRIP),
        }],
    },
    Setup {
        environment: &[("CONDUIT_UDP_LOSS", "1")],
        rows: &[Row {
            name: "put-bandwidth-lossy",
            kind: Kind::Puts,
            limit: || wire_stream(65_507),
            target: Some(LOSSY),
        }],
    },
    Setup {
        environment: &[("CONDUIT_UDP_LOSS", "1"), ("CONDUIT_UDP_MTU", "1500")],
        rows: &[Row {
            name: "put-bandwidth-lossy-ethernet",
            kind: Kind::Puts,
            limit: || wire_stream(1472),
            target: Some(LOSSY),
        }],
    },
    Setup {
        environment: &[("CONDUIT_UDP_MTU", "9000")],
        rows: &[Row {
            name: "put-bandwidth-jumbo",
            kind: Kind::Puts,
            limit: || udp_stream(8972),
            target: None,
        }],
    },
    Setup {
        environment: &[("CONDUIT_UDP_MTU", "1500")],
        rows: &[Row {
            name: "put-bandwidth-ethernet",
            kind: Kind::Puts,
            limit: || udp_stream(1472),
            target: None,
        }],
    },
];

/// The wire's stream, in sockets of its own, where nothing is lost: Conduit's own bandwidth without loss, in the same job.
fn wire_stream(packet: usize) -> Limit {
    Limit {
        name: wire::stream_name(packet),
        size: BLOCK,
        unit: Unit::Gigabytes,
        placement: Placement::Apart,
        piece: Box::new(wire::Stream::new(packet)),
    }
}

/// What the ranks of a job are told.
#[derive(Debug, Serialize, Deserialize)]
struct Order {
    /// Which of [`SETUPS`].
    setup: usize,
    plan: Plan,
    figures: Vec<String>,
    /// The memory that the sides share: their segments are not mapped in each other.
    memory: String,
}

impl Order {
    fn rows(&self) -> impl Iterator<Item = &'static Row> {
        let setup = SETUPS.get(self.setup);
        let rows = setup.map_or(&[][..], |setup| setup.rows);
        rows.iter()
            .filter(|row| select::wanted(&self.figures, row.name))
    }
}

/// The names of the rows.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    SETUPS
        .iter()
        .flat_map(|setup| setup.rows)
        .map(|row| row.name)
}

/// Measures what was asked for, job after job, from within the launching process.
pub(super) fn measure(options: &Options) -> anyhow::Result<Vec<Figure>> {
    let plan = super::plan(options.quick);
    let plan = Plan {
        good: plan.good.div_ceil(JOBS),
        most: plan.most.div_ceil(JOBS),
        ..plan
    };
    let mut figures = Vec::new();
    for number in 0..SETUPS.len() {
        let jobs = (0..JOBS).map(|_| run_setup(number, plan, &options.figures));
        figures.extend(medians(jobs.collect::<Result<_, _>>()?));
    }
    Ok(figures)
}

/// Of each figure, that of the job in the middle. All jobs have the same figures in the same order.
fn medians(jobs: Vec<Vec<Figure>>) -> Vec<Figure> {
    let mut jobs: Vec<_> = jobs.into_iter().map(Vec::into_iter).collect();
    let next = || {
        let mut same: Vec<_> = jobs.iter_mut().filter_map(Iterator::next).collect();
        same.sort_by(|one, other| one.ratio.total_cmp(&other.ratio));
        let middle = same.len().checked_sub(1)? / 2;
        Some(same.swap_remove(middle))
    };
    std::iter::from_fn(next).collect()
}

/// Measures, in one job, the round trip and the puts of a job without settings of its own, each with its limit.
///
/// # Errors
/// The job failed.
pub(crate) fn measure_pair(plan: Plan) -> anyhow::Result<Vec<Figure>> {
    run_setup(0, plan, &[])
}

/// Runs one job.
fn run_setup(number: usize, plan: Plan, asked: &[String]) -> anyhow::Result<Vec<Figure>> {
    let mut figures = Vec::new();
    let mapping = Mapping::anonymous(area::AREA_BYTES)?;
    let order = Order {
        setup: number,
        plan,
        figures: asked.to_vec(),
        memory: format!(
            "/proc/{}/fd/{}",
            std::process::id(),
            mapping.file().as_raw_fd()
        ),
    };
    if order.rows().next().is_none() {
        return Ok(figures);
    }
    let text = serde_json::to_string(&order)?;
    let settings = LOOPBACK.iter().chain(SETUPS[number].environment);
    let environment = settings
        .map(|&(name, value)| (name, OsString::from(value)))
        .chain([(ORDER, OsString::from(text))]);
    run_ranks(Job::Pair, environment, |event| {
        if let Event::Figure(figure) = event {
            figures.push(figure);
        }
    })?;
    Ok(figures)
}

/// Does a rank's part if this process is one of such a job; `None` if it is not.
pub fn rank_main() -> Option<anyhow::Result<()>> {
    let order = std::env::var(ORDER).ok()?;
    Some(serve(&order))
}

fn serve(order: &str) -> anyhow::Result<()> {
    let order: Order = serde_json::from_str(order).context(ORDER)?;
    let bench = Bench::start()?;
    let rank = bench.conduit.rank();
    in_turn(&order, &bench).with_context(|| format!("rank {rank}"))?;
    Ok(bench.conduit.finish()?)
}

fn in_turn(order: &Order, bench: &Bench) -> anyhow::Result<()> {
    let file = File::options()
        .read(true)
        .write(true)
        .open(&order.memory)
        .with_context(|| order.memory.clone())?;
    let mapping = Mapping::of_file(file)?;
    let (rank, ranks) = (bench.conduit.rank(), bench.conduit.size());
    let side = Side::join(
        mapping.area()?,
        Cores::allowed()?,
        rank as usize,
        ranks as usize,
        PATIENCE,
    )?;
    let mut comparisons: Vec<_> = order.rows().map(|row| row.comparison(bench)).collect();
    for figure in super::measure_rows(&side, order.plan, &mut comparisons)? {
        tell(&Event::Figure(figure))?;
    }
    // Nobody leaves before all have done their part.
    Ok(side.meet()?)
}

impl Row {
    fn comparison<'b>(&self, bench: &'b Bench) -> Comparison<'b> {
        let &Self {
            name,
            kind,
            limit,
            target,
        } = self;
        let limit = limit();
        match kind {
            Kind::RoundTrip => {
                let piece =
                    move |side: &Side<'_>, count| messages::round_trips(bench, name, side, count);
                Comparison::new(name, 0, limit, target, piece)
            }
            Kind::Puts => {
                let private = Private::new(BLOCK);
                let piece = move |side: &Side<'_>, count| puts(bench, name, &private, side, count);
                Comparison::new(name, BLOCK, limit, target, piece)
            }
        }
    }
}

/// Puts from the same memory to the same place. An operation is one; the home rank polls meanwhile.
fn puts(
    bench: &Bench,
    name: &'static str,
    private: &Private,
    side: &Side<'_>,
    count: u64,
) -> Result<Duration, Error> {
    let Bench { conduit, seen, .. } = bench;
    seen.reset();
    side.meet()?;
    let start = Instant::now();
    let mut time = Duration::ZERO;
    let mut run = || -> conduit::Result<()> {
        if conduit.rank() == 0 {
            private.with(|source| rma::repeat_put_nbi_rate(bench, source, count))?;
            time = start.elapsed();
            conduit.request(bench.home, bench.messages.finished, ())
        } else {
            conduit.wait_until(|| seen.answers.load(Relaxed) == 1)
        }
    };
    run().map_err(failed(name))?;
    Ok(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_each_figure_the_job_in_the_middle_counts() {
        let figure = |name: &str, ratio| Figure {
            name: name.to_owned(),
            size: 0,
            ranks: 2,
            value: 1.0,
            unit: Unit::Nanoseconds,
            limit_name: String::new(),
            limit: 1.0,
            ratio,
            spread: 0.0,
            target: None,
            rounds: 7,
            discarded: 0,
        };
        let jobs = [(1.3, 0.7), (1.2, 0.9), (1.25, 0.8)]
            .map(|(trips, puts)| vec![figure("trips", trips), figure("puts", puts)]);
        let found: Vec<_> = medians(jobs.to_vec())
            .into_iter()
            .map(|figure| (figure.name, figure.ratio))
            .collect();
        assert_eq!(
            found,
            [("trips".to_owned(), 1.25), ("puts".to_owned(), 0.8)]
        );
        assert_eq!(medians(vec![Vec::new(); 3]), []);
    }
}
