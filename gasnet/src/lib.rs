//! GASNet's C interface: what `gasnetex.h` and `gasnet.h` call, over Conduit's engine.
//!
//! The headers hold what has to be inline: puts and gets to mapped peers, tests of events that are over, the argument
//! counts of active messages. Everything else is a function here. The names of the interface are GASNet's; functions that
//! only the headers call begin with `conduit_gex_`.
//!
//! | module | subject |
//! |---|---|
//! | `abi` | types and constants as C sees them |
//! | `job`, `start` | the one job of the process; joining it |
//! | `objects`, `team`, `endpoint` | client, teams, endpoints and segments as C knows them |
//! | `segment`, `client` | attach, where segments are; what a client may set before |
//! | `handlers` | registration, and calling C's handlers |
//! | `request`, `reply`, `prepared`, `limits` | active messages |
//! | `rma`, `atomic`, `event`, `implicit` | puts, gets, remote atomics, and waiting for them |
//! | `barrier`, `collective`, `query`, `credits` | barriers; broadcasts and reductions; who shares a host; credits |
//! | `fault`, `exit`, `signals` | errors and the end of a job |
//! | `legacy`, `legacy_collective` | what only GASNet-1 has |
//!
//! # Errors
//! GASNet has few: a call that it defines an error code for returns that, everything else is fatal. A fatal error is one
//! message that names call, rank and argument, and the end of the job with exit code 1.
//!
//! # Threads
//! The library is built once for each of GASNet's threading modes, by the features of this crate.

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

/// The library of the portable tools is part of the C library.
pub use gasnet_tools as tools;

#[cfg(feature = "par")]
pub(crate) type Mode = conduit::Par;
#[cfg(all(feature = "parsync", not(feature = "par")))]
pub(crate) type Mode = conduit::ParSync;
#[cfg(not(any(feature = "parsync", feature = "par")))]
pub(crate) type Mode = conduit::Seq;
