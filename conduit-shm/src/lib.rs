//! Shared memory between processes of a host: [`job`], the network of a job's ranks, which the
//! launcher has started together; [`peers`], a network of processes that come and go. Both send by
//! the rings of `ring`, and match by [`conduit_portals::matching`] or leave that to the layer
//! above.

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
