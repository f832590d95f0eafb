//! Draws one picture (SVG) of a job's credit statistics. It shows where the credits are and were,
//! and how many messages moving them took.
//!
//! [`read`] takes the files that ranks write with `GASNET_PORTAL_CREDIT_STATS`
//! ([`credits::statistics`]); [`svg`] draws them. The program `credit-plot` is [`cli::main`].
//!
//! A picture is readable from 2 to thousands of ranks. Matrices of ranks have at most 64 × 64
//! cells; a cell that stands for several loans shows the one that differs most from the initial
//! loan. With more than 8 ranks, curves show quantiles over the ranks.

#![forbid(unsafe_code)]

pub mod cli;
mod files;
mod job;
mod picture;

pub use files::{Error, Warning, read};
pub use job::Job;
pub use picture::svg;
