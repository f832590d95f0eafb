//! Completion queues, which report what the real queue and the device's faults yield.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::slice;
use std::sync::Arc;

use libfabric_sys::{
    FI_ADDR_NOTAVAIL, FI_CLASS_CQ, FI_EINVAL, FI_MULTI_RECV, fi_addr_t, fi_close, fi_control,
    fi_cq_data_entry, fi_cq_err_entry, fi_cq_read, fi_cq_readerr, fi_cq_readfrom, fi_ops,
    fi_ops_cq, fid, fid_cq,
};

use crate::device::{Device, wrong};
use crate::object;

/// A completion queue that wraps a real one.
#[repr(C)]
pub(crate) struct Queue {
    fid: fid_cq,
    pub(crate) real: *mut fid_cq,
    pub(crate) device: Arc<Device>,
}

static OPS: fi_ops = operations!(fi_ops { close, control });
static CQ: fi_ops_cq = operations!(fi_ops_cq {
    read,
    readfrom,
    readerr
});

impl Queue {
    pub(crate) fn over(
        real: *mut fid_cq,
        device: Arc<Device>,
        context: *mut c_void,
    ) -> *mut fid_cq {
        let queue = Self {
            fid: fid_cq {
                fid: object(FI_CLASS_CQ, context, &OPS),
                ops: (&raw const CQ).cast_mut(),
            },
            real,
            device,
        };
        Box::into_raw(Box::new(queue)).cast()
    }
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    // SAFETY: the caller passes the fid of an open queue of this library, which nothing uses after
    // it is closed.
    unsafe {
        let queue = fid.cast::<Queue>();
        let result = fi_close(&raw mut (*(*queue).real).fid);
        if result == 0 {
            drop(Box::from_raw(queue));
        }
        result
    }
}

unsafe extern "C" fn control(fid: *mut fid, command: c_int, arg: *mut c_void) -> c_int {
    // SAFETY: the caller passes the fid of an open queue of this library and a valid `arg`.
    unsafe { fi_control(&raw mut (*(*fid.cast::<Queue>()).real).fid, command, arg) }
}

unsafe extern "C" fn read(cq: *mut fid_cq, buf: *mut c_void, count: usize) -> isize {
    // SAFETY: the caller passes an open queue of this library, and `buf` has room for `count`
    // completions.
    unsafe { take(cq, buf, count, ptr::null_mut()) }
}

unsafe extern "C" fn readfrom(
    cq: *mut fid_cq,
    buf: *mut c_void,
    count: usize,
    sources: *mut fi_addr_t,
) -> isize {
    // Some providers write the sources even if the pointer is null.
    if sources.is_null() {
        wrong("fi_cq_readfrom: no room for sources");
        return -(FI_EINVAL as isize);
    }
    // SAFETY: the caller passes an open queue of this library, and `buf` and `sources` have room
    // for `count` entries each.
    unsafe {
        let queue = &*cq.cast::<Queue>();
        let read = take(cq, buf, count, sources);
        if let Ok(read) = usize::try_from(read)
            && queue.device.faults.sourceless
        {
            slice::from_raw_parts_mut(sources, read).fill(FI_ADDR_NOTAVAIL);
        }
        read
    }
}

/// Takes completions from the queue, with their sources unless `sources` is null.
///
/// # Safety
///
/// `cq` must be an open queue of this library. `buf` must have room for `count` completions of the
/// queue's only format, and `sources` for as many sources or be null.
unsafe fn take(cq: *mut fid_cq, buf: *mut c_void, count: usize, sources: *mut fi_addr_t) -> isize {
    // SAFETY: the caller guarantees that `cq` is an open queue of this library and that `buf` and
    // `sources` have room for `count` entries, or that `sources` is null.
    unsafe {
        let queue = &*cq.cast::<Queue>();
        if let Err(answer) = queue.device.may_read() {
            return answer;
        }
        let read = match sources.is_null() {
            true => fi_cq_read(queue.real, buf, count),
            false => fi_cq_readfrom(queue.real, buf, count, sources),
        };
        let entries: &mut [fi_cq_data_entry] = match usize::try_from(read) {
            Ok(read) if read > 0 => slice::from_raw_parts_mut(buf.cast(), read),
            _ => &mut [],
        };
        if queue.device.faults.disorder && is_of_whole_buffers(entries) {
            entries.reverse();
            if !sources.is_null() {
                slice::from_raw_parts_mut(sources, entries.len()).reverse();
            }
        }
        for entry in entries {
            queue.device.ended(entry.op_context, entry.flags);
        }
        read
    }
}

/// Returns whether completions may be reordered, as a provider does whose `comp_order` is
/// `FI_ORDER_NONE`. They may not if one of them releases a buffer for several messages, because
/// that completion must be the buffer's last one.
fn is_of_whole_buffers(entries: &[fi_cq_data_entry]) -> bool {
    entries.iter().all(|entry| entry.flags & FI_MULTI_RECV == 0)
}

unsafe extern "C" fn readerr(cq: *mut fid_cq, buf: *mut fi_cq_err_entry, flags: u64) -> isize {
    // SAFETY: the caller passes an open queue of this library, and `buf` has room for an entry.
    unsafe {
        let queue = &*cq.cast::<Queue>();
        if let Some(failed) = queue.device.next_failed() {
            *buf = fi_cq_err_entry {
                op_context: ptr::with_exposed_provenance_mut(failed.context),
                flags: failed.flags,
                err: failed.error,
                ..fi_cq_err_entry::default()
            };
            return 1;
        }
        let read = fi_cq_readerr(queue.real, buf, flags);
        if read > 0 {
            queue.device.ended((*buf).op_context, (*buf).flags);
        }
        read
    }
}
