//! Conduit: the communication layer under a PGAS language runtime.
//!
//! The processes of a job put to and get from each other's memory, send active messages, and
//! perform atomic and collective operations. Credits bound the memory for message buffers at any
//! job size.
//!
//! # Concepts
//!
//! - *Job*: the processes of one run of a program. Each is a *rank*, numbered from 0.
//! - *Segment*: memory that a rank attaches for all ranks to access. A location in a segment is
//!   given as an offset in bytes.
//! - *Put*, *get*: a copy to or from any rank's segment, without that rank's participation.
//! - *Active message*: a *request*, which runs a handler on another rank, or the *reply* that this
//!   handler may send back. Every message carries arguments. A *short* carries nothing else, a
//!   *medium* also carries a payload, and a *long* also stores a payload in the target's segment.
//! - *Handler*: a function that a rank registers before it attaches. It runs on the calling thread,
//!   inside those calls of the rank that poll.
//! - *Barrier*: [`Conduit::barrier`] waits for all ranks and makes completed puts visible. Messages
//!   may still be in flight afterwards.
//! - *Quiesce*: [`Conduit::quiesce`] is a barrier that also waits until all messages have been
//!   handled.
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
//! Started directly, the program is a job of one rank; `conduit-run -n 4 program` starts four.
//!
//! # Threads
//!
//! The [threading mode](threads) is a type parameter, so sequential programs do not pay for locks.
//! [`start`] joins the job in the mode [`Seq`], and [`start_as`] in any mode.
//!
//! | mode | permitted callers | `Conduit` is | handlers are |
//! |---|---|---|---|
//! | [`Seq`] | one thread | neither `Send` nor `Sync` | any functions |
//! | [`ParSync`] | any thread, one at a time | `Send` | `Send` and `Sync` |
//! | [`Par`] | any number of threads | `Send` and `Sync` | `Send` and `Sync` |
//!
//! The compiler therefore rejects a program that shares a [`Seq`] rank between threads, or gives a
//! rank of another mode a handler that only one thread may run. Implicit operations, access regions
//! and scopes belong to the thread that started them.
//!
//! # What is safe
//!
//! Puts, gets and messages with borrowed buffers are safe calls. Either they return only when the
//! caller may reuse the buffer, or the borrow lasts as long as the operation ([`Conduit::scope`]).
//! Calls that leave a raw buffer with the network are `unsafe`, and their documentation says how
//! long the buffer must remain valid. An error that ends the job (a dead peer, a protocol
//! violation, a panic in a handler) releases all these buffers: once a call has returned the error,
//! or a panic has unwound out of the call, no network reads or writes them, even if messages still
//! arrive. If two ranks access the same bytes of a segment concurrently and one of them writes, the
//! contents of those bytes are unspecified, but nothing else is affected. To order such accesses,
//! programs use barriers, messages or atomics.
//!
//! **Ranks on one host trust each other with the memory that they share.** A handler borrows its
//! arguments and a medium's payload where the sender has written them, in memory that both
//! processes have mapped, because a copy would cost more than the rest of a short message. The
//! processes have mapped, because a copy would cost more than the rest of a short message. The
//! sender does not write there again before the handler has returned, and no safe call can make it
//! do so. For `&[u8]` to be sound, Conduit must also rely on the sender's process not writing there
//! by other means. The ranks of a job on one host are processes of one user that run one program,
//! and they could harm each other more in other ways. If the memory of a rank is corrupted (by a
//! stray pointer in `unsafe` code, or in C), that rank may change bytes while a handler reads them,
//! so that a value may differ between its check and its use.
//!
//! The damage is limited to these bytes. Conduit reads the values on which it relies (lengths,
//! offsets, handlers, ranks) from the message once and checks them before use, and invalid values
//! end the job with an error. A program that needs protection from such changes in its payloads too
//! must copy each payload first. Over networks other than shared memory, a handler's arguments and
//! payload are private to this process, except for replies that arrive in memory to which the
//! replier may write.
//!
//! # Errors
//!
//! Errors are values. The text of an [`Error`] names the call, the calling rank, and the argument
//! or setting concerned. A `main` that returns the error prints this text. Most errors concern one
//! call, and the program may continue. Errors that [end the job](Error#failure-of-the-job) are
//! final: every later call that uses the network returns the same error. Some calls [fail in
//! handlers](Error#calls-in-handlers).
//!
//! # Settings and features
//!
//! Settings are environment variables of the ranks. Their names begin with `CONDUIT_` or
//! `GASNET_PORTAL_`. An unknown name or an unacceptable value is an error when the job starts.
//! `conduit-run --print-settings` prints all settings with their values.
//!
//! The crate has no Cargo features. A job selects its networks when it starts. By default these are
//! shared memory on each host and UDP between hosts; `CONDUIT_NETWORK` can select others of the
//! [`available_networks`].
//!
//! # Where to go next
//!
//! - [`start`], [`Job`]: joining a job and attaching; [`Conduit`]: all other calls.
//! - [`Handlers`], [`Call`]: active messages with typed arguments and payloads, and the calls that
//!   a handler may make.
//! - [`Segment`]: this rank's own memory, with atomics that handlers may use too.
//! - [`Handle`], [`Conduit::scope`]: operations that overlap.
//! - [`Team`], [`Scope::team`]: collective operations of all ranks or of some, which may overlap.
//! - [`settings`]: every setting with its default and meaning.
//! - The book in the repository (`docs/`): a tutorial, a comparison of calls by cost, and the
//!   promises about order, visibility and progress.

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
