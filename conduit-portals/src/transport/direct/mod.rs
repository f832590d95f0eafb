//! Direct access: operations that the transport performs on a peer's memory (RDMA), without
//! matching at the target.
//!
//! An entry is *exportable* if initiators can tell by themselves which messages the entry takes: it
//! lies in a region that the transport [exposes](crate::transport::Transport::expose), takes
//! messages from any source, is not used up, raises no events for operations, shares no claim, and
//! was appended to an empty list, so that no entry ever precedes it. An operation that matches such
//! an entry and lies within its memory has only one possible outcome,
//! [`Outcome::Done`](conduit_core::ni::Outcome::Done), and the network can perform it.
//!
//! | message | sent |
//! |---|---|
//! | ADVERTISE | once to each peer whose message has matched an exportable entry: its bits, the permitted operations, its address |
//! | WITHDRAW | to each peer that has imported the entry, when the owner wants to unlink it |
//! | WITHDRAWN | in reply, when the peer's direct operations on the entry have ended |
//!
//! All three are tiny fragments, so they arrive in the order in which they were sent. A peer that
//! has imported an entry accesses it directly for operations that fit the entry; all others go by
//! message and end as they would without direct access. Until all peers have replied to WITHDRAW,
//! the entry stays linked ([`Unlink::InUse`](conduit_core::ni::Unlink::InUse)) and takes messages,
//! but is not advertised any more. A peer that fails or leaves counts as having replied. An
//! exportable entry is appended to an empty list and stays linked until all peers have replied, so
//! a peer imports at most one entry of each index.
//!
//! A write always ends only once it is complete at the target, even for a put whose initiator only
//! wants to reuse its source. Otherwise bytes could arrive after WITHDRAWN, when their memory may
//! have another use.
//!
//! Imports are kept separately from [`TransportLink`](super::link::TransportLink), which therefore
//! becomes idle regardless of them. Imports take eight bytes for each rank once any peer has
//! advertised an entry, and about a hundred more for each peer that has advertised one.

mod atomics;
mod exported;
mod imported;
mod send;

pub(crate) use atomics::Native;
pub(crate) use exported::Exported;
pub(crate) use imported::DirectAccess;
