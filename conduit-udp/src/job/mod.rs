//! UDP as the network of a job: a fixed set of ranks, which [`start`] connects.
//!
//! Every rank opens its socket; an exchange at start distributes all addresses and agrees on keys
//! (`start`). A [`Carrier`] joins protocol, seal and socket into the transport of a rank's [`Udp`].
//!
//! **Promises.** If one rank cannot start, none does, and each reports the reason. Information from
//! other ranks is checked. Packets that no rank of this job sent are dropped and counted.
//!
//! **Costs.** The start takes two exchanges through the launcher; in the first, each rank
//! contributes about 100 bytes and its host's name. A rank has one socket and a table of all
//! addresses, 20 bytes for each; memory for a link is allocated when the first packet is sent to
//! its peer.

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
