//! Domains and registered memory. See fi_domain(3), fi_mr(3).

use std::ffi::{c_int, c_uint, c_void};
use std::ptr;

use libc::iovec;

use crate::{
    FI_ENABLE, fi_atomic_attr, fi_av_attr, fi_cntr_attr, fi_collective_attr, fi_collective_op,
    fi_cq_attr, fi_datatype, fi_info, fi_op, fi_ops, fi_ops_fabric, fi_poll_attr, fi_rx_attr,
    fi_tx_attr, fid, fid_av, fid_cntr, fid_cq, fid_ep, fid_fabric, fid_poll, fid_stx,
};

tables! {
    /// Operations of a domain.
    struct fi_ops_domain {
        av_open(domain: *mut fid_domain, attr: *mut fi_av_attr, av: *mut *mut fid_av, context: *mut c_void)
            -> c_int;
        cq_open(domain: *mut fid_domain, attr: *mut fi_cq_attr, cq: *mut *mut fid_cq, context: *mut c_void)
            -> c_int;
        endpoint(domain: *mut fid_domain, info: *mut fi_info, ep: *mut *mut fid_ep, context: *mut c_void)
            -> c_int;
        scalable_ep(domain: *mut fid_domain, info: *mut fi_info, sep: *mut *mut fid_ep, context: *mut c_void)
            -> c_int;
        cntr_open(domain: *mut fid_domain, attr: *mut fi_cntr_attr, cntr: *mut *mut fid_cntr,
            context: *mut c_void) -> c_int;
        poll_open(domain: *mut fid_domain, attr: *mut fi_poll_attr, pollset: *mut *mut fid_poll) -> c_int;
        stx_ctx(domain: *mut fid_domain, attr: *mut fi_tx_attr, stx: *mut *mut fid_stx, context: *mut c_void)
            -> c_int;
        srx_ctx(domain: *mut fid_domain, attr: *mut fi_rx_attr, rx_ep: *mut *mut fid_ep, context: *mut c_void)
            -> c_int;
        query_atomic(domain: *mut fid_domain, datatype: fi_datatype, op: fi_op, attr: *mut fi_atomic_attr,
            flags: u64) -> c_int;
        query_collective(domain: *mut fid_domain, coll: fi_collective_op, attr: *mut fi_collective_attr,
            flags: u64) -> c_int;
    }

    /// Operations that register memory in a domain.
    struct fi_ops_mr {
        reg(fid: *mut fid, buf: *const c_void, len: usize, access: u64, offset: u64, requested_key: u64,
            flags: u64, mr: *mut *mut fid_mr, context: *mut c_void) -> c_int;
        regv(fid: *mut fid, iov: *const iovec, count: usize, access: u64, offset: u64, requested_key: u64,
            flags: u64, mr: *mut *mut fid_mr, context: *mut c_void) -> c_int;
        regattr(fid: *mut fid, attr: *const fi_mr_attr, flags: u64, mr: *mut *mut fid_mr) -> c_int;
    }
}

/// A domain, which is a device or address with its resources.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct fid_domain {
    pub fid: fid,
    pub ops: *mut fi_ops_domain,
    pub mr: *mut fi_ops_mr,
}

/// Registered memory.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct fid_mr {
    pub fid: fid,
    pub mem_desc: *mut c_void,
    pub key: u64,
}

/// The kind of memory to register, which is the system's memory or that of a kind of device.
pub type fi_hmem_iface = c_uint;
pub const FI_HMEM_SYSTEM: fi_hmem_iface = 0;
pub const FI_HMEM_CUDA: fi_hmem_iface = 1;
pub const FI_HMEM_ROCR: fi_hmem_iface = 2;
pub const FI_HMEM_ZE: fi_hmem_iface = 3;
pub const FI_HMEM_NEURON: fi_hmem_iface = 4;

/// The attributes of a registration: the memory to register, and how to register it. The header's
/// union `device` is a single word here.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct fi_mr_attr {
    pub mr_iov: *const iovec,
    pub iov_count: usize,
    pub access: u64,
    pub offset: u64,
    pub requested_key: u64,
    pub context: *mut c_void,
    pub auth_key_size: usize,
    pub auth_key: *mut u8,
    pub iface: fi_hmem_iface,
    pub device: u64,
    /// Room for additions of later versions of libfabric. It must be zero and is never read.
    pub later: [usize; 8],
}

zeroed! { fi_mr_attr }

calls! {
    /// Opens a domain for an offer of `fi_getinfo`.
    fn fi_domain(fabric: *mut fid_fabric, info: *mut fi_info, domain: *mut *mut fid_domain,
        context: *mut c_void) -> c_int
        = fi_ops_fabric in (*fabric).ops => domain(fabric, info, domain, context);

    /// Binds an event queue to a domain.
    fn fi_domain_bind(domain: *mut fid_domain, fid: *mut fid, flags: u64) -> c_int
        = fi_ops in (*domain).fid.ops => bind(&raw mut (*domain).fid, fid, flags);

    /// Registers `len` bytes at `buf` for the kinds of access `acs` (`FI_SEND`, `FI_REMOTE_WRITE`
    /// and others). `requested_key` is ignored if the provider chooses keys itself
    /// (`FI_MR_PROV_KEY`).
    fn fi_mr_reg(domain: *mut fid_domain, buf: *const c_void, len: usize, acs: u64, offset: u64,
        requested_key: u64, flags: u64, mr: *mut *mut fid_mr, context: *mut c_void) -> c_int
        = fi_ops_mr in (*domain).mr => reg(&raw mut (*domain).fid, buf, len, acs, offset, requested_key,
            flags, mr, context);

    /// Registers several pieces of memory under one key.
    fn fi_mr_regv(domain: *mut fid_domain, iov: *const iovec, count: usize, acs: u64, offset: u64,
        requested_key: u64, flags: u64, mr: *mut *mut fid_mr, context: *mut c_void) -> c_int
        = fi_ops_mr in (*domain).mr => regv(&raw mut (*domain).fid, iov, count, acs, offset, requested_key,
            flags, mr, context);

    /// Registers memory as described by the attributes.
    fn fi_mr_regattr(domain: *mut fid_domain, attr: *const fi_mr_attr, flags: u64, mr: *mut *mut fid_mr)
        -> c_int
        = fi_ops_mr in (*domain).mr => regattr(&raw mut (*domain).fid, attr, flags, mr);

    /// Binds registered memory to an endpoint (`FI_MR_ENDPOINT`) or a counter (`FI_RMA_EVENT`).
    fn fi_mr_bind(mr: *mut fid_mr, bfid: *mut fid, flags: u64) -> c_int
        = fi_ops in (*mr).fid.ops => bind(&raw mut (*mr).fid, bfid, flags);

    /// Makes registered memory reachable after `fi_mr_bind` (`FI_MR_ENDPOINT`).
    fn fi_mr_enable(mr: *mut fid_mr) -> c_int
        = fi_ops in (*mr).fid.ops => control(&raw mut (*mr).fid, FI_ENABLE, ptr::null_mut());
}

/// Returns the descriptor of registered memory, for local operations (`FI_MR_LOCAL`).
///
/// # Safety
///
/// The registration must be open.
#[inline]
pub unsafe fn fi_mr_desc(mr: *mut fid_mr) -> *mut c_void {
    // SAFETY: the caller guarantees that `mr` is an open registration.
    unsafe { (*mr).mem_desc }
}

/// Returns the key by which peers name registered memory.
///
/// # Safety
///
/// The registration must be open.
#[inline]
pub unsafe fn fi_mr_key(mr: *mut fid_mr) -> u64 {
    // SAFETY: the caller guarantees that `mr` is an open registration.
    unsafe { (*mr).key }
}
