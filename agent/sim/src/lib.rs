//! The node agents' protocol in simulated time: [nodes](Host) with channels and processes, and a
//! [network](Net) between them. Agents can die and return.

#![forbid(unsafe_code)]

mod host;
mod network;
mod siblings;
mod world;

pub use host::{Host, Pool};
pub use network::{Count, Delays, End, Load, Net};
pub use world::World;
