//! Violations of the protocol by ranks.

use crate::wire;

/// A rank broke the protocol, or ranks cannot continue.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The rank that the caller passed is not in `0..size`.
    #[error("there is no rank {rank} in a job of {size}")]
    NoSuchRank {
        /// The rank given.
        rank: usize,
        /// The number of ranks in the job.
        size: usize,
    },
    /// The line cannot be parsed.
    #[error("rank {rank}: {source}")]
    Line {
        /// The rank that sent it.
        rank: usize,
        /// The violation.
        source: wire::Error,
    },
    /// The server does not know the command.
    #[error("rank {rank} sent the unknown PMI command {command}")]
    UnknownCommand {
        /// The rank that sent it.
        rank: usize,
        /// The command, quoted and truncated.
        command: String,
    },
    /// The rank sent a known command at the wrong time.
    #[error("rank {rank} sent the PMI command {command:?} {when}")]
    OutOfOrder {
        /// The rank that sent it.
        rank: usize,
        /// The command.
        command: &'static str,
        /// Why the time is wrong.
        when: &'static str,
    },
    /// The pairs of all hosts together exceed the limit.
    #[error(
        "the ranks of all hosts have put more than {limit} bytes into the PMI key-value space; \
         rank {rank} is the first rank of the host that exceeded this"
    )]
    Full {
        /// The first rank of the host whose pairs exceeded the limit.
        rank: usize,
        /// The limit.
        limit: usize,
    },
    /// A rank waits in a barrier that can no longer complete.
    #[error("rank {waiting} waits in a PMI barrier that rank {missing} cannot enter: it has {how}")]
    BrokenBarrier {
        /// A rank in the barrier.
        waiting: usize,
        /// The rank that can no longer enter.
        missing: usize,
        /// How the missing rank left the job.
        how: Departure,
    },
}

/// How a rank left the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Departure {
    /// The rank has sent `finalize`.
    Finalized,
    /// The rank's process ended between `init` and `finalize`.
    Ended,
    /// The rank's process ended without `init`.
    NeverJoined,
}

impl std::fmt::Display for Departure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Departure::Finalized => "finalized",
            Departure::Ended => "ended",
            Departure::NeverJoined => "ended before it joined the job",
        })
    }
}

impl Error {
    /// Returns the rank that the error names first.
    pub fn rank(&self) -> usize {
        match self {
            Error::NoSuchRank { rank, .. }
            | Error::Line { rank, .. }
            | Error::UnknownCommand { rank, .. }
            | Error::OutOfOrder { rank, .. }
            | Error::Full { rank, .. }
            | Error::BrokenBarrier { waiting: rank, .. } => *rank,
        }
    }
}
