//! The dynamic credits of whole jobs under a model checker: every order of events of jobs that are small enough.
//!
//! A [`World`] is a job of two or three ranks with few credits and a fixed list of requests. Its state is what each rank's
//! [`Dynamic`](credits::Dynamic) holds (the code that ranks run, not a model of it), how far its lists of requests have
//! come, and the bag of messages under way. A [`Step`] is one of
//!
//! * a rank sends its next request of some list, or finds that it lacks credits for it;
//! * any message of the bag arrives: a request is handled and replied to, a reply settled, a revoke answered by a return,
//!   a return banked;
//! * a rank that wants to asks a peer for credits ([`next_system`](credits::FlowControl::next_system)).
//!
//! Messages arrive in any order, also between the same two ranks; any network's order is one of these. Replies without
//! news that arrive together as one number are replies that arrive one behind the other. A request to one rank that lacks
//! credits keeps no other list waiting, as with several threads.
//!
//! # What is shown
//!
//! Of **every** state that can be reached:
//!
//! | property | |
//! |---|---|
//! | [`LOANS`], [`BANK`] | credits are conserved |
//! | [`IN_FLIGHT`], [`BOUNDS`] | none negative, none below the minimum or above the most; those in flight are never given back |
//! | [`SPACE`] | requests that are not replied to use no more than all credits, for which the request buffers were planned |
//! | [`ASKED`] | one system message at a time between lender and borrower |
//! | [`REFUSED`] | no rank finds fault with another |
//! | [`DEMAND`] | without a stall there is no grant and no system message; each revoke has a request that asked for more behind it, and each such request a stall or, with loans that double, a grant since the one before |
//! | [`ENDS`], [`SENT`] | every request is finally sent and replied to |
//!
//! The last takes two properties, since a checker of states can't see what happens "finally". Every step makes a number
//! smaller that is never negative ([`ENDS`]; it is computed from what is unsent, under way and wanted), so there are no
//! endless runs, whoever is scheduled. And where no step is left all requests have been sent and answered ([`SENT`]). So every
//! run in which ranks keep polling ends with everything sent: no deadlock, no livelock. Left out are the tries that change
//! nothing: a request that is tried again and is short of as many credits as before, and a look for somebody to ask when
//! there is no need.
//!
//! What it does not show: anything about jobs that are larger, or longer than their few requests. (That these would behave
//! alike is likely, as loans of different lenders share nothing and a request needs only credits that its own
//! rank brings back; the properties of `credits/tests` look there at random.)
//!
//! States are told apart by a 64-bit hash, as [stateright] does: with ten million states, two of them share one with a
//! probability of about 3 in a million.
//!
//! [`Event`]s make sure that a world shows what it is for, and `tests/faults.rs` that a mistake is found.

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

/// A world as the checker sees it.
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
        // What comes after a broken rule is of no interest.
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

/// Looks at every state of a world, or as far as the first that should not be.
#[must_use]
pub fn check<F: Flow>(world: World) -> Report {
    run::<F>(world, HasDiscoveries::AnyFailures)
}

/// Looks at every state of a world, or as far as the first in which `property` isn't true, whatever else is not.
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
