//! The memory of a ring in a mapping shared between processes.

use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use crossbeam_utils::CachePadded;
use rustix::mm::Advice;

use super::{SLOT, Slots};

/// The shared words of one ring, apart from its slots.
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
/// The view holds pointers and does not own the mapping. The view's owner must keep the mapping at
/// least as long as the view.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RingView {
    control: NonNull<RingControl>,
    slots: NonNull<[u8; SLOT]>,
}

// SAFETY: the pointers refer to memory shared between processes, which is accessed only according
// to the ring's protocol. The protocol does not depend on the thread that accesses the memory.
unsafe impl Send for RingView {}
// SAFETY: accesses through a shared reference also follow the ring's protocol.
unsafe impl Sync for RingView {}

impl RingView {
    /// # Safety
    /// The control words, and as many slots as the ring's ends are created with, must lie in a
    /// mapping that outlives this view.
    pub(crate) unsafe fn new(control: NonNull<RingControl>, slots: NonNull<[u8; SLOT]>) -> Self {
        Self { control, slots }
    }

    /// Returns the address of a slot's first byte. The next slots follow it in memory.
    #[inline]
    pub(crate) fn address(&self, slot: usize) -> *mut u8 {
        // SAFETY: `Slots` requires that slot indices are below the ring's capacity, and the ring
        // lies in the mapping.
        unsafe { self.slots.add(slot).cast().as_ptr() }
    }
}

impl Slots for RingView {
    #[inline]
    fn word(&self, slot: usize) -> &AtomicU64 {
        // SAFETY: the word is aligned and lies within the mapping. Only a message's producer makes
        // plain accesses to the same word, before its commit, and they never race with an atomic
        // access (see `crate::ring`).
        unsafe { &*self.address(slot).cast() }
    }
    #[inline]
    fn head(&self) -> &AtomicU64 {
        // SAFETY: the word is one of the ring's control words, which lie within the mapping.
        unsafe { &self.control.as_ref().head }
    }
    #[inline]
    fn tail(&self) -> &AtomicU64 {
        // SAFETY: the word is one of the ring's control words, which lie within the mapping.
        unsafe { &self.control.as_ref().tail }
    }
    #[cold]
    fn warm(&self, count: usize) {
        let page = rustix::param::page_size();
        let start = self.address(0).map_addr(|address| address & !(page - 1));
        let end = self.address(0).addr() + count * SLOT;
        let len = (end - start.addr()).next_multiple_of(page);
        // SAFETY: the range consists of pages of the mapping, and the advice changes no contents.
        let warmed = unsafe { rustix::mm::madvise(start.cast(), len, Advice::LinuxPopulateWrite) };
        if let Err(error) = warmed {
            // Before Linux 5.14, this advice does not exist. Each page is then mapped when it is
            // first touched.
            tracing::debug!(%error, "cannot prefault the pages of a ring");
        }
    }
    #[inline]
    fn claim(&self, slot: usize) {
        // SAFETY: `last` is the last word of a slot of the ring, which is aligned. The caller
        // guarantees that the slot is free, so the consumer reads at most its first word, and that
        // no other producer writes to it.
        unsafe {
            let last = self.address(slot).add(SLOT - size_of::<u32>());
            last.cast::<u32>().write_volatile(0);
        }
    }
}
