//! The Ni contract over libfabric: one build for every network that has a provider there.
//!
//! [`provider`] chooses among the providers of this host. [`wire`] carries fragments over an
//! endpoint, and accesses peers' memory directly if the provider can;
//! [`conduit_portals::transport`] is the contract on top; [`start`] puts all of it together.
//! libfabric itself is loaded when a job starts ([`libfabric_sys`]).

mod buffers;
mod error;
mod failure;
mod frame;
mod link;
mod liveness;
mod neighbours;
mod objects;
pub mod open;
pub mod provider;
pub mod settings;
mod slots;
pub mod start;
#[cfg(test)]
mod testing;
mod wait;
mod watch;
pub mod wire;

pub use error::OfiError;
pub use start::Ofi;
pub use wire::Wire;
pub use wire::connected::Connected;
