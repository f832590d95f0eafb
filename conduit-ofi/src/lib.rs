//! The Ni contract over libfabric: one build for every network that has a provider there.
//!
//! [`provider`] chooses among the providers of this host. [`wire`] carries fragments over an
//! endpoint, and accesses peers' memory directly if the provider can;
//! [`conduit_portals::transport`] is the contract on top; [`job`] puts all of it together for the
//! ranks of a job. [`peers`] is the network for processes that come and go. libfabric itself is
//! loaded when a job starts ([`library`]).

pub mod job;
pub mod library;
pub mod peers;
pub mod provider;
pub mod settings;
#[cfg(test)]
mod testing;
pub mod wire;
