//! libfabric as the network of a job: a fixed set of ranks, which [`start`] brings together.
//!
//! Every rank chooses a provider and opens an endpoint, and an exchange at start tells all where
//! the others are and, if frames are sealed, agrees on keys (`start`). What carries the fragments
//! is [`crate::wire`].
//!
//! **Promises.** If one rank cannot start, none does, and each says why. All ranks have the same
//! provider and version of libfabric. What another rank says of itself is checked.
//!
//! **Costs.** Two exchanges through the launcher at start, the first of an address, a host's name
//! and some 100 bytes a rank. A rank has one endpoint, and a table of all addresses.

mod config;
mod error;
mod start;

pub use config::OfiConfig;
pub use error::OfiError;
#[cfg(test)]
pub(crate) use start::wires;
pub use start::{Beside, Ofi, connected_in_process, in_process, start, start_in};
