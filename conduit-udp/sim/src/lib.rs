//! A simulator of the reliability protocol over UDP, with an oracle, and a fuzzer of received
//! packets.
//!
//! A [`Scenario`] defines a run completely, with its ranks, network, faults and traffic. [`run`]
//! runs it with the endpoints of real ranks, in simulated time and from one event queue, so the
//! same scenario always has the same result. Every call between an endpoint and the layer above it
//! is compared with what was sent. At the end, every link has to be in a state that the faults
//! allow. Violations are in the [`Report`].
//!
//! [`Scenario::from_seed`] draws a scenario, so a seed suffices to repeat a failure.

mod bound;
pub mod cli;
mod content;
mod draw;
mod expected;
pub mod fuzz;
mod handler;
pub mod measure;
pub mod memory;
mod network;
mod oracle;
mod process;
mod report;
pub mod scenario;
pub mod seal;
mod traffic;
mod world;

pub use network::Fates;
pub use oracle::Violation;
pub use report::{GivenUp, Report};
pub use scenario::Scenario;
pub use world::{Until, run};

#[global_allocator]
static ALLOCATOR: memory::Counting = memory::Counting;
