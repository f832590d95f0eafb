//! The node agents' protocol under a model checker: two nodes, every order of events.
//!
//! A [`World`] has two nodes with a channel each, tiny limits, and a few requests of their
//! processes. Its state consists of the [`AgentMachine`](agent::AgentMachine) of each agent (the
//! code that agents run, not a model of it), the content of the channels, and the fragments in
//! flight. A [`Step`] is one of these:
//!
//! * a process makes its next request, takes a message, or gives a request up;
//! * a fragment arrives: in order on each of a link's two channels, in any order between them; a
//!   long fragment begins and ends, and its sender learns of that at any later time;
//! * an agent makes progress with everything that has arrived since its last step;
//! * a session begins, or is lost, which each end notices at a different time; an agent dies, and
//!   another takes its place;
//! * the clock of a node advances to the time at which its agent has work.
//!
//! # What is shown
//!
//! For **every** reachable state ([`RULES`]): messages arrive once and unchanged, and in order
//! within a handle; no limit is exceeded; no request is completed twice; no agent sees the other
//! violate the protocol; no agent is busy forever. In states in which only deaths, lost sessions
//! and clocks are left, all fragments are delivered, processes take all messages, clocks advance,
//! and waiting requests are given up: then every request has been completed, agents hold nothing,
//! and the reported results are true.
//!
//! Nothing is shown for more nodes, longer runs, or more clock ticks than a world has. States are
//! distinguished by a 64-bit hash, as in [stateright]. Times are part of a state; the order of free
//! slots in tables is not.
//!
//! [`Event`]s ensure that a world covers what it is made for, and the tests ensure that mistakes
//! are found.

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

/// A mistake that agents make, to test that the checker finds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fault {
    /// No mistake.
    None,
    /// Each entry is sent twice.
    SaysTwice,
    /// A request is completed twice.
    CompletesTwice,
    /// A message for the channel is discarded.
    LosesMessages,
    /// A port is forgotten after each message.
    ForgetsPorts,
    /// The other agent is not told that its messages were consumed.
    KeepsBudget,
    /// Credits are not returned.
    KeepsCredits,
    /// Limits are exceeded.
    Exceeds,
    /// Operations are not ended with their session.
    Deaf,
}

/// The rules that hold in every state.
pub const RULES: [(Broken, &str); 9] = [
    (Broken::Once, "messages arrive once, unchanged"),
    (Broken::Order, "messages of a handle arrive in order"),
    (Broken::Budget, "no limit is exceeded"),
    (Broken::Completed, "no request is completed twice"),
    (
        Broken::Refused,
        "no agent sees the other violate the protocol",
    ),
    (Broken::Endless, "no agent is busy forever"),
    (Broken::Hangs, "every request is completed"),
    (Broken::Held, "nothing is held in the end"),
    (Broken::Untrue, "reported results are true"),
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
        // States after a broken rule are irrelevant.
        if state.broken.is_none() {
            steps.extend(state.steps(&self.0));
        }
    }

    fn next_state(&self, state: &State, step: Step) -> Option<State> {
        Some(state.after(&self.0, step))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        /// A property is a function pointer, so it cannot capture its rule.
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
            Self::TimeOut => ("a request times out", |_, state| {
                state.has_failed(Code::TIMEOUT)
            }),
            Self::Destroyed => ("a request ends with its channel", |_, state| {
                state.has_failed(Code::OBJECT_DESTROYED)
            }),
            Self::Long => ("a long message arrives", |_, state| {
                held(state, |held| held.ejection > 0)
            }),
            Self::Waits => ("an eager message waits", |_, state| {
                held(state, |held| held.eager > 0)
            }),
        };
        Property::sometimes(name, is_so)
    }
}

/// Checks all states of a world, up to the first that breaks a rule.
#[must_use]
pub fn check(world: World) -> Report {
    explore(Model(world), HasDiscoveries::AnyFailures)
}
