//! Lanes of large jobs in simulated time: who gets one, how much traffic goes by them, and how
//! often they move.
//!
//! Each rank runs the code that ranks run ([`lanes`]), or for comparison the rules of UCX's
//! usage tracker ([`Rule`]). It sends messages one after the other by a [`Pattern`], ranks at
//! speeds that differ by up to eight times; what they say about lanes takes 2 to 20 µs, so it may
//! overtake, and leaving a lane takes up to 10 µs.
//!
//! Of a job's ranks [`DETAILED`] are simulated, and exchange most of their traffic with each other;
//! the others are there as peers that messages go to and come from. What a rank samples of what it
//! sends and of what it receives is drawn independently. A rank that is not simulated denies every
//! lane; sends to it are mirrored as messages from it.

#![forbid(unsafe_code)]

mod pattern;
mod picture;
mod run;
mod upstream;

pub use pattern::Pattern;
pub use picture::svg;
pub use run::{DETAILED, Figures, Job, Moment, Rule, run, watch};
