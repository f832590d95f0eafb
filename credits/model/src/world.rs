//! A small job: its ranks, credits and requests.

use credits::Tuning;
use stateright::Property;

use crate::{Flow, Model, properties};

/// The requests of one rank to another, one after another.
#[derive(Clone, Debug)]
pub struct Requests {
    /// The rank that sends them.
    pub from: u32,
    /// The rank that receives them.
    pub to: u32,
    /// The cost of each in credits, at most the world's minimum.
    pub costs: Vec<u8>,
}

/// An event that must happen in some run, or the world shows nothing about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A request stalls.
    Stall,
    /// A reply brings extra credits.
    Grant,
    /// A rank gives credits back.
    Return,
    /// A rank that was asked has nothing to give back.
    NothingToReturn,
    /// A rank ends an epoch.
    Epoch,
    /// A grant and a revoke to the same rank are in transit at once.
    Crossing,
    /// A loan has more than doubled with each stall.
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
    /// The scenario.
    pub name: &'static str,
    /// Number of ranks.
    pub ranks: u32,
    /// Credits that each rank has lent to each rank at the start, itself included.
    pub loan: u16,
    /// Credits in the bank of each rank at the start.
    pub banked: u32,
    /// The parameters of the dynamic algorithm.
    pub tuning: Tuning,
    /// All requests.
    pub requests: Vec<Requests>,
    /// The events that must happen in some run.
    pub events: Vec<Event>,
}

impl World {
    /// Returns the credits of a rank, lent and banked.
    #[must_use]
    pub fn total(&self) -> u32 {
        u32::from(self.loan) * self.ranks + self.banked
    }
}
