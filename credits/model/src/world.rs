//! The description of a small job to check: its ranks, credits and requests.

use credits::Tuning;
use stateright::Property;

use crate::{Flow, Model, properties};

/// The requests that one rank sends to another, one after another.
#[derive(Clone, Debug)]
pub struct Requests {
    /// The rank that sends the requests.
    pub from: u32,
    /// The rank that receives the requests.
    pub to: u32,
    /// The cost of each request in credits, which must be at most the minimum of the world's
    /// tuning.
    pub costs: Vec<u8>,
}

/// An event that must happen in at least one run, because otherwise checking the world would show
/// nothing about that event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A request stalls.
    Stall,
    /// A reply brings extra credits.
    Grant,
    /// A rank gives credits back to their lender.
    Return,
    /// A rank that was asked has nothing to give back.
    NothingToReturn,
    /// A rank ends an epoch.
    Epoch,
    /// A grant and a revoke to the same rank are in transit at once.
    Crossing,
    /// A loan has grown by more than one doubling per stall.
    GoesOn,
}

impl Event {
    pub(crate) fn property<F: Flow>(self) -> Property<Model<F>> {
        match self {
            Event::Stall => Property::sometimes("a request stalls", properties::stall),
            Event::Grant => Property::sometimes("credits are granted", properties::grant),
            Event::Return => Property::sometimes("credits are given back", properties::returned),
            Event::NothingToReturn => {
                Property::sometimes("nothing is to spare", properties::nothing)
            }
            Event::Epoch => Property::sometimes("an epoch ends", properties::epoch),
            Event::Crossing => {
                Property::sometimes("a grant and a revoke cross", properties::crossing)
            }
            Event::GoesOn => {
                Property::sometimes("a loan grows on without a stall", properties::goes_on)
            }
        }
    }
}

/// A job to be checked.
#[derive(Clone, Debug)]
pub struct World {
    /// The name of the world, which describes the scenario.
    pub name: &'static str,
    /// The number of ranks.
    pub ranks: u32,
    /// The number of credits that each rank has lent to each rank, itself included, at the start.
    pub loan: u16,
    /// The number of credits in the bank of each rank at the start.
    pub banked: u32,
    /// The parameters of the dynamic algorithm.
    pub tuning: Tuning,
    /// All requests.
    pub requests: Vec<Requests>,
    /// The events that must happen in some run.
    pub events: Vec<Event>,
}

impl World {
    /// Returns the total number of credits that a rank has lent and banked.
    #[must_use]
    pub fn total(&self) -> u32 {
        u32::from(self.loan) * self.ranks + self.banked
    }
}
