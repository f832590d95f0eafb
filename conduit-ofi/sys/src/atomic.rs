//! Atomic operations on a peer's memory. See fi_atomic(3).

use std::ffi::{c_int, c_uint, c_void};

use crate::{fi_addr_t, fi_ops_domain, fi_rma_ioc, fid_domain, fid_ep};

/// The type of an atomic's elements.
pub type fi_datatype = c_uint;
pub const FI_INT8: fi_datatype = 0;
pub const FI_UINT8: fi_datatype = 1;
pub const FI_INT16: fi_datatype = 2;
pub const FI_UINT16: fi_datatype = 3;
pub const FI_INT32: fi_datatype = 4;
pub const FI_UINT32: fi_datatype = 5;
pub const FI_INT64: fi_datatype = 6;
pub const FI_UINT64: fi_datatype = 7;
pub const FI_FLOAT: fi_datatype = 8;
pub const FI_DOUBLE: fi_datatype = 9;
pub const FI_FLOAT_COMPLEX: fi_datatype = 10;
pub const FI_DOUBLE_COMPLEX: fi_datatype = 11;
pub const FI_LONG_DOUBLE: fi_datatype = 12;
pub const FI_LONG_DOUBLE_COMPLEX: fi_datatype = 13;
pub const FI_DATATYPE_LAST: fi_datatype = 14;
pub const FI_INT128: fi_datatype = 14;
pub const FI_UINT128: fi_datatype = 15;
pub const FI_VOID: fi_datatype = 256;

/// An atomic operation.
pub type fi_op = c_uint;
pub const FI_MIN: fi_op = 0;
pub const FI_MAX: fi_op = 1;
pub const FI_SUM: fi_op = 2;
pub const FI_PROD: fi_op = 3;
pub const FI_LOR: fi_op = 4;
pub const FI_LAND: fi_op = 5;
pub const FI_BOR: fi_op = 6;
pub const FI_BAND: fi_op = 7;
pub const FI_LXOR: fi_op = 8;
pub const FI_BXOR: fi_op = 9;
pub const FI_ATOMIC_READ: fi_op = 10;
pub const FI_ATOMIC_WRITE: fi_op = 11;
pub const FI_CSWAP: fi_op = 12;
pub const FI_CSWAP_NE: fi_op = 13;
pub const FI_CSWAP_LE: fi_op = 14;
pub const FI_CSWAP_LT: fi_op = 15;
pub const FI_CSWAP_GE: fi_op = 16;
pub const FI_CSWAP_GT: fi_op = 17;
pub const FI_MSWAP: fi_op = 18;
pub const FI_ATOMIC_OP_LAST: fi_op = 19;
pub const FI_NOOP: fi_op = 256;

/// A piece of local memory with `count` elements.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct fi_ioc {
    pub addr: *mut c_void,
    pub count: usize,
}

/// The maximum number of elements of an atomic operation, and their size in bytes.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct fi_atomic_attr {
    pub count: usize,
    pub size: usize,
}

/// An atomic operation on pieces of local memory and of a peer's memory.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct fi_msg_atomic {
    pub msg_iov: *const fi_ioc,
    pub desc: *mut *mut c_void,
    pub iov_count: usize,
    pub addr: fi_addr_t,
    pub rma_iov: *const fi_rma_ioc,
    pub rma_iov_count: usize,
    pub datatype: fi_datatype,
    pub op: fi_op,
    pub context: *mut c_void,
    pub data: u64,
}

/// The destination of an atomic's results.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct fi_msg_fetch {
    pub msg_iov: *mut fi_ioc,
    pub desc: *mut *mut c_void,
    pub iov_count: usize,
}

/// The comparands of an atomic.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct fi_msg_compare {
    pub msg_iov: *const fi_ioc,
    pub desc: *mut *mut c_void,
    pub iov_count: usize,
}

zeroed! { fi_atomic_attr }

tables! {
    /// Atomic operations on a peer's registered memory.
    struct fi_ops_atomic {
        write(ep: *mut fid_ep, buf: *const c_void, count: usize, desc: *mut c_void, dest_addr: fi_addr_t,
            addr: u64, key: u64, datatype: fi_datatype, op: fi_op, context: *mut c_void) -> isize;
        writev(ep: *mut fid_ep, iov: *const fi_ioc, desc: *mut *mut c_void, count: usize,
            dest_addr: fi_addr_t, addr: u64, key: u64, datatype: fi_datatype, op: fi_op, context: *mut c_void)
            -> isize;
        writemsg(ep: *mut fid_ep, msg: *const fi_msg_atomic, flags: u64) -> isize;
        inject(ep: *mut fid_ep, buf: *const c_void, count: usize, dest_addr: fi_addr_t, addr: u64, key: u64,
            datatype: fi_datatype, op: fi_op) -> isize;
        readwrite(ep: *mut fid_ep, buf: *const c_void, count: usize, desc: *mut c_void, result: *mut c_void,
            result_desc: *mut c_void, dest_addr: fi_addr_t, addr: u64, key: u64, datatype: fi_datatype,
            op: fi_op, context: *mut c_void) -> isize;
        readwritev(ep: *mut fid_ep, iov: *const fi_ioc, desc: *mut *mut c_void, count: usize,
            resultv: *mut fi_ioc, result_desc: *mut *mut c_void, result_count: usize, dest_addr: fi_addr_t,
            addr: u64, key: u64, datatype: fi_datatype, op: fi_op, context: *mut c_void) -> isize;
        readwritemsg(ep: *mut fid_ep, msg: *const fi_msg_atomic, resultv: *mut fi_ioc,
            result_desc: *mut *mut c_void, result_count: usize, flags: u64) -> isize;
        compwrite(ep: *mut fid_ep, buf: *const c_void, count: usize, desc: *mut c_void,
            compare: *const c_void, compare_desc: *mut c_void, result: *mut c_void, result_desc: *mut c_void,
            dest_addr: fi_addr_t, addr: u64, key: u64, datatype: fi_datatype, op: fi_op, context: *mut c_void)
            -> isize;
        compwritev(ep: *mut fid_ep, iov: *const fi_ioc, desc: *mut *mut c_void, count: usize,
            comparev: *const fi_ioc, compare_desc: *mut *mut c_void, compare_count: usize,
            resultv: *mut fi_ioc, result_desc: *mut *mut c_void, result_count: usize, dest_addr: fi_addr_t,
            addr: u64, key: u64, datatype: fi_datatype, op: fi_op, context: *mut c_void) -> isize;
        compwritemsg(ep: *mut fid_ep, msg: *const fi_msg_atomic, comparev: *const fi_ioc,
            compare_desc: *mut *mut c_void, compare_count: usize, resultv: *mut fi_ioc,
            result_desc: *mut *mut c_void, result_count: usize, flags: u64) -> isize;
        writevalid(ep: *mut fid_ep, datatype: fi_datatype, op: fi_op, count: *mut usize) -> c_int;
        readwritevalid(ep: *mut fid_ep, datatype: fi_datatype, op: fi_op, count: *mut usize) -> c_int;
        compwritevalid(ep: *mut fid_ep, datatype: fi_datatype, op: fi_op, count: *mut usize) -> c_int;
    }
}

calls! {
    /// Performs an atomic operation without a result.
    fn fi_atomic(ep: *mut fid_ep, buf: *const c_void, count: usize, desc: *mut c_void, dest_addr: fi_addr_t,
        addr: u64, key: u64, datatype: fi_datatype, op: fi_op, context: *mut c_void) -> isize
        = fi_ops_atomic in (*ep).atomic => write(ep, buf, count, desc, dest_addr, addr, key, datatype, op,
            context);

    /// Performs an atomic operation without a result, from several pieces.
    fn fi_atomicv(ep: *mut fid_ep, iov: *const fi_ioc, desc: *mut *mut c_void, count: usize,
        dest_addr: fi_addr_t, addr: u64, key: u64, datatype: fi_datatype, op: fi_op, context: *mut c_void)
        -> isize
        = fi_ops_atomic in (*ep).atomic => writev(ep, iov, desc, count, dest_addr, addr, key, datatype, op,
            context);

    /// Performs an atomic operation without a result, with explicit flags.
    fn fi_atomicmsg(ep: *mut fid_ep, msg: *const fi_msg_atomic, flags: u64) -> isize
        = fi_ops_atomic in (*ep).atomic => writemsg(ep, msg, flags);

    /// Performs an atomic operation without a result and without a completion. The buffer may be
    /// reused when the function returns.
    fn fi_inject_atomic(ep: *mut fid_ep, buf: *const c_void, count: usize, dest_addr: fi_addr_t, addr: u64,
        key: u64, datatype: fi_datatype, op: fi_op) -> isize
        = fi_ops_atomic in (*ep).atomic => inject(ep, buf, count, dest_addr, addr, key, datatype, op);

    /// Performs an atomic operation that fetches the previous value.
    fn fi_fetch_atomic(ep: *mut fid_ep, buf: *const c_void, count: usize, desc: *mut c_void,
        result: *mut c_void, result_desc: *mut c_void, dest_addr: fi_addr_t, addr: u64, key: u64,
        datatype: fi_datatype, op: fi_op, context: *mut c_void) -> isize
        = fi_ops_atomic in (*ep).atomic => readwrite(ep, buf, count, desc, result, result_desc, dest_addr,
            addr, key, datatype, op, context);

    /// Performs a fetching atomic operation from and to several pieces.
    fn fi_fetch_atomicv(ep: *mut fid_ep, iov: *const fi_ioc, desc: *mut *mut c_void, count: usize,
        resultv: *mut fi_ioc, result_desc: *mut *mut c_void, result_count: usize, dest_addr: fi_addr_t,
        addr: u64, key: u64, datatype: fi_datatype, op: fi_op, context: *mut c_void) -> isize
        = fi_ops_atomic in (*ep).atomic => readwritev(ep, iov, desc, count, resultv, result_desc,
            result_count, dest_addr, addr, key, datatype, op, context);

    /// Performs a fetching atomic operation with explicit flags.
    fn fi_fetch_atomicmsg(ep: *mut fid_ep, msg: *const fi_msg_atomic, resultv: *mut fi_ioc,
        result_desc: *mut *mut c_void, result_count: usize, flags: u64) -> isize
        = fi_ops_atomic in (*ep).atomic => readwritemsg(ep, msg, resultv, result_desc, result_count, flags);

    /// Performs a compare-and-swap that fetches the previous value.
    fn fi_compare_atomic(ep: *mut fid_ep, buf: *const c_void, count: usize, desc: *mut c_void,
        compare: *const c_void, compare_desc: *mut c_void, result: *mut c_void, result_desc: *mut c_void,
        dest_addr: fi_addr_t, addr: u64, key: u64, datatype: fi_datatype, op: fi_op, context: *mut c_void)
        -> isize
        = fi_ops_atomic in (*ep).atomic => compwrite(ep, buf, count, desc, compare, compare_desc, result,
            result_desc, dest_addr, addr, key, datatype, op, context);

    /// Performs a compare-and-swap from and to several pieces.
    fn fi_compare_atomicv(ep: *mut fid_ep, iov: *const fi_ioc, desc: *mut *mut c_void, count: usize,
        comparev: *const fi_ioc, compare_desc: *mut *mut c_void, compare_count: usize, resultv: *mut fi_ioc,
        result_desc: *mut *mut c_void, result_count: usize, dest_addr: fi_addr_t, addr: u64, key: u64,
        datatype: fi_datatype, op: fi_op, context: *mut c_void) -> isize
        = fi_ops_atomic in (*ep).atomic => compwritev(ep, iov, desc, count, comparev, compare_desc,
            compare_count, resultv, result_desc, result_count, dest_addr, addr, key, datatype, op, context);

    /// Performs a compare-and-swap with explicit flags.
    fn fi_compare_atomicmsg(ep: *mut fid_ep, msg: *const fi_msg_atomic, comparev: *const fi_ioc,
        compare_desc: *mut *mut c_void, compare_count: usize, resultv: *mut fi_ioc,
        result_desc: *mut *mut c_void, result_count: usize, flags: u64) -> isize
        = fi_ops_atomic in (*ep).atomic => compwritemsg(ep, msg, comparev, compare_desc, compare_count,
            resultv, result_desc, result_count, flags);

    /// Queries whether an endpoint supports an operation without a result. If so, returns 0 and
    /// stores the maximum number of elements in `count`.
    fn fi_atomicvalid(ep: *mut fid_ep, datatype: fi_datatype, op: fi_op, count: *mut usize) -> c_int
        = fi_ops_atomic in (*ep).atomic => writevalid(ep, datatype, op, count);

    /// Queries whether an endpoint supports a fetching operation. If so, returns 0 and stores the
    /// maximum number of elements in `count`.
    fn fi_fetch_atomicvalid(ep: *mut fid_ep, datatype: fi_datatype, op: fi_op, count: *mut usize) -> c_int
        = fi_ops_atomic in (*ep).atomic => readwritevalid(ep, datatype, op, count);

    /// Queries whether an endpoint supports a comparing operation. If so, returns 0 and stores the
    /// maximum number of elements in `count`.
    fn fi_compare_atomicvalid(ep: *mut fid_ep, datatype: fi_datatype, op: fi_op, count: *mut usize) -> c_int
        = fi_ops_atomic in (*ep).atomic => compwritevalid(ep, datatype, op, count);

    /// Performs one of the three queries above on a domain. `flags` must be 0, `FI_FETCH_ATOMIC` or
    /// `FI_COMPARE_ATOMIC`.
    fn fi_query_atomic(domain: *mut fid_domain, datatype: fi_datatype, op: fi_op, attr: *mut fi_atomic_attr,
        flags: u64) -> c_int
        = fi_ops_domain in (*domain).ops => query_atomic(domain, datatype, op, attr, flags);
}
