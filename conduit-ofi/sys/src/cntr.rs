//! Counters. See fi_cntr(3).

use std::ffi::{c_int, c_uint, c_void};

use crate::{fi_ops_domain, fi_wait_obj, fid, fid_domain, fid_wait};

/// The events that a counter counts.
pub type fi_cntr_events = c_uint;
pub const FI_CNTR_EVENTS_COMP: fi_cntr_events = 0;

/// The attributes of a new counter.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct fi_cntr_attr {
    pub events: fi_cntr_events,
    pub wait_obj: fi_wait_obj,
    pub wait_set: *mut fid_wait,
    pub flags: u64,
    /// Room for additions of later versions of libfabric. It must be zero and is never read.
    pub later: [usize; 4],
}

zeroed! { fi_cntr_attr }

tables! {
    /// Operations of a counter.
    struct fi_ops_cntr {
        read(cntr: *mut fid_cntr) -> u64;
        readerr(cntr: *mut fid_cntr) -> u64;
        add(cntr: *mut fid_cntr, value: u64) -> c_int;
        set(cntr: *mut fid_cntr, value: u64) -> c_int;
        wait(cntr: *mut fid_cntr, threshold: u64, timeout: c_int) -> c_int;
        adderr(cntr: *mut fid_cntr, value: u64) -> c_int;
        seterr(cntr: *mut fid_cntr, value: u64) -> c_int;
    }
}

/// A counter of completions.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct fid_cntr {
    pub fid: fid,
    pub ops: *mut fi_ops_cntr,
}

calls! {
    /// Opens a counter.
    fn fi_cntr_open(domain: *mut fid_domain, attr: *mut fi_cntr_attr, cntr: *mut *mut fid_cntr,
        context: *mut c_void) -> c_int
        = fi_ops_domain in (*domain).ops => cntr_open(domain, attr, cntr, context);

    /// Returns the number of completions, or 0 if the table lacks this operation.
    fn fi_cntr_read(cntr: *mut fid_cntr) -> u64
        = fi_ops_cntr in (*cntr).ops => read(cntr);

    /// Returns the number of failures, or 0 if the table lacks this operation.
    fn fi_cntr_readerr(cntr: *mut fid_cntr) -> u64
        = fi_ops_cntr in (*cntr).ops => readerr(cntr);

    /// Adds `value` to a counter.
    fn fi_cntr_add(cntr: *mut fid_cntr, value: u64) -> c_int
        = fi_ops_cntr in (*cntr).ops => add(cntr, value);

    /// Sets a counter to `value`.
    fn fi_cntr_set(cntr: *mut fid_cntr, value: u64) -> c_int
        = fi_ops_cntr in (*cntr).ops => set(cntr, value);

    /// Waits until a counter has reached `threshold`, for at most `timeout` milliseconds.
    fn fi_cntr_wait(cntr: *mut fid_cntr, threshold: u64, timeout: c_int) -> c_int
        = fi_ops_cntr in (*cntr).ops => wait(cntr, threshold, timeout);
}
