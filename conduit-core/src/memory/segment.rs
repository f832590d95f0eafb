//! A rank's segment as this rank knows it, and access to the segment if it is mapped.

use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::atomic::fence;

use crate::kernel::control::SharedPtr;
use crate::shared;

/// A rank's segment as this rank knows it.
#[derive(Debug, Clone, Copy)]
pub struct Segment {
    /// The address of the first byte in this process. Null if the segment is not mapped here.
    pub window: SharedPtr,
    /// The length in bytes.
    pub len: usize,
    /// The address in the owner's process.
    pub address: u64,
}

/// The segment of a rank that has none.
pub(super) const NO_SEGMENT: Segment = Segment {
    window: SharedPtr(std::ptr::null_mut()),
    len: 0,
    address: 0,
};

impl Segment {
    #[inline(always)]
    pub(super) fn holds(&self, offset: usize, length: usize) -> bool {
        length <= self.len && offset <= self.len - length
    }

    /// Stores to the segment if it is mapped here. Otherwise returns `false` and does nothing.
    ///
    /// # Safety
    /// `[offset, offset + len)` must lie in the segment, which `Memory::remote` checks. `source`
    /// must be valid for reads of `len` bytes.
    #[inline(always)]
    pub(crate) unsafe fn store(&self, offset: usize, source: *const u8, len: usize) -> bool {
        if self.window.0.is_null() {
            return false;
        }
        // SYNC: the fence orders this rank's earlier puts before this put. This put may be the flag
        // for which the reader of the earlier puts waits. (The C interface's inline puts do the
        // same. On x86-64 the fence takes no instruction.)
        fence(Release);
        // SAFETY: the caller guarantees that the range lies in the window, which is valid for
        // writes as long as the network lives, and that the source is valid. The source may lie in
        // the same segment, so this uses `copy`. Other ranks may access the range concurrently.
        // GASNet leaves the result of such races undefined, and no reference to the range exists
        // here.
        unsafe { shared::copy(source, self.window.0.add(offset), len) };
        true
    }

    /// Loads from the segment if it is mapped here. Otherwise returns `false` and does nothing.
    ///
    /// # Safety
    /// Same as [`Segment::store`], but `destination` must be valid for writes of `len` bytes.
    #[inline(always)]
    pub(crate) unsafe fn load(&self, offset: usize, destination: *mut u8, len: usize) -> bool {
        if self.window.0.is_null() {
            return false;
        }
        // SAFETY: the caller guarantees that the range lies in the window, which is valid for reads
        // as long as the network lives, and that the destination is valid for writes.
        unsafe { shared::load(self.window.0.add(offset), destination, len) };
        // SYNC: this fence ensures that later reads see data at least as new as the bytes loaded
        // here.
        fence(Acquire);
        true
    }
}
