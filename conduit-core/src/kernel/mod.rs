//! What all subjects stand on.

pub(crate) mod backoff;
pub(crate) mod chunks;
pub(crate) mod context;
pub(crate) mod control;
pub(crate) mod error;
pub(crate) mod handle;
pub(crate) mod job;
pub(crate) mod operations;
pub(crate) mod options;
pub(crate) mod polling;
pub(crate) mod portal_table;
pub(crate) mod reports;
pub(crate) mod system;
pub(crate) mod tickets;
pub(crate) mod token;

pub use backoff::Waiter;
pub use control::SharedPtr;
pub use error::{Error, Result};
pub use handle::Handle;
pub use options::{Blocking, Completion};
