//! The node agents' protocol under a model checker: two nodes, every order of events.
//!
//! A [`World`] is two nodes with a channel each, tiny limits, and a few requests of their
//! processes. Its state is the [`AgentMachine`](agent::AgentMachine) of each agent (the code that
//! agents run, not a model of it), what is in the channels, and what is under way. A [`Step`] is
//! one of
//!
//! * a process makes its next request, takes a message, or gives a request up;
//! * a fragment comes: on each of a link's two channels in order, with none between channels; a long one begins and
//!   ends, and its sender is told so at any time afterwards;
//! * an agent makes progress, with all that has come since it last did;
//! * a session begins; is lost, and each end hears so at a time of its own; an agent dies, and another one takes its place;
//! * the clock of a node goes on to when its agent has something to do.
//!
//! # What is shown
//!
//! Of **every** state that can be reached ([`RULES`]): messages come once and unchanged, those of a handle in order; no limit
//! is exceeded; no request is completed twice; no agent finds fault with the other one, and none is busy for ever. Where
//! no step is left but deaths, lost sessions and clocks, everything that can come does, processes take what is there, clocks go on, and
//! requests that still wait are given up: then every request has been completed, agents hold nothing, and what processes
//! were told is true.
//!
//! What it does not show: anything about more nodes, longer runs, or more ticks of the clock than a world has. States are told
//! apart by a 64-bit hash, as [stateright] does. Times are part of a state; names of free places in tables are not.
//!
//! [`Event`]s make sure that a world shows what it is for, and the tests that a mistake is found.

#![forbid(unsafe_code)]

mod node;
mod state;
mod wire;
mod world;
mod worlds;

use agent::Code;
pub use sim::model::Report;
use sim::model::explore;
use stateright::{HasDiscoveries, Property};

pub use node::{Bytes, Node};
pub use state::{Broken, State, Step};
pub use world::{Ask, Event, What, World};
pub use worlds::{large, small};

/// A mistake that agents make, for tests that look whether it is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fault {
    /// None.
    None,
    /// Each entry is said twice.
    SaysTwice,
    /// A request is completed twice.
    CompletesTwice,
    /// A message that was to go into the channel is thrown away.
    LosesMessages,
    /// A port is forgotten after each message.
    ForgetsPorts,
    /// The other agent is not told that its messages are held no more.
    KeepsBudget,
    /// Credits are not given back.
    KeepsCredits,
    /// Limits are passed.
    Exceeds,
    /// What belongs to a session is not given up when it ends.
    Deaf,
}

/// What is true of every state, by what would be broken.
pub const RULES: [(Broken, &str); 9] = [
    (Broken::Once, "messages come once, unchanged"),
    (Broken::Order, "messages of a handle come in order"),
    (Broken::Budget, "no limit is exceeded"),
    (Broken::Completed, "no request is completed twice"),
    (Broken::Refused, "no agent finds fault with the other"),
    (Broken::Endless, "no agent is busy for ever"),
    (Broken::Hangs, "every request is completed"),
    (Broken::Held, "nothing is held in the end"),
    (Broken::Untrue, "what processes are told is true"),
];

/// A world as the checker sees it.
#[derive(Debug, Clone)]
struct Model(World);

impl stateright::Model for Model {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        vec![State::start(&self.0)]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        // What comes after a broken rule is of no interest.
        if state.broken.is_none() {
            steps.extend(state.steps(&self.0));
        }
    }

    fn next_state(&self, state: &State, step: Step) -> Option<State> {
        Some(state.after(&self.0, step))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        /// A property has no room for what it is about.
        macro_rules! rules {
            ($($at:literal)*) => {
                vec![$(Property::always(RULES[$at].1, |_, state: &State| {
                    state.broken != Some(RULES[$at].0)
                })),*]
            };
        }
        let mut all = rules!(0 1 2 3 4 5 6 7 8);
        all.extend(self.0.events.iter().map(|event| event.property()));
        all
    }
}

impl Event {
    fn property(self) -> Property<Model> {
        fn held(state: &State, is_so: fn(&agent::Held) -> bool) -> bool {
            let mut machines = state.machines();
            machines.any(|machine| is_so(&machine.held()))
        }
        let (name, is_so): (_, fn(&Model, &State) -> bool) = match self {
            Self::AllDone => ("all requests end well", |_, state| state.is_done()),
            Self::Gone => ("a request ends with its session", |_, state| {
                state.has_failed(Code::FAILURE)
            }),
            Self::TimeOut => ("a request's time passes", |_, state| {
                state.has_failed(Code::TIMEOUT)
            }),
            Self::Destroyed => ("a request ends with its channel", |_, state| {
                state.has_failed(Code::OBJECT_DESTROYED)
            }),
            Self::Long => ("a long message comes", |_, state| {
                held(state, |held| held.ejection > 0)
            }),
            Self::Waits => ("an eager message waits", |_, state| {
                held(state, |held| held.eager > 0)
            }),
        };
        Property::sometimes(name, is_so)
    }
}

/// Looks at every state of a world, or as far as the first that should not be.
#[must_use]
pub fn check(world: World) -> Report {
    explore(Model(world), HasDiscoveries::AnyFailures)
}
