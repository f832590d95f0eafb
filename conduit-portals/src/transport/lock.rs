//! The lock around a rank's end, cheap for who nearly always takes it.
//!
//! A rank's own thread takes it with every call and every poll; the [progress thread](crate::transport::ProgressThread) only when the rank has been
//! away for a while. An ordinary lock costs two atomic read-modify-writes each time, of some twenty cycles each: more than the rest of
//! a poll that finds nothing. So where one thread of the rank at a time makes calls (`Seq`, `ParSync`), the *owner's* half of the lock
//! is a store and a load, and the *visitor* pays for both with a system call:
//!
//! ```text
//! owner                               visitor (under the mutex)
//! inside = true                       wanted = true
//! (barrier)                           (barrier)
//! wanted? then leave, and wait        inside? then give up
//!   for the mutex
//! ```
//!
//! One of the two sees the other if both barriers are full ones. The visitor's `membarrier` makes each processor that runs a thread of
//! this process go through one, so the owner's may be one for the compiler alone. Where the system has no such call both are fences.
//!
//! Where several threads of the rank are inside at once (`Par`) the mutex is all there is.

#[cfg(all(test, loom))]
mod loom;

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::OnceLock;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::compiler_fence;

use crate::sync::{AtomicBool, Mutex, MutexGuard, fence};

use rustix::thread::{MembarrierCommand, MembarrierQuery, membarrier, membarrier_query};

/// Who owns the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owners {
    /// One thread at a time.
    One,
    /// Any number of threads.
    Many,
}

/// The lock. On a cache line of its own, which the visitor touches only when it comes.
#[repr(align(128))]
pub(crate) struct OwnersLock<T> {
    inside: AtomicBool,
    wanted: AtomicBool,
    owners: Owners,
    /// The owner's barrier is one for the compiler alone.
    light: bool,
    mutex: Mutex<()>,
    value: UnsafeCell<T>,
}

// SAFETY: at most one guard exists at a time, see the module; what it reaches may be sent.
unsafe impl<T: Send> Sync for OwnersLock<T> {}

/// Access by an owner.
pub(crate) struct Guard<'a, T> {
    lock: &'a OwnersLock<T>,
    /// `None` for an only owner.
    mutex: Option<MutexGuard<'a, ()>>,
}

/// Access by a visitor.
pub(crate) struct Visit<'a, T> {
    lock: &'a OwnersLock<T>,
    _mutex: MutexGuard<'a, ()>,
}

/// Whether a visitor can make the owner's processor go through a barrier.
fn has_membarrier() -> bool {
    static HAS: OnceLock<bool> = OnceLock::new();
    *HAS.get_or_init(|| {
        let wanted =
            MembarrierQuery::PRIVATE_EXPEDITED | MembarrierQuery::REGISTER_PRIVATE_EXPEDITED;
        membarrier_query().contains(wanted)
            && membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok()
    })
}

impl<T> OwnersLock<T> {
    pub(crate) fn new(value: T, owners: Owners) -> Self {
        Self::with_barrier(value, owners, has_membarrier())
    }

    fn with_barrier(value: T, owners: Owners, light: bool) -> Self {
        Self {
            inside: AtomicBool::new(false),
            wanted: AtomicBool::new(false),
            owners,
            light,
            mutex: Mutex::new(()),
            value: UnsafeCell::new(value),
        }
    }

    /// Access, waiting for a visitor, or for another owner of many.
    ///
    /// # Panics
    /// The only owner is inside already: it would wait for itself.
    ///
    /// # Safety
    /// With [`Owners::One`] no two threads call this or [`Self::try_lock`], or hold a guard, at once.
    #[inline]
    pub(crate) unsafe fn lock(&self) -> Guard<'_, T> {
        if self.owners == Owners::Many {
            return Guard {
                lock: self,
                mutex: Some(self.mutex.lock()),
            };
        }
        assert!(!self.inside.load(Relaxed), "locked again by its owner");
        if !self.enter() {
            self.wait_for_visitor();
        }
        Guard {
            lock: self,
            mutex: None,
        }
    }

    /// Access, or `None` when somebody is inside.
    ///
    /// # Safety
    /// As for [`Self::lock`].
    #[inline]
    pub(crate) unsafe fn try_lock(&self) -> Option<Guard<'_, T>> {
        if self.owners == Owners::Many {
            let mutex = self.mutex.try_lock()?;
            return Some(Guard {
                lock: self,
                mutex: Some(mutex),
            });
        }
        if self.inside.load(Relaxed) || !self.enter() {
            return None;
        }
        Some(Guard {
            lock: self,
            mutex: None,
        })
    }

    /// The only owner's way in; false if there is a visitor.
    #[inline(always)]
    fn enter(&self) -> bool {
        self.inside.store(true, Relaxed);
        // SYNC: between `inside` and `wanted`; pairs with the visitor's barrier.
        match self.light {
            true => compiler_fence(SeqCst),
            false => fence(SeqCst),
        }
        // Acquire: what the last visitor did is seen.
        if self.wanted.load(Acquire) {
            self.inside.store(false, Release);
            return false;
        }
        true
    }

    #[cold]
    fn wait_for_visitor(&self) {
        // A visitor holds the mutex as long as it wants to be inside. The next one takes it after this, and sees `inside`.
        let mutex = self.mutex.lock();
        self.inside.store(true, Relaxed);
        drop(mutex);
    }

    /// Access for another thread than the owners', or `None` when somebody is inside.
    pub(crate) fn visit(&self) -> Option<Visit<'_, T>> {
        let mutex = self.mutex.try_lock()?;
        if self.owners == Owners::One {
            self.wanted.store(true, Relaxed);
            // SYNC: between `wanted` and `inside`; pairs with the owner's barrier.
            let is_seen = match self.light {
                true => membarrier(MembarrierCommand::PrivateExpedited).is_ok(),
                false => {
                    fence(SeqCst);
                    true
                }
            };
            // Acquire: what the owner did is seen.
            if !is_seen || self.inside.load(Acquire) {
                self.wanted.store(false, Release);
                return None;
            }
        }
        Some(Visit {
            lock: self,
            _mutex: mutex,
        })
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if self.mutex.is_none() {
            self.lock.inside.store(false, Release);
        }
    }
}

impl<T> Drop for Visit<'_, T> {
    fn drop(&mut self) {
        // The mutex is still held.
        self.lock.wanted.store(false, Release);
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the only access while it lives.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the only access while it lives.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Deref for Visit<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the only access while it lives.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Visit<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the only access while it lives.
        unsafe { &mut *self.lock.value.get() }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::AtomicU64;
    use std::thread;

    use super::*;

    /// An owner and two visitors count the same number, without atomics, until both kinds have been inside often enough. Two of them
    /// inside at once would lose counts.
    fn count_together(lock: &OwnersLock<(u64, u64)>) {
        const EACH: u64 = 20_000;
        let (done, visits) = (AtomicBool::new(false), AtomicU64::new(0));
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !done.load(Relaxed) {
                        if let Some(mut inside) = lock.visit() {
                            inside.0 += 1;
                            inside.1 += 1;
                            visits.fetch_add(1, Relaxed);
                        }
                    }
                });
            }
            let mut own = 0;
            while own < EACH || visits.load(Relaxed) < EACH / 20 {
                // SAFETY: the only thread that is an owner.
                let guard = unsafe {
                    match own % 3 {
                        0 => lock.try_lock(),
                        _ => Some(lock.lock()),
                    }
                };
                if let Some(mut inside) = guard {
                    inside.0 += 1;
                    inside.1 += 1;
                    own += 1;
                } else {
                    thread::yield_now();
                }
            }
            done.store(true, Relaxed);
            visits.fetch_add(own, Relaxed);
        });
        // SAFETY: nobody else is there any more.
        let sums = *unsafe { lock.lock() };
        let all = visits.load(Relaxed);
        assert_eq!(sums, (all, all));
    }

    #[test]
    fn one_at_a_time_with_the_systems_barrier() {
        count_together(&OwnersLock::new((0, 0), Owners::One));
    }

    #[test]
    fn one_at_a_time_with_fences() {
        count_together(&OwnersLock::with_barrier((0, 0), Owners::One, false));
    }

    #[test]
    fn one_at_a_time_among_many() {
        count_together(&OwnersLock::new((0, 0), Owners::Many));
    }

    #[test]
    fn who_is_inside_keeps_the_others_out() {
        for owners in [Owners::One, Owners::Many] {
            let lock = OwnersLock::new(7, owners);
            // SAFETY: one thread.
            unsafe {
                let guard = lock.lock();
                assert!(lock.try_lock().is_none() && lock.visit().is_none());
                drop(guard);
                let visit = lock.visit().expect("nobody is inside");
                assert!(lock.try_lock().is_none() && lock.visit().is_none());
                assert_eq!(*visit, 7);
                drop(visit);
                assert!(lock.try_lock().is_some_and(|guard| *guard == 7));
            }
        }
    }

    #[test]
    #[should_panic(expected = "again")]
    fn an_owner_does_not_wait_for_itself() {
        let lock = OwnersLock::new((), Owners::One);
        // SAFETY: one thread.
        unsafe {
            let _first = lock.lock();
            let _second = lock.lock();
        }
    }
}
