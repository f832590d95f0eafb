//! `cargo xtask full`: all checks that a change has to pass, with a table of the time they took.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::thread;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use serde_json::json;

use super::programs::{self, Program, Results};
use super::steps::{Steps, run};
use crate::book;
use crate::budgets::Budgets;
use crate::build::Cargo;
use crate::build::Mode;
use crate::install::Install;

/// The number of test programs that run concurrently. More tests run at the same time than there
/// are processors, to use the time in which tests wait.
const PROGRAMS: usize = 2;
/// The number of tests that run concurrently in each test program.
const THREADS: usize = 2;

/// The test programs that take longest, which start first.
const LONGEST: [&str; 5] = [
    "tests/jobs",
    "tests/conformance",
    "tests/engine",
    "agent/hsta/main",
    "examples/main",
];

/// The number of slowest tests that are listed.
const SLOWEST: usize = 20;

/// Run all checks that a change has to pass
#[derive(Debug, Clone, Args)]
pub struct Full {
    /// Only these parts, comma-separated
    #[arg(long, value_name = "PART", value_enum, value_delimiter = ',', default_values_t = [Part::Lints, Part::Tests, Part::Release])]
    pub only: Vec<Part>,

    /// Run all conformance cases on variants of networks, all jobs of C programs and all tests of
    /// the guarantees in `docs/semantics.md`, instead of a sample
    #[arg(long)]
    pub whole: bool,

    /// The seed of the sample [default: a new one each time]
    #[arg(long, value_name = "NUMBER")]
    pub seed: Option<u64>,

    /// The file for the times of steps and of the slowest tests, as JSON
    #[arg(long, value_name = "FILE", default_value = "target/full.json")]
    pub json: PathBuf,
}

/// A part of the full run. Parts can run on different machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// Formatting, clippy, documentation and the book.
    Lints,
    /// `cargo test`, with concurrent test programs.
    Tests,
    /// The tour, the optimised C library, instruction budgets and model checks.
    Release,
}

impl Full {
    /// Runs the steps. Stops at the first failure; prints the table in either case.
    ///
    /// # Errors
    /// Returns an error if a step fails or the JSON cannot be written.
    pub fn run(&self) -> Result<()> {
        let cargo = Cargo::new();
        let (mut steps, mut results) = (Steps::default(), Results::default());
        let done = self.parts(&cargo, &mut steps, &mut results);
        let slowest = results.slowest(SLOWEST);
        let mut table = format!("\n{:8.1} s  in all\n", steps.total().as_secs_f64());
        table += &steps.table();
        table += "\nThe slowest tests:\n";
        for test in &slowest {
            writeln!(
                table,
                "{:8.1} s  {}  {}",
                test.seconds, test.program, test.name
            )?;
        }
        println!("{table}");
        let json = json!({ "steps": steps, "slowest": slowest });
        std::fs::write(cargo.root().join(&self.json), format!("{json:#}\n"))
            .with_context(|| self.json.display().to_string())?;
        done?;
        println!("{}", results.summary());
        Ok(())
    }

    fn parts(&self, cargo: &Cargo, steps: &mut Steps, results: &mut Results) -> Result<()> {
        let seed = || self.seed.unwrap_or_else(|| fastrand::u64(..1_000_000));
        let sample = (!self.whole).then(seed);
        if let Some(seed) = sample {
            println!("to repeat this sample: --seed {seed}");
        }
        for part in [Part::Lints, Part::Tests, Part::Release] {
            if !self.only.contains(&part) {
                continue;
            }
            match part {
                Part::Lints => lints(cargo, steps)?,
                Part::Tests => tests(cargo, steps, sample, results)?,
                Part::Release => release(cargo, steps, sample)?,
            }
        }
        Ok(())
    }
}

fn lints(cargo: &Cargo, steps: &mut Steps) -> Result<()> {
    let mut formatting = cargo.task("fmt");
    steps.command("formatting", formatting.args(["--all", "--check"]))?;
    let mut clippy = cargo.task("clippy");
    clippy.args(["--workspace", "--all-targets", "--", "-D", "warnings"]);
    steps.command("clippy", &mut clippy)?;
    let mut doc = cargo.task("doc");
    doc.args(["--workspace", "--no-deps"]);
    steps.command("documentation", doc.env("RUSTDOCFLAGS", "-D warnings"))?;
    if !book::is_installed() {
        println!("=== no mdbook here: the book is not built");
        return Ok(());
    }
    steps.command("the book", &mut book::build(cargo))
}

pub(super) fn tests(
    cargo: &Cargo,
    steps: &mut Steps,
    sample: Option<u64>,
    results: &mut Results,
) -> Result<()> {
    let built = steps.step("cargo test: build", || cargo.tests(&[]))?;
    let mut programs = programs::found(&built, cargo.root());
    let place = |program: &Program| LONGEST.iter().position(|name| *name == program.name);
    programs.sort_by_key(|program| place(program).unwrap_or(LONGEST.len()));
    steps.step("cargo test: run", || {
        *results = programs::run(&programs, PROGRAMS, THREADS, sample)?;
        results.check()
    })?;
    steps.command("cargo test: examples", cargo.task("test").arg("--doc"))
}

pub(super) fn release(cargo: &Cargo, steps: &mut Steps, sample: Option<u64>) -> Result<()> {
    steps.command("the tour", cargo.task("run").arg("--release"))?;
    // Install the library under this prefix, where make and pkg-config find it.
    let prefix = cargo.root().join("target/prefix");
    let install = Install {
        modes: vec![Mode::Seq, Mode::Par],
        no_debug: true,
        ..Install::new(&prefix)
    };
    steps.step("the C library", || install.run())?;
    steps.step("instruction budgets", || Budgets::default().run())?;
    let mut example = Command::new(cargo.root().join(".ci/c-example"));
    steps.command("the C example", example.arg(&prefix))?;
    let mut headers = cargo.task("test");
    headers.args(["--test", "jobs", "--", "--ignored", "optimised"]);
    headers.envs(sample.map(|seed| (programs::SAMPLE, seed.to_string())));
    headers.env("CONDUIT_TEST_PREFIX", &prefix);
    let mut loom = cargo.task("test");
    loom.args(["-p", "pgas-conduit-portals", "-p", "pgas-conduit-shm"])
        .args(["-p", "pgas-credits", "--lib"])
        .env("RUSTFLAGS", "--cfg loom")
        .env("CARGO_TARGET_DIR", cargo.root().join("target/loom"));
    // Model checks visit all interleavings, so they are worth optimising.
    for package in [
        "loom",
        "generator",
        "pgas-conduit-portals",
        "pgas-conduit-shm",
        "pgas-credits",
    ] {
        let optimised = format!("profile.dev.package.{package}.opt-level=3");
        loom.args(["--config", &optimised]);
    }
    loom.arg("loom");
    // Run the two commands at the same time, because each of them alone leaves a processor idle.
    steps.step("optimised headers, model checks", || {
        thread::scope(|scope| {
            let checks = scope.spawn(|| run(&mut loom));
            let headers = run(&mut headers);
            checks.join().expect("no panic").and(headers)
        })
    })
}
