//! Networks under test, cases, and the runner.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use conduit_core::ni::Ni;

use super::{World, cases};
use crate::any::AnyNi;
use crate::chaos::{Chaos, Disorder};
use crate::sample::draws;

/// How long a world polls before it reports that an expected event is missing.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// Rounds after which a case's wait fails; every rank is polled once per round.
    pub rounds: u32,
    /// Rounds after which nothing more is expected; used to check that something does not happen.
    pub settle: u32,
    /// How long a round without events sleeps in [`Ni::wait`], for networks whose progress takes
    /// time.
    pub pause: Option<Duration>,
}

impl Patience {
    /// For a world of one seat, whose peers are other processes: a round without events lets them
    /// run. The process that starts the job limits its time.
    pub fn of_processes() -> Self {
        Self {
            rounds: u32::MAX,
            settle: 50,
            pause: Some(Duration::from_millis(1)),
        }
    }
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            rounds: 20_000,
            settle: 50,
            pause: None,
        }
    }
}

/// A case that doesn't apply to a network.
#[derive(Debug, Clone, Copy)]
pub struct Exclusion {
    /// The case's name.
    pub case: &'static str,
    /// The limit of the network that makes it impossible.
    pub reason: &'static str,
}

/// A variant runs one in this many cases, drawn at random.
const PARTS: u64 = 4;

/// A network under test: its name and how to start a job on it.
#[derive(Clone)]
pub struct Setup {
    name: String,
    patience: Patience,
    exclusions: &'static [Exclusion],
    sampled: bool,
    start: Arc<Start>,
}

type Start = dyn Fn(u32) -> Result<Vec<AnyNi>, String> + Send + Sync;

impl Setup {
    /// Describes a network on which `start` starts a job of a number of ranks, with the default
    /// patience.
    pub fn new<N: Ni + 'static, E: ToString>(
        name: String,
        start: impl Fn(u32) -> Result<Vec<N>, E> + Send + Sync + 'static,
    ) -> Self {
        let start = move |ranks| match start(ranks) {
            Ok(ranks) => Ok(ranks.into_iter().map(AnyNi::new).collect()),
            Err(error) => Err(error.to_string()),
        };
        Self {
            name,
            patience: Patience::default(),
            exclusions: &[],
            sampled: false,
            start: Arc::new(start),
        }
    }

    /// Sets the patience for a network over sockets, where acknowledgements and retransmissions
    /// take time.
    #[must_use]
    pub fn patient(self) -> Self {
        let patience = Patience {
            rounds: 10_000_000,
            settle: 1000,
            pause: None,
        };
        Self { patience, ..self }
    }

    /// Sets the cases that don't apply.
    #[must_use]
    pub fn excused(self, exclusions: &'static [Exclusion]) -> Self {
        Self { exclusions, ..self }
    }

    /// Marks it as a variant, for which a [sample](crate::sample) of the cases is enough.
    #[must_use]
    pub fn sampled(self) -> Self {
        Self {
            sampled: true,
            ..self
        }
    }

    /// Returns whether a case runs on it.
    pub(super) fn draws(&self, case: &str) -> bool {
        !self.sampled || draws((&self.name, case), PARTS)
    }

    /// Returns the same network under chaos.
    #[must_use]
    pub fn chaotic(self, disorder: Disorder) -> Self {
        let lacks = match (disorder.windows, disorder.inject) {
            (true, true) => "",
            _ => "_bare",
        };
        let start = self.start;
        Self {
            name: format!("{}::chaos_{}{lacks}", self.name, disorder.seed),
            start: Arc::new(move |ranks| {
                let chaos = Chaos::job(start(ranks)?, disorder);
                Ok(chaos.into_iter().map(AnyNi::new).collect())
            }),
            ..self
        }
    }

    /// Returns its name in reports, with the settings that differ from others.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// One statement of the contract and the scenario that tests it.
pub struct Case<N: Ni> {
    /// `theme/behaviour`; the theme is the file.
    pub name: &'static str,
    /// The sentence of the contract that it tests.
    pub states: &'static str,
    /// The number of ranks that it needs.
    pub ranks: u32,
    /// The scenario. Panics if the network violates the contract; returns [`Applies::No`] if the
    /// network can't run it.
    pub run: fn(&mut World<N>) -> Applies,
}

/// Whether a case applies to a network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Applies {
    /// It does.
    Yes,
    /// It exceeds the network's limits or capabilities.
    No(String),
}

/// The result of a case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The network kept the contract.
    Passed,
    /// The network doesn't offer the tested capability.
    NotApplicable(String),
    /// The case is excluded for this network.
    Excluded(&'static str),
    /// The network violated the contract or did not start.
    Failed(String),
}

/// Runs one case in a world of its own.
pub fn run_case(network: &Setup, case: &Case<AnyNi>) -> Verdict {
    if let Some(excused) = network.exclusions.iter().find(|e| e.case == case.name) {
        return Verdict::Excluded(excused.reason);
    }
    let ranks = match (network.start)(case.ranks) {
        Ok(ranks) => ranks,
        Err(reason) => return Verdict::Failed(format!("the network did not start: {reason}")),
    };
    let mut world = World::new(ranks, network.patience);
    // The world is dropped right after a panic without being used again.
    match catch_unwind(AssertUnwindSafe(|| (case.run)(&mut world))) {
        Ok(Applies::Yes) => Verdict::Passed,
        Ok(Applies::No(reason)) => Verdict::NotApplicable(reason),
        Err(panic) => Verdict::Failed(format!(
            "{}\n  the contract: {}\n  the network: {}\n{}",
            message(&*panic),
            case.states,
            network.name,
            world.history(40)
        )),
    }
}

fn message(panic: &(dyn Any + Send)) -> String {
    if let Some(text) = panic.downcast_ref::<String>() {
        text.clone()
    } else if let Some(text) = panic.downcast_ref::<&str>() {
        (*text).to_owned()
    } else {
        "panicked".to_owned()
    }
}

/// Returns the exclusions that name no case.
pub fn unknown_exclusions(network: &Setup) -> Vec<&'static str> {
    let cases = cases::<AnyNi>();
    network
        .exclusions
        .iter()
        .map(|e| e.case)
        .filter(|name| cases.iter().all(|case| case.name != *name))
        .collect()
}
