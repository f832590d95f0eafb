//! The messages between the launcher and its daemons.

use std::ops::Range;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::shell::Shell;
use crate::event::{Command, Report};
use crate::host::plan::Plan;
use crate::output::{Stream, Text};

/// The word with which a daemon's first line starts. Earlier output, such as that of a login
/// script, is skipped.
pub(crate) const MAGIC: &str = "CONDUIT-RUN-DAEMON";
/// The number of this protocol. Launcher and daemons also compare the versions of their crate.
pub(crate) const PROTOCOL: u32 = 1;
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A message to a daemon.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Down {
    /// The first message: the daemon's number, and the hosts below it.
    Welcome { host: u32, below: Below },
    /// Start the ranks.
    Start(Box<Start>),
    /// What all hosts have to do.
    Command(Command),
    /// Signal a rank.
    KillRank { rank: usize, signal: i32 },
    /// New pairs of all hosts; with the `last` ones the barrier is complete.
    Release {
        pairs: Vec<(String, String)>,
        last: bool,
    },
    /// The launcher has taken this number of bytes of output.
    Taken(usize),
    /// A stream of the launcher has no reader any more.
    NoReader(Stream),
    /// Standard input; its end if empty.
    Input(Vec<u8>),
    /// All ranks of the job have ended: end what they have left, and report [`Up::Done`].
    Finish,
}

/// A message from a daemon.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Up {
    /// The first message.
    Hello {
        processors: usize,
    },
    /// All ranks have been started.
    Ready,
    /// The ranks cannot be started.
    Failed {
        code: u8,
        what: String,
    },
    /// The daemon has lost daemons below it, of which it had started `named`.
    Lost {
        hosts: Range<usize>,
        named: usize,
        what: String,
    },
    Report(Report),
    Output(Text),
    /// The ranks have taken this number of bytes of the input.
    InputTaken(usize),
    /// No rank reads the input any more.
    InputClosed,
    /// Nothing is left of the job on this host, and all output has been sent.
    Done,
}

/// The daemons that a daemon has to start.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Below {
    /// The number of the first host.
    pub(crate) first: usize,
    pub(crate) names: Vec<String>,
    pub(crate) shell: Shell,
}

/// How to start the ranks of a host.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Start {
    pub(crate) plan: Plan,
    /// The working directory.
    pub(crate) folder: PathBuf,
    /// Whether output consists of whole lines only.
    pub(crate) hold_lines: bool,
}
