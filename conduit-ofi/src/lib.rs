//! The Ni contract over libfabric: one build for every network with a libfabric provider.
//!
//! [`provider`] chooses among this host's providers. [`wire`] carries fragments over an endpoint,
//! and accesses peers' memory directly if the provider supports it; [`conduit_portals::transport`]
//! implements the contract on top; [`job`] combines these for the ranks of a job. [`peers`] is the
//! network for processes that come and go. libfabric itself is loaded when a job starts
//! ([`library`]).

pub mod job;
pub mod library;
pub mod peers;
pub mod provider;
pub mod settings;
#[cfg(test)]
mod testing;
pub mod wire;
