//! Networks of processes that share the memory of a host. [`job`] is the network between the ranks
//! of a job, which a launcher starts together; [`peers`] is a network of processes that come and
//! go. Both networks send through the rings in the module `ring`. [`job`] matches messages with
//! [`conduit_portals::matching`]; [`peers`] leaves matching to the layer above.

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
