//! The atomics of everything that processes share without locks: the standard ones, or the model checker's.
//!
//! `--cfg loom` swaps them, and then only [`crate::ring`] and [`crate::bell`] are built (with their models).

#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
