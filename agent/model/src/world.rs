//! Two nodes, what their processes ask for, and what may go wrong.

use agent::Limits;
use agent::host::{Limit, ReturnMode};

use crate::Fault;

/// What a process asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// Send a message of so many bytes.
    Send {
        /// Messages of one handle stay in order.
        handle: u8,
        /// Bytes.
        length: usize,
        /// When it is complete.
        mode: ReturnMode,
    },
    /// Receive a message.
    Get,
    /// Wait until so many messages are there.
    Poll(u16),
}

/// A request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ask {
    /// The node of the process.
    pub from: usize,
    /// The node of the channel.
    pub to: usize,
    /// What it is.
    pub what: What,
    /// How long it is tried; a time is from then on.
    pub limit: Limit,
}

impl Ask {
    /// What is ordered.
    pub(crate) fn handle(&self) -> (usize, usize, Option<u8>) {
        let handle = match self.what {
            What::Send { handle, .. } => Some(handle),
            _ => None,
        };
        (self.from, self.to, handle)
    }
}

/// Something that has to happen in some run, or the world shows nothing about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// All requests end well.
    AllDone,
    /// A request ends because the other agent is gone.
    Gone,
    /// One ends because its time has passed, or it was given up.
    TimeOut,
    /// One ends because the channel was destroyed.
    Destroyed,
    /// A long message is on its way.
    Long,
    /// An eager message waits for its channel.
    Waits,
}

/// Nodes to be checked.
#[derive(Debug, Clone)]
pub struct World {
    /// What it is about.
    pub name: &'static str,
    /// The agents' limits.
    pub limits: Limits,
    /// Messages for which a channel has room.
    pub capacity: usize,
    /// The requests; those of one node are made in this order.
    pub asks: Vec<Ask>,
    /// Messages that processes take from channels while there is more to do.
    pub takes: u8,
    /// Whether the first request may be given up.
    pub abandons: bool,
    /// Agents that die, at most.
    pub deaths: u8,
    /// Sessions that are lost, at most.
    pub cuts: u8,
    /// Whether the channel of node 1 may be destroyed.
    pub destroys: bool,
    /// Times that each node's clock goes on to when something is due, while there is more to do.
    pub ticks: u8,
    /// What agents do wrong.
    pub fault: Fault,
    /// What has to happen in some run.
    pub events: Vec<Event>,
}

impl World {
    /// The requests of a node, with their numbers.
    pub(crate) fn of(&self, node: usize) -> impl Iterator<Item = (usize, &Ask)> {
        let all = self.asks.iter().enumerate();
        all.filter(move |(_, ask)| ask.from == node)
    }

    /// Bytes of the longest message.
    pub(crate) fn longest(&self) -> u64 {
        let lengths = self.asks.iter().filter_map(|ask| match ask.what {
            What::Send { length, .. } => Some(length as u64),
            _ => None,
        });
        lengths.max().unwrap_or(0)
    }
}
