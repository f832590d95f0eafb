//! The `Ni` contract over UDP, for ranks on different hosts that are connected only by Ethernet.
//!
//! [`protocol`] turns datagrams, which may be lost, duplicated, reordered or forged, into fragments
//! that arrive exactly once and in order. It is a state machine that does no I/O and reads no
//! clock. [`seal`] authenticates its packets, so that only ranks of the job can make them, and
//! [`socket`] sends and receives the packets. [`conduit_portals::transport`] implements the
//! contract on top of the protocol. [`job`] assembles these parts for the ranks of a job. [`peers`]
//! is the network for processes that come and go.

pub mod job;
pub mod peers;
pub mod protocol;
pub mod settings;
pub mod socket;
