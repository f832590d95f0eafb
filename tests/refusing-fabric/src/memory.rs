//! Registrations of memory.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Arc;

use libfabric_sys::{
    FI_CLASS_EP, FI_CLASS_MR, FI_EBUSY, FI_EFAULT, FI_EINVAL, FI_ENABLE, FI_ENOMEM,
    FI_KEY_NOTAVAIL, FI_MR_ALLOCATED, FI_MR_ENDPOINT, FI_MR_PROV_KEY, FI_MR_VIRT_ADDR, FI_READ,
    FI_RECV, FI_REMOTE_WRITE, fi_close, fi_mr_key, fi_mr_reg, fi_ops, fid, fid_domain, fid_mr,
};

use crate::device::{Device, Piece, wrong};
use crate::object;

/// The arguments of a registration.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    pub(crate) base: *mut c_void,
    pub(crate) length: usize,
    pub(crate) access: u64,
    pub(crate) requested_key: u64,
}

/// A registration. Its address is also its descriptor.
#[repr(C)]
pub(crate) struct Memory {
    fid: fid_mr,
    domain: *mut fid_domain,
    device: Arc<Device>,
    wanted: Wanted,
    /// The key that is passed to the real library.
    key: u64,
    /// The real registration, or null until this registration is enabled.
    real: *mut fid_mr,
    /// Whether the registration is bound to an endpoint.
    bound: bool,
}

static OPS: fi_ops = operations!(fi_ops {
    close,
    bind,
    control
});

/// The number of low bits of a key that don't belong to the address, in keys that contain an
/// address.
const NUMBER_BITS: u32 = 16;

/// Converts the address that the user passes to the offset from the beginning of the memory, which
/// the real library expects.
pub(crate) fn offset(device: &Device, address: u64, key: u64) -> u64 {
    match device.faults.mr_mode & FI_MR_VIRT_ADDR {
        0 => address,
        _ => address.wrapping_sub(key >> NUMBER_BITS),
    }
}

fn page() -> usize {
    // SAFETY: `sysconf` gets only a number and has no preconditions.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(4096)
}

/// Returns whether all pages of the memory are mapped.
fn is_allocated(wanted: &Wanted) -> bool {
    let begin = wanted.base.addr() & !(page() - 1);
    let length = wanted.base.addr() + wanted.length - begin;
    let mut pages = vec![0u8; length.div_ceil(page())];
    // SAFETY: `pages` has a byte for each page, and `mincore` reports unmapped pages as an error.
    let result = unsafe {
        libc::mincore(
            wanted.base.with_addr(begin),
            length,
            pages.as_mut_ptr().cast(),
        )
    };
    result == 0 && pages.iter().all(|page| page & 1 == 1)
}

/// Returns whether all of the memory is writable.
fn is_writable(wanted: &Wanted) -> bool {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let mut next = wanted.base.addr();
    let end = next + wanted.length;
    for line in maps.lines() {
        let mut words = line.split_whitespace();
        let (Some(range), Some(rights)) = (words.next(), words.next()) else {
            continue;
        };
        let Some((from, to)) = range.split_once('-') else {
            continue;
        };
        let number = |text| usize::from_str_radix(text, 16).unwrap_or(0);
        if (number(from)..number(to)).contains(&next) && rights.contains('w') {
            next = number(to);
        }
    }
    next >= end
}

impl Memory {
    /// # Safety
    ///
    /// `domain` must be open, and the memory must meet the requirements of `fi_mr_reg`.
    pub(crate) unsafe fn register(
        domain: *mut fid_domain,
        device: &Arc<Device>,
        wanted: Wanted,
        context: *mut c_void,
    ) -> Result<*mut fid_mr, c_int> {
        let mode = device.faults.mr_mode;
        if mode & FI_MR_ALLOCATED != 0 && !is_allocated(&wanted) {
            wrong(&format!(
                "fi_mr_reg is called for unmapped pages: {wanted:?}"
            ));
            return Err(-FI_EINVAL);
        }
        if mode != 0
            && wanted.access & (FI_RECV | FI_READ | FI_REMOTE_WRITE) != 0
            && !is_writable(&wanted)
        {
            return Err(-FI_EFAULT);
        }
        let number = device
            .lock(wanted.length, wanted.access)
            .ok_or(-FI_ENOMEM)?;
        let key = match (mode & FI_MR_PROV_KEY != 0, mode & FI_MR_VIRT_ADDR != 0) {
            (true, true) => {
                (wanted.base.addr() as u64) << NUMBER_BITS | number & ((1 << NUMBER_BITS) - 1)
            }
            (true, false) => number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 1,
            (false, _) => wanted.requested_key,
        };
        let mut memory = Box::new(Self {
            fid: fid_mr {
                fid: object(FI_CLASS_MR, context, &OPS),
                mem_desc: ptr::null_mut(),
                key: FI_KEY_NOTAVAIL,
            },
            domain,
            device: Arc::clone(device),
            wanted,
            key,
            real: ptr::null_mut(),
            bound: false,
        });
        if mode & FI_MR_ENDPOINT == 0 {
            // SAFETY: the caller guarantees that the domain is open and that the memory may be
            // registered.
            let result = unsafe { memory.enable() };
            if result != 0 {
                device.unlock(wanted.length);
                return Err(result);
            }
        }
        Ok(Box::into_raw(memory).cast())
    }

    /// # Safety
    ///
    /// Same as [`register`](Self::register).
    unsafe fn enable(&mut self) -> c_int {
        let wanted = self.wanted;
        // SAFETY: the caller guarantees that the domain is open and that the memory may be
        // registered.
        unsafe {
            let result = fi_mr_reg(
                self.domain,
                wanted.base,
                wanted.length,
                wanted.access,
                0,
                self.key,
                0,
                &mut self.real,
                ptr::null_mut(),
            );
            if result != 0 {
                return result;
            }
            self.fid.key = fi_mr_key(self.real);
        }
        self.fid.mem_desc = (&raw mut *self).cast();
        let piece = Piece {
            base: wanted.base.addr(),
            length: wanted.length,
            access: wanted.access,
        };
        self.device.enabled(self.fid.mem_desc, piece);
        0
    }
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    // SAFETY: the caller passes the fid of an open registration of this library, which nothing uses
    // after it is closed.
    unsafe {
        let memory = &mut *fid.cast::<Memory>();
        if memory.bound && !memory.device.unbind() {
            return -FI_EBUSY;
        }
        memory.bound = false;
        if !memory.real.is_null() {
            let result = fi_close(&raw mut (*memory.real).fid);
            if result != 0 {
                return result;
            }
        }
        memory.device.disabled(memory.fid.mem_desc);
        memory.device.unlock(memory.wanted.length);
        drop(Box::from_raw(fid.cast::<Memory>()));
    }
    0
}

unsafe extern "C" fn bind(fid: *mut fid, other: *mut fid, flags: u64) -> c_int {
    // SAFETY: the caller passes the fid of an open registration of this library, and `other` points
    // to an open object.
    unsafe {
        let memory = &mut *fid.cast::<Memory>();
        let is_wanted = memory.device.faults.mr_mode & FI_MR_ENDPOINT != 0;
        if !is_wanted || flags != 0 || (*other).fclass != FI_CLASS_EP || memory.bound {
            wrong("fi_mr_bind is called where no binding is needed");
            return -FI_EINVAL;
        }
        memory.bound = true;
        memory.device.bind();
    }
    0
}

unsafe extern "C" fn control(fid: *mut fid, command: c_int, _: *mut c_void) -> c_int {
    // SAFETY: the caller passes the fid of an open registration of this library, whose domain is
    // open.
    unsafe {
        let memory = &mut *fid.cast::<Memory>();
        if command != FI_ENABLE || !memory.bound || !memory.real.is_null() {
            wrong("fi_mr_enable is called before fi_mr_bind or twice");
            return -FI_EINVAL;
        }
        memory.enable()
    }
}
