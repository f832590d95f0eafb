//! UDP as the network of a job: a fixed set of ranks, which [`start`] connects.
//!
//! Every rank opens its socket. An exchange at start distributes all addresses and agrees on keys
//! (module `start`). A [`Carrier`] joins protocol, seal and socket into the transport of a rank's
//! [`Udp`].
//!
//! **Promises.** If one rank cannot start, no rank starts, and each reports the reason. Information
//! from other ranks is checked. Packets that no rank of this job sent are dropped and counted.
//!
//! **Costs.** The start takes two exchanges through the launcher. In the first, each rank
//! contributes about 100 bytes and its host's name. A rank has one socket and a table of all
//! addresses, with 20 bytes for each. Memory for a link is allocated when the first packet is sent
//! to its peer.

mod carrier;
mod config;
mod counters;
mod error;
mod start;

pub use carrier::{Carrier, Udp};
pub use config::UdpConfig;
pub use counters::UdpCounters;
pub use error::UdpError;
pub use start::{in_process, start, start_in};
