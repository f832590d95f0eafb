//! GASNet's C interface: the functions behind `gasnetex.h` and `gasnet.h`, over Conduit's engine.
//!
//! The headers contain only what must be inline: puts and gets to mapped peers, tests of completed
//! events, and the argument counts of active messages. Everything else is a function here. GASNet
//! defines the names of the interface; functions that only the headers call begin with
//! `conduit_gex_`.
//!
//! | module | subject |
//! |---|---|
//! | `abi` | types and constants as C sees them |
//! | `job`, `start` | the process's single job, and joining it |
//! | `objects`, `team`, `endpoint` | client, teams, endpoints and segments as C knows them |
//! | `segment`, `client` | attach and segment locations; variables that clients set before attach |
//! | `handlers` | registration of C handlers and calls to them |
//! | `request`, `reply`, `prepared`, `limits` | active messages |
//! | `rma`, `atomic`, `event`, `implicit` | puts, gets, remote atomics, and waiting for them |
//! | `barrier`, `collective`, `query`, `credits` | collectives; ranks on the same host; credits |
//! | `fault`, `exit`, `signals` | errors and the end of a job |
//! | `legacy`, `legacy_collective` | calls found only in GASNet-1 |
//!
//! # Errors
//! GASNet defines few error codes. A call returns the code defined for it; every other error is
//! fatal. A fatal error prints one message that names the call, the rank and the argument, and ends
//! the job with exit code 1.
//!
//! # Threads
//! The library is built once for each of GASNet's threading modes, selected by this crate's
//! features.

mod abi;
mod atomic;
mod barrier;
mod client;
mod collective;
mod credits;
mod endpoint;
mod event;
mod exit;
mod fault;
mod handlers;
mod implicit;
mod job;
mod legacy;
mod legacy_collective;
mod limits;
mod objects;
mod output;
mod prepared;
mod query;
mod reply;
mod request;
mod rma;
mod segment;
mod signals;
mod start;
mod team;
mod vis;

/// The C library also contains the portable tools.
pub use gasnet_tools as tools;

#[cfg(feature = "par")]
pub(crate) type Mode = conduit::Par;
#[cfg(all(feature = "parsync", not(feature = "par")))]
pub(crate) type Mode = conduit::ParSync;
#[cfg(not(any(feature = "parsync", feature = "par")))]
pub(crate) type Mode = conduit::Seq;
