//! Address vectors. See fi_av(3).

use std::ffi::{c_char, c_int, c_void};

use crate::{fi_addr_t, fi_av_set_attr, fi_av_type, fi_ops_domain, fid, fid_av_set, fid_domain};

/// The attributes of a new address vector.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct fi_av_attr {
    pub r#type: fi_av_type,
    pub rx_ctx_bits: c_int,
    pub count: usize,
    pub ep_per_node: usize,
    pub name: *const c_char,
    pub map_addr: *mut c_void,
    pub flags: u64,
    /// Room for additions of later versions of libfabric. It must be zero and is never read.
    pub later: [usize; 4],
}

zeroed! { fi_av_attr }

tables! {
    /// Operations of an address vector.
    struct fi_ops_av {
        insert(av: *mut fid_av, addr: *const c_void, count: usize, fi_addr: *mut fi_addr_t, flags: u64,
            context: *mut c_void) -> c_int;
        insertsvc(av: *mut fid_av, node: *const c_char, service: *const c_char, fi_addr: *mut fi_addr_t,
            flags: u64, context: *mut c_void) -> c_int;
        insertsym(av: *mut fid_av, node: *const c_char, nodecnt: usize, service: *const c_char, svccnt: usize,
            fi_addr: *mut fi_addr_t, flags: u64, context: *mut c_void) -> c_int;
        remove(av: *mut fid_av, fi_addr: *mut fi_addr_t, count: usize, flags: u64) -> c_int;
        lookup(av: *mut fid_av, fi_addr: fi_addr_t, addr: *mut c_void, addrlen: *mut usize) -> c_int;
        straddr(av: *mut fid_av, addr: *const c_void, buf: *mut c_char, len: *mut usize) -> *const c_char;
        av_set(av: *mut fid_av, attr: *mut fi_av_set_attr, av_set: *mut *mut fid_av_set, context: *mut c_void)
            -> c_int;
    }
}

/// An address vector, which contains peers' addresses.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct fid_av {
    pub fid: fid,
    pub ops: *mut fi_ops_av,
}

calls! {
    /// Opens an address vector.
    fn fi_av_open(domain: *mut fid_domain, attr: *mut fi_av_attr, av: *mut *mut fid_av, context: *mut c_void)
        -> c_int
        = fi_ops_domain in (*domain).ops => av_open(domain, attr, av, context);

    /// Inserts `count` addresses, and stores their handles in `fi_addr`. Returns the number of
    /// inserted addresses.
    fn fi_av_insert(av: *mut fid_av, addr: *const c_void, count: usize, fi_addr: *mut fi_addr_t, flags: u64,
        context: *mut c_void) -> c_int
        = fi_ops_av in (*av).ops => insert(av, addr, count, fi_addr, flags, context);

    /// Inserts the address of a node and service.
    fn fi_av_insertsvc(av: *mut fid_av, node: *const c_char, service: *const c_char, fi_addr: *mut fi_addr_t,
        flags: u64, context: *mut c_void) -> c_int
        = fi_ops_av in (*av).ops => insertsvc(av, node, service, fi_addr, flags, context);

    /// Removes addresses.
    fn fi_av_remove(av: *mut fid_av, fi_addr: *mut fi_addr_t, count: usize, flags: u64) -> c_int
        = fi_ops_av in (*av).ops => remove(av, fi_addr, count, flags);

    /// Looks up the address of a handle. `addrlen` must contain the size of the buffer at `addr`,
    /// and receives the address's length, both in bytes.
    fn fi_av_lookup(av: *mut fid_av, fi_addr: fi_addr_t, addr: *mut c_void, addrlen: *mut usize) -> c_int
        = fi_ops_av in (*av).ops => lookup(av, fi_addr, addr, addrlen);

    /// Returns an address as text, or null if the table lacks this operation.
    fn fi_av_straddr(av: *mut fid_av, addr: *const c_void, buf: *mut c_char, len: *mut usize) -> *const c_char
        = fi_ops_av in (*av).ops => straddr(av, addr, buf, len);
}
