//! Completion queues. See fi_cq(3).

use std::ffi::{c_char, c_int, c_uint, c_void};

use crate::{fi_addr_t, fi_ops_domain, fi_wait_obj, fid, fid_domain, fid_wait};

/// The format of completions.
pub type fi_cq_format = c_uint;
pub const FI_CQ_FORMAT_UNSPEC: fi_cq_format = 0;
pub const FI_CQ_FORMAT_CONTEXT: fi_cq_format = 1;
pub const FI_CQ_FORMAT_MSG: fi_cq_format = 2;
pub const FI_CQ_FORMAT_DATA: fi_cq_format = 3;
pub const FI_CQ_FORMAT_TAGGED: fi_cq_format = 4;

/// A completion in the format `FI_CQ_FORMAT_CONTEXT`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct fi_cq_entry {
    pub op_context: *mut c_void,
}

/// A completion in the format `FI_CQ_FORMAT_MSG`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct fi_cq_msg_entry {
    pub op_context: *mut c_void,
    pub flags: u64,
    pub len: usize,
}

/// A completion in the format `FI_CQ_FORMAT_DATA`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct fi_cq_data_entry {
    pub op_context: *mut c_void,
    pub flags: u64,
    pub len: usize,
    pub buf: *mut c_void,
    pub data: u64,
}

/// A completion in the format `FI_CQ_FORMAT_TAGGED`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct fi_cq_tagged_entry {
    pub op_context: *mut c_void,
    pub flags: u64,
    pub len: usize,
    pub buf: *mut c_void,
    pub data: u64,
    pub tag: u64,
}

/// The completion of a failed operation. `err` is a positive error number, and `olen` is the number
/// of bytes that did not fit. `err_data_size` must be set before each read. If it is 0, the
/// provider's own buffer is returned, which is valid until the next read of the queue.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct fi_cq_err_entry {
    pub op_context: *mut c_void,
    pub flags: u64,
    pub len: usize,
    pub buf: *mut c_void,
    pub data: u64,
    pub tag: u64,
    pub olen: usize,
    pub err: c_int,
    pub prov_errno: c_int,
    pub err_data: *mut c_void,
    pub err_data_size: usize,
    /// Room for additions of later versions of libfabric. It must be zero and is never read.
    pub later: [usize; 4],
}

zeroed! { fi_cq_entry, fi_cq_msg_entry, fi_cq_data_entry, fi_cq_tagged_entry, fi_cq_err_entry }

/// The condition that ends a wait.
pub type fi_cq_wait_cond = c_uint;
pub const FI_CQ_COND_NONE: fi_cq_wait_cond = 0;
pub const FI_CQ_COND_THRESHOLD: fi_cq_wait_cond = 1;

/// The attributes of a new completion queue.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct fi_cq_attr {
    pub size: usize,
    pub flags: u64,
    pub format: fi_cq_format,
    pub wait_obj: fi_wait_obj,
    pub signaling_vector: c_int,
    pub wait_cond: fi_cq_wait_cond,
    pub wait_set: *mut fid_wait,
    /// Room for additions of later versions of libfabric. It must be zero and is never read.
    pub later: [usize; 4],
}

zeroed! { fi_cq_attr }

tables! {
    /// Operations of a completion queue.
    struct fi_ops_cq {
        read(cq: *mut fid_cq, buf: *mut c_void, count: usize) -> isize;
        readfrom(cq: *mut fid_cq, buf: *mut c_void, count: usize, src_addr: *mut fi_addr_t) -> isize;
        readerr(cq: *mut fid_cq, buf: *mut fi_cq_err_entry, flags: u64) -> isize;
        sread(cq: *mut fid_cq, buf: *mut c_void, count: usize, cond: *const c_void, timeout: c_int) -> isize;
        sreadfrom(cq: *mut fid_cq, buf: *mut c_void, count: usize, src_addr: *mut fi_addr_t,
            cond: *const c_void, timeout: c_int) -> isize;
        signal(cq: *mut fid_cq) -> c_int;
        strerror(cq: *mut fid_cq, prov_errno: c_int, err_data: *const c_void, buf: *mut c_char, len: usize)
            -> *const c_char;
    }
}

/// A completion queue.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct fid_cq {
    pub fid: fid,
    pub ops: *mut fi_ops_cq,
}

calls! {
    /// Opens a completion queue.
    fn fi_cq_open(domain: *mut fid_domain, attr: *mut fi_cq_attr, cq: *mut *mut fid_cq, context: *mut c_void)
        -> c_int
        = fi_ops_domain in (*domain).ops => cq_open(domain, attr, cq, context);

    /// Reads up to `count` completions in the queue's format. Returns `-FI_EAGAIN` if there are
    /// none, and `-FI_EAVAIL` if the next completion is that of a failed operation.
    fn fi_cq_read(cq: *mut fid_cq, buf: *mut c_void, count: usize) -> isize
        = fi_ops_cq in (*cq).ops => read(cq, buf, count);

    /// Does the same as `fi_cq_read`, but also returns the sources' handles (`FI_SOURCE`).
    fn fi_cq_readfrom(cq: *mut fid_cq, buf: *mut c_void, count: usize, src_addr: *mut fi_addr_t) -> isize
        = fi_ops_cq in (*cq).ops => readfrom(cq, buf, count, src_addr);

    /// Reads the completion of a failed operation.
    fn fi_cq_readerr(cq: *mut fid_cq, buf: *mut fi_cq_err_entry, flags: u64) -> isize
        = fi_ops_cq in (*cq).ops => readerr(cq, buf, flags);

    /// Waits for a completion, for at most `timeout` milliseconds.
    fn fi_cq_sread(cq: *mut fid_cq, buf: *mut c_void, count: usize, cond: *const c_void, timeout: c_int)
        -> isize
        = fi_ops_cq in (*cq).ops => sread(cq, buf, count, cond, timeout);

    /// Does the same as `fi_cq_sread`, but also returns the sources' handles.
    fn fi_cq_sreadfrom(cq: *mut fid_cq, buf: *mut c_void, count: usize, src_addr: *mut fi_addr_t,
        cond: *const c_void, timeout: c_int) -> isize
        = fi_ops_cq in (*cq).ops => sreadfrom(cq, buf, count, src_addr, cond, timeout);

    /// Wakes a thread that waits in `fi_cq_sread`.
    fn fi_cq_signal(cq: *mut fid_cq) -> c_int
        = fi_ops_cq in (*cq).ops => signal(cq);

    /// Returns a provider's error as text, or null if the table lacks this operation.
    fn fi_cq_strerror(cq: *mut fid_cq, prov_errno: c_int, err_data: *const c_void, buf: *mut c_char,
        len: usize) -> *const c_char
        = fi_ops_cq in (*cq).ops => strerror(cq, prov_errno, err_data, buf, len);
}
