//! Remote atomics.

pub(crate) mod calls;

pub use calls::AtomicRequest;
