//! Domains, which open the objects of a device.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Arc;

use libfabric_sys::{
    FI_CLASS_DOMAIN, FI_CQ_FORMAT_DATA, FI_EINVAL, FI_ENOMEM, fi_av_attr, fi_av_open, fi_close,
    fi_cq_attr, fi_cq_open, fi_endpoint, fi_info, fi_ops, fi_ops_domain, fi_ops_mr, fid, fid_av,
    fid_cq, fid_domain, fid_ep, fid_mr,
};

use crate::device::{Device, wrong};
use crate::endpoint::Endpoint;
use crate::fabric::{free_offer, real_offer};
use crate::faults::Faults;
use crate::memory::{Memory, Wanted};
use crate::object;
use crate::queue::Queue;

/// A domain that wraps a real one.
#[repr(C)]
pub(crate) struct Domain {
    fid: fid_domain,
    real: *mut fid_domain,
    device: Arc<Device>,
}

static OPS: fi_ops = operations!(fi_ops { close });
static DOMAIN: fi_ops_domain = operations!(fi_ops_domain {
    av_open,
    cq_open,
    endpoint
});
static MR: fi_ops_mr = operations!(fi_ops_mr { reg });

impl Domain {
    pub(crate) fn over(
        real: *mut fid_domain,
        faults: Faults,
        context: *mut c_void,
    ) -> *mut fid_domain {
        let domain = Self {
            fid: fid_domain {
                fid: object(FI_CLASS_DOMAIN, context, &OPS),
                ops: (&raw const DOMAIN).cast_mut(),
                mr: (&raw const MR).cast_mut(),
            },
            real,
            device: Arc::new(Device::new(faults)),
        };
        Box::into_raw(Box::new(domain)).cast()
    }
}

/// # Safety
///
/// `domain` must point to an open domain of this library.
unsafe fn look<'a>(domain: *mut fid_domain) -> &'a Domain {
    // SAFETY: the caller guarantees that `domain` points to an open domain of this library.
    unsafe { &*domain.cast::<Domain>() }
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    // SAFETY: the caller passes the fid of an open domain of this library, which nothing uses after
    // the call.
    unsafe {
        let domain = fid.cast::<Domain>();
        let result = fi_close(&raw mut (*(*domain).real).fid);
        if result == 0 {
            drop(Box::from_raw(domain));
        } else {
            wrong("fi_close of a domain with open objects");
        }
        result
    }
}

unsafe extern "C" fn av_open(
    domain: *mut fid_domain,
    attr: *mut fi_av_attr,
    av: *mut *mut fid_av,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller passes an open domain of this library and valid arguments. The address
    // vector is the real library's own.
    unsafe { fi_av_open(look(domain).real, attr, av, context) }
}

unsafe extern "C" fn cq_open(
    domain: *mut fid_domain,
    attr: *mut fi_cq_attr,
    cq: *mut *mut fid_cq,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller passes an open domain of this library and valid pointers.
    unsafe {
        if (*attr).format != FI_CQ_FORMAT_DATA {
            return -FI_EINVAL;
        }
        let domain = look(domain);
        let mut real = ptr::null_mut();
        let result = fi_cq_open(domain.real, attr, &mut real, context);
        if result == 0 {
            *cq = Queue::over(real, Arc::clone(&domain.device), context);
        }
        result
    }
}

unsafe extern "C" fn endpoint(
    domain: *mut fid_domain,
    info: *mut fi_info,
    ep: *mut *mut fid_ep,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller passes an open domain and an offer of this library, and a valid `ep`. The
    // copy of the offer is freed only after its last use.
    unsafe {
        let offer = real_offer(info);
        if offer.is_null() {
            return -FI_ENOMEM;
        }
        let domain = look(domain);
        let mut real = ptr::null_mut();
        let result = fi_endpoint(domain.real, offer, &mut real, context);
        free_offer(offer);
        if result == 0 {
            *ep = Endpoint::over(real, Arc::clone(&domain.device), context);
        }
        result
    }
}

unsafe extern "C" fn reg(
    domain: *mut fid,
    buf: *const c_void,
    len: usize,
    access: u64,
    offset: u64,
    requested_key: u64,
    flags: u64,
    mr: *mut *mut fid_mr,
    context: *mut c_void,
) -> c_int {
    if offset != 0 || flags != 0 {
        return -FI_EINVAL;
    }
    let wanted = Wanted {
        base: buf.cast_mut(),
        length: len,
        access,
        requested_key,
    };
    // SAFETY: the caller passes the fid of an open domain of this library, memory that may be
    // registered, and a valid `mr`.
    unsafe {
        let domain = look(domain.cast());
        match Memory::register(domain.real, &domain.device, wanted, context) {
            Ok(memory) => {
                *mr = memory;
                0
            }
            Err(error) => error,
        }
    }
}
