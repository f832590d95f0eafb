//! Measures what Conduit reaches beside what this machine allows.
//!
//! A number of nanoseconds says little: on a virtual machine the distance between two cores may change from one second
//! to the next, and with it every latency several times. So each [`Figure`] is measured in
//! [alternating rounds](alternate) with a bare [limit](limits) of the same kind, by the same processes on the same
//! cores and in the same memory; rounds in which the limit changed are discarded, and what is reported first is the
//! ratio.
//!
//! The parts, from the bottom up:
//! - [`area::SharedArea`]: the memory that the sides share, handed over by whoever mapped it;
//! - [`side::Side`]: a process that takes part; the sides keep step through the area, and no wait is for ever;
//! - [`piece::Piece`]: operations that all sides do together; a limit is one, and so is a closure that calls Conduit;
//! - [`compare::Comparison`]: a figure's piece beside its limit, measured in rounds to a [`Figure`];
//! - [`report`]: tables, JSON lines, and whether targets are met.
//!
//! ```
//! use std::time::{Duration, Instant};
//! use conduit_perf::alternate::Plan;
//! use conduit_perf::limits::copy::Direction;
//! use conduit_perf::placement::Cores;
//! use conduit_perf::{Comparison, Mapping, Side, Target, area::AREA_BYTES, limits};
//!
//! // One side alone: a loop of stores beside a copy of 8 bytes.
//! let mapping = Mapping::anonymous(AREA_BYTES)?;
//! let side = Side::join(mapping.area()?, Cores::allowed()?, 0, 1, Duration::from_secs(1))?;
//! let mut word = 0u64;
//! let mut comparison = Comparison::new(
//!     "store",
//!     8,
//!     limits::small_copy(Direction::In, 8),
//!     Some(Target::AtMost(1.3)),
//!     |_: &Side<'_>, count| {
//!         let start = Instant::now();
//!         for value in 0..count {
//!             word = std::hint::black_box(value);
//!         }
//!         Ok(start.elapsed())
//!     },
//! );
//! let figure = comparison.measure(&side, Plan::QUICK, &mut |_| {})?.expect("side 0 has it");
//! assert_eq!((figure.name.as_str(), figure.limit_name.as_str()), ("store", "copy-in"));
//! # Ok::<(), conduit_perf::Error>(())
//! ```

pub mod alternate;
pub mod area;
mod bench;
pub mod cli;
pub mod companions;
pub mod compare;
pub mod count;
mod error;
pub mod figure;
pub mod figures;
pub mod job;
pub mod limits;
pub mod mapping;
pub mod piece;
pub mod placement;
pub mod report;
pub mod select;
pub mod side;
pub mod survey;
#[cfg(test)]
mod testing;

pub use compare::Comparison;
pub use error::Error;
pub use figure::{Figure, Target};
pub use job::{Event, Options, rank_main, run_all};
pub use mapping::Mapping;
pub use piece::Piece;
pub use side::Side;
