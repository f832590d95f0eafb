//! The Ni contract over UDP, for ranks of different hosts that have nothing but Ethernet between
//! them.
//!
//! [`protocol`] turns datagrams, which may be lost, duplicated, reordered or forged, into fragments
//! that arrive exactly once and in order. It is a state machine without I/O and clock. [`seal`]
//! authenticates its packets, so that only ranks of the job can make them; [`socket`] sends and
//! receives them. [`conduit_portals::transport`] is the contract on top; [`job`] puts all of it
//! together for the ranks of a job. [`peers`] is the network for processes that come and go.

pub mod job;
pub mod peers;
pub mod protocol;
pub mod settings;
pub mod socket;
