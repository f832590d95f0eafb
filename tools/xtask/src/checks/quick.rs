//! `cargo xtask quick`: the checks that find most mistakes while a developer waits.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::Args;

use super::members::Members;
use super::programs::{self, Program};
use super::steps::Steps;
use crate::build::Cargo;
use crate::command;

/// The number of conformance cases in the sample.
const CASES: usize = 100;
/// The groups of tests that first install the C library, which takes as long as all other checks.
/// They are sampled only if the C library has changed.
const INSTALLED: [&str; 2] = ["c_interface::", "install::"];
/// The number of multi-process jobs in the sample.
const JOBS: usize = 10;

/// Check a change in a minute or so
///
/// Runs formatting; clippy for the packages that changed; their unit tests and those of the
/// packages that depend on them; a sample of the conformance cases and of the multi-process jobs.
#[derive(Debug, Clone, Args)]
pub struct Quick {
    /// Packages that have changed [default: those with uncommitted changes, or else those that the
    /// last commit changed]
    #[arg(value_name = "CRATE")]
    pub packages: Vec<String>,

    /// The seed of the sample [default: a new one each time]
    #[arg(long, value_name = "NUMBER")]
    pub seed: Option<u64>,
}

impl Quick {
    /// Runs the checks.
    ///
    /// # Errors
    /// Returns an error if a check fails or there is no such package.
    pub fn run(&self) -> Result<()> {
        let cargo = Cargo::new();
        let members = Members::read(&cargo)?;
        for name in &self.packages {
            ensure!(members.contains(name), "there is no package {name}");
        }
        let mut changed: BTreeSet<String> = self.packages.iter().cloned().collect();
        if changed.is_empty() {
            changed = changed_packages(&cargo, &members)?;
        }
        println!("changed: {changed:?}");

        let mut steps = Steps::default();
        let done = self.steps(&cargo, &members, &changed, &mut steps);
        println!(
            "\n{}{:8.1} s  in all",
            steps.table(),
            steps.total().as_secs_f64()
        );
        done
    }

    fn steps(
        &self,
        cargo: &Cargo,
        members: &Members,
        changed: &BTreeSet<String>,
        steps: &mut Steps,
    ) -> Result<()> {
        let mut formatting = cargo.task("fmt");
        steps.command("formatting", formatting.args(["--all", "--check"]))?;
        if changed.is_empty() {
            return Ok(());
        }
        let mut clippy = cargo.task("clippy");
        for name in changed {
            clippy.args(["-p", name]);
        }
        let rest = ["--all-targets", "--no-deps", "--", "-D", "warnings"];
        steps.command("clippy", clippy.args(rest))?;

        let dependents = members.with_dependents(changed);
        let mut arguments = vec!["--lib"];
        for name in dependents.iter().filter(|name| members.has_library(name)) {
            arguments.extend(["-p", name]);
        }
        if arguments.len() > 1 {
            run_tests(cargo, steps, "unit tests", &arguments, Ok)?;
        }
        if dependents.contains("conduit-tests") {
            let seed = self.seed.unwrap_or_else(|| fastrand::u64(..1_000_000));
            println!("to repeat this sample: --seed {seed}");
            let conformance = ["-p", "conduit-tests", "--test", "conformance"];
            let drawn = |program: Program| Ok(program.drawn(CASES, seed));
            run_tests(cargo, steps, "conformance", &conformance, drawn)?;
            let jobs = ["-p", "conduit-tests", "--test", "jobs"];
            let drawn = |program: Program| {
                let mut names = program.list()?;
                if !changed.contains("pgas-gasnet") {
                    names.retain(|name| !INSTALLED.iter().any(|group| name.starts_with(group)));
                }
                fastrand::Rng::with_seed(seed).shuffle(&mut names);
                names.truncate(JOBS);
                Ok(program.only(names))
            };
            run_tests(cargo, steps, "jobs of processes", &jobs, drawn)?;
        }
        Ok(())
    }
}

/// Builds test programs and runs the tests of each that `drawn` keeps.
fn run_tests(
    cargo: &Cargo,
    steps: &mut Steps,
    title: &'static str,
    arguments: &[&str],
    drawn: impl Fn(Program) -> Result<Program>,
) -> Result<()> {
    steps.step(title, || {
        let programs = programs::found(&cargo.tests(arguments)?, cargo.root());
        let programs: Result<Vec<_>> = programs.into_iter().map(drawn).collect();
        let results = programs::run(&programs?, 2, 2, None)?;
        println!("{}", results.summary());
        results.check()
    })
}

/// Returns the packages with uncommitted changes or, if there are none, those that the last commit
/// changed.
fn changed_packages(cargo: &Cargo, members: &Members) -> Result<BTreeSet<String>> {
    let files = |arguments: &[&str]| -> Result<String> {
        let mut git = Command::new("git");
        command::output(git.current_dir(cargo.root()).args(arguments)).context("git")
    };
    let mut text = files(&["diff", "--name-only", "HEAD"])?;
    text += &files(&["ls-files", "--others", "--exclude-standard"])?;
    if text.is_empty() {
        text = files(&["diff", "--name-only", "HEAD~1", "HEAD"])?;
    }
    let package = |file: &str| members.of(&cargo.root().join(Path::new(file)));
    Ok(text
        .lines()
        .filter_map(package)
        .map(str::to_owned)
        .collect())
}
