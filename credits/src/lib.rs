//! Flow control of active messages by credits. It is a state machine without I/O, clock, threads
//! and locks, and does not allocate after construction.
//!
//! A credit stands for a fixed number of bytes in a receiver's request buffers and for one event.
//! Each rank lends credits to every other rank, and keeps the rest in its bank. A request takes
//! credits of the receiver, and the reply brings them back, so the request buffers cannot overflow,
//! no matter which ranks send. Only requests need credits: a reply goes to a chunk that its
//! requester has reserved for it.
//!
//! The entry points are [`Plan`], which computes what a rank lends and how much memory that takes,
//! and [`FlowControl`], the interface that the engine calls. [`Policy`] implements that interface
//! with the algorithm that a job's settings select. The engine calls it as follows:
//!
//! * To send a request, it calls [`Scale::cost`] and [`FlowControl::take`], and puts the
//!   [`CreditByte`] into the request. If `take` fails, it polls and tries again.
//! * When a request has arrived, it runs the request's handler, calls [`FlowControl::grant`] and
//!   puts the resulting byte into the reply.
//! * When a reply has arrived, it calls [`FlowControl::settle`].
//! * When it polls, it calls [`FlowControl::next_system`], and [`FlowControl::on_system`] for each
//!   system message that has arrived.
//!
//! ```
//! use credits::{CreditByte, FlowControl, Overrides, Plan, Policy, Scale};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Every rank computes the same plan, so nothing needs to be sent at the start.
//! let plan = Plan::new(2, Scale::for_chunk(1024)?, &Overrides::default())?;
//! let (mut requester, mut lender) = (Policy::from_plan(&plan, 0), Policy::from_plan(&plan, 1));
//!
//! // Rank 0 sends rank 1 a medium of 700 bytes, which costs 3 credits of 256 bytes.
//! let request = requester.take(1, plan.scale().cost(700))?;
//! assert_eq!(requester.in_flight(1), 3);
//!
//! // Rank 1 runs the handler and replies; the reply brings the credits back.
//! let reply = lender.grant(0, CreditByte::from_bits(request.bits()));
//! requester.settle(1, reply)?;
//! assert_eq!(requester.in_flight(1), 0);
//! # Ok(())
//! # }
//! ```
//!
//! The scheme is that of GASNet's Portals conduit ("Scheme for credit balancing and
//! re-distribution").

#![forbid(unsafe_code)]

mod bank;
mod byte;
pub mod defaults;
mod dynamic;
mod flow;
mod plan;
mod policy;
mod scale;
mod static_credits;
pub mod statistics;
mod store;
mod unlimited;

pub use bank::{Bank, OwnBank, SharedBank};
pub use byte::{CreditByte, MAX_CREDITS, MAX_EXTRA};
pub use dynamic::{Dynamic, Growth, Peer, PeerState, Tuning};
pub use flow::{FlowControl, Short, System, Violation};
pub use plan::{Overrides, Plan, PlanError};
pub use policy::Policy;
pub use scale::{EVENT_BYTES, Scale, ScaleError};
pub use static_credits::{Loan, Static};
pub use store::{Dense, Part, Sparse, Store};
pub use unlimited::Unlimited;
