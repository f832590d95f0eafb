//! Fabrics, and the offers with which their domains are opened.

use std::ffi::{c_int, c_void};
use std::ptr;

use libfabric_sys::{
    FI_CLASS_FABRIC, FI_EAGAIN, FI_ENOMEM, fi_close, fi_domain, fi_info, fi_ops, fi_ops_fabric,
    fi_trywait, fid, fid_domain, fid_fabric,
};

use crate::behind::{behind, rename, take_apart, text};
use crate::domain::Domain;
use crate::object;
use crate::queue::Queue;

/// A fabric that wraps a real one.
#[repr(C)]
pub(crate) struct Fabric {
    fid: fid_fabric,
    real: *mut fid_fabric,
}

static OPS: fi_ops = operations!(fi_ops { close });
static FABRIC: fi_ops_fabric = operations!(fi_ops_fabric { domain, trywait });

impl Fabric {
    /// # Safety
    ///
    /// `real` must point to an open fabric of the real library.
    pub(crate) unsafe fn over(real: *mut fid_fabric, context: *mut c_void) -> *mut fid_fabric {
        let fabric = Self {
            fid: fid_fabric {
                fid: object(FI_CLASS_FABRIC, context, &OPS),
                ops: (&raw const FABRIC).cast_mut(),
                // SAFETY: the caller guarantees that `real` points to an open fabric.
                api_version: unsafe { (*real).api_version },
            },
            real,
        };
        Box::into_raw(Box::new(fabric)).cast()
    }
}

/// Returns a copy of an offer of this library, in the form that the real library knows.
///
/// # Safety
///
/// `info` must be an offer of this library or a copy of one.
pub(crate) unsafe fn real_offer(info: *const fi_info) -> *mut fi_info {
    let Some(library) = behind() else {
        return ptr::null_mut();
    };
    // SAFETY: the caller guarantees that `info` is an offer of this library. Only this function
    // uses the copy.
    unsafe {
        let copy = library.dupinfo(info);
        if !copy.is_null() {
            let attr = &mut *(*copy).domain_attr;
            let name = text(attr.name);
            let (own, faults) = take_apart(&name);
            rename(&mut attr.name, own);
            attr.mr_mode &= !faults.mr_mode;
            let provider = &mut (*(*copy).fabric_attr).prov_name;
            let name = text(*provider);
            rename(provider, take_apart(&name).0);
        }
        copy
    }
}

/// # Safety
///
/// [`real_offer`] must have returned `info`, which must not have been freed.
pub(crate) unsafe fn free_offer(info: *mut fi_info) {
    if let Some(library) = behind() {
        // SAFETY: the caller guarantees that [`real_offer`] has returned `info`, which was
        // allocated by the real library.
        unsafe { library.freeinfo(info) }
    }
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    // SAFETY: the caller passes the fid of an open fabric of this library, which nothing uses after
    // it is closed.
    unsafe {
        let fabric = fid.cast::<Fabric>();
        let result = fi_close(&raw mut (*(*fabric).real).fid);
        if result == 0 {
            drop(Box::from_raw(fabric));
        }
        result
    }
}

unsafe extern "C" fn domain(
    fabric: *mut fid_fabric,
    info: *mut fi_info,
    domain: *mut *mut fid_domain,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller passes an open fabric and an offer of this library, and a valid `domain`.
    unsafe {
        let name = text((*(*info).domain_attr).name);
        let offer = real_offer(info);
        if offer.is_null() {
            return -FI_ENOMEM;
        }
        let mut real = ptr::null_mut();
        let result = fi_domain((*fabric.cast::<Fabric>()).real, offer, &mut real, context);
        free_offer(offer);
        if result == 0 {
            *domain = Domain::over(real, take_apart(&name).1, context);
        }
        result
    }
}

unsafe extern "C" fn trywait(fabric: *mut fid_fabric, fids: *mut *mut fid, count: c_int) -> c_int {
    // SAFETY: the caller passes an open fabric and `count` completion queues of this library.
    unsafe {
        for at in 0..usize::try_from(count).unwrap_or(0) {
            let queue = &*(*fids.add(at)).cast::<Queue>();
            if queue.device.has_failed() {
                return -FI_EAGAIN;
            }
            let mut real = [&raw mut (*queue.real).fid];
            let result = fi_trywait((*fabric.cast::<Fabric>()).real, real.as_mut_ptr(), 1);
            if result != 0 {
                return result;
            }
        }
    }
    0
}
