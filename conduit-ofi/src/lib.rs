//! The `Ni` contract over libfabric, in one build for every network with a libfabric provider.
//!
//! [`provider`] chooses among this host's providers. [`wire`] carries fragments over an endpoint,
//! and accesses peers' memory directly if the provider supports that.
//! [`conduit_portals::transport`] implements the contract on top of the wire. [`job`] combines
//! these modules for the ranks of a job, and [`peers`] does so for processes that come and go.
//! [`library`] loads libfabric itself when the network starts.

pub mod job;
pub mod library;
pub mod peers;
pub mod provider;
pub mod settings;
#[cfg(test)]
mod testing;
pub mod wire;
