//! The launcher of Conduit jobs: starts ranks on one host or several, serves them PMI-1 and manages
//! their processes.
//!
//! The program is `conduit-run -n N [options] program args…`. It only calls [`cli::main`], so
//! another package can build its own launcher in three lines. Tests and tools use [`Launch`], which
//! starts a job from within a process:
//!
//! ```
//! use conduit_run::{How, Launch};
//! # fn main() -> Result<(), conduit_run::Error> {
//! let outcome = Launch::new(4, "sh").args(["-c", "exit $((PMI_RANK == 2 ? 7 : 0))"]).quiet(true).run()?;
//! assert_eq!((outcome.exit_code, outcome.failed_rank), (7, Some(2)));
//! assert!(matches!(outcome.how, How::Exited { rank: 2, code: 7, .. }));
//! # Ok(())
//! # }
//! ```
//!
//! On several hosts (`conduit-run --hosts`), a remote shell starts the same program as a daemon on
//! each. The daemons run the ranks, and the launcher decides; [`Launch`] itself starts jobs on this
//! host.
//!
//! # The environment of a rank
//! A rank finds these variables:
//! - `PMI_FD`, `PMI_RANK` and `PMI_SIZE`: the variables of PMI-1. `PMI_FD` is the number of a
//!   descriptor of a socket pair (see [below](#access-to-the-pmi-descriptor));
//! - `CONDUIT_LAUNCHER=1`: tells ranks that the launcher reports dead ranks, so that they need not;
//! - `CONDUIT_JOB_ID`: a word that is unique to the job;
//! - `FI_OFI_RXD_MAX_UNACKED=16`: set unless the variable is set already, because libfabric's
//!   `udp;ofi_rxd` loses messages in floods with its own default;
//! - `CONDUIT_AGENT`: the name of the node's [agent](Launch::agent), if it has one.
//!
//! Each rank leads its own process group. Rank 0 reads the launcher's standard input if
//! [`Launch::inherit_stdin`] is set; otherwise, and in all other ranks, standard input is
//! `/dev/null`.
//!
//! # Access to the PMI descriptor
//! A process that holds the descriptor `PMI_FD` acts as the rank: it can put and get keys, join
//! barriers and abort the job. The launched program must find the descriptor open, so the program's
//! children inherit it until the rank connects, which marks it close-on-exec. Programs that a rank
//! starts later do not get it. But a wrapper script has it before the rank does, and so do other
//! programs that the script starts, and all programs started by a program that never connects. (A
//! `fork` child has every descriptor of its rank.) While an inherited copy is open, the launcher
//! also cannot notice that the rank has closed its own. A script that starts untrusted programs
//! before the rank should close the descriptor for them: `bash -c 'other {PMI_FD}>&-; exec rank'`.
//!
//! # How a job ends
//! The exit code is 0 if all ranks exit with 0. A rank that is killed, aborts through PMI or breaks
//! the PMI protocol ends the job. The exit code is then the rank's: 128 + signal if it was killed,
//! the code passed to the abort, or 1 for a protocol violation. One message names the rank, and the
//! others get `SIGTERM` and, after a grace period, `SIGKILL`.
//!
//! If a rank exits with a code other than 0, the others have the grace period to end by themselves
//! before they get `SIGTERM`. If all ranks exit with the same code, nothing is printed. The others
//! have the same grace period if a rank exits with 0 before PMI's `finalize`; if they then have to
//! be ended, the exit code is 1. A closed connection or a barrier that cannot complete is often the
//! consequence of a failure that the launcher has yet to see, so it waits for that failure: up to
//! thirty times the grace period after a closed connection, and up to ten times the grace period
//! for a barrier. The rank's output is printed before the message about the rank.
//!
//! A host of several is lost when its remote shell, its daemon or the connection ends. That ends
//! the job with exit code 1 and a message that names the host.
//!
//! # Clean-up
//! No process is left behind. When a rank ends, the launcher kills the rest of its process group.
//! If the launcher itself is killed, the kernel kills its ranks (parent-death signal), and a guard
//! process kills their process groups. The program `conduit-run` is the reaper of all its
//! descendants, so it also collects processes that left their rank's group. All of this holds for
//! each host of several: a daemon whose connection ends kills its ranks.

pub mod cli;

mod daemon;
mod error;
mod event;
mod host;
mod hosts;
mod interest;
mod job;
mod launch;
mod outcome;
mod output;
mod pump;
mod remote;
mod running;
mod settings;
mod signals;
mod tree;

pub use error::Error;
pub use host::plan::Bind;
pub use hosts::{HostsError, PlaceError};
pub use launch::Launch;
pub use outcome::{How, Outcome, Status};
pub use output::Stream;
pub use remote::Remote;
pub use running::{Killer, RunningJob};
pub use tree::shell::ShellError;
