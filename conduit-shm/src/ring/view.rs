//! The memory of a ring in a mapping that processes share.

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
/// Holds pointers, not the mapping: rings are kept beside the mapping that they lie in, and dropped with it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RingView {
    control: NonNull<RingControl>,
    slots: NonNull<[u8; SLOT]>,
}

// SAFETY: the pointers name memory shared between processes, which is only accessed as the ring says; that does not care which
// thread does it.
unsafe impl Send for RingView {}
// SAFETY: as above.
unsafe impl Sync for RingView {}

impl RingView {
    /// # Safety
    /// The control words, and as many slots as the ends of the ring are told, lie in a mapping that outlives this view.
    pub(crate) unsafe fn new(control: NonNull<RingControl>, slots: NonNull<[u8; SLOT]>) -> Self {
        Self { control, slots }
    }

    /// The first byte of a slot; those of the next ones follow.
    #[inline]
    pub(crate) fn address(&self, slot: usize) -> *mut u8 {
        // SAFETY: slots are below the ring's capacity (contract of `Slots`), and the ring lies in the mapping.
        unsafe { self.slots.add(slot).cast().as_ptr() }
    }
}

impl Slots for RingView {
    #[inline]
    fn word(&self, slot: usize) -> &AtomicU64 {
        // SAFETY: aligned, within the mapping. Plain accesses to the same word are those of the message's producer before
        // its commit and never meet an atomic one (see `crate::ring`).
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
            // Before Linux 5.14: the pages are mapped one by one, as they are touched.
            tracing::debug!(%error, "mapping the pages of a ring ahead");
        }
    }
    #[inline]
    fn claim(&self, slot: usize) {
        // SAFETY: the last word of a slot of the ring, aligned. It is free, so nobody else looks at more than its first word, and
        // the caller is the only one who writes into it.
        unsafe {
            let last = self.address(slot).add(SLOT - size_of::<u32>());
            last.cast::<u32>().write_volatile(0);
        }
    }
}
