//! What a [transport agent](agent) needs of a node where Dragon runs: [`Gateway`] is its [`Host`](agent::host::Host) over
//! libdragon, the library of the unmodified Python package `dragonhpc`.
//!
//! Dragon starts its agent with an environment that names the gateways ([`Gateway::open`]), says the rest by its
//! standard input ([`startup`]), and reads its log from its standard error ([`log`]).

mod channel;
mod gateway;
pub mod log;
mod memory;
mod message;
mod processes;
mod siblings;
pub mod startup;
mod sys;

pub use channel::Channel;
pub use gateway::{Gateway, NodeAddress, OpenError, at_front_end};
pub use memory::Memory;
pub use sys::{Library, LoadError, VERSIONS};
