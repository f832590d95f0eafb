//! libfabric as the network of a job, which is a fixed set of ranks that [`start`] connects.
//!
//! Every rank chooses a provider and opens an endpoint. An exchange at start distributes the ranks'
//! addresses and, if frames are sealed, agrees on keys (module `start`). [`crate::wire`] carries
//! the fragments.
//!
//! **Guarantees.** If one rank cannot start, no rank starts, and each reports the reason. All ranks
//! have the same provider and version of libfabric. Information from other ranks is checked.
//!
//! **Costs.** A start performs two exchanges through the launcher. In the first, each rank
//! contributes an address, a host name and about 100 further bytes. A rank has one endpoint and a
//! table of all addresses.

mod config;
mod error;
mod start;

pub use config::OfiConfig;
pub use error::OfiError;
#[cfg(test)]
pub(crate) use start::wires;
pub use start::{Beside, Ofi, connected_in_process, in_process, start, start_in};
