//! Finds the test programs that cargo has built, runs several of them at a time, and records the
//! time of each test.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde::Serialize;

use super::steps::processor_seconds;
use crate::build::Message;

/// The variable that makes tests sample large sets of cases (see `tests/src/sample.rs`). Its value
/// is the seed.
pub(super) const SAMPLE: &str = "CONDUIT_TEST_SAMPLE";

/// The variable that makes the conformance suite sample its cases. Its value is `COUNT,SEED`.
const CASES: &str = "CONDUIT_TEST_CASES";

/// A test program.
#[derive(Debug)]
pub(super) struct Program {
    /// The folder of the program's package and the name of its target, separated by a slash.
    pub(super) name: String,
    path: PathBuf,
    folder: PathBuf,
    arguments: Vec<String>,
    variable: Option<(&'static str, String)>,
}

/// A test that has run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Test {
    pub(super) program: String,
    pub(super) name: String,
    pub(super) seconds: f64,
    outcome: Outcome,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Outcome {
    Passed,
    Failed,
    Ignored,
}

/// The result of running one program.
struct Run {
    tests: Vec<Test>,
    processor_seconds: f64,
    /// The output, if the program failed.
    output: Option<String>,
}

/// The results of running several programs.
#[derive(Debug, Default)]
pub(super) struct Results {
    pub(super) tests: Vec<Test>,
    failed: Vec<String>,
}

/// Returns the test programs among the artifacts that cargo has built. `root` is the workspace's
/// folder.
pub(super) fn found(messages: &[Message], root: &Path) -> Vec<Program> {
    let program = |message: &Message| {
        let target = message.target.as_ref()?;
        let folder = message.manifest_path.as_ref()?.parent()?;
        let package = folder.strip_prefix(root).unwrap_or(folder).display();
        Some(Program {
            name: format!("{package}/{}", target.name),
            path: message.executable.clone()?,
            folder: folder.to_owned(),
            arguments: Vec::new(),
            variable: None,
        })
    };
    messages.iter().filter_map(program).collect()
}

impl Program {
    /// Restricts the run to these tests.
    pub(super) fn only(mut self, names: impl IntoIterator<Item = String>) -> Self {
        self.arguments.push("--exact".to_owned());
        self.arguments.extend(names);
        self
    }

    /// Restricts the run to `count` cases, which the program samples with the seed. This is for the
    /// conformance suite, which accepts at most one test name.
    pub(super) fn drawn(mut self, count: usize, seed: u64) -> Self {
        self.variable = Some((CASES, format!("{count},{seed}")));
        self
    }

    /// Returns the names of the tests, in the order in which they run.
    pub(super) fn list(&self) -> Result<Vec<String>> {
        let output = self
            .command()
            .args(["--list", "--format", "terse"])
            .output()
            .with_context(|| self.path.display().to_string())?;
        ensure!(
            output.status.success(),
            "{} --list: {}: {}",
            self.name,
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
        let text = String::from_utf8_lossy(&output.stdout);
        let names = text.lines().filter_map(|line| line.strip_suffix(": test"));
        Ok(names.map(str::to_owned).collect())
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command
            .args(&self.arguments)
            .current_dir(&self.folder)
            .env("CARGO_MANIFEST_DIR", &self.folder)
            .envs(self.variable.clone())
            .stdin(Stdio::null());
        command
    }

    /// Runs the program until it exits.
    fn run(&self, threads: usize, sample: Option<u64>) -> Result<Run> {
        let order = self.list()?;
        let begun = Instant::now();
        let mut child = self
            .command()
            .args(["--test-threads", &threads.to_string()])
            .envs(sample.map(|seed| (SAMPLE, seed.to_string())))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| self.path.display().to_string())?;
        let mut errors = child.stderr.take().context("a pipe")?;
        let errors = thread::spawn(move || {
            let mut bytes = Vec::new();
            // Output that cannot be read is not shown.
            let _ = errors.read_to_end(&mut bytes);
            String::from_utf8_lossy(&bytes).into_owned()
        });
        let (mut ends, mut text) = (Vec::new(), String::new());
        for line in BufReader::new(child.stdout.take().context("a pipe")?).split(b'\n') {
            let line = line?;
            let line = String::from_utf8_lossy(&line);
            if let Some((name, outcome)) = ended(&line) {
                ends.push((name.to_owned(), outcome, begun.elapsed().as_secs_f64()));
            }
            writeln!(text, "{line}")?;
        }
        let processor_seconds = processor_seconds(child.id());
        let status = child.wait()?;
        let errors = errors.join().unwrap_or_default();
        let tests = timed(&self.name, &order, &ends, threads);
        // Put the failures last: processes that tests start can write a lot, and a log may be
        // truncated at its beginning.
        let output = (!status.success()).then(|| format!("{errors}{text}{status}"));
        Ok(Run {
            tests,
            processor_seconds,
            output,
        })
    }
}

/// Returns the test whose end the line of a test program's output reports, and its outcome.
fn ended(line: &str) -> Option<(&str, Outcome)> {
    let (name, outcome) = line.strip_prefix("test ")?.rsplit_once(" ... ")?;
    let outcome = match outcome.split([',', ' ']).next()? {
        "ok" => Outcome::Passed,
        "FAILED" => Outcome::Failed,
        "ignored" => Outcome::Ignored,
        _ => return None,
    };
    Some((name.trim_end_matches(" - should panic"), outcome))
}

/// Returns the tests with their times, on the assumption that the next test in the order of the
/// list begins as soon as a thread becomes free.
fn timed(
    program: &str,
    order: &[String],
    ends: &[(String, Outcome, f64)],
    threads: usize,
) -> Vec<Test> {
    let begins: HashMap<&str, f64> = order
        .iter()
        .enumerate()
        .map(|(place, name)| {
            let freed = place.checked_sub(threads).and_then(|end| ends.get(end));
            (name.as_str(), freed.map_or(0.0, |end| end.2))
        })
        .collect();
    let test = |(name, outcome, end): &(String, Outcome, f64)| Test {
        program: program.to_owned(),
        name: name.clone(),
        seconds: (end - begins.get(name.as_str()).unwrap_or(end)).max(0.0),
        outcome: *outcome,
    };
    ends.iter().map(test).collect()
}

/// Runs programs in order, `at_a_time` of them concurrently, each with `threads` concurrent tests.
/// If `sample` is given, tests that support it run only a sample with this seed. Prints a line for
/// each program, and the whole output of each program that fails.
///
/// # Errors
/// Returns an error if a program cannot be run.
pub(super) fn run(
    programs: &[Program],
    at_a_time: usize,
    threads: usize,
    sample: Option<u64>,
) -> Result<Results> {
    let queue = Mutex::new(programs.iter());
    let results = Mutex::new(Results::default());
    let worker = || -> Result<()> {
        loop {
            let next = queue.lock().expect("no panic").next();
            let Some(program) = next else { return Ok(()) };
            let begun = Instant::now();
            let Run {
                tests,
                processor_seconds,
                output,
            } = program.run(threads, sample)?;
            let seconds = begun.elapsed().as_secs_f64();
            let mut results = results.lock().expect("no panic");
            println!(
                "{seconds:8.1} s  {processor_seconds:8.1} s of processor time  {} ({} tests)",
                program.name,
                tests.len()
            );
            results.tests.extend(tests);
            if let Some(output) = output {
                println!("{output}\n=== FAILED: {}", program.name);
                results.failed.push(program.name.clone());
            }
        }
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..at_a_time).map(|_| scope.spawn(worker)).collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().expect("no panic"))
    })?;
    Ok(results.into_inner().expect("no panic"))
}

impl Results {
    /// Returns the numbers of passed, failed and ignored tests, as a line.
    pub(super) fn summary(&self) -> String {
        let count = |outcome| {
            self.tests
                .iter()
                .filter(|test| test.outcome == outcome)
                .count()
        };
        format!(
            "{} passed, {} failed, {} skipped",
            count(Outcome::Passed),
            count(Outcome::Failed).max(self.failed.len()),
            count(Outcome::Ignored)
        )
    }

    /// Returns the `count` tests that took longest, the slowest first.
    pub(super) fn slowest(&self, count: usize) -> Vec<&Test> {
        let mut tests: Vec<&Test> = self.tests.iter().collect();
        tests.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
        tests.truncate(count);
        tests
    }

    /// # Errors
    /// Returns an error that names the programs that failed, if any.
    pub(super) fn check(&self) -> Result<()> {
        ensure!(self.failed.is_empty(), "failed: {}", self.failed.join(", "));
        ensure!(!self.tests.is_empty(), "no test ran");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_test_programs_are_understood() {
        for (line, expected) in [
            ("test a::b ... ok", Some(("a::b", Outcome::Passed))),
            ("test a - should panic ... ok", Some(("a", Outcome::Passed))),
            ("test a ... FAILED", Some(("a", Outcome::Failed))),
            ("test a ... ignored, by hand", Some(("a", Outcome::Ignored))),
            ("test a has been running for over 60 seconds", None),
            ("test result: ok. 1 passed", None),
            ("running 3 tests", None),
        ] {
            assert_eq!(ended(line), expected, "{line}");
        }
    }

    #[test]
    fn a_test_begins_when_a_thread_is_free() {
        let order = ["a", "b", "c", "d"].map(str::to_owned);
        let end = |name: &str, time| (name.to_owned(), Outcome::Passed, time);
        let ends = [end("b", 1.0), end("c", 4.0), end("a", 6.0), end("d", 9.0)];
        let tests = timed("p", &order, &ends, 2);
        let times: Vec<_> = tests
            .iter()
            .map(|test| (&*test.name, test.seconds))
            .collect();
        assert_eq!(times, [("b", 1.0), ("c", 3.0), ("a", 6.0), ("d", 5.0)]);
    }
}
