//! Shared memory between processes of a host. [`job`] is the network of a job's ranks, which a
//! launcher starts together; [`peers`] is a network of processes that come and go. Both send
//! through the rings of `ring`, and match with [`conduit_portals::matching`] or leave matching to
//! the layer above.

mod doorbell;
#[cfg(not(loom))]
pub mod job;
#[cfg(not(loom))]
pub mod memory;
#[cfg(not(loom))]
mod peer_credentials;
#[cfg(not(loom))]
pub mod peers;
mod ready_set;
mod ring;
#[cfg(not(loom))]
mod sealed_file;
