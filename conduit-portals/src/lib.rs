//! Networks with the semantics of Portals: [`matching`] in software; [`shm`], the network in shared
//! memory between the processes of a host; [`transport`], the Ni contract over anything that
//! carries fragments.

pub mod compact;
mod doorbell;
pub mod matching;
pub mod memory;
mod ring;
#[cfg(not(loom))]
pub mod shm;
mod sync;
pub mod transport;
