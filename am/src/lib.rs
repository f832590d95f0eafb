//! Active messages without a network: the kinds of active messages (AMs), their wire format, the
//! handlers that they run, and the calls that a handler may make.
//!
//! The crate does no I/O, reads no clock, starts no thread and takes no lock. After construction,
//! only the pairing of longs allocates memory. The engine uses the crate as follows:
//!
//! * To send, [`Header::encode`] returns the match bits and the header data. [`Body::write_args`]
//!   and, for a long, [`Long::write`] write the front of the body. The payload follows at
//!   [`Body::payload_offset`].
//! * To receive, the engine calls [`Header::decode`], [`Body::read_args`], [`handlers::Table::get`]
//!   and [`check`](handlers::Entry::check), and then creates a [`Token`] for the handler.
//! * For a long whose data travels separately, [`lid::LidCache`] reports when both halves have
//!   arrived.
//!
//! ```
//! use am::handlers::{Registration, Table};
//! use am::{Body, Category, Flags, Header, NO_CHUNK, NO_LID, Role, Token, select};
//!
//! type Handler = fn(&Token, &[u32], &[u8]);
//!
//! fn greet(token: &Token, args: &[u32], payload: &[u8]) {
//!     assert_eq!((token.source, args, payload), (3, &[1, 2, 3][..], &b"hello"[..]));
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut table = Table::<Handler>::new();
//! let mut list = [Registration::new(0, greet as Handler)];
//! table.register(&mut list)?;
//! assert_eq!(list[0].id, 255);
//!
//! // Rank 3 sends a medium with three arguments ...
//! let args = [1, 2, 3];
//! let header = Header {
//!     flags: Flags::of(Category::Medium, Role::Request) | Flags::NO_CHUNK,
//!     handler: list[0].id,
//!     nargs: 3,
//!     credit: 1,
//!     chunk: NO_CHUNK,
//!     arg0: args[0],
//!     lid: NO_LID,
//! };
//! let (match_bits, hdr_data) = header.encode(select::REQ_RB);
//! # #[repr(align(16))]
//! # struct Aligned([u8; 64]);
//! # let Aligned(mut body) = Aligned([0; 64]);
//! let payload = Body::write_args(&args, &mut body);
//! body[payload..payload + 5].copy_from_slice(b"hello");
//!
//! // ... and its handler runs here.
//! let (header, body) = (Header::decode(match_bits, hdr_data)?, &body[..payload + 5]);
//! let mut single = 0;
//! let (args, payload) = Body::read_args(&header, body, &mut single)?;
//! let entry = table.get(header.handler).ok_or("no such handler")?;
//! entry.check(&header)?;
//! let token = Token::new(3, &header);
//! (entry.handler)(&token, args, payload);
//! assert!(token.owes_reply());
//! # Ok(())
//! # }
//! ```
//!
//! Everything that comes from the wire is checked, so no bit pattern causes a panic.
//!
//! The rules come from the notes on the GASNet Portals conduit ("The Implementation of GASNet
//! Active Messages") and from the GASNet specification. Items whose layout is Conduit's own say so.

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

pub use body::{Body, Layout, Long};
pub use context::{Context, ContextError, Operation};
pub use flags::{Category, Flags, Role};
pub use header::{DataHeader, Header, HeaderError, LID_BITS, LID_MASK, NO_CHUNK, NO_LID};
pub use token::Token;

/// Maximum number of arguments of an AM. Each argument has 32 bits. (GASNet requires at least 16
/// arguments on 64-bit machines.)
pub const MAX_ARGS: usize = 16;

/// The number of a process in the job, from 0. GASNet-1 calls it the node.
pub type Rank = u32;
