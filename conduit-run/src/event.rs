//! Events and commands between the part that runs ranks ([`crate::host`]) and the part that decides
//! when their job ends ([`crate::job`]).

use serde::{Deserialize, Serialize};

use crate::Status;

/// Something that a host reports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Report {
    /// An event for the job.
    Event(Event),
    /// The first of the host's ranks waits in PMI's barrier (on several hosts).
    Waiting { rank: usize },
    /// Pairs that the host's ranks have put since the last barrier (on several hosts).
    Pairs(Vec<(String, String)>),
    /// All of the host's ranks wait in PMI's barrier (on several hosts).
    Fence,
    /// The rank has called PMI's `finalize` (on several hosts).
    Finalized { rank: usize },
}

/// Something that happened on a host. All ranks are numbers in the job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Event {
    /// The rank's process runs.
    Started { rank: usize, pid: u32 },
    /// The processors on which the rank runs, if they are to be reported.
    Runs {
        rank: usize,
        is_bound: bool,
        processors: String,
    },
    /// The rank closed its connection between PMI's `init` and `finalize`; `replaced` if its
    /// process now runs another program.
    Closed { rank: usize, replaced: bool },
    /// The rank broke the PMI protocol.
    Broken { rank: usize, what: String },
    /// The rank ended the job through PMI's `abort`.
    Aborted {
        rank: usize,
        code: i32,
        message: Option<String>,
    },
    /// A rank waits in a barrier that can no longer complete.
    Stuck(Stuck),
    /// The processes of these ranks have ended, in an unknown order.
    Ended(Vec<End>),
    /// The answer to [`Command::Probe`].
    Stopped(Vec<usize>),
}

/// The end of a rank's process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct End {
    pub(crate) rank: usize,
    pub(crate) status: Status,
    /// Whether the rank was between PMI's `init` and `finalize`.
    pub(crate) active: bool,
    /// Whether the rank had called PMI's `init`.
    pub(crate) joined: bool,
    /// A barrier that can no longer complete because of this end.
    pub(crate) stuck: Option<Stuck>,
}

/// A barrier that cannot complete.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stuck {
    /// A rank that waits in the barrier.
    pub(crate) waiting: usize,
    /// The rank that cannot enter, if its process ended before it joined the job.
    pub(crate) never_joined: Option<usize>,
    /// A description.
    pub(crate) what: String,
}

impl Stuck {
    /// Returns the barrier that the error names; `None` for another error.
    pub(crate) fn from_error(error: &pmi::server::Error) -> Option<Self> {
        use pmi::server::{Departure, Error};
        let Error::BrokenBarrier { missing, how, .. } = *error else {
            return None;
        };
        Some(Stuck {
            waiting: error.rank(),
            never_joined: (how == Departure::NeverJoined).then_some(missing),
            what: error.to_string(),
        })
    }
}

/// Something that every host has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Command {
    /// Tell the ranks to end, except those that are about to exit by themselves: `spare`, and ranks
    /// that have closed their connection.
    End { spare: Option<usize> },
    /// Kill the ranks that have not ended.
    Kill,
    /// Send a signal to all ranks.
    Signal(i32),
    /// Report the ranks that a signal has stopped.
    Probe,
}
