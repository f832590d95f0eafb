//! All that is Portals below the engine. [`matching`] in software; [`shm`], the network between the processes of one host, in
//! shared memory; [`transport`], the Ni contract over anything that carries fragments.

mod bell;
pub mod compact;
pub mod matching;
pub mod memory;
mod ring;
#[cfg(not(loom))]
pub mod shm;
mod sync;
pub mod transport;
