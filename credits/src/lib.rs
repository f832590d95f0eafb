//! Flow control of active messages by credits, as a state machine: no I/O, no clock, no threads, no locks, and no
//! allocation after construction.
//!
//! A credit stands for a fixed amount of a receiver's request buffers and one event. Each rank lends credits to every
//! other, and keeps the rest in its bank. A request takes credits of the receiver's and brings them back with its reply,
//! so the request buffers cannot overflow, whoever sends. Only requests need credits: a reply goes to a chunk that its
//! requester keeps for it.
//!
//! Start with [`Plan`], which computes what a rank lends and how much memory that takes, and [`FlowControl`], the
//! interface that the engine drives; [`Policy`] is the implementation that a job's settings ask for.
//!
//! * send a request: [`Scale::cost`], [`FlowControl::take`] (else poll and try again), put the [`CreditByte`] into it;
//! * a request arrived: run its handler, [`FlowControl::grant`], put that byte into the reply;
//! * a reply arrived: [`FlowControl::settle`];
//! * when polling: [`FlowControl::next_system`], and [`FlowControl::on_system`] for what arrives.
//!
//! The scheme is the GASNet Portals conduit's ("Scheme for credit balancing and re-distribution").

#![forbid(unsafe_code)]

mod byte;
pub mod defaults;
mod flow;
mod plan;
mod policy;
mod scale;
mod static_credits;
mod unlimited;

pub use byte::{CreditByte, MAX_CREDITS, MAX_EXTRA};
pub use flow::{FlowControl, Short, System, Violation};
pub use plan::{Overrides, Plan, PlanError};
pub use policy::Policy;
pub use scale::{EVENT_BYTES, Scale, ScaleError};
pub use static_credits::Static;
pub use unlimited::Unlimited;
