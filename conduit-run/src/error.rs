//! Why a job can't be started or kept.

use std::io;
use std::path::PathBuf;

/// An error of the launcher itself, as opposed to a job that failed ([`crate::Outcome`]).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A job of no ranks was asked for.
    #[error("a job has at least 1 rank")]
    NoRanks,
    /// The ranks need more file descriptors than this process may open.
    #[error(
        "{ranks} ranks need {needed} file descriptors, but only {limit} may be open (see ulimit -n)"
    )]
    TooManyRanks {
        /// Ranks asked for.
        ranks: usize,
        /// Descriptors needed.
        needed: u64,
        /// The soft limit of this process.
        limit: u64,
    },
    /// The environment for the ranks sets a variable that is the launcher's.
    #[error("the variable {name} is set by the launcher and can't be given")]
    ReservedVariable {
        /// The variable.
        name: String,
    },
    /// The program is not there.
    #[error("program {0:?} is not found")]
    ProgramNotFound(PathBuf),
    /// The program is there but can't be executed.
    #[error("program {program:?} can't be executed: {source}")]
    NotExecutable {
        /// The program.
        program: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A rank's process can't be created.
    #[error("rank {rank} can't be started: {source}")]
    Spawn {
        /// The rank.
        rank: usize,
        /// Why not.
        source: io::Error,
    },
    /// The node agent can't be started.
    #[error("the node agent {program:?} can't be started: {source}")]
    Agent {
        /// Its program.
        program: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The system refuses something that the launcher needs.
    #[error("{what}: {source}")]
    System {
        /// What was being done.
        what: &'static str,
        /// Why not.
        source: io::Error,
    },
}

impl Error {
    /// The exit code of the program for this error: 127 and 126 as shells have it, 2 for the rest.
    pub fn exit_code(&self) -> u8 {
        match self {
            Error::ProgramNotFound(_) => 127,
            Error::NotExecutable { .. } => 126,
            _ => 2,
        }
    }

    /// For `map_err`: wraps what the system said.
    pub(crate) fn system<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> Error {
        move |source| Error::System {
            what,
            source: source.into(),
        }
    }
}
