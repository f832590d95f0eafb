//! Messages. See fi_msg(3).

use std::ffi::c_void;

use libc::iovec;

use crate::{fi_addr_t, fid_ep};

/// A message of several pieces.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct fi_msg {
    pub msg_iov: *const iovec,
    pub desc: *mut *mut c_void,
    pub iov_count: usize,
    pub addr: fi_addr_t,
    pub context: *mut c_void,
    pub data: u64,
}

tables! {
    /// Operations that send and receive messages.
    struct fi_ops_msg {
        recv(ep: *mut fid_ep, buf: *mut c_void, len: usize, desc: *mut c_void, src_addr: fi_addr_t,
            context: *mut c_void) -> isize;
        recvv(ep: *mut fid_ep, iov: *const iovec, desc: *mut *mut c_void, count: usize, src_addr: fi_addr_t,
            context: *mut c_void) -> isize;
        recvmsg(ep: *mut fid_ep, msg: *const fi_msg, flags: u64) -> isize;
        send(ep: *mut fid_ep, buf: *const c_void, len: usize, desc: *mut c_void, dest_addr: fi_addr_t,
            context: *mut c_void) -> isize;
        sendv(ep: *mut fid_ep, iov: *const iovec, desc: *mut *mut c_void, count: usize, dest_addr: fi_addr_t,
            context: *mut c_void) -> isize;
        sendmsg(ep: *mut fid_ep, msg: *const fi_msg, flags: u64) -> isize;
        inject(ep: *mut fid_ep, buf: *const c_void, len: usize, dest_addr: fi_addr_t) -> isize;
        senddata(ep: *mut fid_ep, buf: *const c_void, len: usize, desc: *mut c_void, data: u64,
            dest_addr: fi_addr_t, context: *mut c_void) -> isize;
        injectdata(ep: *mut fid_ep, buf: *const c_void, len: usize, data: u64, dest_addr: fi_addr_t) -> isize;
    }
}

calls! {
    /// Posts a receive.
    fn fi_recv(ep: *mut fid_ep, buf: *mut c_void, len: usize, desc: *mut c_void, src_addr: fi_addr_t,
        context: *mut c_void) -> isize
        = fi_ops_msg in (*ep).msg => recv(ep, buf, len, desc, src_addr, context);

    /// Posts a receive into several pieces.
    fn fi_recvv(ep: *mut fid_ep, iov: *const iovec, desc: *mut *mut c_void, count: usize, src_addr: fi_addr_t,
        context: *mut c_void) -> isize
        = fi_ops_msg in (*ep).msg => recvv(ep, iov, desc, count, src_addr, context);

    /// Posts a receive with explicit flags, such as `FI_MULTI_RECV`.
    fn fi_recvmsg(ep: *mut fid_ep, msg: *const fi_msg, flags: u64) -> isize
        = fi_ops_msg in (*ep).msg => recvmsg(ep, msg, flags);

    /// Sends a message.
    fn fi_send(ep: *mut fid_ep, buf: *const c_void, len: usize, desc: *mut c_void, dest_addr: fi_addr_t,
        context: *mut c_void) -> isize
        = fi_ops_msg in (*ep).msg => send(ep, buf, len, desc, dest_addr, context);

    /// Sends a message of several pieces.
    fn fi_sendv(ep: *mut fid_ep, iov: *const iovec, desc: *mut *mut c_void, count: usize,
        dest_addr: fi_addr_t, context: *mut c_void) -> isize
        = fi_ops_msg in (*ep).msg => sendv(ep, iov, desc, count, dest_addr, context);

    /// Sends a message with explicit flags, such as `FI_DELIVERY_COMPLETE`.
    fn fi_sendmsg(ep: *mut fid_ep, msg: *const fi_msg, flags: u64) -> isize
        = fi_ops_msg in (*ep).msg => sendmsg(ep, msg, flags);

    /// Sends a message of at most `inject_size` bytes without a completion. The buffer may be
    /// reused when the function returns.
    fn fi_inject(ep: *mut fid_ep, buf: *const c_void, len: usize, dest_addr: fi_addr_t) -> isize
        = fi_ops_msg in (*ep).msg => inject(ep, buf, len, dest_addr);

    /// Sends a message with remote completion data.
    fn fi_senddata(ep: *mut fid_ep, buf: *const c_void, len: usize, desc: *mut c_void, data: u64,
        dest_addr: fi_addr_t, context: *mut c_void) -> isize
        = fi_ops_msg in (*ep).msg => senddata(ep, buf, len, desc, data, dest_addr, context);

    /// Does the same as `fi_inject`, but with remote completion data.
    fn fi_injectdata(ep: *mut fid_ep, buf: *const c_void, len: usize, data: u64, dest_addr: fi_addr_t)
        -> isize
        = fi_ops_msg in (*ep).msg => injectdata(ep, buf, len, data, dest_addr);
}
