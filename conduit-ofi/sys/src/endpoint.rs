//! Endpoints. See fi_endpoint(3), fi_cm(3).

use std::ffi::{c_int, c_void};
use std::ptr;

use crate::{
    FI_ENABLE, fi_info, fi_ops, fi_ops_atomic, fi_ops_collective, fi_ops_domain, fi_ops_fabric,
    fi_ops_msg, fi_ops_rma, fi_ops_tagged, fi_rx_attr, fi_tx_attr, fid, fid_domain, fid_fabric,
    fid_mc,
};

tables! {
    /// Operations of an endpoint that transfer no data.
    struct fi_ops_ep {
        cancel(fid: *mut fid, context: *mut c_void) -> isize;
        getopt(fid: *mut fid, level: c_int, optname: c_int, optval: *mut c_void, optlen: *mut usize) -> c_int;
        setopt(fid: *mut fid, level: c_int, optname: c_int, optval: *const c_void, optlen: usize) -> c_int;
        tx_ctx(sep: *mut fid_ep, index: c_int, attr: *mut fi_tx_attr, tx_ep: *mut *mut fid_ep,
            context: *mut c_void) -> c_int;
        rx_ctx(sep: *mut fid_ep, index: c_int, attr: *mut fi_rx_attr, rx_ep: *mut *mut fid_ep,
            context: *mut c_void) -> c_int;
        rx_size_left(ep: *mut fid_ep) -> isize;
        tx_size_left(ep: *mut fid_ep) -> isize;
    }

    /// Operations of connection management. Unconnected endpoints use only the operations for their
    /// addresses.
    struct fi_ops_cm {
        setname(fid: *mut fid, addr: *mut c_void, addrlen: usize) -> c_int;
        getname(fid: *mut fid, addr: *mut c_void, addrlen: *mut usize) -> c_int;
        getpeer(ep: *mut fid_ep, addr: *mut c_void, addrlen: *mut usize) -> c_int;
        connect(ep: *mut fid_ep, addr: *const c_void, param: *const c_void, paramlen: usize) -> c_int;
        listen(pep: *mut fid_pep) -> c_int;
        accept(ep: *mut fid_ep, param: *const c_void, paramlen: usize) -> c_int;
        reject(pep: *mut fid_pep, handle: *mut fid, param: *const c_void, paramlen: usize) -> c_int;
        shutdown(ep: *mut fid_ep, flags: u64) -> c_int;
        join(ep: *mut fid_ep, addr: *const c_void, flags: u64, mc: *mut *mut fid_mc, context: *mut c_void)
            -> c_int;
    }
}

/// An endpoint with its tables of operations. The table of a capability that was not requested is
/// null or one of the library's stubs.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct fid_ep {
    pub fid: fid,
    pub ops: *mut fi_ops_ep,
    pub cm: *mut fi_ops_cm,
    pub msg: *mut fi_ops_msg,
    pub rma: *mut fi_ops_rma,
    pub tagged: *mut fi_ops_tagged,
    pub atomic: *mut fi_ops_atomic,
    pub collective: *mut fi_ops_collective,
}

/// A passive endpoint, which listens for connection requests.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct fid_pep {
    pub fid: fid,
    pub ops: *mut fi_ops_ep,
    pub cm: *mut fi_ops_cm,
}

calls! {
    /// Opens a passive endpoint for an offer of `fi_getinfo` of connected endpoints (`FI_EP_MSG`).
    fn fi_passive_ep(fabric: *mut fid_fabric, info: *mut fi_info, pep: *mut *mut fid_pep, context: *mut c_void)
        -> c_int
        = fi_ops_fabric in (*fabric).ops => passive_ep(fabric, info, pep, context);

    /// Binds an event queue to a passive endpoint.
    fn fi_pep_bind(pep: *mut fid_pep, bfid: *mut fid, flags: u64) -> c_int
        = fi_ops in (*pep).fid.ops => bind(&raw mut (*pep).fid, bfid, flags);

    /// Starts to listen for connection requests. Each request causes an `FI_CONNREQ` event.
    fn fi_listen(pep: *mut fid_pep) -> c_int
        = fi_ops_cm in (*pep).cm => listen(pep);

    /// Requests a connection and sends `param` with the request. An `FI_CONNECTED` event or an
    /// error follows.
    fn fi_connect(ep: *mut fid_ep, addr: *const c_void, param: *const c_void, paramlen: usize) -> c_int
        = fi_ops_cm in (*ep).cm => connect(ep, addr, param, paramlen);

    /// Accepts the request from whose offer the endpoint was opened, and sends `param` with the
    /// answer. An `FI_CONNECTED` event follows.
    fn fi_accept(ep: *mut fid_ep, param: *const c_void, paramlen: usize) -> c_int
        = fi_ops_cm in (*ep).cm => accept(ep, param, paramlen);

    /// Rejects a request. `handle` must be the handle in the request's offer.
    fn fi_reject(pep: *mut fid_pep, handle: *mut fid, param: *const c_void, paramlen: usize) -> c_int
        = fi_ops_cm in (*pep).cm => reject(pep, handle, param, paramlen);

    /// Ends a connection. The peer gets an `FI_SHUTDOWN` event.
    fn fi_shutdown(ep: *mut fid_ep, flags: u64) -> c_int
        = fi_ops_cm in (*ep).cm => shutdown(ep, flags);

    /// Opens an endpoint for an offer of `fi_getinfo`.
    fn fi_endpoint(domain: *mut fid_domain, info: *mut fi_info, ep: *mut *mut fid_ep, context: *mut c_void)
        -> c_int
        = fi_ops_domain in (*domain).ops => endpoint(domain, info, ep, context);

    /// Binds an address vector, a completion queue, a counter or an event queue to an endpoint.
    fn fi_ep_bind(ep: *mut fid_ep, bfid: *mut fid, flags: u64) -> c_int
        = fi_ops in (*ep).fid.ops => bind(&raw mut (*ep).fid, bfid, flags);

    /// Enables an endpoint. The endpoint's queues and address vector must already be bound to it.
    fn fi_enable(ep: *mut fid_ep) -> c_int
        = fi_ops in (*ep).fid.ops => control(&raw mut (*ep).fid, FI_ENABLE, ptr::null_mut());

    /// Cancels a receive if possible. The receive then completes with `FI_ECANCELED`. `fid` must be
    /// that of an endpoint.
    fn fi_cancel(fid: *mut fid, context: *mut c_void) -> isize
        = fi_ops_ep in (*fid.cast::<fid_ep>()).ops => cancel(fid, context);

    /// Sets an option, such as `FI_OPT_MIN_MULTI_RECV` of level `FI_OPT_ENDPOINT`. `fid` must be
    /// that of an endpoint.
    fn fi_setopt(fid: *mut fid, level: c_int, optname: c_int, optval: *const c_void, optlen: usize) -> c_int
        = fi_ops_ep in (*fid.cast::<fid_ep>()).ops => setopt(fid, level, optname, optval, optlen);

    /// Reads an option. `fid` must be that of an endpoint.
    fn fi_getopt(fid: *mut fid, level: c_int, optname: c_int, optval: *mut c_void, optlen: *mut usize)
        -> c_int
        = fi_ops_ep in (*fid.cast::<fid_ep>()).ops => getopt(fid, level, optname, optval, optlen);

    /// Stores the endpoint's own address at `addr`. `addrlen` must contain the size of that buffer,
    /// and receives the address's length, both in bytes. `fid` must be that of an endpoint or of a
    /// passive endpoint, which has the same table at the same place.
    fn fi_getname(fid: *mut fid, addr: *mut c_void, addrlen: *mut usize) -> c_int
        = fi_ops_cm in (*fid.cast::<fid_ep>()).cm => getname(fid, addr, addrlen);

    /// Sets the own address of an endpoint that has not been enabled. `fid` must be that of an
    /// endpoint.
    fn fi_setname(fid: *mut fid, addr: *mut c_void, addrlen: usize) -> c_int
        = fi_ops_cm in (*fid.cast::<fid_ep>()).cm => setname(fid, addr, addrlen);
}
