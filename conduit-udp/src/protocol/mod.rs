//! The reliability protocol, a state machine whose inputs are packets and time, and whose outputs
//! are packets, deliveries and timers.
//!
//! The terms are those of Open MPI's usNIC BTL. A *fragment* is what the user of the protocol
//! sends, of any size. A *segment* is the content of one packet. A *chunk* is the piece of a large
//! fragment that fills a segment. A *link* is a rank's state for a peer with which it communicates.
//! Loss detection, RTT and congestion control use the terms of RFC 9002. See `docs/udp.md`.
//!
//! **Promises.** A fragment arrives exactly once and in the order of its channel, or its peer is
//! reported as failed within the dead time. No packet causes a panic, and only packets sealed for
//! this session change any state other than counters.
//!
//! **Costs.** A fragment that fits in a packet takes only one packet, and packets in the other
//! direction carry its acknowledgement. Large fragments are not copied. For a peer without traffic,
//! a rank keeps an idle link of 64 bytes.

#![forbid(unsafe_code)]

mod ack_state;
mod bundle;
mod config;
mod congestion;
mod contract;
mod counters;
mod endpoint;
mod link;
mod liveness;
mod mix;
mod packet;
mod replay;
mod rtt;
mod sequence;
mod timers;

#[cfg(test)]
mod tests;

pub use config::{Config, MAX_PACKET, MAX_WINDOW, MIN_PACKET};
pub use contract::{
    Failure, Fragment, FragmentHandler, MAX_HEADER, MAX_TINY, Nanos, Payload, Refused, Seal, TAG,
    Transmit, ZeroCopy,
};
pub use counters::Counters;
pub use endpoint::{Dropped, Endpoint, Received};
pub use link::LinkStatus;
pub(crate) use mix::mixed;
