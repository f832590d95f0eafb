//! Portals networks. [`shm`]: software Portals between the processes of one host, in shared memory.

mod bell;
mod ring;
#[cfg(not(loom))]
pub mod shm;
mod sync;
