//! The reliability protocol, a state machine: packets and time come in; packets, deliveries and
//! timers go out.
//!
//! Its words are those of Open MPI's usNIC BTL: a *fragment* is what the user of the protocol
//! sends, of any size; a *segment* is what goes into one packet; a *chunk* is the piece of a large
//! fragment that fills a segment. A *link* is what a rank keeps of a peer that it communicates
//! with. Loss detection, RTT and congestion control have the words of RFC 9002. See `docs/udp.md`.
//!
//! **Promises.** A fragment arrives exactly once and in the order of its channel, or its peer is
//! reported as failed within the dead time. No packet causes a panic, and none that is not sealed
//! for this session changes anything.
//!
//! **Costs.** One packet for a fragment that fits, acknowledged by packets that go the other way
//! anyway; no copy of large fragments. A peer without traffic keeps an idle link of 64 bytes.

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
