//! The performance of Conduit over UDP relative to the limits of the loopback interface:
//! `conduit-perf udp`.
//!
//! Jobs have two ranks on two cores, which use only UDP. These are the rows, from the lowest layer
//! up:
//!
//! | row | compared with |
//! |---|---|
//! | `wire-round-trip`: round trips of the wire alone (socket, seal and protocol), polling and blocking | a bare UDP round trip that waits in the same way |
//! | `wire-stream`: fragments of 1 MiB over the wire alone, placed at their destination | a bare UDP stream with the same packets and offload |
//! | `am-round-trip`: a short and its reply with the whole engine, polling and blocking | a bare UDP round trip that waits in the same way |
//! | `put-bandwidth`: puts with the whole engine, with packets of several sizes | bare UDP streams; where packets are lost, the wire's stream without loss |

mod wire;

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use clap::Args;
use serde::{Deserialize, Serialize};

use crate::alternate::Plan;
use crate::bench::{Bench, failed};
use crate::compare::{Comparison, measure_all};
use crate::figure::{Figure, Target, Unit};
use crate::figures::{Job, messages, rma};
use crate::limits::alone::Private;
use crate::limits::udp::BLOCK;
use crate::limits::{Limit, best_udp_stream, udp_round_trip, udp_stream};
use crate::piece::Piece;
use crate::placement::Placement;
use crate::pool::pool;
use crate::select::{self, Judged};
use crate::side::{Side, Waiting};
use crate::{Error, job};

use Kind::{Puts, RoundTrip, WireRoundTrip, WireStream};
use Waiting::{Blocking, Polling};

/// The settings of all jobs. Ranks use UDP over the loopback interface, and no shared memory.
const LOOPBACK: [(&str, &str); 2] = [("CONDUIT_NETWORK", "udp"), ("CONDUIT_UDP_INTERFACE", "lo")];

/// The number of jobs of each kind, among which the rounds are divided. There are several because
/// the ratios of one job are closer to each other than to those of the next job, whose memory lies
/// elsewhere.
const JOBS: usize = 3;

/// The parameters of measurements over UDP.
#[derive(Clone, Debug, Args)]
pub struct Options {
    #[command(flatten)]
    judged: Judged,
}

/// The operation of a row.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// A short and its reply.
    RoundTrip,
    /// Puts of [`BLOCK`] bytes, which are waited for together.
    Puts,
    /// Round trips of fragments of this many bytes over the wire alone.
    WireRoundTrip(usize, Waiting),
    /// Fragments of [`BLOCK`] bytes in packets of this many bytes, over the wire alone.
    WireStream(usize),
}

/// A figure of a job.
struct Row {
    name: &'static str,
    kind: Kind,
    limit: fn() -> Limit,
    /// The target. It is `None` for small packets, because the target is relative to the best
    /// stream.
    target: Option<Target>,
}

/// A job with its own settings.
struct Setup {
    environment: &'static [(&'static str, &'static str)],
    rows: &'static [Row],
}

const TRIP: Option<Target> = Some(Target::AtMost(1.3));
const STREAM: Option<Target> = Some(Target::AtLeast(0.7));
/// The target if one packet in a hundred is lost, relative to the same packets without loss.
const LOSSY: Option<Target> = Some(Target::AtLeast(0.5));

macro_rules! setups {
    ($($environment:expr => {$($name:literal: $kind:expr, beside $limit:expr, $target:expr;)*})*) => {
        &[$(Setup {
            environment: &$environment,
            rows: &[$(Row { name: $name, kind: $kind, limit: || $limit, target: $target }),*],
        }),*]
    };
}

const SETUPS: &[Setup] = setups! {
    [] => {
        "am-round-trip": RoundTrip, beside udp_round_trip(8, Polling), TRIP;
        "put-bandwidth": Puts, beside best_udp_stream(), STREAM;
    }
    // Ranks sleep as soon as there is nothing to do, as with a blocking socket.
    [("CONDUIT_SPIN", "0"), ("CONDUIT_YIELD", "0")] => {
        "am-round-trip-blocking": RoundTrip, beside udp_round_trip(8, Blocking), TRIP;
    }
    [("CONDUIT_UDP_LOSS", "1")] => {
        "put-bandwidth-lossy": Puts, beside wire_stream("wire-stream-longest", 65_507), LOSSY;
    }
    [("CONDUIT_UDP_LOSS", "1"), ("CONDUIT_UDP_MTU", "1500")] => {
        "put-bandwidth-lossy-ethernet": Puts, beside wire_stream("wire-stream-ethernet", 1472), LOSSY;
    }
    [("CONDUIT_UDP_MTU", "9000")] => {
        "put-bandwidth-jumbo": Puts, beside udp_stream(8972), None;
    }
    [("CONDUIT_UDP_MTU", "1500")] => {
        "put-bandwidth-ethernet": Puts, beside udp_stream(1472), None;
    }
    [] => {
        "wire-round-trip": WireRoundTrip(8, Polling), beside udp_round_trip(8, Polling), TRIP;
        "wire-round-trip": WireRoundTrip(64, Polling), beside udp_round_trip(64, Polling), TRIP;
        "wire-round-trip-blocking": WireRoundTrip(8, Blocking), beside udp_round_trip(8, Blocking), TRIP;
        "wire-round-trip-blocking": WireRoundTrip(64, Blocking), beside udp_round_trip(64, Blocking), TRIP;
        "wire-stream-ethernet": WireStream(1472), beside udp_stream(1472), None;
        "wire-stream-jumbo": WireStream(8972), beside udp_stream(8972), None;
        "wire-stream-longest": WireStream(65_507), beside udp_stream(65_507), STREAM;
    }
};

/// Returns the wire's stream as a limit. It has its own sockets without loss, so it shows Conduit's
/// bandwidth without loss in the same job.
fn wire_stream(name: &'static str, packet: usize) -> Limit {
    let stream = wire::Stream::new(packet);
    Limit::new(name, BLOCK, Unit::Gigabytes, Placement::Apart, stream)
}

/// The task of a job's ranks.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    /// The index in [`SETUPS`].
    setup: usize,
    plan: Plan,
    figures: Vec<String>,
    /// The memory that the sides share, because their segments are not mapped in each other.
    memory: String,
}

fn names() -> impl Iterator<Item = &'static str> {
    let rows = SETUPS.iter().flat_map(|setup| setup.rows);
    rows.map(|row| row.name)
}

/// Returns the requested rows of a job.
fn rows(setup: usize, asked: &[String]) -> impl Iterator<Item = &'static Row> {
    let rows = SETUPS.get(setup).map_or(&[][..], |setup| setup.rows);
    rows.iter().filter(|row| select::wanted(asked, row.name))
}

/// Measures and prints the results. Returns `false` if a check failed.
///
/// # Errors
/// Fails if a job fails or the results cannot be written.
pub fn run(options: &Options) -> anyhow::Result<bool> {
    let choice = &options.judged.choice;
    if !choice.measures(names())? {
        return Ok(true);
    }
    let mut figures = Vec::new();
    for setup in 0..SETUPS.len() {
        let job = |_| run_setup(setup, choice.plan().shared(JOBS), &choice.figures);
        let jobs = (0..JOBS).map(job).collect::<Result<_, _>>()?;
        figures.extend(pool(jobs).into_iter().map(|pooled| pooled.figure));
    }
    let wanted = names().filter(|name| choice.wants(name)).count();
    Ok(options.judged.judge_of(&figures, wanted)?)
}

/// Measures the round trip and the puts, each with its limit, in one job with default settings.
///
/// # Errors
/// Fails if the job fails.
pub(crate) fn measure_pair(plan: Plan) -> anyhow::Result<Vec<Figure>> {
    run_setup(0, plan, &[])
}

/// Runs one job.
fn run_setup(setup: usize, plan: Plan, asked: &[String]) -> anyhow::Result<Vec<Figure>> {
    if rows(setup, asked).next().is_none() {
        return Ok(Vec::new());
    }
    let order = |memory| {
        job::Order::Udp(Order {
            setup,
            plan,
            figures: asked.to_vec(),
            memory,
        })
    };
    let environment = [&LOOPBACK[..], SETUPS[setup].environment].concat();
    job::run_sides(Job::Pair.ranks(), Job::Pair.cores(), order, &environment)
}

/// Runs a rank of such a job.
pub(crate) fn serve(order: &Order) -> anyhow::Result<()> {
    let bench = Bench::start()?;
    let (rank, ranks) = (bench.conduit.rank(), bench.conduit.size());
    job::as_side(&order.memory, rank as usize, ranks as usize, |side| {
        let rows = rows(order.setup, &order.figures);
        let plan = |unit| match unit {
            // Runs are so long that the travel times of the first and the last packet do not
            // matter.
            Unit::Gigabytes => order.plan.longer(5),
            _ => order.plan,
        };
        Ok(measure_all(
            side,
            plan,
            rows.map(|row| row.comparison(&bench)),
        )?)
    })?;
    Ok(bench.conduit.finish()?)
}

impl Kind {
    /// Returns the operation's number of bytes and its piece if the wire alone performs it, or
    /// `None` if the engine does.
    fn wire(self) -> Option<(usize, Box<dyn Piece>)> {
        match self {
            RoundTrip | Puts => None,
            WireRoundTrip(size, waiting) => {
                Some((size, Box::new(wire::round_trips(size, waiting))))
            }
            WireStream(packet) => Some((BLOCK, Box::new(wire::Stream::new(packet)))),
        }
    }
}

impl Row {
    fn comparison<'b>(&self, bench: &'b Bench) -> Comparison<'b> {
        let name = self.name;
        let (size, figure): (usize, Box<dyn Piece + 'b>) = match self.kind.wire() {
            Some(wire) => wire,
            None if matches!(self.kind, RoundTrip) => (
                0,
                Box::new(move |side: &Side<'_>, count| {
                    messages::round_trips(bench, name, side, count)
                }),
            ),
            None => {
                let private = Private::new(BLOCK);
                let piece = move |side: &Side<'_>, count| puts(bench, name, &private, side, count);
                (BLOCK, Box::new(piece))
            }
        };
        Comparison {
            name,
            size,
            target: self.target,
            limit: (self.limit)(),
            figure,
        }
    }
}

/// Puts from the same memory to the same destination, while the home rank polls. An operation is
/// one put.
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
