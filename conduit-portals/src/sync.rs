//! The synchronisation primitives of the modules that have loom models. They are the standard ones,
//! or those of the model checker when built with `--cfg loom`.

#[cfg(not(loom))]
pub(crate) use parking_lot::{Mutex, MutexGuard};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::AtomicBool;
#[cfg(not(loom))]
pub use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

#[cfg(loom)]
pub(crate) use loom::sync::MutexGuard;
#[cfg(loom)]
pub(crate) use loom::sync::atomic::AtomicBool;
#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The model checker's mutex with the interface of parking_lot's.
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

/// Executes a fence before which the model checker can switch threads. The checker switches only at
/// accesses to atomics, so it would execute a plain fence in one step with the access before it,
/// and the models would not detect a missing fence. Here every fence also accesses one shared word,
/// which makes the checker try every order of the fences. The access is relaxed, so it adds no
/// ordering.
#[cfg(loom)]
pub fn fence(ordering: Ordering) {
    loom::lazy_static! {
        static ref STEP: AtomicU32 = AtomicU32::new(0);
    }
    STEP.fetch_add(1, Ordering::Relaxed);
    loom::sync::atomic::fence(ordering);
}
