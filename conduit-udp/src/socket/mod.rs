//! The driver of the protocol. It handles sockets, batches, segmentation offload, addresses and
//! waiting.
//!
//! - [`interfaces`] and [`choose`] find the interface that a rank uses, and [`Socket::open`] opens
//!   its socket there.
//! - A [`UdpAddress`] is the address of one rank, and the table [`Peers`] has those of all ranks.
//! - [`Driver`] joins socket, seal and protocol, so that one call makes progress on all three.
//! - A [`Waiter`] sleeps until packets arrive, for the rank or for its [progress
//!   thread](conduit_portals::transport::ProgressThread).
//! - [`FaultConfig`] injects faults, for tests.
//!
//! **Promises.** Only the calls of a [`Waiter`] block. A full socket, an ICMP error and a system
//! without offload cause no failure, because the protocol sends again or in smaller groups.
//!
//! **Costs.** One system call sends up to 64 packets to one peer, and one system call receives up
//! to 16 groups of packets.
//!
//! The control messages of segmentation offload are written here (module `system`) instead of using
//! `quinn-udp`. The round trip of a small packet over loopback took 4.8 µs with that crate, 3.85 µs
//! with plain system calls, and 3.95 µs with this code. The crate is slower because it requests the
//! time stamp, addresses and type of service of each packet, and prepares headers for 32 packets.
//! The crate's fallback at run time is adopted here. (`nix` does not reset the length of control
//! messages between calls, so offload is lost after the first packet without one.)

mod address;
mod batch;
mod clock;
mod connected;
mod counters;
mod datagram;
mod driver;
mod error;
mod faults;
mod foreign;
mod interface;
mod peers;
mod system;
#[cfg(test)]
mod tests;
mod wait;

pub use address::{AddressError, UdpAddress};
pub use batch::Batch;
pub use counters::SocketCounters;
pub use datagram::{Buffers, Options, Sent, Socket, largest_payload};
pub use driver::{DrivenMachine, Driver};
pub use error::SocketError;
pub use faults::{FaultConfig, FaultCounters, corrupt};
pub use foreign::ForeignDatagrams;
pub use interface::{ChooseError, Interface, choose, default_source, interfaces, list};
pub use peers::{PeerErrors, Peers};
pub use wait::Waiter;
