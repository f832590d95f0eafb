//! The description of a small job to check: its ranks, their traffic, and the events that may
//! happen.

use lanes::{LaneKind, Settings, Tracker};

/// The messages that one rank sends to another.
#[derive(Clone, Debug)]
pub struct Flow {
    /// The sender.
    pub from: u32,
    /// The receiver.
    pub to: u32,
    /// The number of fragments of each message.
    pub fragments: Vec<u8>,
}

/// A deliberate error in the ranks, for tests that check whether the checker finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// No error.
    None,
    /// A sender switches to its lane without an announcement.
    NoAnnouncement,
    /// A sender leaves its lane before the lane is empty.
    EarlyReturn,
    /// Every exchange uses the same generation.
    SameGeneration,
    /// Denials are not sent.
    SilentDenial,
    /// Ranks do not learn of other ranks' deaths.
    Deaf,
    /// A message may change its path between fragments.
    TornMessage,
}

/// An event that must happen in at least one run, because otherwise the world would cover too
/// little.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A message uses a lane.
    ByLane,
    /// A lane is recalled.
    Recall,
    /// An ask or offer is denied.
    Denial,
    /// Two ranks ask each other at the same time.
    CrossingAsks,
    /// Two ranks recall the same lane at the same time.
    CrossingRecalls,
    /// A sender has to wait until its lane is empty.
    Wait,
    /// A connection fails.
    Refusal,
}

/// A job to check.
#[derive(Clone, Debug)]
pub struct World {
    /// The world's name.
    pub name: &'static str,
    /// The number of ranks.
    pub ranks: u32,
    /// The kind of the lanes: [`LaneKind::Both`], or [`LaneKind::Owner`] for ranks that own the
    /// lanes towards themselves and hold lanes of other ranks.
    pub kind: LaneKind,
    /// The settings of the lanes.
    pub settings: Settings,
    /// For each phase, the traffic that ranks see, as tuples of the rank, its peer and the number
    /// of samples.
    pub phases: Vec<Vec<(u32, u32, u32)>>,
    /// The number of times that each rank's traffic may change to that of the next phase.
    pub shifts: u8,
    /// The number of rounds that each rank may end.
    pub rounds: u8,
    /// The number of ranks that may die.
    pub deaths: u8,
    /// The number of connections that may fail.
    pub refusals: u8,
    /// All messages.
    pub flows: Vec<Flow>,
    /// The deliberate error of all ranks.
    pub fault: Fault,
    /// The events that must happen in some run.
    pub events: Vec<Event>,
}

impl World {
    /// Returns a rank's tracker in a phase.
    pub(crate) fn tracker(&self, phase: usize, rank: u32) -> Tracker {
        let mut tracker = Tracker::new(self.settings.decay);
        for &(of, peer, samples) in &self.phases[phase] {
            if of == rank {
                tracker.touch(peer, samples);
            }
        }
        tracker
    }
}
