//! The checks of a change: [`Quick`] during development, [`Full`] before it lands, and [`Nightly`]
//! for searches that take longer.
//!
//! - [`steps`]: commands that run in sequence, with their times;
//! - [`programs`]: test programs, several at a time, with the time of each test;
//! - [`members`]: the workspace's packages and their dependencies on each other.

mod full;
mod members;
mod nightly;
mod programs;
mod quick;
mod steps;

pub use full::Full;
pub use nightly::Nightly;
pub use quick::Quick;
