//! Endpoints, to which operations are submitted.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::Arc;

use libfabric_sys::{
    FI_ATOMIC, FI_CLASS_CQ, FI_CLASS_EP, FI_EBUSY, FI_EINVAL, FI_ENODEV, FI_MSG, FI_READ, FI_RECV,
    FI_RMA, FI_SEND, FI_WRITE, fi_addr_t, fi_compare_atomic, fi_compare_atomicvalid, fi_control,
    fi_datatype, fi_ep_bind, fi_fetch_atomic, fi_fetch_atomicvalid, fi_getname, fi_inject, fi_msg,
    fi_msg_rma, fi_op, fi_ops, fi_ops_atomic, fi_ops_cm, fi_ops_ep, fi_ops_msg, fi_ops_rma,
    fi_read, fi_recv, fi_recvmsg, fi_rma_iov, fi_send, fi_sendv, fi_setopt, fi_writemsg, fid,
    fid_ep, iovec,
};

use crate::device::Device;
use crate::memory::offset;
use crate::object;
use crate::queue::Queue;

/// An endpoint that wraps a real one. The device owns the real endpoint.
#[repr(C)]
pub(crate) struct Endpoint {
    fid: fid_ep,
    device: Arc<Device>,
}

static OPS: fi_ops = operations!(fi_ops {
    close,
    bind,
    control
});
static EP: fi_ops_ep = operations!(fi_ops_ep { setopt });
static CM: fi_ops_cm = operations!(fi_ops_cm { getname });
static MSG: fi_ops_msg = operations!(fi_ops_msg {
    recv,
    recvmsg,
    send,
    sendv,
    inject
});
static RMA: fi_ops_rma = operations!(fi_ops_rma { read, writemsg });
static ATOMIC: fi_ops_atomic = operations!(fi_ops_atomic {
    readwrite,
    compwrite,
    readwritevalid,
    compwritevalid
});

impl Endpoint {
    pub(crate) fn over(
        real: *mut fid_ep,
        device: Arc<Device>,
        context: *mut c_void,
    ) -> *mut fid_ep {
        device.opened(real);
        let endpoint = Self {
            fid: fid_ep {
                fid: object(FI_CLASS_EP, context, &OPS),
                ops: (&raw const EP).cast_mut(),
                cm: (&raw const CM).cast_mut(),
                msg: (&raw const MSG).cast_mut(),
                rma: (&raw const RMA).cast_mut(),
                tagged: null_mut(),
                atomic: (&raw const ATOMIC).cast_mut(),
                collective: null_mut(),
            },
            device,
        };
        Box::into_raw(Box::new(endpoint)).cast()
    }
}

/// # Safety
///
/// `ep` must point to an open endpoint of this library.
unsafe fn device<'a>(ep: *mut fid_ep) -> &'a Device {
    // SAFETY: the caller guarantees that `ep` points to an open endpoint of this library.
    unsafe { &(*ep.cast::<Endpoint>()).device }
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    // SAFETY: the caller passes the fid of an open endpoint of this library, which nothing uses
    // after it is closed.
    unsafe {
        if !device(fid.cast()).close_endpoint() {
            return -FI_EBUSY;
        }
        drop(Box::from_raw(fid.cast::<Endpoint>()));
    }
    0
}

/// Calls a function with the real endpoint and returns the function's result.
///
/// # Safety
///
/// `fid` must belong to an open endpoint of this library.
unsafe fn with(fid: *mut fid, what: impl FnOnce(*mut fid_ep) -> c_int) -> c_int {
    // SAFETY: the caller guarantees that `fid` belongs to an open endpoint of this library.
    unsafe { device(fid.cast()) }
        .endpoint()
        .map_or(-FI_ENODEV, what)
}

unsafe extern "C" fn bind(fid: *mut fid, other: *mut fid, flags: u64) -> c_int {
    // SAFETY: the caller passes the fid of an open endpoint of this library and a valid `other`. Of
    // the objects that can be bound, only queues belong to this library.
    unsafe {
        let other = match (*other).fclass {
            FI_CLASS_CQ => &raw mut (*(*other.cast::<Queue>()).real).fid,
            _ => other,
        };
        with(fid, |real| fi_ep_bind(real, other, flags))
    }
}

unsafe extern "C" fn control(fid: *mut fid, command: c_int, arg: *mut c_void) -> c_int {
    // SAFETY: the caller passes the fid of an open endpoint of this library and a valid `arg`.
    unsafe { with(fid, |real| fi_control(&raw mut (*real).fid, command, arg)) }
}

unsafe extern "C" fn setopt(
    fid: *mut fid,
    level: c_int,
    optname: c_int,
    optval: *const c_void,
    optlen: usize,
) -> c_int {
    // SAFETY: the caller passes the fid of an open endpoint of this library and an option value of
    // `optlen` bytes.
    unsafe {
        with(fid, |real| {
            fi_setopt(real.cast(), level, optname, optval, optlen)
        })
    }
}

unsafe extern "C" fn getname(fid: *mut fid, addr: *mut c_void, addrlen: *mut usize) -> c_int {
    // SAFETY: the caller passes the fid of an open endpoint of this library, and `addr` is valid
    // for writes of `addrlen` bytes.
    unsafe { with(fid, |real| fi_getname(real.cast(), addr, addrlen)) }
}

/// Submits an operation: checks its local memory, applies the faults, and calls the real endpoint.
///
/// # Safety
///
/// `ep` must point to an open endpoint of this library.
unsafe fn submit(
    ep: *mut fid_ep,
    context: *mut c_void,
    flags: u64,
    check: impl FnOnce(&Device) -> Result<(), isize>,
    real: impl FnOnce(*mut fid_ep) -> isize,
) -> isize {
    const GONE: isize = -(FI_ENODEV as isize);
    // SAFETY: the caller guarantees that `ep` points to an open endpoint of this library.
    let device = unsafe { device(ep) };
    let begun = check(device).and_then(|()| match flags & FI_ATOMIC {
        0 => device.begin(context, flags),
        _ => device.begin_atomic(context, flags),
    });
    match begun {
        Err(answer) => answer,
        Ok(false) => 0,
        Ok(true) => {
            let result = device.endpoint().map_or(GONE, real);
            if result != 0 {
                device.refused(context);
            }
            result
        }
    }
}

unsafe extern "C" fn recv(
    ep: *mut fid_ep,
    buf: *mut c_void,
    len: usize,
    desc: *mut c_void,
    from: fi_addr_t,
    context: *mut c_void,
) -> isize {
    // SAFETY: the caller passes an open endpoint of this library and a buffer of `len` bytes. The
    // real library needs no descriptors.
    unsafe {
        submit(
            ep,
            context,
            FI_RECV | FI_MSG,
            |device| device.check_own("fi_recv", desc, buf, len, FI_RECV),
            |real| fi_recv(real, buf, len, null_mut(), from, context),
        )
    }
}

unsafe extern "C" fn recvmsg(ep: *mut fid_ep, msg: *const fi_msg, flags: u64) -> isize {
    // SAFETY: the caller passes an open endpoint of this library and a valid message. The real
    // library needs no descriptors.
    unsafe {
        let msg = &*msg;
        let bare = fi_msg {
            desc: null_mut(),
            ..*msg
        };
        submit(
            ep,
            msg.context,
            FI_RECV | FI_MSG | flags,
            |device| {
                check_pieces(
                    device,
                    "fi_recvmsg",
                    msg.msg_iov,
                    msg.desc,
                    msg.iov_count,
                    FI_RECV,
                )
            },
            |real| fi_recvmsg(real, &bare, flags),
        )
    }
}

/// # Safety
///
/// `pieces` must have `count` elements. `descriptors` must have as many or be null.
unsafe fn check_pieces(
    device: &Device,
    what: &str,
    pieces: *const iovec,
    descriptors: *mut *mut c_void,
    count: usize,
    access: u64,
) -> Result<(), isize> {
    for at in 0..count {
        // SAFETY: the caller guarantees that `pieces` has `count` elements and that `descriptors`
        // has as many or is null.
        let (piece, descriptor) = unsafe {
            let descriptor = match descriptors.is_null() {
                true => null_mut(),
                false => *descriptors.add(at),
            };
            (*pieces.add(at), descriptor)
        };
        device.check_own(what, descriptor, piece.iov_base, piece.iov_len, access)?;
    }
    Ok(())
}

unsafe extern "C" fn send(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    desc: *mut c_void,
    to: fi_addr_t,
    context: *mut c_void,
) -> isize {
    // SAFETY: the caller passes an open endpoint of this library and a buffer of `len` bytes. The
    // real library needs no descriptors.
    unsafe {
        submit(
            ep,
            context,
            FI_SEND | FI_MSG,
            |device| device.check_own("fi_send", desc, buf, len, FI_SEND),
            |real| fi_send(real, buf, len, null_mut(), to, context),
        )
    }
}

unsafe extern "C" fn sendv(
    ep: *mut fid_ep,
    iov: *const iovec,
    desc: *mut *mut c_void,
    count: usize,
    to: fi_addr_t,
    context: *mut c_void,
) -> isize {
    // SAFETY: the caller passes an open endpoint of this library and `count` valid pieces of
    // memory. The real library needs no descriptors.
    unsafe {
        submit(
            ep,
            context,
            FI_SEND | FI_MSG,
            |device| check_pieces(device, "fi_sendv", iov, desc, count, FI_SEND),
            |real| fi_sendv(real, iov, null_mut(), count, to, context),
        )
    }
}

unsafe extern "C" fn inject(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    to: fi_addr_t,
) -> isize {
    // SAFETY: the caller passes an open endpoint of this library and a buffer of `len` bytes. An
    // inject needs no registration and has no completion.
    unsafe {
        submit(
            ep,
            null_mut(),
            FI_SEND | FI_MSG,
            |_| Ok(()),
            |real| fi_inject(real, buf, len, to),
        )
    }
}

unsafe extern "C" fn read(
    ep: *mut fid_ep,
    buf: *mut c_void,
    len: usize,
    desc: *mut c_void,
    from: fi_addr_t,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: the caller passes an open endpoint of this library and a buffer of `len` bytes. The
    // real library needs no descriptors.
    unsafe {
        let there = offset(device(ep), addr, key);
        submit(
            ep,
            context,
            FI_READ | FI_RMA,
            |device| device.check_own("fi_read", desc, buf, len, FI_READ),
            |real| fi_read(real, buf, len, null_mut(), from, there, key, context),
        )
    }
}

unsafe extern "C" fn writemsg(ep: *mut fid_ep, msg: *const fi_msg_rma, flags: u64) -> isize {
    // SAFETY: the caller passes an open endpoint of this library and a valid message. The real
    // library needs no descriptors.
    unsafe {
        let msg = &*msg;
        if msg.rma_iov_count != 1 {
            return -(FI_EINVAL as isize);
        }
        let there = *msg.rma_iov;
        let there = fi_rma_iov {
            addr: offset(device(ep), there.addr, there.key),
            ..there
        };
        let bare = fi_msg_rma {
            desc: null_mut(),
            rma_iov: &there,
            ..*msg
        };
        submit(
            ep,
            msg.context,
            FI_WRITE | FI_RMA,
            |device| {
                check_pieces(
                    device,
                    "fi_writemsg",
                    msg.msg_iov,
                    msg.desc,
                    msg.iov_count,
                    FI_WRITE,
                )
            },
            |real| fi_writemsg(real, &bare, flags),
        )
    }
}

/// Returns the number of bytes of an atomic's elements.
fn bytes(count: usize, datatype: fi_datatype) -> usize {
    // The integer types come in pairs, whose lengths are 1, 2, 4 and 8 bytes.
    count << (datatype / 2).min(3)
}

unsafe extern "C" fn readwrite(
    ep: *mut fid_ep,
    buf: *const c_void,
    count: usize,
    desc: *mut c_void,
    result: *mut c_void,
    result_desc: *mut c_void,
    to: fi_addr_t,
    addr: u64,
    key: u64,
    datatype: fi_datatype,
    op: fi_op,
    context: *mut c_void,
) -> isize {
    const NAME: &str = "fi_fetch_atomic";
    let length = bytes(count, datatype);
    // SAFETY: the caller passes an open endpoint of this library and buffers for `count` elements.
    // The real library needs no descriptors.
    unsafe {
        let there = offset(device(ep), addr, key);
        submit(
            ep,
            context,
            FI_ATOMIC | FI_READ,
            |device| {
                device.check_own(NAME, desc, buf, length, FI_WRITE)?;
                device.check_own(NAME, result_desc, result, length, FI_READ)
            },
            |real| {
                fi_fetch_atomic(
                    real,
                    buf,
                    count,
                    null_mut(),
                    result,
                    null_mut(),
                    to,
                    there,
                    key,
                    datatype,
                    op,
                    context,
                )
            },
        )
    }
}

unsafe extern "C" fn compwrite(
    ep: *mut fid_ep,
    buf: *const c_void,
    count: usize,
    desc: *mut c_void,
    compare: *const c_void,
    compare_desc: *mut c_void,
    result: *mut c_void,
    result_desc: *mut c_void,
    to: fi_addr_t,
    addr: u64,
    key: u64,
    datatype: fi_datatype,
    op: fi_op,
    context: *mut c_void,
) -> isize {
    const NAME: &str = "fi_compare_atomic";
    let length = bytes(count, datatype);
    // SAFETY: the caller passes an open endpoint of this library and buffers for `count` elements.
    // The real library needs no descriptors.
    unsafe {
        let there = offset(device(ep), addr, key);
        submit(
            ep,
            context,
            FI_ATOMIC | FI_READ,
            |device| {
                device.check_own(NAME, desc, buf, length, FI_WRITE)?;
                device.check_own(NAME, compare_desc, compare, length, FI_WRITE)?;
                device.check_own(NAME, result_desc, result, length, FI_READ)
            },
            |real| {
                fi_compare_atomic(
                    real,
                    buf,
                    count,
                    null_mut(),
                    compare,
                    null_mut(),
                    result,
                    null_mut(),
                    to,
                    there,
                    key,
                    datatype,
                    op,
                    context,
                )
            },
        )
    }
}

unsafe extern "C" fn readwritevalid(
    ep: *mut fid_ep,
    datatype: fi_datatype,
    op: fi_op,
    count: *mut usize,
) -> c_int {
    // SAFETY: the caller passes an open endpoint of this library, and `count` is valid for writes.
    unsafe {
        with(ep.cast(), |real| {
            fi_fetch_atomicvalid(real, datatype, op, count)
        })
    }
}

unsafe extern "C" fn compwritevalid(
    ep: *mut fid_ep,
    datatype: fi_datatype,
    op: fi_op,
    count: *mut usize,
) -> c_int {
    // SAFETY: the caller passes an open endpoint of this library, and `count` is valid for writes.
    unsafe {
        with(ep.cast(), |real| {
            fi_compare_atomicvalid(real, datatype, op, count)
        })
    }
}
