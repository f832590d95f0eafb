//! Networks under test, the cases that run on them, and the runner.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use conduit_core::ni::Ni;

use super::{World, cases};
use crate::any::AnyNi;
use crate::chaos::{Chaos, Disorder};
use crate::sample::draws;

/// How long a world polls before it reports that an expected event is missing or that none came.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// The number of rounds after which a case's wait fails. In each round, every rank is polled
    /// once.
    pub rounds: u32,
    /// The number of rounds after which no further event is expected. Cases use it to check that
    /// something does not happen.
    pub settle: u32,
    /// How long a round without events sleeps in [`Ni::wait`]. Networks whose progress takes time
    /// need such a sleep.
    pub pause: Option<Duration>,
}

impl Patience {
    /// Returns the patience for a world of one seat whose peers are other processes. A round
    /// without events lets those processes run. In practice no wait fails, because the process
    /// that starts the job limits the job's time.
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

/// A case that a network is excused from.
#[derive(Debug, Clone, Copy)]
pub struct Exclusion {
    /// The case's name.
    pub case: &'static str,
    /// The network's limit that makes the case impossible.
    pub reason: &'static str,
}

/// Of a sampled variant, one in this many cases runs. The cases are drawn at random.
const PARTS: u64 = 4;

/// A network under test: its name, the function that starts a job on it, and how it is tested.
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
    /// Describes a network. `start` starts a job of the given number of ranks on it. The patience
    /// is the default one.
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

    /// Sets the patience for a network over sockets, whose acknowledgements and retransmissions
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

    /// Sets the cases that the network is excused from.
    #[must_use]
    pub fn excused(self, exclusions: &'static [Exclusion]) -> Self {
        Self { exclusions, ..self }
    }

    /// Marks the network as a variant, for which a [sample](crate::sample) of the cases is enough.
    #[must_use]
    pub fn sampled(self) -> Self {
        Self {
            sampled: true,
            ..self
        }
    }

    /// Returns whether a case runs on the network.
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

    /// Returns the network's name in reports, which includes the settings in which it differs from
    /// other setups.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// One statement of the contract and the scenario that tests it.
pub struct Case<N: Ni> {
    /// The case's name, `theme/behaviour`. The theme is the name of the file.
    pub name: &'static str,
    /// The sentence of the contract that the case tests.
    pub states: &'static str,
    /// The number of ranks that the case needs.
    pub ranks: u32,
    /// Runs the scenario. Panics if the network violates the contract. Returns [`Applies::No`] if
    /// the network can't run the case.
    pub run: fn(&mut World<N>) -> Applies,
}

/// Whether a case applies to a network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Applies {
    /// The case applies.
    Yes,
    /// The case needs more than the network's limits or capabilities allow, for the given reason.
    No(String),
}

/// The result of a case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The network kept the contract.
    Passed,
    /// The network can't run the case, for the given reason.
    NotApplicable(String),
    /// The network is excused from the case, for the given reason.
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
    // Unwinding is safe, because the world is dropped after a panic without being used again.
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

/// Returns the names of exclusions that name no existing case.
pub fn unknown_exclusions(network: &Setup) -> Vec<&'static str> {
    let cases = cases::<AnyNi>();
    network
        .exclusions
        .iter()
        .map(|e| e.case)
        .filter(|name| cases.iter().all(|case| case.name != *name))
        .collect()
}
