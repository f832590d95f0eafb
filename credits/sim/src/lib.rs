//! Simulates flow control by credits in jobs of up to a million ranks. The ranks run the real state
//! machines of the crate [`credits`].
//!
//! ```
//! use credit_sim::{Config, Pattern, Scheme, run};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut config = Config::new(8, Pattern::Ghost);
//! config.scheme = Scheme::Static { credits: 8 };
//! config.steps = 2;
//! let report = run(&config, &sim::Progress::hidden())?;
//! assert!(report.summary.speed.is_some_and(|speed| speed < 1.0));
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

pub mod cli;
mod column;
mod config;
mod part;
mod pattern;
mod queue;
mod report;
mod run;
mod show;
mod table;
mod timing;
mod world;

pub use column::Column;
pub use config::{CHUNK, Config, ConfigError, MAX_RANKS, REFERENCE_STEPS, Scheme, Space};
pub use pattern::{Load, Pattern};
pub use report::{Effort, EqualStatic, Report, Rotation, Step, Summary};
pub use run::{equal_static, run};
pub use table::{Row, markdown, row};
pub use timing::Timing;
pub use world::SimError;
