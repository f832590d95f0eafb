//! The measurement of GASNet's C interface. The same program is built with several installations,
//! and the resulting programs run alternately.
//!
//! The effective distance between two cores can change from one second to the next. Each round
//! therefore runs the program of every installation, and the result is the median of the rounds'
//! ratios.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;

use anyhow::{Context, bail, ensure};
use clap::Args;
use comfy_table::Table;
use indicatif::ProgressBar;
use serde::Serialize;
use tempfile::TempDir;

use crate::credits::median;
use crate::report;

/// The program's source.
const SOURCE: &str = include_str!("../c/gasnet.c");

/// The makefile, which builds the program as GASNet's clients are built. Functions and loops are
/// aligned so that their speed does not change when code is added before them: a loop of a few
/// instructions takes twice as long if it crosses a cache line.
const MAKEFILE: &str = "\
include $(FRAGMENT)
program: program.c
\t$(GASNET_CC) $(GASNET_CPPFLAGS) $(GASNET_CFLAGS) -falign-functions=64 -falign-loops=32 -c -o program.o program.c
\t$(GASNET_LD) $(GASNET_LDFLAGS) -o program program.o $(GASNET_LIBS)
";

/// The parameters of the measurement.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// The measured installation: its prefix and conduit (smp, udp …)
    #[arg(long, value_name = "PREFIX[:CONDUIT]")]
    ours: Installation,
    /// An installation to compare with (may be repeated)
    #[arg(long, value_name = "PREFIX[:CONDUIT]")]
    peer: Vec<Installation>,
    /// Threading mode: seq, parsync or par
    #[arg(long, default_value = "seq", value_parser = ["seq", "parsync", "par"])]
    mode: String,
    /// Number of ranks; with more than 2 only collective operations are measured
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(2..))]
    ranks: u32,
    /// Rounds; each runs every installation's program once
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Seconds of each repetition of a figure
    #[arg(long, default_value_t = 0.005)]
    seconds: f64,
    #[command(flatten)]
    format: report::Format,
}

/// A library with GASNet's interface.
#[derive(Clone, Debug)]
pub(crate) struct Installation {
    prefix: PathBuf,
    conduit: String,
}

impl FromStr for Installation {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let (prefix, conduit) = text.rsplit_once(':').unwrap_or((text, "smp"));
        let prefix = fs::canonicalize(prefix).with_context(|| prefix.to_owned())?;
        let conduit = conduit.to_owned();
        Ok(Self { prefix, conduit })
    }
}

/// A program and the folder that contains it.
pub(crate) struct Program {
    folder: TempDir,
    conduit: String,
}

/// The figures that a program printed, in order: the name, the number of bytes, and the time in
/// nanoseconds.
type Readings = Vec<((String, u64), f64)>;

impl Installation {
    /// Builds a program from its source for the threading mode `mode`.
    ///
    /// # Errors
    /// Fails if the installation lacks the mode, or if a compiler fails.
    pub(crate) fn build(&self, source: &str, mode: &str) -> anyhow::Result<Program> {
        let Self { prefix, conduit } = self;
        let fragment = prefix.join(format!("include/{conduit}-conduit/{conduit}-{mode}.mak"));
        ensure!(fragment.exists(), "{} does not exist", fragment.display());
        let folder = tempfile::tempdir()?;
        fs::write(folder.path().join("program.c"), source)?;
        fs::write(folder.path().join("Makefile"), MAKEFILE)?;
        let made = Command::new("make")
            .current_dir(&folder)
            .arg(format!("FRAGMENT={}", fragment.display()))
            .arg("program")
            .output()
            .context("make")?;
        if !made.status.success() {
            bail!(
                "{}: {}",
                prefix.display(),
                String::from_utf8_lossy(&made.stderr)
            );
        }
        let conduit = conduit.clone();
        Ok(Program { folder, conduit })
    }
}

impl Program {
    fn run(&self, ranks: u32, seconds: f64) -> anyhow::Result<Readings> {
        let mut command = Command::new(self.path());
        if self.conduit == "udp" {
            command.arg(ranks.to_string()).env("GASNET_SPAWNFN", "L");
        } else {
            command.env("GASNET_PSHM_NODES", ranks.to_string());
        }
        let output = command
            .arg(seconds.to_string())
            .output()
            .with_context(|| self.path().display().to_string())?;
        if !output.status.success() {
            bail!(
                "{}: {}",
                output.status,
                String::from_utf8_lossy(&output.stderr)
            );
        }
        readings(&String::from_utf8_lossy(&output.stdout))
    }

    pub(crate) fn path(&self) -> PathBuf {
        Path::new(self.folder.path()).join("program")
    }
}

/// Parses lines that consist of a name, a number of bytes and a number of nanoseconds. All other
/// lines are ignored.
fn readings(text: &str) -> anyhow::Result<Readings> {
    let mut found = Vec::new();
    for line in text.lines() {
        let words: Vec<_> = line.split_whitespace().collect();
        let [name, bytes, nanoseconds] = words[..] else {
            continue;
        };
        if let (Ok(bytes), Ok(nanoseconds)) = (bytes.parse(), nanoseconds.parse()) {
            found.push(((name.to_owned(), bytes), nanoseconds));
        }
    }
    ensure!(!found.is_empty(), "the program printed no figure");
    Ok(found)
}

/// A figure compared with one peer.
#[derive(Clone, Debug, Serialize)]
struct Figure {
    name: String,
    bytes: u64,
    /// The time of an operation in nanoseconds.
    value: f64,
    peer: String,
    peer_value: f64,
    /// The figure's time divided by the peer's.
    ratio: f64,
}

/// Measures and prints the results.
///
/// # Errors
/// Fails if a program cannot be built or fails.
pub fn run(options: &Options) -> anyhow::Result<bool> {
    let all: Vec<_> = std::iter::once(&options.ours)
        .chain(&options.peer)
        .collect();
    let programs = all
        .iter()
        .map(|installation| installation.build(SOURCE, &options.mode))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let bar = ProgressBar::new(u64::from(options.rounds) * programs.len() as u64);
    let mut rounds = Vec::new();
    for _ in 0..options.rounds {
        let mut round = Vec::new();
        for program in &programs {
            round.push(program.run(options.ranks, options.seconds)?);
            bar.inc(1);
        }
        rounds.push(round);
    }
    bar.finish_and_clear();
    let figures = figures(&all, &rounds);
    let below = format!(
        "Nanoseconds of an operation, medians of {} rounds; the ratio is the median of the rounds' ratios.\n",
        options.rounds
    );
    options.format.print(&figures, &table(&figures), below)?;
    Ok(true)
}

fn figures(all: &[&Installation], rounds: &[Vec<Readings>]) -> Vec<Figure> {
    let of = |installation: usize, key: &(String, u64)| -> Vec<f64> {
        let round = |round: &Vec<Readings>| {
            let readings: BTreeMap<_, _> = round[installation].iter().cloned().collect();
            readings.get(key).copied().unwrap_or(f64::NAN)
        };
        rounds.iter().map(round).collect()
    };
    let mut figures = Vec::new();
    for (key, _) in &rounds[0][0] {
        let ours = of(0, key);
        for (place, peer) in all.iter().enumerate().skip(usize::from(all.len() > 1)) {
            let theirs = of(place, key);
            let ratios: Vec<_> = ours.iter().zip(&theirs).map(|(a, b)| a / b).collect();
            figures.push(Figure {
                name: key.0.clone(),
                bytes: key.1,
                value: median(&ours),
                peer: format!("{}:{}", peer.prefix.display(), peer.conduit),
                peer_value: median(&theirs),
                ratio: median(&ratios),
            });
        }
    }
    figures
}

fn table(figures: &[Figure]) -> Table {
    let head = ["figure", "bytes", "ns", "beside", "ns", "ratio"];
    let row = |figure: &Figure| {
        [
            figure.name.clone(),
            figure.bytes.to_string(),
            format!("{:.1}", figure.value),
            figure.peer.clone(),
            format!("{:.1}", figure.peer_value),
            format!("{:.2}", figure.ratio),
        ]
    };
    report::table(head, figures.iter().map(row))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lines_of_figures_are_read() {
        let found = readings("hello\nput 8 0.92\na b c\nshort-flood 0 20\n").unwrap();
        let key = |name: &str, bytes| (name.to_owned(), bytes);
        assert_eq!(
            found,
            [(key("put", 8), 0.92), (key("short-flood", 0), 20.0)]
        );
        assert!(readings("hello\n").is_err());
    }

    #[test]
    fn ratios_are_those_of_rounds() {
        let installation = |conduit: &str| Installation {
            prefix: PathBuf::from("/p"),
            conduit: conduit.to_owned(),
        };
        let (ours, peer) = (installation("smp"), installation("udp"));
        let reading = |value| vec![(("put".to_owned(), 8), value)];
        let rounds = [
            vec![reading(1.0), reading(2.0)],
            vec![reading(10.0), reading(40.0)],
            vec![reading(3.0), reading(4.0)],
        ];
        let found = figures(&[&ours, &peer], &rounds);
        assert_eq!(found.len(), 1);
        assert_eq!(
            (found[0].value, found[0].peer_value, found[0].ratio),
            (3.0, 4.0, 0.5)
        );
    }
}
