//! What threads and processes share without locks, and the lock and mailboxes of a rank, are made of: the usual, or with
//! `--cfg loom` the model checker's. Then shared memory is not built, of which only the rings and the bell have models.

#[cfg(not(loom))]
pub(crate) use parking_lot::{Mutex, MutexGuard};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};

#[cfg(loom)]
pub(crate) use loom::sync::MutexGuard;
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

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
