//! The host of a [transport agent](agent) that runs under Dragon. [`Gateway`] implements
//! [`Host`](agent::host::Host) with libdragon, the library of the unmodified Python package
//! `dragonhpc`.
//!
//! Dragon starts its agent with an environment that names the gateways ([`Gateway::open`]), passes
//! further information on standard input ([`startup`]), and reads the agent's log from its standard
//! error ([`log`]).

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
