//! Reader/writer locks: POSIX's in the room that the header gives them, and, for debug builds, what each thread holds.

use std::cell::{RefCell, UnsafeCell};
use std::ffi::{c_int, c_void};

/// Room and alignment of `gasnett_rwlock_t`.
const ROOM: usize = 64;
const _: () = assert!(
    size_of::<libc::pthread_rwlock_t>() <= ROOM && align_of::<libc::pthread_rwlock_t>() <= 8
);

/// A lock as a client has it, for the library's checks of itself.
pub(crate) struct Lock(UnsafeCell<libc::pthread_rwlock_t>);

// SAFETY: POSIX's lock is made to be used by several threads.
unsafe impl Sync for Lock {}

impl Lock {
    pub(crate) const fn new() -> Self {
        Lock(UnsafeCell::new(libc::PTHREAD_RWLOCK_INITIALIZER))
    }

    /// Runs something as one of the readers.
    pub(crate) fn read<T>(&self, act: impl FnOnce() -> T) -> T {
        // SAFETY: it is a lock, and given back by the thread that took it.
        unsafe { conduit_tools_rwlock_rdlock(self.0.get().cast()) };
        let result = act();
        // SAFETY: as above.
        unsafe { conduit_tools_rwlock_unlock(self.0.get().cast()) };
        result
    }

    /// Runs something as the writer.
    pub(crate) fn write<T>(&self, act: impl FnOnce() -> T) -> T {
        // SAFETY: as in `read`.
        unsafe { conduit_tools_rwlock_wrlock(self.0.get().cast()) };
        let result = act();
        // SAFETY: as in `read`.
        unsafe { conduit_tools_rwlock_unlock(self.0.get().cast()) };
        result
    }
}

thread_local! {
    /// The locks that this thread holds, and how: 1 as a reader, 2 as a writer. They are few.
    static HELD: RefCell<Vec<(usize, c_int)>> = const { RefCell::new(Vec::new()) };
}

/// # Safety
/// `lock` points to the room of a lock.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_tools_rwlock_init(lock: *mut c_void) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { libc::pthread_rwlock_init(lock.cast(), std::ptr::null()) }
}

/// # Safety
/// `lock` points to a lock.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_tools_rwlock_destroy(lock: *mut c_void) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { libc::pthread_rwlock_destroy(lock.cast()) }
}

/// # Safety
/// `lock` points to a lock.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_tools_rwlock_rdlock(lock: *mut c_void) -> c_int {
    loop {
        // SAFETY: the caller's promise.
        match unsafe { libc::pthread_rwlock_rdlock(lock.cast()) } {
            // As many readers as there can be: one more waits.
            libc::EAGAIN => std::thread::yield_now(),
            result => return result,
        }
    }
}

/// # Safety
/// `lock` points to a lock.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_tools_rwlock_wrlock(lock: *mut c_void) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { libc::pthread_rwlock_wrlock(lock.cast()) }
}

/// # Safety
/// `lock` points to a lock.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_tools_rwlock_tryrdlock(lock: *mut c_void) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { libc::pthread_rwlock_tryrdlock(lock.cast()) }
}

/// # Safety
/// `lock` points to a lock.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_tools_rwlock_trywrlock(lock: *mut c_void) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { libc::pthread_rwlock_trywrlock(lock.cast()) }
}

/// # Safety
/// `lock` points to a lock.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_tools_rwlock_unlock(lock: *mut c_void) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { libc::pthread_rwlock_unlock(lock.cast()) }
}

/// What the calling thread holds of a lock: 0 nothing, 1 as a reader, 2 as the writer.
#[unsafe(no_mangle)]
extern "C" fn conduit_tools_rwlock_holds(lock: *const c_void) -> c_int {
    HELD.with_borrow(|held| {
        held.iter()
            .find(|(other, _)| *other == lock.addr())
            .map_or(0, |&(_, how)| how)
    })
}

/// Remembers what the calling thread holds of a lock from now on.
#[unsafe(no_mangle)]
extern "C" fn conduit_tools_rwlock_note(lock: *const c_void, holds: c_int) {
    HELD.with_borrow_mut(|held| {
        held.retain(|(other, _)| *other != lock.addr());
        if holds != 0 {
            held.push((lock.addr(), holds));
        }
    });
}
