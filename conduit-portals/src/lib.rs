//! Networks with the semantics of Portals: [`matching`] in software; [`shm`], the network in shared memory
//! between the processes of a host; [`transport`], the Ni contract over anything that carries fragments.

mod bell;
pub mod compact;
pub mod matching;
pub mod memory;
mod ring;
#[cfg(not(loom))]
pub mod shm;
mod sync;
pub mod transport;
