//! Active messages without a network: what an active message (AM) is, how it looks on the wire, which handler it runs
//! and what that handler may do.
//!
//! The crate does no I/O, reads no clock, starts no thread and takes no lock; nothing allocates after construction. The
//! engine drives it:
//!
//! * sending: [`Header::encode`] gives the match bits and the header data, [`Body::write_args`] (and [`Long::write`]) the
//!   front of the body; the payload follows at [`Body::payload_offset`];
//! * receiving: [`Header::decode`], [`Body::read_args`], [`handlers::Table::get`] and
//!   [`check`](handlers::Entry::check), then a [`Token`] for the handler;
//! * a long whose data travels by itself: [`lid::LidCache`] tells when both halves are there.
//!
//! Everything that comes from the wire is checked; no bit pattern panics.
//!
//! Rules come from the GASNet Portals conduit's notes ("The Implementation of GASNet Active Messages") and the GASNet
//! specification; where the layout is this project's own, the item says so.

#![forbid(unsafe_code)]

mod body;
mod context;
mod flags;
pub mod handlers;
mod header;
pub mod lid;
pub mod limits;
pub mod op;
pub mod select;
mod token;

pub use body::{Body, Long};
pub use context::{Context, ContextError, Operation};
pub use flags::{Category, Flags, Role};
pub use header::{DataHeader, Header, HeaderError, LID_BITS, LID_MASK, NO_CHUNK, NO_LID};
pub use token::Token;

/// Most arguments of an AM, each 32 bits wide (GASNet asks for at least 16 on 64-bit machines).
pub const MAX_ARGS: usize = 16;

/// Number of a process in the job, from 0 (GASNet-1 says node).
pub type Rank = u32;
