//! A small job: its ranks, their traffic, and what happens to them.

use lanes::{LaneKind, Settings, Tracker};

/// Messages of one rank to another.
#[derive(Clone, Debug)]
pub struct Flow {
    /// The rank that sends them.
    pub from: u32,
    /// The rank that they are for.
    pub to: u32,
    /// How many fragments each has.
    pub fragments: Vec<u8>,
}

/// A mistake that ranks make, for tests that look whether it is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// None.
    None,
    /// A sender goes over to its lane without a word.
    NoAnnouncement,
    /// A sender leaves its lane while there is something in it.
    EarlyReturn,
    /// Every exchange has the same generation.
    SameGeneration,
    /// Nobody is told that it is denied a lane.
    SilentDenial,
    /// Ranks don't hear of deaths.
    Deaf,
    /// A message may change its way in the middle.
    TornMessage,
}

/// Something that has to happen in some run, or the world shows nothing about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A message goes by a lane.
    ByLane,
    /// A lane is recalled.
    Recall,
    /// An ask or offer is denied.
    Denial,
    /// Two ranks ask each other.
    CrossingAsks,
    /// Two ranks recall the same lane.
    CrossingRecalls,
    /// A sender has to wait until its lane is empty.
    Wait,
    /// A connection can't be made.
    Refusal,
}

/// A job to be checked.
#[derive(Clone, Debug)]
pub struct World {
    /// What it is about.
    pub name: &'static str,
    /// Number of ranks.
    pub ranks: u32,
    /// [`LaneKind::Both`], or [`LaneKind::Owner`] for ranks that own lanes to themselves and hold
    /// others'.
    pub kind: LaneKind,
    /// The knobs.
    pub settings: Settings,
    /// The traffic that each rank sees, in phases: rank, peer, samples.
    pub phases: Vec<Vec<(u32, u32, u32)>>,
    /// Changes of phase of each rank.
    pub shifts: u8,
    /// Rounds of each rank.
    pub rounds: u8,
    /// Ranks that may die.
    pub deaths: u8,
    /// Connections that may fail to come up.
    pub refusals: u8,
    /// All messages.
    pub flows: Vec<Flow>,
    /// A mistake that all ranks make.
    pub fault: Fault,
    /// What has to happen in some run.
    pub events: Vec<Event>,
}

impl World {
    /// What a rank's tracker says in a phase.
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
