//! Signal masks of the library's own threads.

/// Blocks all signals for the calling thread, because the program's signal handlers should run only
/// on the program's own threads.
pub fn block() {
    // SAFETY: the set is a valid local variable. The calls fill it and block it for the calling
    // thread, and the system keeps no pointer to it.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, std::ptr::null_mut());
    }
}
