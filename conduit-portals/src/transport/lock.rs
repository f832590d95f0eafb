//! The lock around a rank's portals, biased towards the rank's own thread.
//!
//! A rank's own thread takes the lock with every call and every poll; the [progress
//! thread](crate::transport::ProgressThread) takes it only when the rank has been away for a while.
//! Each use of an ordinary lock costs two atomic read-modify-write operations of about twenty
//! cycles each, which is more than the rest of a poll that finds nothing. Therefore, where one
//! thread of the rank at a time makes calls (`Seq`, `ParSync`), that thread is the lock's *owner*,
//! whose half of the protocol is only a store and a load. A *remote* thread bears the cost, with a
//! system call:
//!
//! ```text
//! owner                               remote thread (under the mutex)
//! held = true                         contended = true
//! (barrier)                           (barrier)
//! contended? then held = false,       held? then give up
//!   and wait for the mutex
//! ```
//!
//! At least one of the two threads sees the other's store if both barriers are full barriers. The
//! remote thread's `membarrier` executes one on each processor that runs a thread of this process,
//! so the owner's barrier only needs to stop the compiler. Where the system has no such call, both
//! are fences.
//!
//! Where several threads of the rank make calls at once (`Par`), the lock is only its mutex.

#[cfg(all(test, loom))]
mod loom;

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::OnceLock;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::compiler_fence;

use crate::sync::{AtomicBool, Mutex, MutexGuard, fence};

use rustix::thread::{MembarrierCommand, MembarrierQuery, membarrier, membarrier_query};

/// The threads for which the lock is cheap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bias {
    /// The lock is cheap for its owner, one thread at a time.
    Owner,
    /// The lock is cheap for no thread: any number of threads lock its mutex.
    None,
}

/// The lock described in the module. The lock has a cache line of its own, which remote threads
/// touch only when they take the lock.
#[repr(align(128))]
pub(crate) struct BiasedLock<T> {
    held: AtomicBool,
    contended: AtomicBool,
    bias: Bias,
    /// Whether the owner's barrier only stops the compiler, and remote threads use `membarrier`.
    asymmetric: bool,
    mutex: Mutex<()>,
    value: UnsafeCell<T>,
}

// SAFETY: the protocol described in the module ensures that at most one guard exists at a time, and
// `T` is `Send`.
unsafe impl<T: Send> Sync for BiasedLock<T> {}

/// Access by the owner, or by any thread if the lock has no owner.
pub(crate) struct Guard<'a, T> {
    lock: &'a BiasedLock<T>,
    /// The guard of the mutex, or `None` if the owner has the lock.
    mutex: Option<MutexGuard<'a, ()>>,
}

/// Access by a thread other than the owner.
pub(crate) struct RemoteGuard<'a, T> {
    lock: &'a BiasedLock<T>,
    _mutex: MutexGuard<'a, ()>,
}

/// Returns whether a remote thread can make the owner's processor execute a barrier.
fn has_membarrier() -> bool {
    static HAS: OnceLock<bool> = OnceLock::new();
    *HAS.get_or_init(|| {
        let wanted =
            MembarrierQuery::PRIVATE_EXPEDITED | MembarrierQuery::REGISTER_PRIVATE_EXPEDITED;
        membarrier_query().contains(wanted)
            && membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok()
    })
}

impl<T> BiasedLock<T> {
    pub(crate) fn new(value: T, bias: Bias) -> Self {
        Self::with_barrier(value, bias, has_membarrier())
    }

    fn with_barrier(value: T, bias: Bias, asymmetric: bool) -> Self {
        Self {
            held: AtomicBool::new(false),
            contended: AtomicBool::new(false),
            bias,
            asymmetric,
            mutex: Mutex::new(()),
            value: UnsafeCell::new(value),
        }
    }

    /// Waits until the lock is free, and returns a guard.
    ///
    /// # Panics
    /// Panics if the owner already holds the lock, because it would wait for itself.
    ///
    /// # Safety
    /// With [`Bias::Owner`], at most one thread at a time may call this method or
    /// [`Self::try_lock`], or hold a guard.
    #[inline]
    pub(crate) unsafe fn lock(&self) -> Guard<'_, T> {
        if self.bias == Bias::None {
            return Guard {
                lock: self,
                mutex: Some(self.mutex.lock()),
            };
        }
        assert!(!self.held.load(Relaxed), "locked again by its owner");
        if !self.enter() {
            self.wait_for_remote();
        }
        Guard {
            lock: self,
            mutex: None,
        }
    }

    /// Returns a guard, or `None` if the lock is held.
    ///
    /// # Safety
    /// Same as for [`Self::lock`].
    #[inline]
    pub(crate) unsafe fn try_lock(&self) -> Option<Guard<'_, T>> {
        if self.bias == Bias::None {
            let mutex = self.mutex.try_lock()?;
            return Some(Guard {
                lock: self,
                mutex: Some(mutex),
            });
        }
        if self.held.load(Relaxed) || !self.enter() {
            return None;
        }
        Some(Guard {
            lock: self,
            mutex: None,
        })
    }

    /// Performs the owner's half of the protocol; returns `false` if a remote thread has the lock.
    #[inline(always)]
    fn enter(&self) -> bool {
        self.held.store(true, Relaxed);
        // SYNC: the barrier orders the store to `held` before the load of `contended`, and pairs
        // with the remote thread's barrier.
        match self.asymmetric {
            true => compiler_fence(SeqCst),
            false => fence(SeqCst),
        }
        // Acquire pairs with the Release of the last remote guard.
        if self.contended.load(Acquire) {
            self.held.store(false, Release);
            return false;
        }
        true
    }

    #[cold]
    fn wait_for_remote(&self) {
        // A remote thread holds the mutex as long as it holds the lock. The next remote thread
        // takes the mutex after this thread has released it, and therefore sees `held`.
        let mutex = self.mutex.lock();
        self.held.store(true, Relaxed);
        drop(mutex);
    }

    /// Returns a guard for a thread other than the owner, or `None` if the lock is held.
    pub(crate) fn try_lock_remote(&self) -> Option<RemoteGuard<'_, T>> {
        let mutex = self.mutex.try_lock()?;
        if self.bias == Bias::Owner {
            self.contended.store(true, Relaxed);
            // SYNC: the barrier orders the store to `contended` before the load of `held`, and
            // pairs with the owner's barrier.
            let is_seen = match self.asymmetric {
                true => membarrier(MembarrierCommand::PrivateExpedited).is_ok(),
                false => {
                    fence(SeqCst);
                    true
                }
            };
            // Acquire pairs with the Release of the owner's guard.
            if !is_seen || self.held.load(Acquire) {
                self.contended.store(false, Release);
                return None;
            }
        }
        Some(RemoteGuard {
            lock: self,
            _mutex: mutex,
        })
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if self.mutex.is_none() {
            self.lock.held.store(false, Release);
        }
    }
}

impl<T> Drop for RemoteGuard<'_, T> {
    fn drop(&mut self) {
        // The mutex is still held.
        self.lock.contended.store(false, Release);
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: at most one guard exists, so nothing else accesses the value during its life.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: at most one guard exists, so nothing else accesses the value during its life.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Deref for RemoteGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: at most one guard exists, so nothing else accesses the value during its life.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for RemoteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: at most one guard exists, so nothing else accesses the value during its life.
        unsafe { &mut *self.lock.value.get() }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::AtomicU64;
    use std::thread;

    use super::*;

    /// Lets an owner and two remote threads increment plain numbers until the owner and the remote
    /// threads have each done so often enough. If two guards existed at once, increments would be
    /// lost.
    fn count_together(lock: &BiasedLock<(u64, u64)>) {
        const EACH: u64 = 20_000;
        let (done, remote_locks) = (AtomicBool::new(false), AtomicU64::new(0));
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !done.load(Relaxed) {
                        if let Some(mut guard) = lock.try_lock_remote() {
                            guard.0 += 1;
                            guard.1 += 1;
                            remote_locks.fetch_add(1, Relaxed);
                        }
                    }
                });
            }
            let mut own = 0;
            while own < EACH || remote_locks.load(Relaxed) < EACH / 20 {
                // SAFETY: this thread is the only owner.
                let guard = unsafe {
                    match own % 3 {
                        0 => lock.try_lock(),
                        _ => Some(lock.lock()),
                    }
                };
                if let Some(mut guard) = guard {
                    guard.0 += 1;
                    guard.1 += 1;
                    own += 1;
                } else {
                    thread::yield_now();
                }
            }
            done.store(true, Relaxed);
            remote_locks.fetch_add(own, Relaxed);
        });
        // SAFETY: the other threads have ended.
        let sums = *unsafe { lock.lock() };
        let all = remote_locks.load(Relaxed);
        assert_eq!(sums, (all, all));
    }

    #[test]
    fn one_at_a_time_with_the_systems_barrier() {
        count_together(&BiasedLock::new((0, 0), Bias::Owner));
    }

    #[test]
    fn one_at_a_time_with_fences() {
        count_together(&BiasedLock::with_barrier((0, 0), Bias::Owner, false));
    }

    #[test]
    fn one_at_a_time_among_many() {
        count_together(&BiasedLock::new((0, 0), Bias::None));
    }

    #[test]
    fn a_guard_excludes_all_others() {
        for bias in [Bias::Owner, Bias::None] {
            let lock = BiasedLock::new(7, bias);
            // SAFETY: the test has only one thread.
            unsafe {
                let guard = lock.lock();
                assert!(lock.try_lock().is_none() && lock.try_lock_remote().is_none());
                drop(guard);
                let remote = lock.try_lock_remote().expect("not held");
                assert!(lock.try_lock().is_none() && lock.try_lock_remote().is_none());
                assert_eq!(*remote, 7);
                drop(remote);
                assert!(lock.try_lock().is_some_and(|guard| *guard == 7));
            }
        }
    }

    #[test]
    #[should_panic(expected = "again")]
    fn an_owner_does_not_wait_for_itself() {
        let lock = BiasedLock::new((), Bias::Owner);
        // SAFETY: the test has only one thread.
        unsafe {
            let _first = lock.lock();
            let _second = lock.lock();
        }
    }
}
