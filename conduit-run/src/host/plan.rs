//! What to run on one host.

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::ops::Range;

use serde::{Deserialize, Serialize};

/// Where ranks may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Bind {
    /// Any processor that the launcher may use.
    #[default]
    None,
    /// Rank i on the i-th processor that the launcher may use, wrapping around when there are more
    /// ranks.
    Core,
    /// This many processors for each rank: rank 0 gets the first ones that the launcher may use,
    /// rank 1 the next ones, wrapping around at the end.
    Cores(NonZeroUsize),
    /// All processors of a socket that the launcher may use. The ranks of a host are divided among
    /// the sockets in blocks.
    Socket,
    /// All processors of a memory node that the launcher may use. The ranks of a host are divided
    /// among the nodes in blocks.
    Numa,
}

/// Which ranks read the launcher's standard input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Readers {
    None,
    Rank(usize),
    All,
}

impl Readers {
    /// Returns whether a rank reads the input.
    pub(crate) fn include(self, rank: usize) -> bool {
        match self {
            Readers::None => false,
            Readers::Rank(one) => rank == one,
            Readers::All => true,
        }
    }
}

/// The ranks of one host.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Plan {
    /// The ranks of this host.
    pub(crate) ranks: Range<usize>,
    /// The number of ranks of the job.
    pub(crate) size: usize,
    pub(crate) job_id: String,
    /// The placement of all ranks in the notation of `PMI_process_mapping`.
    pub(crate) mapping: String,
    pub(crate) program: OsString,
    pub(crate) arg0: Option<OsString>,
    pub(crate) args: Vec<OsString>,
    /// Variables to set in addition to those of the host's own process.
    pub(crate) env: Vec<(OsString, OsString)>,
    /// Variables of the host's own process that ranks do not get.
    pub(crate) unset: Vec<OsString>,
    pub(crate) readers: Readers,
    pub(crate) limits: Limits,
    pub(crate) bind: Bind,
    /// Whether to report the processors of each rank.
    pub(crate) report_bindings: bool,
    /// The program of the host's agent.
    pub(crate) agent: Option<OsString>,
    /// Whether this process may take over its descendants and its limits.
    pub(crate) own_process: bool,
}

/// What ranks of other hosts take over from the launcher's process; the default is what they
/// inherit.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Limits {
    pub(crate) umask: Option<u32>,
    /// The soft limits of resources, by their number; `None` is no limit.
    pub(crate) soft: Vec<(i32, Option<u64>)>,
}
