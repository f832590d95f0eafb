//! Reads and writes of a peer's memory. See fi_rma(3).

use std::ffi::c_void;

use libc::iovec;

use crate::{fi_addr_t, fid_ep};

/// A piece of a peer's registered memory with `len` bytes.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct fi_rma_iov {
    pub addr: u64,
    pub len: usize,
    pub key: u64,
}

/// A piece of a peer's registered memory with `count` elements.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct fi_rma_ioc {
    pub addr: u64,
    pub count: usize,
    pub key: u64,
}

/// A transfer between pieces of local memory and pieces of a peer's memory.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct fi_msg_rma {
    pub msg_iov: *const iovec,
    pub desc: *mut *mut c_void,
    pub iov_count: usize,
    pub addr: fi_addr_t,
    pub rma_iov: *const fi_rma_iov,
    pub rma_iov_count: usize,
    pub context: *mut c_void,
    pub data: u64,
}

tables! {
    /// Operations that read and write a peer's registered memory.
    struct fi_ops_rma {
        read(ep: *mut fid_ep, buf: *mut c_void, len: usize, desc: *mut c_void, src_addr: fi_addr_t, addr: u64,
            key: u64, context: *mut c_void) -> isize;
        readv(ep: *mut fid_ep, iov: *const iovec, desc: *mut *mut c_void, count: usize, src_addr: fi_addr_t,
            addr: u64, key: u64, context: *mut c_void) -> isize;
        readmsg(ep: *mut fid_ep, msg: *const fi_msg_rma, flags: u64) -> isize;
        write(ep: *mut fid_ep, buf: *const c_void, len: usize, desc: *mut c_void, dest_addr: fi_addr_t,
            addr: u64, key: u64, context: *mut c_void) -> isize;
        writev(ep: *mut fid_ep, iov: *const iovec, desc: *mut *mut c_void, count: usize, dest_addr: fi_addr_t,
            addr: u64, key: u64, context: *mut c_void) -> isize;
        writemsg(ep: *mut fid_ep, msg: *const fi_msg_rma, flags: u64) -> isize;
        inject(ep: *mut fid_ep, buf: *const c_void, len: usize, dest_addr: fi_addr_t, addr: u64, key: u64)
            -> isize;
        writedata(ep: *mut fid_ep, buf: *const c_void, len: usize, desc: *mut c_void, data: u64,
            dest_addr: fi_addr_t, addr: u64, key: u64, context: *mut c_void) -> isize;
        injectdata(ep: *mut fid_ep, buf: *const c_void, len: usize, data: u64, dest_addr: fi_addr_t,
            addr: u64, key: u64) -> isize;
    }
}

calls! {
    /// Reads a peer's memory. `addr` is an address in the peer's memory or an offset in the
    /// registered memory, depending on the peer's `mr_mode` (`FI_MR_VIRT_ADDR`).
    fn fi_read(ep: *mut fid_ep, buf: *mut c_void, len: usize, desc: *mut c_void, src_addr: fi_addr_t,
        addr: u64, key: u64, context: *mut c_void) -> isize
        = fi_ops_rma in (*ep).rma => read(ep, buf, len, desc, src_addr, addr, key, context);

    /// Reads a peer's memory into several pieces.
    fn fi_readv(ep: *mut fid_ep, iov: *const iovec, desc: *mut *mut c_void, count: usize, src_addr: fi_addr_t,
        addr: u64, key: u64, context: *mut c_void) -> isize
        = fi_ops_rma in (*ep).rma => readv(ep, iov, desc, count, src_addr, addr, key, context);

    /// Reads a peer's memory with explicit flags.
    fn fi_readmsg(ep: *mut fid_ep, msg: *const fi_msg_rma, flags: u64) -> isize
        = fi_ops_rma in (*ep).rma => readmsg(ep, msg, flags);

    /// Writes a peer's memory.
    fn fi_write(ep: *mut fid_ep, buf: *const c_void, len: usize, desc: *mut c_void, dest_addr: fi_addr_t,
        addr: u64, key: u64, context: *mut c_void) -> isize
        = fi_ops_rma in (*ep).rma => write(ep, buf, len, desc, dest_addr, addr, key, context);

    /// Writes a peer's memory from several pieces.
    fn fi_writev(ep: *mut fid_ep, iov: *const iovec, desc: *mut *mut c_void, count: usize,
        dest_addr: fi_addr_t, addr: u64, key: u64, context: *mut c_void) -> isize
        = fi_ops_rma in (*ep).rma => writev(ep, iov, desc, count, dest_addr, addr, key, context);

    /// Writes a peer's memory with explicit flags, such as `FI_DELIVERY_COMPLETE`.
    fn fi_writemsg(ep: *mut fid_ep, msg: *const fi_msg_rma, flags: u64) -> isize
        = fi_ops_rma in (*ep).rma => writemsg(ep, msg, flags);

    /// Writes at most `inject_size` bytes without a completion. The buffer may be reused when the
    /// function returns.
    fn fi_inject_write(ep: *mut fid_ep, buf: *const c_void, len: usize, dest_addr: fi_addr_t, addr: u64,
        key: u64) -> isize
        = fi_ops_rma in (*ep).rma => inject(ep, buf, len, dest_addr, addr, key);

    /// Writes a peer's memory with remote completion data.
    fn fi_writedata(ep: *mut fid_ep, buf: *const c_void, len: usize, desc: *mut c_void, data: u64,
        dest_addr: fi_addr_t, addr: u64, key: u64, context: *mut c_void) -> isize
        = fi_ops_rma in (*ep).rma => writedata(ep, buf, len, desc, data, dest_addr, addr, key, context);

    /// Does the same as `fi_inject_write`, but with remote completion data.
    fn fi_inject_writedata(ep: *mut fid_ep, buf: *const c_void, len: usize, data: u64, dest_addr: fi_addr_t,
        addr: u64, key: u64) -> isize
        = fi_ops_rma in (*ep).rma => injectdata(ep, buf, len, data, dest_addr, addr, key);
}
