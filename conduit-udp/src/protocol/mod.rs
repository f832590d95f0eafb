//! Reliable datagrams: packets and time in; packets, deliveries and timers out.
//!
//! The words are the usNIC BTL's: a *fragment* is what the user of the protocol sends, of any size; a *segment* is what goes
//! into one packet; a *chunk* is the piece of a large fragment that fills a segment. A *link* is what a rank keeps of one
//! peer it talks to. See `docs/udp.md`.

mod contract;

pub use contract::{
    Failure, Fragment, MAX_HEADER, MAX_TINY, Nanos, Payload, Refused, Seal, TAG, Transmit, Upper,
};
