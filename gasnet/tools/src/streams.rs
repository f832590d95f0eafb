//! The standard streams.

use std::io::Write;
use std::os::fd::AsRawFd;

/// Flushes C's and Rust's streams, and syncs files to disk. Errors are ignored, because a stream
/// may be closed and a pipe cannot be synced.
pub(crate) fn flush() {
    let _ = std::io::stdout().flush();
    // SAFETY: `fflush` accepts null, which means all output streams, and `fsync` accepts any number
    // as a descriptor.
    unsafe {
        libc::fflush(std::ptr::null_mut());
        libc::fsync(libc::STDOUT_FILENO);
        libc::fsync(libc::STDERR_FILENO);
    }
}

// ---- The edge to C ----

#[unsafe(no_mangle)]
extern "C" fn gasnett_flush_streams() {
    flush();
}

/// Redirects the descriptors to /dev/null instead of closing them. Otherwise the next file opened
/// would become a standard stream, into which a library might write its messages.
#[unsafe(no_mangle)]
extern "C" fn gasnett_close_streams() {
    flush();
    let null = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/null");
    for stream in [libc::STDIN_FILENO, libc::STDOUT_FILENO, libc::STDERR_FILENO] {
        // SAFETY: the calls accept any number as a descriptor. The standard descriptors belong to
        // the whole process, so no other owner is affected.
        unsafe {
            match &null {
                Ok(null) => libc::dup2(null.as_raw_fd(), stream),
                Err(_) => libc::close(stream),
            }
        };
    }
}
