//! A world: two nodes, their processes' requests, and the faults that may happen.

use agent::Limits;
use agent::host::{Limit, ReturnMode};

use crate::Fault;

/// The operation of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// Sends a message.
    Send {
        /// The handle; messages of one handle stay in order.
        handle: u8,
        /// The length in bytes.
        length: usize,
        /// When the send is complete.
        mode: ReturnMode,
    },
    /// Receives a message.
    Get,
    /// Waits until the channel has this many messages.
    Poll(u16),
}

/// A request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ask {
    /// The node of the process.
    pub from: usize,
    /// The node of the channel.
    pub to: usize,
    /// The operation.
    pub what: What,
    /// How long it is tried; a time counts from the request.
    pub limit: Limit,
}

impl Ask {
    /// Returns the identity of its ordered sequence.
    pub(crate) fn handle(&self) -> (usize, usize, Option<u8>) {
        let handle = match self.what {
            What::Send { handle, .. } => Some(handle),
            _ => None,
        };
        (self.from, self.to, handle)
    }
}

/// An event that has to happen in some run, or the world would not cover it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// All requests end successfully.
    AllDone,
    /// A request ends because the other agent is gone.
    Gone,
    /// A request ends because it timed out or was given up.
    TimeOut,
    /// A request ends because the channel was destroyed.
    Destroyed,
    /// A long message is in flight.
    Long,
    /// An eager message waits for its channel.
    Waits,
}

/// Two nodes to check.
#[derive(Debug, Clone)]
pub struct World {
    /// A description.
    pub name: &'static str,
    /// The agents' limits.
    pub limits: Limits,
    /// The channels' capacity in messages.
    pub capacity: usize,
    /// The requests; those of one node are made in this order.
    pub asks: Vec<Ask>,
    /// Messages that processes take from channels while other steps are left.
    pub takes: u8,
    /// Whether the first request may be given up.
    pub abandons: bool,
    /// The maximum number of deaths of agents.
    pub deaths: u8,
    /// The maximum number of lost sessions.
    pub cuts: u8,
    /// Whether the channel of node 1 may be destroyed.
    pub destroys: bool,
    /// The maximum number of clock ticks per node while other steps are left.
    pub ticks: u8,
    /// The mistake that agents make.
    pub fault: Fault,
    /// The events that have to happen in some run.
    pub events: Vec<Event>,
}

impl World {
    /// Returns the requests of a node with their numbers.
    pub(crate) fn of(&self, node: usize) -> impl Iterator<Item = (usize, &Ask)> {
        let all = self.asks.iter().enumerate();
        all.filter(move |(_, ask)| ask.from == node)
    }

    /// Returns the length of the longest message in bytes.
    pub(crate) fn longest(&self) -> u64 {
        let lengths = self.asks.iter().filter_map(|ask| match ask.what {
            What::Send { length, .. } => Some(length as u64),
            _ => None,
        });
        lengths.max().unwrap_or(0)
    }
}
