//! Errors that keep the launcher from starting or managing a job.

use std::io;
use std::path::PathBuf;

use crate::hosts::{HostsError, PlaceError};
use crate::outcome::{code_of_signal, signal_text};
use crate::tree::shell::ShellError;

/// An error of the launcher itself, as opposed to a job that failed ([`crate::Outcome`]).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The job has no ranks.
    #[error("the job has 0 ranks; at least 1 is required")]
    NoRanks,
    /// The rank that is to read standard input does not exist.
    #[error("rank {rank} cannot read standard input (--stdin): the job has {ranks} ranks, from 0")]
    NoSuchReader {
        /// The rank.
        rank: usize,
        /// The number of ranks.
        ranks: usize,
    },
    /// The ranks need more file descriptors than this process may open.
    #[error(
        "{ranks} ranks need {needed} file descriptors, but the limit is {limit} (see ulimit -n)"
    )]
    TooManyRanks {
        /// The number of ranks requested.
        ranks: usize,
        /// The number of descriptors needed.
        needed: u64,
        /// The soft limit of this process.
        limit: u64,
    },
    /// The environment for the ranks sets a variable that is reserved for the launcher.
    #[error("the variable {name} is set by the launcher and cannot be overridden")]
    ReservedVariable {
        /// The variable.
        name: String,
    },
    /// The program does not exist.
    #[error("program {0:?} is not found")]
    ProgramNotFound(PathBuf),
    /// The program exists but cannot be executed.
    #[error("program {program:?} cannot be executed: {source}")]
    NotExecutable {
        /// The program.
        program: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The process of a rank cannot be created.
    #[error("rank {rank} cannot be started: {source}")]
    Spawn {
        /// The rank.
        rank: usize,
        /// The cause.
        source: io::Error,
    },
    /// The node agent cannot be started.
    #[error("the node agent {program:?} cannot be started: {source}")]
    Agent {
        /// The agent's program.
        program: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The working directory cannot be entered.
    #[error("working directory {folder:?} cannot be entered: {source}")]
    Folder {
        /// The directory.
        folder: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// No hosts are named, and this process runs in no job of a batch system.
    #[error("no hosts are named, and there is no batch system that names some")]
    NoHosts,
    /// A list of hosts is wrong.
    #[error(transparent)]
    Hosts(#[from] HostsError),
    /// A list of hosts cannot be read.
    #[error("host file {path:?} cannot be read: {source}")]
    HostFile {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The ranks do not fit on the hosts.
    #[error(transparent)]
    Placement(#[from] PlaceError),
    /// The remote shell cannot be used.
    #[error(transparent)]
    Shell(#[from] ShellError),
    /// A host cannot be used for the job.
    #[error("host {host}: {what}")]
    Host {
        /// The host.
        host: String,
        /// The program's exit code.
        code: u8,
        /// The problem.
        what: String,
    },
    /// A signal ended the launcher before the job had started.
    #[error("received {} before the job had started", signal_text(*.0))]
    Interrupted(i32),
    /// A system call that the launcher needs has failed.
    #[error("{what}: {source}")]
    System {
        /// The operation that failed.
        what: &'static str,
        /// The cause.
        source: io::Error,
    },
}

impl Error {
    /// Returns the program's exit code for this error: 127 and 126 as in shells, also on other
    /// hosts, 128 + signal for a signal, 2 for all others.
    pub fn exit_code(&self) -> u8 {
        match self {
            Error::ProgramNotFound(_) => 127,
            Error::NotExecutable { .. } => 126,
            Error::Host { code, .. } => *code,
            Error::Interrupted(signal) => code_of_signal(*signal),
            _ => 2,
        }
    }

    /// Returns a function for `map_err` that wraps the system's error.
    pub(crate) fn system<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> Error {
        move |source| Error::System {
            what,
            source: source.into(),
        }
    }
}
