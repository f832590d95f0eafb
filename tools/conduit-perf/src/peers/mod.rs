//! The comparison of Conduit over UDP with packaged libraries over TCP: `conduit-perf peers`.
//!
//! In each round, Conduit and every library run once, one after another, on the same two cores over
//! the loopback interface. The order is reversed in every other round. Each ratio thus compares
//! readings that are close in time. The result is the median of the rounds' ratios.
//!
//! | Conduit | compared with |
//! |---|---|
//! | `am-round-trip`: a short and its reply | round trips of 8 bytes: `bare-udp`, UCX's active messages, and the messages of libfabric and MPI |
//! | `put-bandwidth`: puts of 1 MiB | transfers of 1 MiB: a stream of `bare-udp`, the puts of UCX and MPI, a stream of MPI's messages, and libfabric's messages back and forth |
//!
//! These libraries are called peers. The module `tools` runs the programs of each peer. A peer
//! fails if its blocks do not go over the loopback interface.

mod output;
mod process;
pub(crate) mod tools;

use std::iter;
use std::time::Duration;

use clap::Args;
use indicatif::ProgressBar;

use crate::alternate::Plan;
use crate::figure::{Figure, Subject, Unit};
use crate::limits::udp::BLOCK;
use crate::placement::{Cores, Placement};
use crate::{report, udp};

use tools::CANDIDATES;

/// The number of round trips in a reading of a peer.
const ROUND_TRIPS: u32 = 5000;
/// The number of blocks in a reading of a peer.
const BLOCKS: u32 = 320;
/// The plan for one reading of each of Conduit's figures. A reading takes about as long as one of a
/// peer.
const OURS: Plan = Plan {
    good: 1,
    most: 1,
    // Changes of bare UDP between the readings before and after the figure do not matter.
    tolerance: f64::MAX,
    time: Duration::from_millis(8),
    runs: 1,
};

/// The parameters of comparisons with peers.
#[derive(Clone, Debug, Args)]
pub struct Options {
    #[command(flatten)]
    format: report::Format,
    /// Rounds; each runs Conduit and every peer once
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
}

/// A reading of Conduit or a peer. Times are compared with Conduit's round trip, and bandwidths
/// with its puts.
#[derive(Clone, Debug, PartialEq)]
struct Reading {
    name: &'static str,
    unit: Unit,
    /// The number of seconds per round trip or per block.
    seconds: f64,
}

/// The readings of one round.
#[derive(Clone, Debug, Default)]
struct Found {
    ours: Vec<Reading>,
    theirs: Vec<Reading>,
}

/// Measures and prints the results. Returns `false` if an installed peer failed.
///
/// # Errors
/// Fails if there are fewer than two cores, if Conduit's own job fails, or if the results cannot be
/// written.
pub fn run(options: &Options) -> anyhow::Result<bool> {
    let allowed = Cores::allowed()?;
    let cores = [
        allowed.core(Placement::Apart, 0, 2)?,
        allowed.core(Placement::Apart, 1, 2)?,
    ];
    let (mut peers, mut good) = (Vec::new(), true);
    for candidate in CANDIDATES {
        match candidate.find() {
            Ok(Some(peer)) => {
                eprintln!("{peer}");
                peers.push(peer);
            }
            Ok(None) => eprintln!(
                "{}: not installed (Debian's packages: {})",
                candidate.name, candidate.packages
            ),
            Err(error) => {
                good = false;
                eprintln!("{error:#}");
            }
        }
    }
    let bar = ProgressBar::new(u64::from(options.rounds));
    let mut rounds = Vec::new();
    for number in 0..options.rounds {
        // Conduit, as `None`, runs before its peers, or after them in every other round.
        let mut order: Vec<_> = iter::once(None).chain(peers.iter().map(Some)).collect();
        if number % 2 == 1 {
            order.reverse();
        }
        let mut found = Found::default();
        for peer in order {
            let Some(peer) = peer else {
                found.add_ours()?;
                continue;
            };
            match peer.measure(cores) {
                Ok(readings) => found.theirs.extend(readings),
                Err(error) => {
                    good = false;
                    bar.suspend(|| eprintln!("{peer}, round {number}: {error:#}"));
                }
            }
        }
        rounds.push(found);
        bar.inc(1);
    }
    bar.finish_and_clear();
    let figures = figures(&rounds);
    let table = report::figures(&figures);
    options.format.print(&figures, &table, "")?;
    Ok(good)
}

impl Found {
    /// Runs Conduit's job, which also measures bare UDP.
    fn add_ours(&mut self) -> anyhow::Result<()> {
        for figure in udp::measure_pair(OURS)? {
            let (unit, size) = (figure.unit, figure.size);
            let reading = |name, value| Reading {
                name,
                unit,
                seconds: seconds(unit, value, size),
            };
            self.theirs.push(reading("bare-udp", figure.limit));
            self.ours
                .push(reading(subject(unit, "").name, figure.value));
        }
        Ok(())
    }

    /// Returns the seconds of Conduit's reading in this unit, and those of the reading called
    /// `name`.
    fn beside(&self, name: &str, unit: Unit) -> Option<(f64, f64)> {
        let of = |readings: &[Reading], name: &str| {
            let mut all = readings.iter();
            let found = all.find(|reading| (reading.name, reading.unit) == (name, unit));
            found.map(|reading| reading.seconds)
        };
        let ours = of(&self.ours, subject(unit, "").name)?;
        Some((ours, of(&self.theirs, name)?))
    }
}

/// Returns the number of seconds per operation of a [`Figure`] with this value. This is the inverse
/// of [`Unit::value`].
fn seconds(unit: Unit, value: f64, size: usize) -> f64 {
    match unit {
        Unit::Nanoseconds => value * 1e-9,
        Unit::Millions => 1e-6 / value,
        Unit::Gigabytes => size as f64 * 1e-9 / value,
    }
}

/// Returns Conduit's figure for comparison with a peer's reading in `unit`.
fn subject(unit: Unit, peer: &'static str) -> Subject {
    let (name, size) = match unit {
        Unit::Nanoseconds => ("am-round-trip", 0),
        Unit::Millions | Unit::Gigabytes => ("put-bandwidth", BLOCK),
    };
    Subject {
        name,
        size,
        limit_name: peer,
        unit,
        target: None,
    }
}

/// Returns a figure for each reading of each peer, round trips first.
fn figures(rounds: &[Found]) -> Vec<Figure> {
    let mut figures = Vec::new();
    for unit in [Unit::Nanoseconds, Unit::Gigabytes] {
        let mut names = Vec::new();
        for reading in rounds.iter().flat_map(|round| &round.theirs) {
            if reading.unit == unit && !names.contains(&reading.name) {
                names.push(reading.name);
            }
        }
        for name in names {
            let rounds = rounds.iter().filter_map(|round| round.beside(name, unit));
            figures.extend(Figure::of_rounds(&subject(unit, name), 2, rounds));
        }
    }
    figures
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(ours: [f64; 2], theirs: &[(&'static str, Unit, f64)]) -> Found {
        let reading = |&(name, unit, value): &(&'static str, Unit, f64)| Reading {
            name,
            unit,
            seconds: seconds(unit, value, BLOCK),
        };
        let [trip, puts] = ours;
        let ours = [
            ("am-round-trip", Unit::Nanoseconds, trip),
            ("put-bandwidth", Unit::Gigabytes, puts),
        ];
        Found {
            ours: ours.iter().map(reading).collect(),
            theirs: theirs.iter().map(reading).collect(),
        }
    }

    #[test]
    fn times_go_with_times_and_bandwidths_with_bandwidths() {
        let rounds = [
            round(
                [4000.0, 6.0],
                &[
                    ("a", Unit::Nanoseconds, 8000.0),
                    ("a", Unit::Gigabytes, 3.0),
                ],
            ),
            round([8000.0, 8.0], &[("a", Unit::Nanoseconds, 10_000.0)]),
            round(
                [6000.0, 7.0],
                &[
                    ("a", Unit::Gigabytes, 7.0),
                    ("a", Unit::Nanoseconds, 6000.0),
                ],
            ),
        ];
        let found = figures(&rounds);
        let round = |value: f64| (value * 1000.0).round() / 1000.0;
        let found: Vec<_> = found
            .iter()
            .map(|figure| {
                let numbers = [figure.value, figure.limit, figure.ratio].map(round);
                (&*figure.name, &*figure.limit_name, numbers, figure.rounds)
            })
            .collect();
        assert_eq!(
            found,
            [
                ("am-round-trip", "a", [6000.0, 8000.0, 0.8], 3),
                // A peer failed in one round, so Conduit's reading of that round does not count
                // either.
                ("put-bandwidth", "a", [6.462, 4.2, 1.5], 2),
            ]
        );
    }

    #[test]
    fn seconds_are_what_values_were_made_of() {
        for unit in [Unit::Nanoseconds, Unit::Millions, Unit::Gigabytes] {
            let back = seconds(unit, unit.value(3e-6, BLOCK), BLOCK);
            assert!((back - 3e-6).abs() < 1e-12, "{unit}");
        }
    }
}
