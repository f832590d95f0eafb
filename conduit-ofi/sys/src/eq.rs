//! Event queues. See fi_eq(3).

use std::ffi::{c_char, c_int, c_uint, c_void};

use crate::{fi_info, fi_ops_fabric, fid, fid_fabric, fid_wait};

/// The kind of object on which a thread can wait for a queue.
pub type fi_wait_obj = c_uint;
pub const FI_WAIT_NONE: fi_wait_obj = 0;
pub const FI_WAIT_UNSPEC: fi_wait_obj = 1;
pub const FI_WAIT_SET: fi_wait_obj = 2;
pub const FI_WAIT_FD: fi_wait_obj = 3;
pub const FI_WAIT_MUTEX_COND: fi_wait_obj = 4;
pub const FI_WAIT_YIELD: fi_wait_obj = 5;
pub const FI_WAIT_POLLFD: fi_wait_obj = 6;

/// The result of `FI_GETWAIT` for `FI_WAIT_POLLFD`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct fi_wait_pollfd {
    pub change_index: u64,
    pub nfds: usize,
    pub fd: *mut libc::pollfd,
}

/// The attributes of a new event queue.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct fi_eq_attr {
    pub size: usize,
    pub flags: u64,
    pub wait_obj: fi_wait_obj,
    pub signaling_vector: c_int,
    pub wait_set: *mut fid_wait,
    /// Room for additions of later versions of libfabric. It must be zero and is never read.
    pub later: [usize; 4],
}

/// An event.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct fi_eq_entry {
    pub fid: *mut fid,
    pub context: *mut c_void,
    pub data: u64,
}

/// A connection event. `FI_CONNREQ` carries an offer (`info`) that the user must free. The
/// structure is followed by the data that the peer sent with its request or answer, as far as there
/// is room.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct fi_eq_cm_entry {
    pub fid: *mut fid,
    pub info: *mut fi_info,
}

/// An event that failed.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct fi_eq_err_entry {
    pub fid: *mut fid,
    pub context: *mut c_void,
    pub data: u64,
    pub err: c_int,
    pub prov_errno: c_int,
    pub err_data: *mut c_void,
    pub err_data_size: usize,
}

zeroed! { fi_eq_attr, fi_eq_entry, fi_eq_cm_entry, fi_eq_err_entry }

tables! {
    /// Operations of an event queue.
    struct fi_ops_eq {
        read(eq: *mut fid_eq, event: *mut u32, buf: *mut c_void, len: usize, flags: u64) -> isize;
        readerr(eq: *mut fid_eq, buf: *mut fi_eq_err_entry, flags: u64) -> isize;
        write(eq: *mut fid_eq, event: u32, buf: *const c_void, len: usize, flags: u64) -> isize;
        sread(eq: *mut fid_eq, event: *mut u32, buf: *mut c_void, len: usize, timeout: c_int, flags: u64)
            -> isize;
        strerror(eq: *mut fid_eq, prov_errno: c_int, err_data: *const c_void, buf: *mut c_char, len: usize)
            -> *const c_char;
    }
}

/// A queue of events, which report connections and the ends of asynchronous insertions and
/// registrations.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct fid_eq {
    pub fid: fid,
    pub ops: *mut fi_ops_eq,
}

calls! {
    /// Opens an event queue.
    fn fi_eq_open(fabric: *mut fid_fabric, attr: *mut fi_eq_attr, eq: *mut *mut fid_eq, context: *mut c_void)
        -> c_int
        = fi_ops_fabric in (*fabric).ops => eq_open(fabric, attr, eq, context);

    /// Reads an event.
    fn fi_eq_read(eq: *mut fid_eq, event: *mut u32, buf: *mut c_void, len: usize, flags: u64) -> isize
        = fi_ops_eq in (*eq).ops => read(eq, event, buf, len, flags);

    /// Reads a failed event.
    fn fi_eq_readerr(eq: *mut fid_eq, buf: *mut fi_eq_err_entry, flags: u64) -> isize
        = fi_ops_eq in (*eq).ops => readerr(eq, buf, flags);

    /// Waits for an event, for at most `timeout` milliseconds.
    fn fi_eq_sread(eq: *mut fid_eq, event: *mut u32, buf: *mut c_void, len: usize, timeout: c_int, flags: u64)
        -> isize
        = fi_ops_eq in (*eq).ops => sread(eq, event, buf, len, timeout, flags);

    /// Returns a provider's error as text, or null if the table lacks this operation.
    fn fi_eq_strerror(eq: *mut fid_eq, prov_errno: c_int, err_data: *const c_void, buf: *mut c_char,
        len: usize) -> *const c_char
        = fi_ops_eq in (*eq).ops => strerror(eq, prov_errno, err_data, buf, len);
}
