//! What the lock and the mailboxes are made of: the usual, or with `--cfg loom` the model checker's.

#[cfg(not(loom))]
pub(crate) use parking_lot::{Mutex, MutexGuard};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicBool, fence};

#[cfg(loom)]
pub(crate) use loom::sync::{MutexGuard, atomic::AtomicBool};
#[cfg(loom)]
use std::sync::atomic::Ordering;

/// The checker's mutex, in the other's words.
#[cfg(loom)]
pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

#[cfg(loom)]
impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(loom::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().expect("no model panics inside")
    }

    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock().ok()
    }
}

/// The checker's fence, which other threads can get in front of: it switches threads at accesses only, and a fence would be one
/// step with the access before it. All fences access one word, whose order orders nothing that the fences don't.
#[cfg(loom)]
pub(crate) fn fence(ordering: Ordering) {
    use loom::sync::atomic::AtomicU32;
    loom::lazy_static! {
        static ref STEP: AtomicU32 = AtomicU32::new(0);
    }
    STEP.fetch_add(1, Ordering::Relaxed);
    loom::sync::atomic::fence(ordering);
}
