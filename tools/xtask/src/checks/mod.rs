//! The checks of a change: [`Quick`] while it is written, [`Full`] before it lands, and [`Nightly`]
//! for searches that take longer.
//!
//! - [`steps`]: commands one after the other, with their times;
//! - [`programs`]: test programs, several at a time, each test with its time;
//! - [`members`]: the workspace's packages, and which depends on which.

mod full;
mod members;
mod nightly;
mod programs;
mod quick;
mod steps;

pub use full::Full;
pub use nightly::Nightly;
pub use quick::Quick;
