//! Mercury's network abstraction (NA) over Conduit's networks: messages and memory transfers
//! between processes that come and go.
//!
//! A process opens a [`Class`] with an info string that names the network. Other processes reach it
//! by its [address](Class::own), which is exchanged as text. Operations begin and end in a
//! [`Context`], and each operation is a [`Pending`] future. An *unexpected* message goes to the
//! receiver's first posted receive for unexpected messages. An *expected* message goes to a posted
//! receive that names its source and tag. Puts and gets copy between [`Memory`] of two processes.
//!
//! No thread makes progress in the background. The caller must call [`Context::progress`], which
//! makes progress, and [`Context::trigger`], which completes operations that have ended;
//! [`Pending::wait`] calls both.
//!
//! A server that answers one request:
//!
//! ```no_run
//! use na::{Class, Options};
//!
//! # fn main() -> na::Result<()> {
//! let options = Options { listen: true, ..Options::default() };
//! let class = Class::open("conduit+udp", &options)?;
//! println!("{}", class.own());
//! let context = class.context(0)?;
//! let question = context.receive_unexpected()?.wait()?;
//! context.send_expected(b"42".to_vec(), (&question.source, 0), question.tag)?.wait()?;
//! # Ok(())
//! # }
//! ```
//!
//! The plugin for Mercury uses the [`raw`] interface, in which the caller owns the memory.

mod address;
mod class;
mod context;
mod engine;
mod error;
mod handle;
mod machine;
mod open;
mod options;
mod waiting;

pub use address::Addr;
pub use class::{Network, Part};
pub use context::{Class, Context, Memory, Message, Pending};
pub use error::{Error, Result};
pub use handle::Handle;
pub use machine::Counters;
pub use machine::memory::Rights;
pub use options::{AddressFormat, Info, Options, Protocol};

/// The interface that takes memory by address, and identifies completions by numbers.
pub mod raw {
    pub use crate::class::{Class, Completion, Outcome, Source, Target};
    pub use crate::handle::Memory;
    pub use crate::machine::memory::Segment;
    pub use crate::machine::operation::OperationId;
}
