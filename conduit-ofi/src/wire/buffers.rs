//! Pools of buffers from which libfabric sends and into which it receives. A pool consists of
//! pieces of one size in one allocation. The allocation is registered if the provider requires
//! that.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ffi::c_void;
use std::ptr::{self, NonNull};

use crate::wire::objects::{Objects, Refusal};

/// The alignment of each piece.
const ALIGN: usize = 4096;

/// A pool of pieces of one size.
pub(crate) struct Buffers {
    base: NonNull<u8>,
    layout: Layout,
    size: usize,
    free: Vec<u32>,
    /// The registration's descriptor, or null if local memory need not be registered.
    pub(crate) descriptor: *mut c_void,
}

// SAFETY: the pool owns the memory. The descriptor belongs to the library, whose objects may be
// used by any thread, but only by one at a time.
unsafe impl Send for Buffers {}

impl Buffers {
    /// Allocates `count` pieces of `size` bytes, which must be a multiple of 64, and registers them
    /// for `access` if necessary. The pool must outlive `objects`.
    pub(crate) fn new(
        objects: &mut Objects,
        count: u32,
        size: usize,
        access: u64,
    ) -> Result<Self, Refusal> {
        let too_large = Refusal {
            operation: "buffers",
            error: -i64::from(libfabric_sys::FI_ENOMEM),
            bytes: size.saturating_mul(count as usize),
        };
        let bytes = size.checked_mul(count as usize).ok_or(too_large)?;
        let layout = Layout::from_size_align(bytes.max(1), ALIGN).map_err(|_| too_large)?;
        // SAFETY: the layout's size is not zero.
        let base = unsafe { alloc_zeroed(layout) };
        let Some(base) = NonNull::new(base) else {
            handle_alloc_error(layout)
        };
        let mut buffers = Self {
            base,
            layout,
            size,
            free: (0..count).rev().collect(),
            descriptor: ptr::null_mut(),
        };
        if objects.wants_local() {
            // SAFETY: the memory was just allocated, and the caller guarantees that the pool
            // outlives `objects`.
            let registered = unsafe { objects.register(base.as_ptr(), bytes, access) }?;
            buffers.descriptor = registered.descriptor;
        }
        Ok(buffers)
    }

    /// Returns the size of each piece in bytes.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Takes a free piece.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<u32> {
        self.free.pop()
    }

    #[inline]
    pub(crate) fn give(&mut self, buffer: u32) {
        self.free.push(buffer);
    }

    /// Returns the address of a piece.
    #[inline]
    pub(crate) fn place(&self, buffer: u32) -> *mut u8 {
        debug_assert!((buffer as usize + 1) * self.size <= self.layout.size());
        // SAFETY: `buffer` is the number of a piece, so the result lies within the allocation.
        unsafe { self.base.as_ptr().add(buffer as usize * self.size) }
    }

    /// Returns the bytes of a piece, which must have been taken and must not be in use by the
    /// library.
    #[inline]
    pub(crate) fn bytes(&mut self, buffer: u32) -> &mut [u8] {
        // SAFETY: the piece is initialised and lies within the allocation. The caller has taken the
        // piece and borrows the pool exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.place(buffer), self.size) }
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        // SAFETY: the memory was allocated with this layout, and the objects that could access it
        // are gone.
        unsafe { dealloc(self.base.as_ptr(), self.layout) }
    }
}
