//! Signal masks of the library's own threads.

/// Blocks all signals for the calling thread, because the program's handlers belong on the
/// program's threads.
pub fn block() {
    // SAFETY: this fills the set, then blocks it for the calling thread; the system keeps no
    // pointer.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, std::ptr::null_mut());
    }
}
