//! Mercury's network abstraction (NA) over Conduit's networks: messages and memory transfers between
//! processes that come and go.
//!
//! A process opens a [`Class`] with an info string that names the network, and others reach it by
//! its [address](Class::own), which is exchanged as text. Operations are begun in a [`Context`] and
//! end there: each is a [`Pending`] future. There are *unexpected* messages, which whoever has
//! posted a receive for any gets; *expected* ones, for which the receiver posts a receive that names
//! source and tag; and puts and gets between [`Memory`] of two processes.
//!
//! Nothing happens by itself: [`Context::progress`] makes progress, and [`Context::trigger`]
//! completes what has ended.
//!
//! A server that answers one question:
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
//! The plugin for Mercury itself is made of the [`raw`] interface, whose memory is the caller's.

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

/// The interface that takes memory by its address, and tells completions by numbers.
pub mod raw {
    pub use crate::class::{Class, Completion, Outcome, Source, Target};
    pub use crate::handle::Memory;
    pub use crate::machine::memory::Segment;
    pub use crate::machine::operation::OperationId;
}
