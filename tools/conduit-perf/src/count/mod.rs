//! Counts of instructions per operation. They do not depend on the machine's load, so they can
//! compare versions of Conduit, and `cargo xtask budgets` checks that they stay within budgets.
//!
//! One process drives both ends of each operation and repeats it in two `sections`, a short and a
//! long one. `callgrind` counts each section. The difference between the two counts, divided by the
//! number of additional repetitions, is the cost of one operation.
//!
//! The modules `rank`, `na`, `agent` and `datagrams` contain the operations in Rust. The operations
//! through the C headers are in `c/count.c`.

mod agent;
mod callgrind;
mod datagrams;
mod na;
mod rank;
mod repeat;
mod sections;

use std::io::{self, Write};
use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use clap::Args;
use serde::Serialize;

use crate::{gasnet, report, select};
use callgrind::Program;

pub use repeat::{Repeat, Subject};

/// The numbers of repetitions in the two sections of an operation. In the first section, every
/// buffer and every ring is used at least once. The difference is a power of two, so work that is
/// due every 2^n operations is counted exactly.
const REPETITIONS: [u64; 2] = [1 << 9, 3 << 9];

/// The source of the C program, which has the same output and sections as [`sections`].
const SOURCE: &str = include_str!("../../c/count.c");

/// Options of `conduit-perf count`.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Operations, by name or the first words of it; all if none is named
    operations: Vec<String>,
    /// Also count operations through the C headers of an optimised installation
    #[arg(long, value_name = "PREFIX[:CONDUIT]")]
    c: Option<gasnet::Installation>,
    /// Print one JSON object per operation
    #[arg(long)]
    json: bool,
}

/// A counted operation.
#[derive(Clone, Debug, Serialize)]
struct Count {
    name: String,
    instructions: f64,
}

/// A counted process and the prefix of its operations' names.
struct Run {
    prefix: &'static str,
    program: Program,
}

impl Run {
    fn of(subject: Subject, prefix: &'static str) -> anyhow::Result<Self> {
        let program = Program {
            path: std::env::current_exe()?,
            arguments: vec!["repeat".into(), subject.name().into()],
            environment: Vec::new(),
        };
        Ok(Self { prefix, program })
    }

    /// Returns whether one of the run's operations may have been requested.
    fn is_wanted(&self, asked: &[String]) -> bool {
        let prefix = self.prefix;
        let may_mean =
            |asked: &String| select::means(asked, prefix) || select::means(prefix, asked);
        asked.is_empty() || asked.iter().any(may_mean)
    }

    fn count(&self) -> anyhow::Result<Vec<Count>> {
        let [few, many] = REPETITIONS;
        let sections = self.program.sections(&REPETITIONS)?;
        let count = |(name, collected): (String, [u64; 2])| Count {
            name: format!("{}-{name}", self.prefix),
            instructions: (collected[1] as f64 - collected[0] as f64) / (many - few) as f64,
        };
        Ok(sections.into_iter().map(count).collect())
    }
}

/// Counts instructions and prints the results.
///
/// # Errors
/// Fails if valgrind is missing, if a program cannot be built or fails, or if a name is unknown.
pub fn run(options: &Options) -> anyhow::Result<bool> {
    let asked = &options.operations;
    // Only messages are counted without windows, because a rank always accesses its own segment
    // directly.
    let mut unmapped = Run::of(Subject::Rank, "rust-unmapped")?;
    unmapped.program.arguments.push("--only=am".into());
    unmapped.program.environment.push(("CONDUIT_WINDOWS", "0"));
    let mut runs = vec![
        Run::of(Subject::Rank, "rust")?,
        unmapped,
        Run::of(Subject::Na, "na")?,
        Run::of(Subject::Agent, "agent")?,
        Run::of(Subject::Datagrams, "udp")?,
    ];
    let build = |installation: &gasnet::Installation| installation.build(SOURCE, "seq");
    let built = options.c.as_ref().map(build).transpose()?;
    if let Some(built) = &built {
        let program = Program {
            path: built.path(),
            arguments: Vec::new(),
            environment: Vec::new(),
        };
        runs.push(Run {
            prefix: "c",
            program,
        });
    }
    runs.retain(|run| run.is_wanted(asked));
    let counts = count_all(&runs)?;
    select::check(asked, counts.iter().map(|count| count.name.as_str()))?;
    let wanted = |count: &Count| select::wanted(asked, &count.name);
    let counts: Vec<_> = counts.into_iter().filter(wanted).collect();
    let mut out = io::stdout().lock();
    if options.json {
        report::json_lines(&mut out, &counts)?;
    } else {
        for Count { name, instructions } in counts {
            writeln!(out, "{name:<36}{instructions:>10.2}")?;
        }
    }
    Ok(true)
}

/// Counts every run's operations, with as many concurrent runs as there are processors.
fn count_all(runs: &[Run]) -> anyhow::Result<Vec<Count>> {
    let next = AtomicUsize::new(0);
    let counted = Mutex::new(Vec::new());
    let work = || {
        loop {
            let at = next.fetch_add(1, Relaxed);
            let Some(run) = runs.get(at) else {
                break;
            };
            let counts = run.count();
            let mut counted = counted.lock().unwrap_or_else(PoisonError::into_inner);
            counted.push((at, counts));
        }
    };
    let workers = std::thread::available_parallelism().map_or(1, NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(work);
        }
    });
    let mut counted = counted.into_inner().unwrap_or_else(PoisonError::into_inner);
    counted.sort_by_key(|(at, _)| *at);
    let counted = counted.into_iter().map(|(_, counts)| counts);
    Ok(counted.collect::<anyhow::Result<Vec<_>>>()?.concat())
}
