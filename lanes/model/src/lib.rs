//! Lanes of small jobs under a model checker: every order of events.
//!
//! A [`World`] is a job of two or three ranks with few lanes, the traffic that each rank sees, and
//! a fixed list of messages. Its state is the [`Lanes`](lanes::Lanes) and
//! [`Outlet`](lanes::Outlet)s of each rank (the code that ranks run, not a model of it), what
//! is in base paths and lanes, and the bag of messages about lanes under way. A [`Step`] is one of
//!
//! * a rank's round is over; its traffic changes;
//! * the next fragment is sent; the next one is taken from a base path, or from a lane that is
//!   looked at;
//! * a sender's lane is empty, and it reports so; a message about lanes arrives, in any order also
//!   between the same two ranks;
//! * a rank dies; another one hears of it.
//!
//! # What is shown
//!
//! Of **every** state that can be reached ([`RULES`]): fragments come once and in order, those of a
//! message by the same way; whoever uses a lane has it from the other end, in the same exchange, so
//! no more are promised than there are and their budget is kept; no rank finds fault with another.
//! Where no step is left but rounds, changes of traffic and deaths: all has come; every ask, offer
//! and recall was answered, or its peer is dead; both ends of each lane agree. And where those are
//! used up too, rounds go on with the traffic as it is: the lanes come to rest.
//!
//! What it does not show: anything about more ranks, or longer runs. States are told apart by a
//! 64-bit hash, as [stateright] does.
//!
//! [`Event`]s make sure that a world shows what it is for, and the tests that a mistake is found.

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

/// What is true of every state, by what would be broken.
pub const RULES: [(Broken, &str); 8] = [
    (Broken::Order, "fragments come once and in order"),
    (Broken::Torn, "fragments of a message go the same way"),
    (Broken::Promised, "lanes that are used were given"),
    (Broken::Refused, "no rank finds fault with another"),
    (Broken::Lost, "all fragments come"),
    (
        Broken::Unanswered,
        "every ask, offer and recall is answered",
    ),
    (Broken::Disagree, "at rest both ends agree"),
    (Broken::Endless, "moves end where traffic stays as it is"),
];

/// A world as the checker sees it.
#[derive(Clone, Debug)]
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
        let mut all = rules!(0 1 2 3 4 5 6 7);
        all.extend(self.0.events.iter().map(|event| event.property()));
        all
    }
}

impl Event {
    fn property(self) -> Property<Model> {
        let (name, is_so): (_, fn(&Model, &State) -> bool) = match self {
            Self::ByLane => ("a message goes by a lane", |_, state| {
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

/// Looks at every state of a world, or as far as the first that should not be.
#[must_use]
pub fn check(world: World) -> Report {
    explore(Model(world), HasDiscoveries::AnyFailures)
}
