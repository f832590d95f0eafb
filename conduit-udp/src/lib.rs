//! The Ni contract over UDP, for ranks of different hosts that have nothing but Ethernet between
//! them.
//!
//! [`protocol`] turns datagrams, which may be lost, duplicated, reordered or forged, into fragments
//! that arrive exactly once and in order. It is a state machine without I/O and clock. [`seal`]
//! authenticates its packets, so that only ranks of the job can make them; [`socket`] sends and
//! receives them. [`conduit_portals::transport`] is the contract on top; [`start`] puts all of it
//! together. [`open`] is the network for processes that come and go.

mod carrier;
mod mix;
pub mod open;
pub mod protocol;
pub mod settings;
pub mod socket;
pub mod start;

pub use carrier::Carrier;

/// One rank's end of the network over UDP.
pub type Udp<M, T = Carrier> = conduit_portals::transport::SoftPortals<M, T>;
