//! What Conduit reaches over libfabric beside bare loops of the same library and provider: `conduit-perf ofi`.
//!
//! Two processes on two cores, each with the engine and a bare endpoint. The rows, for each provider:
//!
//! | row | beside |
//! |---|---|
//! | `am-round-trip`: a short request and its reply | messages of as many bytes to and fro |
//! | `put`: puts to one place, several under way | `fi_writemsg` with delivery, as many under way |

mod bare;
mod engine;
mod exchange;

use std::cell::RefCell;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::rc::Rc;

use anyhow::Context;
use clap::Args;
use conduit_ofi::provider::{Wish, choose};
use conduit_ofi::start::{OfiConfig, Which, library};
use serde::{Deserialize, Serialize};

use crate::alternate::Plan;
use crate::compare::Comparison;
use crate::figure::{Figure, Target, Unit};
use crate::figures::Job;
use crate::job::{Event, run_ranks, tell};
use crate::limits::Limit;
use crate::limits::copy::Private;
use crate::placement::{Cores, Placement};
use crate::side::{PATIENCE, Side};
use crate::{Mapping, area, report, select, udp};

use bare::{Bare, PingPong, Writes};
use engine::End;

/// The environment variable that makes a process a rank of such a job.
const ORDER: &str = "OFI_RANK_OF_CONDUIT_PERF";

/// Jobs of each provider, of whose figures the median counts.
const JOBS: usize = 3;

/// Writes or puts that are under way at once.
const UNDER_WAY: usize = 8;

/// Bytes of the segments and of the memory that puts come from.
const SEGMENT: usize = 1 << 20;

/// Bytes of a message of the bare ping-pong: those of a short request with two arguments in its frame.
const MESSAGE: usize = 56;

/// The word that says that side 0 is done.
const OVER: usize = 12;

const ROUND_TRIP: Target = Target::AtMost(1.25);
const PUTS: Target = Target::AtLeast(0.95);

/// What a row does.
#[derive(Clone, Copy, Debug)]
enum Kind {
    RoundTrip,
    /// Of so many bytes.
    Puts(usize),
}

const ROWS: [(&str, Kind, Option<Target>); 4] = [
    ("am-round-trip", Kind::RoundTrip, Some(ROUND_TRIP)),
    ("put", Kind::Puts(SEGMENT), Some(PUTS)),
    ("put", Kind::Puts(64 << 10), None),
    ("put", Kind::Puts(8), None),
];

/// What to measure over libfabric.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Print one JSON object per figure and line
    #[arg(long)]
    json: bool,
    /// Only name the figures
    #[arg(long)]
    list: bool,
    /// Exit with 1 unless every figure with a target meets it
    #[arg(long)]
    check: bool,
    /// Measure less often and more briefly
    #[arg(long)]
    quick: bool,
    /// Only these, by name or the first words of it
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    figures: Vec<String>,
    /// Over these providers
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "tcp,shm"
    )]
    provider: Vec<String>,
    /// On this domain; unless set, tcp and udp on "lo", others on their first
    #[arg(long)]
    domain: Option<String>,
    /// Which libfabric: "system", "vendored" or a file; unless set the system's, or the vendored one where there is none
    #[arg(long, value_name = "WHICH", default_value = "")]
    library: String,
    /// Say on standard error what each rank's network has counted
    #[arg(long)]
    counters: bool,
}

impl Options {
    fn domain(&self, provider: &str) -> Option<String> {
        let local = matches!(provider.split(';').next(), Some("tcp" | "udp" | "sockets"));
        let lo = local.then(|| "lo".to_owned());
        self.domain.clone().or(lo)
    }
}

/// What the ranks of a job are told.
#[derive(Debug, Serialize, Deserialize)]
struct Order {
    provider: String,
    domain: Option<String>,
    library: String,
    plan: Plan,
    figures: Vec<String>,
    counters: bool,
    /// The memory that the sides share.
    memory: String,
}

impl Order {
    fn rows(&self) -> impl Iterator<Item = (&'static str, Kind, Option<Target>)> {
        ROWS.into_iter()
            .filter(|(name, ..)| select::wanted(&self.figures, name))
    }
}

/// Measures and prints. False if a check failed.
///
/// # Errors
/// There is no such library or provider, the measurement failed, or the results can't be written.
pub fn run(options: &Options) -> anyhow::Result<bool> {
    let mut names: Vec<_> = ROWS.iter().map(|(name, ..)| *name).collect();
    names.dedup();
    select::check(&options.figures, names.iter().copied())?;
    if options.list {
        writeln!(io::stdout(), "{}", names.join("\n"))?;
        return Ok(true);
    }
    // Known before any job starts, and said once.
    let library = library(&Which::named(&options.library)).map_err(anyhow::Error::msg)?;
    eprintln!("{library:?}");
    let plan = match options.quick {
        true => Plan::QUICK,
        false => Plan::FULL,
    };
    let plan = Plan {
        good: plan.good.div_ceil(JOBS),
        most: plan.most.div_ceil(JOBS),
        ..plan
    };
    let mut figures = Vec::new();
    let mut wanted = 0;
    for provider in &options.provider {
        let jobs: Vec<_> = (0..JOBS)
            .map(|_| job(options, provider, plan))
            .collect::<anyhow::Result<_>>()
            .with_context(|| format!("provider {provider}"))?;
        wanted += ROWS
            .iter()
            .filter(|(name, ..)| select::wanted(&options.figures, name))
            .count();
        figures.extend(udp::medians(jobs));
    }
    if figures.len() < wanted {
        let left_out = wanted - figures.len();
        eprintln!("{left_out} figures left out: they need two cores");
    }
    let summary = report::Summary::of(&figures);
    let mut out = io::stdout().lock();
    if options.json {
        report::json_lines(&mut out, &figures)?;
    } else {
        writeln!(out, "{}\n{summary}", report::figures(&figures))?;
    }
    Ok(!options.check || (summary.all_within() && figures.len() == wanted))
}

/// Runs one job.
fn job(options: &Options, provider: &str, plan: Plan) -> anyhow::Result<Vec<Figure>> {
    let mut figures = Vec::new();
    let mapping = Mapping::anonymous(area::AREA_BYTES)?;
    let order = Order {
        provider: provider.to_owned(),
        domain: options.domain(provider),
        library: options.library.clone(),
        plan,
        figures: options.figures.clone(),
        counters: options.counters,
        memory: format!(
            "/proc/{}/fd/{}",
            std::process::id(),
            mapping.file().as_raw_fd()
        ),
    };
    let text = serde_json::to_string(&order)?;
    run_ranks(Job::Pair, [(ORDER, OsString::from(text))], |event| {
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
    // The launcher's connection, which tells it that this rank has started and ended.
    let job = conduit::start()?;
    let (rank, ranks) = (job.rank() as usize, job.size() as usize);
    let file = File::options()
        .read(true)
        .write(true)
        .open(&order.memory)
        .with_context(|| order.memory.clone())?;
    let mapping = Mapping::of_file(file)?;
    let side = Side::join(mapping.area()?, Cores::allowed()?, rank, ranks, PATIENCE)?;
    let measured = measure(&side, &order);
    if measured.is_err() {
        side.abort();
    }
    for figure in measured.with_context(|| format!("rank {rank}"))? {
        tell(&Event::Figure(figure))?;
    }
    Ok(job.attach(conduit::Handlers::new(), 0)?.finish()?)
}

fn measure(side: &Side<'_>, order: &Order) -> anyhow::Result<Vec<Figure>> {
    if !side.fits(Placement::Apart) {
        return Ok(Vec::new());
    }
    side.place(Placement::Apart)?;
    let which = Which::named(&order.library);
    let wish = Wish {
        provider: Some(order.provider.clone()),
        domain: order.domain.clone(),
        one_host: true,
    };
    let config = OfiConfig {
        library: which.clone(),
        ..OfiConfig::new(wish, "this".to_owned())
    };
    let end = Rc::new(End::open(side, &config, SEGMENT)?);
    let source = Private::new(SEGMENT);
    let bare = library(&which).map_err(bare::failed)?;
    // The very same offer for both.
    let offer = choose(&bare, &config.wish).map_err(|(reason, _)| bare::failed(reason))?;
    if side.rank() == 0 {
        eprintln!("{offer:?}");
    }
    // SAFETY: the engine has the segment, and is gone after the endpoint; nobody relies on what is in it.
    let bare = unsafe {
        Bare::open(
            side,
            bare,
            &offer.provider(),
            &offer.domain(),
            end.segment()?,
            source.clone(),
        )
    }?;
    let bare = Rc::new(RefCell::new(bare));
    let mut rows: Vec<_> = order
        .rows()
        .map(|(name, kind, target)| {
            let name = lasting(format!("{}-{name}", order.provider));
            let (end, source, bare) = (Rc::clone(&end), source.clone(), Rc::clone(&bare));
            match kind {
                Kind::RoundTrip => {
                    let size = MESSAGE;
                    let limit = Limit {
                        name: "ping-pong",
                        size,
                        unit: Unit::Nanoseconds,
                        placement: Placement::Apart,
                        piece: Box::new(PingPong { bare, size }),
                    };
                    let piece = move |side: &Side<'_>, count| end.round_trips(side, count);
                    Comparison::new(name, 0, limit, target, piece)
                }
                Kind::Puts(size) => {
                    let limit = Limit {
                        name: "fi-write",
                        size,
                        unit: match size {
                            0..1024 => Unit::Millions,
                            _ => Unit::Gigabytes,
                        },
                        placement: Placement::Apart,
                        piece: Box::new(Writes { bare, size }),
                    };
                    let piece = move |side: &Side<'_>, count| end.puts(side, &source, size, count);
                    Comparison::new(name, size, limit, target, piece)
                }
            }
        })
        .collect();
    let figures = udp::measure_rows(side, order.plan, &mut rows)?;
    if order.counters {
        eprintln!("{}", end.counters());
    }
    drop(rows);
    // Nobody closes anything before all have done their part.
    side.meet()?;
    end.leave();
    drop(bare);
    side.meet()?;
    Ok(figures)
}

/// A row's name, of which there are a few in a process.
fn lasting(name: String) -> &'static str {
    name.leak()
}
