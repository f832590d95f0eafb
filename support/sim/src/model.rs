//! Model checks, which visit every state of small worlds.

use std::fmt::{Debug, Write};
use std::hash::Hash;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use stateright::{Checker, Expectation, HasDiscoveries, Model};

/// The result of a model check.
#[derive(Clone, Debug)]
pub struct Report {
    /// The number of distinct states.
    pub states: usize,
    /// The number of steps taken between states.
    pub steps: usize,
    /// The maximum number of states on a path from a start to a state.
    pub longest: usize,
    /// The time taken.
    pub time: Duration,
    /// The violated properties, each with a run to a state that violates it.
    pub failures: Vec<(&'static str, String)>,
    /// The events that were expected to happen in some state and never did.
    pub missing: Vec<&'static str>,
}

impl Report {
    /// Returns the violated properties.
    pub fn failed(&self) -> impl Iterator<Item = &'static str> {
        self.failures.iter().map(|&(name, _)| name)
    }

    /// Checks the report and prints the extent of the search, for tests.
    ///
    /// # Panics
    /// Panics if a property is violated, or if an expected event never happened.
    pub fn assert_sound(&self, world: &str) {
        if let Some((rule, run)) = self.failures.first() {
            panic!("{world}: violated: {rule}, after\n{run}");
        }
        let Self {
            states,
            steps,
            time,
            missing,
            ..
        } = self;
        assert!(missing.is_empty(), "{world}: never: {missing:?}");
        println!("{world}: {states} states, {steps} steps, {time:.1?}");
    }
}

/// Visits the states of a world. The search ends when all states are visited, or when the
/// discoveries satisfy `enough`.
#[must_use]
pub fn explore<M>(model: M, enough: HasDiscoveries) -> Report
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static,
    M::Action: Clone + Debug + PartialEq,
{
    let begin = Instant::now();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let checker = model
        .checker()
        .threads(threads)
        .finish_when(enough)
        .spawn_bfs()
        .join();
    let found = checker.discoveries();
    let (mut failures, mut missing) = (Vec::new(), Vec::new());
    for property in checker.model().properties() {
        match (property.expectation, found.get(property.name)) {
            (Expectation::Sometimes, None) => missing.push(property.name),
            (Expectation::Sometimes, Some(_)) | (_, None) => {}
            (_, Some(path)) => {
                let mut run = String::new();
                for step in path.clone().into_actions() {
                    let _ = writeln!(run, "{step:?}");
                }
                failures.push((property.name, run));
            }
        }
    }
    Report {
        states: checker.unique_state_count(),
        steps: checker.state_count(),
        longest: checker.max_depth(),
        time: begin.elapsed(),
        failures,
        missing,
    }
}

/// Checks the small worlds or, with `--large`, the large ones, one after another, and prints the
/// number of states of each. Returns exit code 1 if a world violates a property or lacks an
/// expected event.
pub fn main<W>(
    program: &'static str,
    small: fn() -> Vec<W>,
    large: fn() -> Vec<W>,
    name: impl Fn(&W) -> &'static str,
    check: impl Fn(W) -> Report,
) -> ExitCode {
    let options = clap::Command::new(program)
        .version(env!("CARGO_PKG_VERSION"))
        .about("Checks the worlds and prints how many states each has")
        .arg(clap::arg!(--large "Check the large worlds, which take minutes and some gigabytes, instead of the small ones"))
        .get_matches();
    let worlds = match options.get_flag("large") {
        false => small(),
        true => large(),
    };
    println!(
        "{:>10} {:>11} {:>7} {:>7}  world",
        "states", "steps", "longest", "seconds"
    );
    let mut is_good = true;
    for world in worlds {
        let name = name(&world);
        let report = check(world);
        let seconds = report.time.as_secs_f64();
        println!(
            "{:>10} {:>11} {:>7} {seconds:>7.1}  {name}",
            report.states, report.steps, report.longest
        );
        for (property, run) in &report.failures {
            println!("violated: {property}, after\n{run}");
        }
        for event in &report.missing {
            println!("never: {event}");
        }
        is_good &= report.failures.is_empty() && report.missing.is_empty();
    }
    crate::command::exit_code(is_good)
}
