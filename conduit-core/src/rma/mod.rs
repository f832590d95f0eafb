//! Puts and gets.

pub(crate) mod calls;
pub(crate) mod explicit;
pub(crate) mod implicit;
pub(crate) mod signal;
pub(crate) mod transfer;
pub mod vis;

pub use calls::value_bytes;
pub use implicit::Class;
