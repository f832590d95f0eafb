//! Model checking of lanes, which tries every order of events in small jobs.
//!
//! A [`World`] is a job of two or three ranks with few lanes, the traffic that each rank sees, and
//! a fixed list of messages. Its state comprises the [`Lanes`](lanes::Lanes) and
//! [`Outlet`](lanes::Outlet)s of each rank (the code that ranks run, not a model of it), the
//! contents of base paths and lanes, and the bag of lane messages in flight. A [`Step`] is one of
//!
//! * a rank ends a round, or its traffic changes;
//! * a sender sends its next fragment; a receiver takes the next fragment from a base path, or from
//!   a lane that it polls;
//! * a sender reports that its lane is empty; a lane message arrives, in any order even between the
//!   same two ranks;
//! * a rank dies; another rank learns of the death.
//!
//! # Guarantees
//!
//! In **every** reachable state, the [`RULES`] hold: fragments arrive once and in order, and those
//! of one message take the same path; each lane in use has been granted by its other end in the
//! same exchange, so neither the number of lanes nor their budget is ever exceeded; and no rank
//! reports a protocol violation. In states in which only rounds, changes of traffic and deaths are
//! possible, all fragments have arrived, every ask, offer and recall has been answered unless the
//! peer is dead, and the two ends of each lane agree about it. Once these steps are used up as
//! well, lanes stop moving after some more rounds with constant traffic.
//!
//! The checks prove nothing about more ranks or longer runs. States are distinguished by a 64-bit
//! hash, as in [stateright].
//!
//! The [`Event`]s of a world ensure that its runs cover what they are meant to cover, and tests
//! with a [`Fault`] ensure that the checker finds errors.

#![forbid(unsafe_code)]

mod state;
mod world;
mod worlds;

use lanes::Message;
pub use sim::model::Report;
use sim::model::explore;
use stateright::{HasDiscoveries, Property};

pub use state::{Broken, Control, State, Step};
pub use world::{Event, Fault, Flow, World};
pub use worlds::{large, small};

/// The rules that must hold in every state. Each comes with the violation that it excludes.
pub const RULES: [(Broken, &str); 8] = [
    (Broken::Order, "fragments arrive once and in order"),
    (Broken::Torn, "fragments of a message take the same path"),
    (Broken::Promised, "lanes in use were granted"),
    (Broken::Refused, "no rank reports a protocol violation"),
    (Broken::Lost, "all fragments arrive"),
    (
        Broken::Unanswered,
        "every ask, offer and recall is answered",
    ),
    (Broken::Disagree, "at rest both ends agree"),
    (
        Broken::Endless,
        "lanes stop moving when traffic is constant",
    ),
];

/// A world in the form that the checker requires.
#[derive(Clone, Debug)]
struct Model(World);

impl stateright::Model for Model {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        vec![State::start(&self.0)]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        // Steps after a violation are not examined.
        if state.broken.is_none() {
            steps.extend(state.steps(&self.0));
        }
    }

    fn next_state(&self, state: &State, step: Step) -> Option<State> {
        Some(state.after(&self.0, step))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        /// A property cannot capture variables, so each index is passed as a literal.
        macro_rules! rules {
            ($($at:literal)*) => {
                vec![$(Property::always(RULES[$at].1, |_, state: &State| {
                    state.broken != Some(RULES[$at].0)
                })),*]
            };
        }
        let mut all = rules!(0 1 2 3 4 5 6 7);
        all.extend(self.0.events.iter().map(|event| event.property()));
        all
    }
}

impl Event {
    fn property(self) -> Property<Model> {
        let (name, is_so): (_, fn(&Model, &State) -> bool) = match self {
            Self::ByLane => ("a message travels by lane", |_, state| {
                state.happened.by_lane
            }),
            Self::Recall => ("a lane is recalled", |_, state| {
                state.has(|message| matches!(message, Message::Recall { .. }))
            }),
            Self::Denial => ("a lane is denied", |_, state| {
                state.has(|message| matches!(message, Message::Denied { .. }))
            }),
            Self::CrossingAsks => ("asks cross", |_, state| state.happened.crossed_asks),
            Self::CrossingRecalls => ("recalls cross", |_, state| state.happened.crossed_recalls),
            Self::Wait => ("a sender waits", |_, state| state.happened.waits),
            Self::Refusal => ("a connection fails", |_, state| state.happened.refused),
        };
        Property::sometimes(name, is_so)
    }
}

/// Explores every state of a world, but stops at the first violation.
#[must_use]
pub fn check(world: World) -> Report {
    explore(Model(world), HasDiscoveries::AnyFailures)
}
