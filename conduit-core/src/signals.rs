//! Signals, on threads that are not the program's.

/// Blocks all signals for the calling thread: the program's handlers belong on its own threads.
pub fn block() {
    // SAFETY: fills the set, then blocks it for the calling thread; no memory is kept.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, std::ptr::null_mut());
    }
}
