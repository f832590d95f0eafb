//! Networks with the semantics of Portals: [`matching`] in software; [`shm`], the network in shared
//! memory between the processes of a host; [`local`], between processes that come and go;
//! [`transport`], the Ni contract over anything that carries fragments; [`portals4`], the contract
//! over a real Portals 4.

#[cfg(test)]
extern crate self as conduit_portals;

pub mod compact;
mod doorbell;
#[cfg(not(loom))]
pub mod local;
pub mod matching;
pub mod memory;
#[cfg(not(loom))]
mod peer_credentials;
#[cfg(not(loom))]
pub mod portals4;
mod ready_set;
mod ring;
#[cfg(not(loom))]
mod sealed_file;
#[cfg(not(loom))]
pub mod shm;
mod sync;
pub mod transport;
