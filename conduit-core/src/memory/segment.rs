//! A rank's segment as seen from here, and access to it where it is mapped.

use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::atomic::fence;

use crate::kernel::control::SharedPtr;
use crate::shared;

/// A rank's segment as seen from here.
#[derive(Debug, Clone, Copy)]
pub struct Segment {
    /// Where it is mapped here; null where it is not.
    pub window: SharedPtr,
    /// Its bytes.
    pub len: usize,
    /// Its address at its owner.
    pub address: u64,
}

/// That of a rank of which none is known.
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

    /// Stores to the segment if it is mapped here. `false`: it is not, and nothing has happened.
    ///
    /// # Safety
    /// `[offset, offset + len)` lies in the segment (`Memory::remote` has checked it) and `source`
    /// is valid for reads of `len` bytes.
    #[inline(always)]
    pub(crate) unsafe fn store(&self, offset: usize, source: *const u8, len: usize) -> bool {
        if self.window.0.is_null() {
            return false;
        }
        // SYNC: what this rank has put before is seen by whoever sees this, for whom it may be a
        // flag. (The C interface's inline puts do the same. No instruction on x86-64.)
        fence(Release);
        // SAFETY: the range lies in the window, which is valid for writes as long as the network
        // lives. The source may lie in the same segment, hence `copy`. Other ranks may access the
        // range at the same time: GASNet leaves the result of such races open; no reference to it
        // exists here.
        unsafe { shared::copy(source, self.window.0.add(offset), len) };
        true
    }

    /// Loads from the segment if it is mapped here. `false`: it is not, and nothing has happened.
    ///
    /// # Safety
    /// As for [`Segment::store`], with `destination` valid for writes.
    #[inline(always)]
    pub(crate) unsafe fn load(&self, offset: usize, destination: *mut u8, len: usize) -> bool {
        if self.window.0.is_null() {
            return false;
        }
        // SAFETY: as in `store`, with the window valid for reads.
        unsafe { shared::load(self.window.0.add(offset), destination, len) };
        // SYNC: what is read later is at least as new.
        fence(Acquire);
        true
    }
}
