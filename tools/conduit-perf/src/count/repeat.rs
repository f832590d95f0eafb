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

/// Operations that one process repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Subject {
    /// A job of one rank, on itself.
    Rank,
    /// Two classes of Mercury's network abstraction.
    Na,
    /// The agents of two nodes.
    Agent,
    /// Two endpoints of the protocol over UDP.
    Datagrams,
}

impl Subject {
    /// The name on the command line.
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
    /// Repeats the operations and prints their names.
    ///
    /// # Errors
    /// A requested name is not that of an operation, or an operation fails.
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
