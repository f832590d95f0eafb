//! All that is Portals below the engine. [`matching`] in software; [`shm`], the network between the processes of one host, in
//! shared memory; [`transport`], the Ni contract over anything that carries fragments.

mod bell;
pub mod matching;
pub mod memory;
mod ring;
#[cfg(not(loom))]
pub mod shm;
pub mod sparing;
mod sync;
pub mod transport;
