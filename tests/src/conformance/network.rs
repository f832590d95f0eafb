//! What a network gives to be tested, what a case is, and the runner.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use conduit_core::ni::Ni;

use super::{World, cases};
use crate::any::AnyNi;
use crate::chaos::{Chaos, Disorder};
use crate::sample::draws;

/// How long a world polls before it says that something doesn't come.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// Rounds in which every rank is polled once. A case fails when what it waits for has not come after so many.
    pub rounds: u32,
    /// Rounds after which nothing more is expected; used by "does not happen" statements.
    pub settle: u32,
    /// How long a round without events sleeps in [`Ni::wait`]: for networks whose progress needs time to pass.
    pub pause: Option<Duration>,
}

impl Patience {
    /// For a world of one seat, whose peers are other processes: a round without events lets them run. Who starts the job
    /// limits its time.
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
    /// Which limit of the network makes it impossible.
    pub reason: &'static str,
}

/// On a variant one case of so many is drawn.
const PARTS: u64 = 4;

/// A network by its name and how a job of it is started.
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
    /// A network whose jobs of so many ranks `start` makes, with the usual patience.
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

    /// For a network over sockets: time has to pass, for acknowledgements, and for packets that are sent again.
    #[must_use]
    pub fn patient(self) -> Self {
        let patience = Patience {
            rounds: 10_000_000,
            settle: 1000,
            pause: None,
        };
        Self { patience, ..self }
    }

    /// Excused from these cases.
    #[must_use]
    pub fn excused(self, exclusions: &'static [Exclusion]) -> Self {
        Self { exclusions, ..self }
    }

    /// A variant, of whose cases a [sample](crate::sample) is enough.
    #[must_use]
    pub fn sampled(self) -> Self {
        Self {
            sampled: true,
            ..self
        }
    }

    /// Whether a case is run on it.
    pub(super) fn draws(&self, case: &str) -> bool {
        !self.sampled || draws((&self.name, case), PARTS)
    }

    /// The same network under chaos.
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

    /// Its name in reports, with the settings that differ from others.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// One statement of the contract and the scenario that shows it.
pub struct Case<N: Ni> {
    /// `theme/behaviour`; the theme is the file.
    pub name: &'static str,
    /// The sentence of the contract.
    pub states: &'static str,
    /// Ranks that it needs.
    pub ranks: u32,
    /// The scenario. Panics where the contract is broken; answers [`Applies::No`] where it can't be tried.
    pub run: fn(&mut World<N>) -> Applies,
}

/// Whether a case could be tried on a network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Applies {
    /// It was.
    Yes,
    /// Not within the network's limits or capabilities.
    No(String),
}

/// How a case ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The contract was kept.
    Passed,
    /// The network doesn't offer what the case is about.
    NotApplicable(String),
    /// The network is excused.
    Excluded(&'static str),
    /// The contract was broken, or the network did not start.
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
    // The world is dropped right after a panic and nothing of it is looked at again.
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

/// Exclusions that name no case.
pub fn unknown_exclusions(network: &Setup) -> Vec<&'static str> {
    let cases = cases::<AnyNi>();
    network
        .exclusions
        .iter()
        .map(|e| e.case)
        .filter(|name| cases.iter().all(|case| case.name != *name))
        .collect()
}
