//! Draws one picture (SVG) of a job's credit statistics: where the credits are and were, and the
//! messages that moving them took.
//!
//! [`read`] takes the files that ranks write with `GASNET_PORTAL_CREDIT_STATS`
//! ([`credits::statistics`]); [`svg`] draws them. The program `credit-plot` is [`cli::main`].
//!
//! A picture stays readable from 2 to thousands of ranks: matrices of ranks have at most 64 × 64
//! cells, each of which shows the one of its loans that differs most from the loan at the start;
//! with more than 8 ranks, curves show quantiles over the ranks.

#![forbid(unsafe_code)]

pub mod cli;
mod files;
mod job;
mod picture;

pub use files::{Error, Warning, read};
pub use job::Job;
pub use picture::svg;
