//! The atomics of everything that processes share without locks: the standard ones, or the model checker's.
//!
//! `--cfg loom` swaps them, and then only [`crate::ring`] and [`crate::bell`] are built (with their models).

#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The checker's fence, which other threads can get in front of. The checker itself switches threads at accesses only: a
/// fence would be one step with the access before it, and fences that are missing there would not be missed. All fences
/// access one word, so that their orders are all tried; the access orders nothing that the fences don't.
#[cfg(loom)]
pub(crate) fn fence(ordering: Ordering) {
    loom::lazy_static! {
        static ref STEP: AtomicU32 = AtomicU32::new(0);
    }
    STEP.fetch_add(1, Ordering::Relaxed);
    loom::sync::atomic::fence(ordering);
}
