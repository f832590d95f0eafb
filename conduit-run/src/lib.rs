//! The launcher of Conduit's jobs: starts the ranks of one host, serves them PMI-1 and keeps their processes.
//!
//! The program is `conduit-run -n N [options] program args…`; [`cli::main`] is all of it, so another package can have a
//! launcher of its own in three lines. Tests and tools use [`Launch`], which does the same from within a process:
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
//! # What a rank finds
//! `PMI_FD` (one end of a socket pair, see [below](#who-speaks-for-a-rank)), `PMI_RANK`, `PMI_SIZE`; `CONDUIT_LAUNCHER=1`: the launcher reports dead ranks, so
//! ranks needn't; `CONDUIT_JOB_ID`: a word unique to the job; `FI_OFI_RXD_MAX_UNACKED=16` unless it is set already, since libfabric's
//! `udp;ofi_rxd` loses messages in floods with its own default. It leads its own process group. Standard input is rank
//! 0's; the others read `/dev/null`. With an [agent](Launch::agent) for their node they find its name as `CONDUIT_AGENT`.
//!
//! # Who speaks for a rank
//! Whoever has the descriptor `PMI_FD`: it puts and gets, joins barriers, ends the job. The started program has to find it open, so
//! what that starts inherits it, until the rank connects, which marks it close-on-exec. So programs that a rank starts later don't get
//! it, but a script before the rank has it, what such a script starts, and all that is started by a program that never connects. (A
//! child of `fork` has all that its rank has.) A copy that stays open also hides from the launcher that the rank has closed its own. Who starts
//! what isn't trusted before the rank closes it there: `bash -c 'other {PMI_FD}>&-; exec rank'`.
//!
//! # How a job ends
//! The exit code is 0 if all ranks exit with 0. A rank that is killed, aborts through PMI or breaks
//! the PMI protocol ends the job with its code (128 + signal if it is killed): one message names
//! it, and the others get `SIGTERM` and, after a grace, `SIGKILL`.
//!
//! A rank that exits with another code gives the others a grace to end by themselves before they
//! get `SIGTERM`. If all ranks exit with the same code, nothing is printed. The same holds for a
//! rank that exits with 0 before PMI's `finalize`; if others have to be ended for it, the exit code
//! is 1. A closed connection or a barrier that can't complete is often the consequence of a failure
//! that the launcher has yet to see, so it waits for that for up to thirty or ten times the grace.
//! The rank's output is printed before the message about the rank.
//!
//! # What is left behind
//! Nothing. A rank's process group ends with the rank. If the launcher itself is killed, the kernel kills its ranks
//! (parent-death signal), and a guard process kills their process groups. The program `conduit-run` also collects
//! processes that left their rank's group, being the reaper of all its descendants.

pub mod cli;

mod affinity;
mod agent;
mod control;
mod error;
mod guard;
mod job;
mod launch;
mod outcome;
mod output;
mod process;
mod program;
mod rank;
mod settings;
mod signals;
mod strays;
mod terminal;

pub use error::Error;
pub use job::{Killer, RunningJob};
pub use launch::{Bind, Launch};
pub use outcome::{How, Outcome, Status};
pub use output::Stream;
