//! Direct access: operations that the transport does on a peer's memory, without the target's matching.
//!
//! An entry is *plain* if what it takes can be said without its owner: it lies in a region that the transport
//! [exposes](crate::transport::Transport::expose), takes messages of any source, is not used up, tells nobody of its operations, shares no
//! claim, and was appended to an empty list, so that nothing ever stands before it. What matches a plain entry and is within it has
//! one end only, [`Outcome::Done`](conduit_core::ni::Outcome::Done), and the network can do it.
//!
//! | message | sent |
//! |---|---|
//! | DIRECT | once to each peer whose message has matched a plain entry: its bits, what may be done, where it lies |
//! | WITHDRAW | to each peer that was told, when the owner wants to unlink the entry |
//! | WITHDRAWN | back, when the peer's direct operations on it have ended |
//!
//! All are tiny fragments, so each pair of ranks sees them in order. A peer that was told does what fits the entry directly; all
//! else goes by message and ends as it would without this. Until all peers have answered the entry stays linked,
//! [`Unlink::InUse`](conduit_core::ni::Unlink::InUse), and takes messages; nobody is told of it again. Who fails or leaves has
//! answered. So there is at most one entry of each index that a peer may know of.
//!
//! Writes are always asked for with delivery, also for puts whose initiator wants to know of the source only: otherwise bytes could
//! come after WITHDRAWN, when their place may be used for something else.
//!
//! What is told lies apart from [`Link`](super::link::Link), which then rests as it would without it: eight bytes a rank, once any
//! peer has told, and about a hundred for each peer that has.

mod atomics;
mod known;
mod submit;
mod told;

pub(crate) use atomics::{Native, result_of};
pub(crate) use known::Direct;
pub(crate) use told::Plain;
