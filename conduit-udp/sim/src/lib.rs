//! A simulator of the reliability protocol over UDP, its oracle, and a fuzzer of what it receives.
//!
//! A [`Scenario`] says everything: ranks, network, faults, traffic. [`run`] plays it with the endpoints that real ranks use, in
//! simulated time and from one event queue, so that the same scenario always ends in the same way. While it runs, every call
//! between an endpoint and the layer above it is compared with what was sent; at the end, every link must have come to what
//! the faults allow. What must not be is in the [`Report`].
//!
//! [`Scenario::from_seed`] draws a scenario, so a seed is all that has to be known of a failing one.

mod books;
mod bound;
pub mod cli;
mod content;
mod draw;
mod fate;
pub mod fuzz;
mod handler;
pub mod measure;
pub mod memory;
mod network;
mod process;
mod report;
pub mod scenario;
pub mod seal;
mod traffic;
mod world;

pub use books::Violation;
pub use network::Fates;
pub use report::{GivenUp, Report};
pub use scenario::Scenario;
pub use world::{Until, run};

#[global_allocator]
static ALLOCATOR: memory::Counting = memory::Counting;
