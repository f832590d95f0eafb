//! Simulates lanes in large jobs: which ranks get lanes, how much traffic uses them, and how often
//! they move.
//!
//! Each rank runs the production code ([`lanes`]), or for comparison the rules of UCX's usage
//! tracker ([`Rule`]). Ranks send messages one after the other by a [`Pattern`], at speeds that
//! differ by up to a factor of eight. A lane message takes 2 to 20 µs, so messages may overtake
//! each other; leaving a lane takes up to 10 µs.
//!
//! Only [`DETAILED`] ranks of a job are simulated, and they exchange most of their traffic with
//! each other; the other ranks only send and receive messages. The samples of a rank's sent and
//! received traffic are drawn independently. A rank that is not simulated denies every lane;
//! messages to it are mirrored as messages from it.

#![forbid(unsafe_code)]

mod pattern;
mod picture;
mod run;
mod upstream;

pub use pattern::Pattern;
pub use picture::svg;
pub use run::{DETAILED, Figures, Job, Moment, Rule, run, watch};
