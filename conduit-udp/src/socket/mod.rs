//! The driver: sockets, batches, offload, addresses, waiting.
//!
//! - [`interfaces`] and [`choose`] find the interface that a rank uses; [`Socket::open`] opens its
//!   socket there;
//! - a [`UdpAddress`] tells the others where that is; those of all ranks are the table [`Peers`];
//! - [`Wire`] joins socket, seal and protocol: one call makes progress with all three;
//! - a [`Waiter`] sleeps until packets come, for the rank or for the [progress
//!   thread](conduit_portals::transport::ProgressThread);
//! - [`FaultConfig`] lets packets suffer on purpose, for tests.
//!
//! The control messages of segmentation offload are here (`system`) and not `quinn-udp`'s: with
//! that crate the round trip of a small packet over loopback took 4.8 µs where plain system calls
//! take 3.85 and these 3.95, since it asks for time stamp, addresses and type of service of each
//! packet and prepares for 32 packets. Its run-time fall-back is followed. (`nix` does not reset
//! the length of control messages between calls, so offload is lost after the first packet that has
//! none.)

mod address;
mod batch;
mod clock;
mod connected;
mod counters;
mod error;
mod faults;
mod foreign;
mod interface;
mod open;
mod peers;
mod system;
#[cfg(test)]
mod tests;
mod waiter;
mod wire;

pub use address::{AddressError, UdpAddress};
pub use batch::Batch;
pub use counters::SocketCounters;
pub use error::SocketError;
pub use faults::{FaultConfig, FaultCounters, corrupt};
pub use foreign::ForeignDatagrams;
pub use interface::{ChooseError, Interface, choose, default_source, interfaces};
pub use open::{Buffers, Options, Sent, Socket, largest_payload};
pub use peers::{PeerErrors, Peers};
pub use waiter::Waiter;
pub use wire::{Machine, Wire};
