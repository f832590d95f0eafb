//! Error numbers. Functions return them negated, and completions contain them as positive numbers.
//! See fi_errno(3).

use std::ffi::c_int;

// The system's error numbers.
pub const FI_SUCCESS: c_int = 0;
/// Operation not permitted.
pub const FI_EPERM: c_int = libc::EPERM;
/// No such file or directory.
pub const FI_ENOENT: c_int = libc::ENOENT;
/// Interrupted system call.
pub const FI_EINTR: c_int = libc::EINTR;
/// I/O error.
pub const FI_EIO: c_int = libc::EIO;
/// Argument list too long.
pub const FI_E2BIG: c_int = libc::E2BIG;
/// Bad file number.
pub const FI_EBADF: c_int = libc::EBADF;
/// Try again.
pub const FI_EAGAIN: c_int = libc::EAGAIN;
/// Out of memory.
pub const FI_ENOMEM: c_int = libc::ENOMEM;
/// Permission denied.
pub const FI_EACCES: c_int = libc::EACCES;
/// Bad address.
pub const FI_EFAULT: c_int = libc::EFAULT;
/// Device or resource busy.
pub const FI_EBUSY: c_int = libc::EBUSY;
/// No such device.
pub const FI_ENODEV: c_int = libc::ENODEV;
/// Invalid argument.
pub const FI_EINVAL: c_int = libc::EINVAL;
/// Too many open files.
pub const FI_EMFILE: c_int = libc::EMFILE;
/// No space left on device.
pub const FI_ENOSPC: c_int = libc::ENOSPC;
/// Function not implemented.
pub const FI_ENOSYS: c_int = libc::ENOSYS;
/// Operation would block.
pub const FI_EWOULDBLOCK: c_int = libc::EWOULDBLOCK;
/// No message of desired type.
pub const FI_ENOMSG: c_int = libc::ENOMSG;
/// No data available.
pub const FI_ENODATA: c_int = libc::ENODATA;
/// Value too large for defined data type.
pub const FI_EOVERFLOW: c_int = libc::EOVERFLOW;
/// Message too long.
pub const FI_EMSGSIZE: c_int = libc::EMSGSIZE;
/// Protocol not available.
pub const FI_ENOPROTOOPT: c_int = libc::ENOPROTOOPT;
/// Operation not supported on transport endpoint.
pub const FI_EOPNOTSUPP: c_int = libc::EOPNOTSUPP;
/// Address already in use.
pub const FI_EADDRINUSE: c_int = libc::EADDRINUSE;
/// Cannot assign requested address.
pub const FI_EADDRNOTAVAIL: c_int = libc::EADDRNOTAVAIL;
/// Network is down.
pub const FI_ENETDOWN: c_int = libc::ENETDOWN;
/// Network is unreachable.
pub const FI_ENETUNREACH: c_int = libc::ENETUNREACH;
/// Software caused connection abort.
pub const FI_ECONNABORTED: c_int = libc::ECONNABORTED;
/// Connection reset by peer.
pub const FI_ECONNRESET: c_int = libc::ECONNRESET;
/// No buffer space available.
pub const FI_ENOBUFS: c_int = libc::ENOBUFS;
/// Transport endpoint is already connected.
pub const FI_EISCONN: c_int = libc::EISCONN;
/// Transport endpoint is not connected.
pub const FI_ENOTCONN: c_int = libc::ENOTCONN;
/// Cannot send after transport endpoint shutdown.
pub const FI_ESHUTDOWN: c_int = libc::ESHUTDOWN;
/// Connection timed out.
pub const FI_ETIMEDOUT: c_int = libc::ETIMEDOUT;
/// Connection refused.
pub const FI_ECONNREFUSED: c_int = libc::ECONNREFUSED;
/// Host is down.
pub const FI_EHOSTDOWN: c_int = libc::EHOSTDOWN;
/// No route to host.
pub const FI_EHOSTUNREACH: c_int = libc::EHOSTUNREACH;
/// Operation already in progress.
pub const FI_EALREADY: c_int = libc::EALREADY;
/// Operation now in progress.
pub const FI_EINPROGRESS: c_int = libc::EINPROGRESS;
/// Remote I/O error.
pub const FI_EREMOTEIO: c_int = libc::EREMOTEIO;
/// Operation Canceled.
pub const FI_ECANCELED: c_int = libc::ECANCELED;
/// Key was rejected by service.
pub const FI_EKEYREJECTED: c_int = libc::EKEYREJECTED;

// libfabric's own error numbers.
/// Unspecified error.
pub const FI_EOTHER: c_int = 256;
/// Provided buffer is too small.
pub const FI_ETOOSMALL: c_int = 257;
/// Operation not permitted in current state.
pub const FI_EOPBADSTATE: c_int = 258;
/// Error available.
pub const FI_EAVAIL: c_int = 259;
/// Flags not supported.
pub const FI_EBADFLAGS: c_int = 260;
/// Missing or unavailable event queue.
pub const FI_ENOEQ: c_int = 261;
/// Invalid resource domain.
pub const FI_EDOMAIN: c_int = 262;
/// Missing or unavailable completion queue.
pub const FI_ENOCQ: c_int = 263;
/// CRC error.
pub const FI_ECRC: c_int = 264;
/// Truncation error.
pub const FI_ETRUNC: c_int = 265;
/// Required key not available.
pub const FI_ENOKEY: c_int = 266;
/// Missing or unavailable address vector.
pub const FI_ENOAV: c_int = 267;
/// Queue has been overrun.
pub const FI_EOVERRUN: c_int = 268;
/// Receiver not ready, no receive buffers available.
pub const FI_ENORX: c_int = 269;
