//! The command that repeats operations for a profiler.

use clap::{Args, ValueEnum};

use super::sections::Sections;
use super::{agent, datagrams, na, rank};

/// Options of `conduit-perf repeat`.
#[derive(Clone, Debug, Args)]
pub struct Repeat {
    /// The process that repeats the operations
    subject: Subject,
    /// Repetitions in each section
    #[arg(value_delimiter = ',')]
    counts: Vec<u64>,
    /// Operations, by name or the first words of it; all if none is named
    #[arg(long = "only", value_name = "LIST", value_delimiter = ',')]
    asked: Vec<String>,
}

/// A set of operations that one process repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Subject {
    /// The operations of one rank on itself.
    Rank,
    /// Messages between two classes of Mercury's network abstraction.
    Na,
    /// Messages through the agents of two nodes.
    Agent,
    /// Datagrams between two endpoints of the protocol over UDP.
    Datagrams,
}

impl Subject {
    /// Returns the name on the command line.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Rank => "rank",
            Self::Na => "na",
            Self::Agent => "agent",
            Self::Datagrams => "datagrams",
        }
    }
}

impl Repeat {
    /// Repeats the requested operations and prints their names.
    ///
    /// # Errors
    /// Fails if a requested name matches no operation, or if an operation fails.
    pub fn run(&self) -> anyhow::Result<bool> {
        let mut sections = Sections::new(&self.counts, &self.asked);
        match self.subject {
            Subject::Rank => rank::repeat(&mut sections)?,
            Subject::Na => na::repeat(&mut sections)?,
            Subject::Agent => agent::repeat(&mut sections)?,
            Subject::Datagrams => datagrams::repeat(&mut sections)?,
        }
        sections.finish()?;
        Ok(true)
    }
}
