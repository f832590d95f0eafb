//! Instructions per operation, which do not depend on the machine's load: for comparing versions of Conduit.
//!
//! One rank does an operation on itself many times under valgrind's callgrind, once with few and once with many
//! repetitions; the difference is the operations' own.

use std::process::{Command, Stdio};
use std::sync::atomic::Ordering::Relaxed;

use anyhow::{Context, bail, ensure};

use crate::bench::Bench;
use crate::figures::rma::{Repeat, SMALL_OPERATIONS};

/// Repetitions of the two runs. The first is enough to have used every buffer and ring once.
const FEW: u64 = 5_000;
/// See [`FEW`].
const MANY: u64 = 20_000;

/// Bytes of a counted medium's payload.
const MEDIUM: usize = 512;

/// Messages to oneself, each handled before the next is sent.
const MESSAGES: &[(&str, Repeat)] = &[
    ("am-short", shorts),
    ("am-short-round-trip", round_trips),
    ("am-medium", mediums),
];

fn operations() -> impl Iterator<Item = &'static (&'static str, Repeat)> {
    SMALL_OPERATIONS.iter().chain(MESSAGES)
}

/// The names of the operations that can be counted.
pub fn names() -> impl Iterator<Item = &'static str> {
    operations().map(|(name, _)| *name)
}

/// Instructions of one operation.
///
/// # Errors
/// There is no valgrind, or the operation doesn't exist or fails.
pub fn instructions(operation: &str) -> anyhow::Result<f64> {
    let (few, many) = (collected(operation, FEW)?, collected(operation, MANY)?);
    Ok((many as f64 - few as f64) / (MANY - FEW) as f64)
}

/// Instructions of this program repeating the operation.
fn collected(operation: &str, count: u64) -> anyhow::Result<u64> {
    let program = std::env::current_exe()?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args(["repeat", operation, &count.to_string()])
        .stdin(Stdio::null())
        .output()
        .context("valgrind")?;
    let text = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{operation}: {text}");
    text.lines()
        .find_map(|line| line.split_once("Collected :")?.1.trim().parse().ok())
        .with_context(|| format!("no count in what callgrind says: {text}"))
}

/// Repeats an operation in a job of one rank: what is run under a profiler.
///
/// # Errors
/// The operation doesn't exist or fails.
pub fn repeat(operation: &str, count: u64) -> anyhow::Result<bool> {
    let Some((_, repeat)) = operations().find(|(name, _)| *name == operation) else {
        let names: Vec<_> = names().collect();
        bail!(
            "no operation is called '{operation}'; there are: {}",
            names.join(", ")
        );
    };
    let bench = Bench::start()?;
    ensure!(
        bench.conduit.size() == 1,
        "operations are repeated in a job of one rank"
    );
    let mut private = [1u8; 8];
    repeat(&bench, &mut private, count)?;
    bench.conduit.finish()?;
    Ok(true)
}

fn shorts(bench: &Bench, _: &mut [u8], count: u64) -> conduit::Result<()> {
    let (conduit, seen) = (&bench.conduit, &bench.seen);
    for position in 0..count {
        conduit.request(bench.home, bench.messages.count, (position,))?;
        conduit.wait_until(|| seen.requests.load(Relaxed) == position + 1)?;
    }
    Ok(())
}

fn round_trips(bench: &Bench, _: &mut [u8], count: u64) -> conduit::Result<()> {
    let (conduit, seen) = (&bench.conduit, &bench.seen);
    for position in 0..count {
        conduit.request(bench.home, bench.messages.ping, (position,))?;
        conduit.wait_until(|| seen.answers.load(Relaxed) == position + 1)?;
    }
    Ok(())
}

fn mediums(bench: &Bench, _: &mut [u8], count: u64) -> conduit::Result<()> {
    let (conduit, seen) = (&bench.conduit, &bench.seen);
    for position in 0..count {
        conduit.request_medium(bench.home, bench.messages.medium, (), &[1; MEDIUM])?;
        conduit.wait_until(|| seen.requests.load(Relaxed) == position + 1)?;
    }
    Ok(())
}
