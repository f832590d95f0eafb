//! The memory of a ring in a mapping shared between processes.

use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use crossbeam_utils::CachePadded;
use rustix::mm::Advice;

use super::{SLOT, Slots};

/// The shared words of one ring, beside its slots.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct RingControl {
    /// See [`Slots::head`].
    pub(crate) head: CachePadded<AtomicU64>,
    /// See [`Slots::tail`].
    pub(crate) tail: CachePadded<AtomicU64>,
}

const _: () =
    assert!(size_of::<RingControl>() == 256 && size_of::<RingControl>().is_multiple_of(SLOT));

/// One ring in a mapping.
///
/// Holds pointers, not the mapping: a ring is kept beside the mapping that it lies in, and dropped
/// with it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RingView {
    control: NonNull<RingControl>,
    slots: NonNull<[u8; SLOT]>,
}

// SAFETY: the pointers name memory shared between processes, accessed only by the ring's protocol,
// which does not depend on the thread.
unsafe impl Send for RingView {}
// SAFETY: as above.
unsafe impl Sync for RingView {}

impl RingView {
    /// # Safety
    /// The control words, and as many slots as the ring's ends are created with, lie in a mapping
    /// that outlives this view.
    pub(crate) unsafe fn new(control: NonNull<RingControl>, slots: NonNull<[u8; SLOT]>) -> Self {
        Self { control, slots }
    }

    /// Returns the address of a slot's first byte; the next slots follow it.
    #[inline]
    pub(crate) fn address(&self, slot: usize) -> *mut u8 {
        // SAFETY: slots are below the ring's capacity (contract of `Slots`), and the ring lies in
        // the mapping.
        unsafe { self.slots.add(slot).cast().as_ptr() }
    }
}

impl Slots for RingView {
    #[inline]
    fn word(&self, slot: usize) -> &AtomicU64 {
        // SAFETY: aligned, within the mapping. Plain accesses to the same word are made only by the
        // message's producer before its commit and never race with an atomic one (see
        // `crate::ring`).
        unsafe { &*self.address(slot).cast() }
    }
    #[inline]
    fn head(&self) -> &AtomicU64 {
        // SAFETY: in the ring's control words, within the mapping.
        unsafe { &self.control.as_ref().head }
    }
    #[inline]
    fn tail(&self) -> &AtomicU64 {
        // SAFETY: in the ring's control words, within the mapping.
        unsafe { &self.control.as_ref().tail }
    }
    #[cold]
    fn warm(&self, count: usize) {
        let page = rustix::param::page_size();
        let start = self.address(0).map_addr(|address| address & !(page - 1));
        let end = self.address(0).addr() + count * SLOT;
        let len = (end - start.addr()).next_multiple_of(page);
        // SAFETY: pages of the mapping, whose contents stay as they are.
        let warmed = unsafe { rustix::mm::madvise(start.cast(), len, Advice::LinuxPopulateWrite) };
        if let Err(error) = warmed {
            // Before Linux 5.14, each page is mapped when it is first touched.
            tracing::debug!(%error, "cannot prefault the pages of a ring");
        }
    }
    #[inline]
    fn claim(&self, slot: usize) {
        // SAFETY: the last word of a slot of the ring, aligned. The slot is free, so no other end
        // reads more than its first word, and only the caller writes to it.
        unsafe {
            let last = self.address(slot).add(SLOT - size_of::<u32>());
            last.cast::<u32>().write_volatile(0);
        }
    }
}
