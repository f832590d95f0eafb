//! Measures the performance of Conduit relative to this machine's limits.
//!
//! A number of nanoseconds alone says little, because on a virtual machine, the distance between
//! two cores may change from one second to the next, and every latency may change by a factor of
//! several with it. Each [`Figure`] is therefore measured in [alternating rounds](alternate) with a
//! bare [limit](limits) of the same kind, by the same processes on the same cores and in the same
//! memory. Rounds in which the limit changed are discarded, and the main result is the ratio.
//!
//! # From a program
//!
//! [`run_all`] starts the jobs, whose ranks run the calling program itself, and returns the
//! figures. [`rank_main`] runs such a rank, and must be called first in `main`:
//!
//! ```no_run
//! use std::process::ExitCode;
//! use conduit_perf::{Options, rank_main, report, run_all};
//!
//! fn main() -> Result<ExitCode, conduit_perf::RunError> {
//!     if let Some(code) = rank_main() {
//!         return Ok(code);
//!     }
//!     let figures = run_all(&Options { quick: true, ..Options::default() }, |event| eprintln!("{event:?}"))?;
//!     println!("{}\n{}", report::figures(&figures), report::Summary::of(&figures));
//!     Ok(ExitCode::SUCCESS)
//! }
//! ```
//!
//! # The figures
//!
//! | figure | limit | target |
//! |---|---|---|
//! | `put`, `get`: blocking, 8 bytes, length known only at run time; `put-u64`, `get-u64`: of a number | a store or a load of a word through the same mapping | 1.3 × its time |
//! | `put-nb`, `put-nbi`, `put-value`, `get-value`: started and waited for; `put-nbi-rate`: waited for at the end | a store or a load of a word through the same mapping | |
//! | `fetch-add`: remote atomic | a `fetch_add` on the same word | |
//! | `am-short-round-trip` | a cache line's round trip, by one line for both directions | 1.5 × its time |
//! | `am-short-flood`: one way, counted in the handler, under flow control | a queue of 64-byte slots | 0.25 of its rate |
//! | `am-medium-flood`: one way, payload read in the handler | a queue whose slots carry the payload, which the consumer reads | 0.77 of its rate |
//! | `put-bandwidth`, `get-bandwidth`, `am-long` from 64 KiB | a copy of the same number of bytes to the same destination | 0.9 of its bandwidth |
//! | `barrier` of two ranks | a cache line's round trip, by a line per direction | 0.75 × its time |
//! | `one-core-am-round-trip`, `one-core-barrier`: both ranks on one core | two processes that yield to each other | 1.5 × its time, for the round trip only |
//! | `crowd-barrier`: eight ranks on two cores | a counter that eight processes watch, yielding | 100 µs |
//!
//! Limits and figures work on the same bytes, which are those of the last rank's segment, mapped by
//! rank 0. During puts, gets, atomics and copies, the last rank stands by. During messages and
//! barriers, all ranks wait as programs do, with Conduit's own waits.
//!
//! To reduce noise, a reading is the fastest of a few runs, each of about half a millisecond or
//! more, and a figure is the median of its rounds. For numbers that do not depend on the machine's
//! load at all, [`count`] counts instructions.
//!
//! # The parts, from the bottom up
//!
//! - [`area::SharedArea`] is the memory that the sides share, passed in by the code that mapped it.
//! - [`side::Side`] is a participating process. The sides keep step through the area, and no wait
//!   lasts forever.
//! - [`piece::Piece`] stands for operations that all sides perform together, such as a limit or a
//!   closure that calls Conduit.
//! - [`compare::Comparison`] measures a figure's piece and its limit in rounds, and results in a
//!   [`Figure`].
//! - [`figures`] contains Conduit's figures, and [`job`] runs the jobs that measure them.
//! - [`report`] prints tables and JSON lines, and summarises the comparison with targets.
//!
//! ```
//! use std::time::{Duration, Instant};
//! use conduit_perf::alternate::Plan;
//! use conduit_perf::limits::alone::Direction;
//! use conduit_perf::placement::Cores;
//! use conduit_perf::{Comparison, Mapping, Side, Target, area::AREA_BYTES, limits};
//!
//! // A single side compares a loop of stores to its stack with stores to the mapping.
//! let mapping = Mapping::anonymous(AREA_BYTES)?;
//! let side = Side::join(mapping.area()?, Cores::allowed()?, 0, 1, Duration::from_secs(1))?;
//! let mut word = 0u64;
//! let mut comparison = Comparison::new(
//!     "store",
//!     8,
//!     limits::word(Direction::In),
//!     Some(Target::AtMost(1.3)),
//!     |_: &Side<'_>, count| {
//!         let start = Instant::now();
//!         for value in 0..count {
//!             word = std::hint::black_box(value);
//!         }
//!         Ok(start.elapsed())
//!     },
//! );
//! let figure = comparison.measure(&side, Plan::QUICK)?.expect("side 0 has it");
//! assert_eq!((figure.name.as_str(), figure.limit_name.as_str()), ("store", "bare-store"));
//! # Ok::<(), conduit_perf::Error>(())
//! ```

pub mod alternate;
pub mod area;
mod bare;
mod bench;
pub mod cli;
pub mod compare;
pub mod count;
pub mod credits;
mod error;
mod exchange;
pub mod figure;
pub mod figures;
pub mod gasnet;
pub mod job;
pub mod lanes;
pub mod limits;
pub mod mapping;
pub mod ofi;
pub mod peers;
pub mod piece;
pub mod placement;
mod pool;
pub mod portals4;
pub mod report;
pub mod select;
pub mod side;
pub mod survey;
#[cfg(test)]
mod testing;
pub mod udp;

pub use compare::Comparison;
pub use error::Error;
pub use figure::{Figure, Target};
pub use job::{Event, Options, RunError, rank_main, run_all};
pub use mapping::Mapping;
pub use piece::Piece;
pub use side::Side;
