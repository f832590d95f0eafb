//! The library behind `gasnet_tools.h`: what of GASNet's portable tools is not inline in the header.
//!
//! The names are C's. Those that begin with `gasnett_` are documented for their callers in the header's pieces
//! (`gasnet/include/gasnet_tools/`), those that begin with `conduit_tools_` are called by these pieces only. Each module
//! holds its rules as ordinary functions of Rust and, at its end, the edge to C: null pointers and text are checked there,
//! and what makes no sense ends the process with an error that names it.
//!
//! The library knows of a job only what [`job`] was told.

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
