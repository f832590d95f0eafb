//! Tagged messages. See fi_tagged(3).

use std::ffi::c_void;

use libc::iovec;

use crate::{fi_addr_t, fid_ep};

/// A tagged message of several pieces.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct fi_msg_tagged {
    pub msg_iov: *const iovec,
    pub desc: *mut *mut c_void,
    pub iov_count: usize,
    pub addr: fi_addr_t,
    pub tag: u64,
    pub ignore: u64,
    pub context: *mut c_void,
    pub data: u64,
}

tables! {
    /// Operations that send and receive tagged messages.
    struct fi_ops_tagged {
        recv(ep: *mut fid_ep, buf: *mut c_void, len: usize, desc: *mut c_void, src_addr: fi_addr_t, tag: u64,
            ignore: u64, context: *mut c_void) -> isize;
        recvv(ep: *mut fid_ep, iov: *const iovec, desc: *mut *mut c_void, count: usize, src_addr: fi_addr_t,
            tag: u64, ignore: u64, context: *mut c_void) -> isize;
        recvmsg(ep: *mut fid_ep, msg: *const fi_msg_tagged, flags: u64) -> isize;
        send(ep: *mut fid_ep, buf: *const c_void, len: usize, desc: *mut c_void, dest_addr: fi_addr_t,
            tag: u64, context: *mut c_void) -> isize;
        sendv(ep: *mut fid_ep, iov: *const iovec, desc: *mut *mut c_void, count: usize, dest_addr: fi_addr_t,
            tag: u64, context: *mut c_void) -> isize;
        sendmsg(ep: *mut fid_ep, msg: *const fi_msg_tagged, flags: u64) -> isize;
        inject(ep: *mut fid_ep, buf: *const c_void, len: usize, dest_addr: fi_addr_t, tag: u64) -> isize;
        senddata(ep: *mut fid_ep, buf: *const c_void, len: usize, desc: *mut c_void, data: u64,
            dest_addr: fi_addr_t, tag: u64, context: *mut c_void) -> isize;
        injectdata(ep: *mut fid_ep, buf: *const c_void, len: usize, data: u64, dest_addr: fi_addr_t, tag: u64)
            -> isize;
    }
}

calls! {
    /// Posts a tagged receive, which ignores the bits of `tag` that are set in `ignore`.
    fn fi_trecv(ep: *mut fid_ep, buf: *mut c_void, len: usize, desc: *mut c_void, src_addr: fi_addr_t,
        tag: u64, ignore: u64, context: *mut c_void) -> isize
        = fi_ops_tagged in (*ep).tagged => recv(ep, buf, len, desc, src_addr, tag, ignore, context);

    /// Posts a tagged receive into several pieces.
    fn fi_trecvv(ep: *mut fid_ep, iov: *const iovec, desc: *mut *mut c_void, count: usize,
        src_addr: fi_addr_t, tag: u64, ignore: u64, context: *mut c_void) -> isize
        = fi_ops_tagged in (*ep).tagged => recvv(ep, iov, desc, count, src_addr, tag, ignore, context);

    /// Posts a tagged receive with explicit flags, such as `FI_PEEK` or `FI_CLAIM`.
    fn fi_trecvmsg(ep: *mut fid_ep, msg: *const fi_msg_tagged, flags: u64) -> isize
        = fi_ops_tagged in (*ep).tagged => recvmsg(ep, msg, flags);

    /// Sends a tagged message.
    fn fi_tsend(ep: *mut fid_ep, buf: *const c_void, len: usize, desc: *mut c_void, dest_addr: fi_addr_t,
        tag: u64, context: *mut c_void) -> isize
        = fi_ops_tagged in (*ep).tagged => send(ep, buf, len, desc, dest_addr, tag, context);

    /// Sends a tagged message of several pieces.
    fn fi_tsendv(ep: *mut fid_ep, iov: *const iovec, desc: *mut *mut c_void, count: usize,
        dest_addr: fi_addr_t, tag: u64, context: *mut c_void) -> isize
        = fi_ops_tagged in (*ep).tagged => sendv(ep, iov, desc, count, dest_addr, tag, context);

    /// Sends a tagged message with explicit flags.
    fn fi_tsendmsg(ep: *mut fid_ep, msg: *const fi_msg_tagged, flags: u64) -> isize
        = fi_ops_tagged in (*ep).tagged => sendmsg(ep, msg, flags);

    /// Sends a tagged message of at most `inject_size` bytes without a completion. The buffer may
    /// be reused when the function returns.
    fn fi_tinject(ep: *mut fid_ep, buf: *const c_void, len: usize, dest_addr: fi_addr_t, tag: u64) -> isize
        = fi_ops_tagged in (*ep).tagged => inject(ep, buf, len, dest_addr, tag);

    /// Sends a tagged message with remote completion data.
    fn fi_tsenddata(ep: *mut fid_ep, buf: *const c_void, len: usize, desc: *mut c_void, data: u64,
        dest_addr: fi_addr_t, tag: u64, context: *mut c_void) -> isize
        = fi_ops_tagged in (*ep).tagged => senddata(ep, buf, len, desc, data, dest_addr, tag, context);

    /// Does the same as `fi_tinject`, but with remote completion data.
    fn fi_tinjectdata(ep: *mut fid_ep, buf: *const c_void, len: usize, data: u64, dest_addr: fi_addr_t,
        tag: u64) -> isize
        = fi_ops_tagged in (*ep).tagged => injectdata(ep, buf, len, data, dest_addr, tag);
}
