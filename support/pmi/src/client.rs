//! The rank's side of PMI-1.
//!
//! [`Codec`] encodes requests and decodes replies; it does no I/O. [`Connection`] drives it over
//! the socket that the launcher left open. Its calls block, with an optional time limit.

mod bootstrap;
mod codec;
mod connection;
mod environment;
mod error;
mod mpi;
mod socket;

pub use codec::{Codec, CodecError, Maxes, Request, Response};
pub use connection::Connection;
pub use error::Error;
