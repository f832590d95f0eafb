//! Direct access: operations that the transport does on a peer's memory (RDMA), without matching at
//! the target.
//!
//! An entry is *exportable* if its owner is not needed to know what it takes: it lies in a region
//! that the transport [exposes](crate::transport::Transport::expose), takes messages of any source,
//! is not used up, raises no events for operations, shares no claim, and was appended to an empty
//! list, so that no entry ever precedes it. What matches it and lies within it has one outcome
//! only, [`Outcome::Done`](conduit_core::ni::Outcome::Done), and the network can do it.
//!
//! | message | sent |
//! |---|---|
//! | ADVERTISE | once to each peer whose message has matched an exportable entry: its bits, the permitted operations, its address |
//! | WITHDRAW | to each peer that has imported the entry, when the owner wants to unlink it |
//! | WITHDRAWN | in reply, when the peer's direct operations on it have ended |
//!
//! All are tiny fragments, so each pair of ranks sees them in order. A peer that has imported an
//! entry does directly what fits the entry; all else goes by message and ends as it would without
//! direct access. Until all peers have replied to WITHDRAW the entry stays linked
//! ([`Unlink::InUse`](conduit_core::ni::Unlink::InUse)) and takes messages, but is advertised no
//! more. A peer that fails or leaves counts as having replied. So a peer imports at most one entry
//! of each index.
//!
//! Writes are always completed at the target, also for puts whose initiator only wants its source
//! back. Otherwise bytes could arrive after WITHDRAWN, when their memory may have another use.
//!
//! Imports are kept apart from [`TransportLink`](super::link::TransportLink), which so becomes idle
//! regardless of them: eight bytes for each rank once any peer has advertised, and about a hundred
//! for each such peer.

mod atomics;
mod exported;
mod imported;
mod send;

pub(crate) use atomics::Native;
pub(crate) use exported::Exported;
pub(crate) use imported::DirectAccess;
