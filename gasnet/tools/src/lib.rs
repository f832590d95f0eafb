//! The library behind `gasnet_tools.h`: the part of GASNet's portable tools that is not inline in
//! the header.
//!
//! The names are C's. Functions that begin with `gasnett_` are documented for their callers in the
//! header's parts (`gasnet/include/gasnet_tools/`); only these parts call functions that begin with
//! `conduit_tools_`. Each module consists of ordinary Rust functions and, at its end, the edge to
//! C. The edge checks pointers and text, and ends the process with an error that names an invalid
//! argument.
//!
//! Only [`job`] provides the library with information about a job.

mod backtrace;
mod bytes;
mod diagnostics;
mod edge;
mod environment;
mod failure;
mod format;
mod heap;
pub mod job;
mod limits;
mod memory;
pub mod number;
mod rwlock;
pub mod signal;
mod streams;
mod system;
mod timer;

pub use environment::{getenv, report_text, setting};
pub use failure::{fatal, look_at_error, look_at_fault, looks_at_errors, prepare_debugging};
pub use system::physical_memory;
