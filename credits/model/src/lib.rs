//! Model checking of dynamic credits: every order of events in jobs that are small enough.
//!
//! A [`World`] is a job of two or three ranks with few credits and a fixed list of requests. Its
//! state consists of the state of each rank's [`Dynamic`](credits::Dynamic) (the code that ranks
//! run, not a model of it), the progress of its lists of requests, and the bag of messages in
//! transit. A [`Step`] is one of:
//!
//! * a rank sends its next request of some list, or finds that it lacks credits for it;
//! * any message of the bag arrives: a request is handled and replied to, a reply settled, a revoke
//!   answered by a return, a return banked;
//! * a rank that needs credits asks a peer for some
//!   ([`next_system`](credits::FlowControl::next_system)).
//!
//! Messages arrive in any order, even between the same two ranks, so every network's order is
//! covered. Coalesced replies, which arrive together as a number, are covered as replies that
//! arrive one after another. A request to one rank that lacks credits does not block other lists,
//! as with several threads.
//!
//! # Proven properties
//!
//! For **every** reachable state:
//!
//! | property | |
//! |---|---|
//! | [`LOANS`], [`BANK`] | credits are conserved |
//! | [`IN_FLIGHT`], [`BOUNDS`] | none negative, none below the minimum or above the maximum; those in flight are never given back |
//! | [`SPACE`] | requests without a reply use at most all credits, for which the request buffers were planned |
//! | [`ASKED`] | one system message at a time between lender and borrower |
//! | [`REFUSED`] | no rank refuses a message of another |
//! | [`DEMAND`] | without a stall there is no grant and no system message; each revoke is caused by a request that asked for more, and each such request by a stall or, with loans that double, by a grant since the one before |
//! | [`ENDS`], [`SENT`] | every request is finally sent and replied to |
//!
//! The last line takes two properties, because a checker of states cannot see what happens
//! "finally". Every step decreases a number that is never negative ([`ENDS`]; it is computed from
//! what is unsent, in transit and wanted), so there are no endless runs, for any schedule. Where no
//! step is left, all requests have been sent and answered ([`SENT`]). Therefore every run in which
//! ranks keep polling ends with everything sent: no deadlock, no livelock. Attempts that change
//! nothing are left out: a request that is tried again and is short of as many credits as before,
//! and a search for a peer to ask when there is no need.
//!
//! The checker shows nothing about larger jobs, or about more than the few requests. (Those would
//! likely behave alike, because loans of different lenders share nothing and a request needs only
//! credits that its own rank brings back; the properties in `credits/tests` examine them at
//! random.)
//!
//! States are distinguished by a 64-bit hash, as in [stateright]: among ten million states, the
//! probability that two share a hash is about 3 in a million.
//!
//! [`Event`]s make sure that a world covers what it is meant to show, and `tests/faults.rs` that
//! mistakes are found.

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

/// Checks every state of a world, up to the first violation of a property.
#[must_use]
pub fn check<F: Flow>(world: World) -> Report {
    run::<F>(world, HasDiscoveries::AnyFailures)
}

/// Checks every state of a world, up to the first in which `property` is violated, ignoring other
/// properties.
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
