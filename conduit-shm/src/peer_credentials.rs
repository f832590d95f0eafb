//! The credentials of the process at the other end of a Unix socket, as reported by the kernel.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Returns the credentials of the process at the other end of a Unix socket. That process has
/// connected to this process or listens on the socket's name. The ids are translated to this
/// process's namespaces.
pub(crate) fn credentials(socket: impl AsFd) -> io::Result<libc::ucred> {
    let mut found = libc::ucred {
        pid: 0,
        uid: 0,
        gid: 0,
    };
    let mut length = size_of_val(&found) as libc::socklen_t;
    // SAFETY: the system writes at most `length` bytes to `found`, which is that long, and any
    // bytes are valid for its type.
    let done = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut found).cast(),
            &raw mut length,
        )
    };
    match done {
        0 => Ok(found),
        _ => Err(io::Error::last_os_error()),
    }
}
