//! The parts that the simulators share: simulated time with a queue of [events](EventQueue),
//! [random numbers](random) derived from a seed, [runs of many seeds](sweep()) on all processors,
//! and [command-line](command) options and output. The feature `model` adds the parts that model
//! checks share.
//!
//! ```
//! let mut events = sim::EventQueue::default();
//! events.schedule(20, "later");
//! events.schedule(10, "soon");
//! events.schedule(10, "as soon, but asked for later");
//! assert_eq!((events.pop(), events.now()), (Some("soon"), 10));
//! assert_eq!(events.pop(), Some("as soon, but asked for later"));
//! ```

#![forbid(unsafe_code)]

pub mod command;
mod events;
#[cfg(feature = "model")]
pub mod model;
pub mod program;
mod progress;
pub mod random;
mod sweep;

pub use events::{EventQueue, MS, Nanos, US};
pub use progress::Progress;
pub use sweep::{Failing, Tally, seeds, show_failing, sweep};
