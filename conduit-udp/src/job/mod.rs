//! UDP as the network of a job: a fixed set of ranks, which [`start`] brings together.
//!
//! Every rank opens its socket, and an exchange at start tells all where the others are and agrees
//! on keys (`start`). A [`Carrier`] joins protocol, seal and socket into the transport of a rank's
//! [`Udp`].
//!
//! **Promises.** If one rank cannot start, none does, and each says why. What another rank says of
//! itself is checked. Packets that no rank of this job has made are dropped and counted.
//!
//! **Costs.** Two exchanges through the launcher at start, the first of about 100 bytes a rank and
//! its host's name. A rank has one socket and a table of all addresses, 20 bytes for each; memory
//! for a link is taken when the first packet goes to its peer.

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
