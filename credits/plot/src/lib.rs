//! Draws one picture (SVG) of the credit statistics of a job: where the credits are and were, and what that took.
//!
//! [`read`] takes the files that `GASNET_PORTAL_CREDIT_STATS` makes ranks write ([`credits::statistics`]); [`svg`] draws
//! them. The program `credit-plot` is [`cli::main`].
//!
//! A picture stays readable from 2 to thousands of ranks: matrices of ranks have at most 64 × 64 cells, each of which
//! shows that of its loans which is furthest from the loan at the start; and above 8 ranks curves are of quantiles over
//! the ranks.

#![forbid(unsafe_code)]

pub mod cli;
mod files;
mod job;
mod picture;

pub use files::{Error, Warning, read};
pub use job::Job;
pub use picture::svg;
