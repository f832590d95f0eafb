//! Reader/writer locks: POSIX locks in the space that the header provides and, for debug builds, a
//! record of the locks that each thread holds.

use std::cell::{RefCell, UnsafeCell};
use std::ffi::{c_int, c_void};

/// The size of `gasnett_rwlock_t`, whose alignment is 8.
const ROOM: usize = 64;
const _: () = assert!(
    size_of::<libc::pthread_rwlock_t>() <= ROOM && align_of::<libc::pthread_rwlock_t>() <= 8
);

/// A lock of the same kind as clients use, for the library's self-checks.
pub(crate) struct Lock(UnsafeCell<libc::pthread_rwlock_t>);

// SAFETY: POSIX locks may be used by several threads.
unsafe impl Sync for Lock {}

impl Lock {
    pub(crate) const fn new() -> Self {
        Lock(UnsafeCell::new(libc::PTHREAD_RWLOCK_INITIALIZER))
    }

    /// Runs a function while this thread holds the lock as a reader.
    pub(crate) fn read<T>(&self, act: impl FnOnce() -> T) -> T {
        // SAFETY: the lock is valid, and this thread releases it below.
        unsafe { conduit_tools_rwlock_rdlock(self.0.get().cast()) };
        let result = act();
        // SAFETY: the lock is valid, and this thread has taken it above.
        unsafe { conduit_tools_rwlock_unlock(self.0.get().cast()) };
        result
    }

    /// Runs a function while this thread holds the lock as the writer.
    pub(crate) fn write<T>(&self, act: impl FnOnce() -> T) -> T {
        // SAFETY: the lock is valid, and this thread releases it below.
        unsafe { conduit_tools_rwlock_wrlock(self.0.get().cast()) };
        let result = act();
        // SAFETY: the lock is valid, and this thread has taken it above.
        unsafe { conduit_tools_rwlock_unlock(self.0.get().cast()) };
        result
    }
}

thread_local! {
    /// The locks that this thread holds, each with its mode: 1 as a reader, 2 as the writer. The
    /// list is short.
    static HELD: RefCell<Vec<(usize, c_int)>> = const { RefCell::new(Vec::new()) };
}

/// # Safety
/// `lock` must point to space for a lock.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_tools_rwlock_init(lock: *mut c_void) -> c_int {
    // SAFETY: the caller guarantees that `lock` points to space for a lock.
    unsafe { libc::pthread_rwlock_init(lock.cast(), std::ptr::null()) }
}

/// # Safety
/// `lock` must point to a lock.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_tools_rwlock_destroy(lock: *mut c_void) -> c_int {
    // SAFETY: the caller guarantees that `lock` points to a lock.
    unsafe { libc::pthread_rwlock_destroy(lock.cast()) }
}

/// # Safety
/// `lock` must point to a lock.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_tools_rwlock_rdlock(lock: *mut c_void) -> c_int {
    loop {
        // SAFETY: the caller guarantees that `lock` points to a lock.
        match unsafe { libc::pthread_rwlock_rdlock(lock.cast()) } {
            // The lock has its maximum number of readers. Wait for one to leave.
            libc::EAGAIN => std::thread::yield_now(),
            result => return result,
        }
    }
}

/// # Safety
/// `lock` must point to a lock.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_tools_rwlock_wrlock(lock: *mut c_void) -> c_int {
    // SAFETY: the caller guarantees that `lock` points to a lock.
    unsafe { libc::pthread_rwlock_wrlock(lock.cast()) }
}

/// # Safety
/// `lock` must point to a lock.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_tools_rwlock_tryrdlock(lock: *mut c_void) -> c_int {
    // SAFETY: the caller guarantees that `lock` points to a lock.
    unsafe { libc::pthread_rwlock_tryrdlock(lock.cast()) }
}

/// # Safety
/// `lock` must point to a lock.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_tools_rwlock_trywrlock(lock: *mut c_void) -> c_int {
    // SAFETY: the caller guarantees that `lock` points to a lock.
    unsafe { libc::pthread_rwlock_trywrlock(lock.cast()) }
}

/// # Safety
/// `lock` must point to a lock.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_tools_rwlock_unlock(lock: *mut c_void) -> c_int {
    // SAFETY: the caller guarantees that `lock` points to a lock.
    unsafe { libc::pthread_rwlock_unlock(lock.cast()) }
}

/// Returns how the calling thread holds a lock: 0 not at all, 1 as a reader, 2 as the writer.
#[unsafe(no_mangle)]
extern "C" fn conduit_tools_rwlock_holds(lock: *const c_void) -> c_int {
    HELD.with_borrow(|held| {
        held.iter()
            .find(|(other, _)| *other == lock.addr())
            .map_or(0, |&(_, how)| how)
    })
}

/// Records how the calling thread holds a lock from now on.
#[unsafe(no_mangle)]
extern "C" fn conduit_tools_rwlock_note(lock: *const c_void, holds: c_int) {
    HELD.with_borrow_mut(|held| {
        held.retain(|(other, _)| *other != lock.addr());
        if holds != 0 {
            held.push((lock.addr(), holds));
        }
    });
}
