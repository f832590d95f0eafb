//! A simulation of lanes in large jobs, which shows which ranks get lanes, how much traffic uses
//! them, and how often they move.
//!
//! Each rank runs the production code ([`lanes`]) or, for comparison, the rules of UCX's usage
//! tracker; the [`Rule`] says which. Ranks send messages one after the other, following a
//! [`Pattern`], at speeds that differ by a factor of at most eight. A message about lanes takes 2
//! to 20 µs, so such messages may overtake each other. Leaving a lane takes up to 10 µs.
//!
//! Only [`DETAILED`] ranks of a job are simulated, and they exchange most of their traffic with
//! each other. The other ranks only send and receive messages, and they deny every lane. The
//! samples of a rank's sent and received traffic are drawn independently. For each message to a
//! rank that is not simulated, that rank is assumed to send a message back.

#![forbid(unsafe_code)]

mod pattern;
mod picture;
mod run;
mod upstream;

pub use pattern::Pattern;
pub use picture::svg;
pub use run::{DETAILED, Figures, Job, Moment, Rule, run, watch};
