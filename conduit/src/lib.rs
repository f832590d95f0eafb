//! Conduit: the communication layer under a PGAS language runtime.
//!
//! The ranks of a job each attach a *segment*; any rank puts to and gets from any segment, and sends *active messages*
//! that run a handler on another rank. Buffers are bounded at any job size by credits.
//!
//! # A first program
//!
//! ```
//! use conduit::{Handlers, start};
//!
//! fn main() -> conduit::Result<()> {
//!     let job = start()?;
//!     let mut handlers = Handlers::new();
//!     let hello = handlers.short(|call, (number,): (u64,)| {
//!         println!("rank {} sent {number}", call.source());
//!     });
//!     // A segment of 1 MiB on every rank.
//!     let conduit = job.attach(handlers, 1 << 20)?;
//!     let right = (conduit.rank() + 1) % conduit.size();
//!     conduit.put(right, 0, &42u64)?;
//!     conduit.request(right, hello, (7,))?;
//!     conduit.barrier()?;
//!     let mut value = 0u64;
//!     conduit.get(&mut value, conduit.rank(), 0)?;
//!     assert_eq!(value, 42);
//!     conduit.finish()
//! }
//! ```
//!
//! Started alone it is a job of one rank; `conduit-run -n 4 program` makes it four.
//!
//! # Where to read on
//!
//! - [`start`] and [`Job`]: joining a job, attaching; [`Conduit`]: everything else.
//! - [`Handlers`], [`Call`]: active messages with typed arguments and payloads; what a handler reaches.
//! - [`Segment`]: this rank's own memory, with atomics for handlers too.
//! - [`Handle`], [`Conduit::scope`]: operations that overlap.
//! - [`threads`]: the three threading modes, chosen by type.
//! - [`settings`]: every setting with default and meaning.
//!
//! # What is safe
//!
//! Puts, gets and messages with borrowed buffers are safe calls: they return when the buffer is the caller's again, or the
//! borrow lasts as long as the operation ([`Conduit::scope`]). Calls that leave a raw buffer with the network are `unsafe`
//! and say until when. An error that ends the job (a dead peer, a message that makes no sense, a handler's panic) gives all of these
//! buffers back: once a call has returned it, or a panic has left the call, nothing reads or writes any of them, on any network and
//! whatever still arrives. Two ranks that access the same bytes of a segment at the same time, one of them writing, leave
//! unspecified bytes there (never more harm than that): the program orders them by barriers, messages or atomics.
//!
//! **Ranks of one host trust each other with the memory that they share.** A handler's arguments and a medium's payload are lent to it
//! where the sender has written them, in memory that both processes have mapped: a copy would cost more than all else of a short
//! message. The sender does not write there again before the handler has returned; no safe call can make it. That the process does
//! not do so by other means is what this library relies on for `&[u8]` to be one: ranks of a job on one host are processes of one
//! user that run one program, and could do each other worse in any case. A rank whose memory is corrupted (by a stray pointer in
//! `unsafe` code, or in C) may change bytes under a reader's eyes: what a handler has checked may be something else when it is used.
//! The reader is safe from all else: what Conduit itself goes by (lengths, offsets, handlers, ranks) it takes out of the message once
//! and checks before it is used, and what makes no sense ends the job with an error. A program that wants to be safe from
//! this as well copies the payload first. Over networks a handler's bytes are this process's own, but for replies that lie where the
//! replier may write.

#![warn(clippy::missing_errors_doc)]

mod agreement;
mod args;
mod atomics;
mod call;
mod collectives;
mod conduit;
mod error;
mod handlers;
mod job;
mod member;
mod messages;
mod ranges;
#[cfg(doctest)]
mod refused;
mod rma;
mod scope;
mod scoped_team;
mod segment;
pub mod settings;
mod start;
mod team;

pub use args::{Args, MAX_ARG_WORDS, Word};
pub use atomics::{Atom, AtomicOp, FloatOp};
pub use call::Call;
pub use collectives::{DataType, Element, ReduceOp};
pub use conduit::{Condition, Conduit};
pub use conduit_core::barrier::Calls;
pub use conduit_core::kernel::{Error as EngineError, Handle};
pub use conduit_core::ni::{AtomicType, Rank};
pub use conduit_core::rma::vis::{Block, Shape};
pub use conduit_core::threads::{Par, ParSync, Seq};
pub use conduit_core::{stderr, threads};
pub use error::{Error, Result};
pub use handlers::{AnyMode, Handlers, Long, Medium, Payload, Short};
pub use job::Job;
pub use member::{Handler, Member, Message, process_code};
pub use messages::PreparedMedium;
pub use networks::{Error as NetworkError, Network, available_networks};
pub use scope::Scope;
pub use scoped_team::ScopedTeam;
pub use segment::{Landed, Segment};
pub use start::{check_alone, has_launcher, join, start, start_as};
pub use team::Team;
pub use zerocopy;
