//! Model checking of dynamic credits, which examines every order of events in small jobs.
//!
//! A [`World`] is a job of two or three ranks with few credits and a fixed list of requests. Its
//! state consists of the state of each rank's [`Dynamic`](credits::Dynamic) (the code that ranks
//! run, not a model of it), how far each list of requests has been sent, and the bag of messages in
//! transit. A [`Step`] is one of:
//!
//! * a rank sends the next request of one of its lists, or lacks the credits for that request;
//! * any message of the bag arrives: a request is handled and replied to, a reply is settled, a
//!   revoke is answered with a return, or a return is banked;
//! * a rank that needs credits asks a peer for some
//!   ([`next_system`](credits::FlowControl::next_system)).
//!
//! Messages arrive in any order, even between the same two ranks, so the order of every network is
//! covered. Coalesced replies, which arrive together as a number, are covered by replies that
//! arrive one after another. A request that lacks credits blocks only its own list, as if each list
//! had a thread of its own.
//!
//! # Proven properties
//!
//! For **every** reachable state:
//!
//! | property | |
//! |---|---|
//! | [`LOANS`], [`BANK`] | credits are conserved |
//! | [`IN_FLIGHT`], [`BOUNDS`] | no number of credits is negative, no loan is below the minimum or above the maximum, and credits in flight are never given back |
//! | [`SPACE`] | requests without a reply use no more credits than there are, and the request buffers were planned for that number |
//! | [`ASKED`] | at most one system message at a time is in transit between a lender and a borrower |
//! | [`REFUSED`] | no rank refuses a message from another rank |
//! | [`DEMAND`] | without a stall there is no grant and no system message; each revoke is caused by a request that asked for more, and each such request by a stall or, with loans that double, by a grant that arrived after the previous such request |
//! | [`ENDS`], [`SENT`] | every request is eventually sent and replied to |
//!
//! The last line takes two properties, because a checker of states cannot see what happens
//! "eventually". [`ENDS`] says that every step decreases a number that is never negative, which is
//! computed from the requests not yet sent, the messages in transit and the revokes still allowed.
//! Therefore no schedule leads to an endless run. [`SENT`] says that all requests have been sent
//! and answered in every state in which no step is possible. Together they show that every run in
//! which ranks keep polling ends with everything sent, without deadlock or livelock. Attempts that
//! change nothing are not steps: trying a request again that is short of as many credits as before,
//! and searching for a peer to ask when no credits are needed.
//!
//! The checker shows nothing about larger jobs or about longer lists of requests. (They would
//! likely behave alike, because loans of different lenders share nothing and a request needs only
//! credits that its own rank brings back. The property tests in `credits/tests` examine them at
//! random.)
//!
//! States are distinguished by a 64-bit hash, because [stateright] stores only hashes. Among ten
//! million states, the probability that two share a hash is about 3 in a million.
//!
//! The [`Event`]s of a world ensure that its runs cover what the world is meant to show, and
//! `tests/faults.rs` ensures that the checker finds mistakes.

mod properties;
mod state;
mod world;
mod worlds;

use std::marker::PhantomData;

pub use properties::{ASKED, BANK, BOUNDS, DEMAND, ENDS, IN_FLIGHT, LOANS, REFUSED, SENT, SPACE};
pub use sim::model::Report;
use sim::model::explore;
pub use state::{Broken, Content, Flow, Message, Progress, State, Step};
use stateright::{HasDiscoveries, Property};
pub use world::{Event, Requests, World};
pub use worlds::{large, small};

/// A world in the form that the checker needs.
#[derive(Clone, Debug)]
pub struct Model<F> {
    world: World,
    flow: PhantomData<fn() -> F>,
}

impl<F: Flow> stateright::Model for Model<F> {
    type State = State<F>;
    type Action = Step;

    fn init_states(&self) -> Vec<State<F>> {
        vec![State::start(&self.world)]
    }

    fn actions(&self, state: &State<F>, steps: &mut Vec<Step>) {
        // Steps after a violation are not examined.
        if state.broken.is_none() {
            steps.extend(state.steps(&self.world));
        }
    }

    fn next_state(&self, state: &State<F>, step: Step) -> Option<State<F>> {
        Some(state.after(&self.world, step))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut all = properties::always();
        all.extend(self.world.events.iter().map(|event| event.property()));
        all
    }
}

/// Checks every state of a world, and stops at the first violation of a property.
#[must_use]
pub fn check<F: Flow>(world: World) -> Report {
    run::<F>(world, HasDiscoveries::AnyFailures)
}

/// Checks every state of a world, and stops at the first one that violates `property`. Other
/// properties are ignored.
#[must_use]
pub fn find<F: Flow>(world: World, property: &'static str) -> Report {
    run::<F>(world, HasDiscoveries::AnyOf([property].into()))
}

fn run<F: Flow>(world: World, enough: HasDiscoveries) -> Report {
    let model = Model::<F> {
        world,
        flow: PhantomData,
    };
    explore(model, enough)
}
