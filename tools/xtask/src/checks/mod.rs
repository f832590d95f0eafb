//! The checks of a change: [`Quick`] runs during development, [`Full`] before the change lands, and
//! [`Nightly`] every night, for searches that take longer.
//!
//! - [`steps`] runs commands in sequence and records their times;
//! - [`programs`] runs several test programs at a time and records the time of each test;
//! - [`members`] finds the workspace's packages and their dependencies on each other.

mod full;
mod members;
mod nightly;
mod programs;
mod quick;
mod steps;

pub use full::Full;
pub use nightly::Nightly;
pub use quick::Quick;
