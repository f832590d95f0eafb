//! The memory of one rank, mapped into this process.

use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::io;
use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::ring::{Extent, RingControl, RingView};

use super::layout::{Control, HUGE_PAGE, Layout, PieceState, QueueEntry, ring_start, ring_stride};

/// A mapping of `layout.total` bytes of a rank's memory. Dropping the value unmaps the memory.
///
/// The mapped file has that size from the start and cannot shrink (the seal of a peer's file is
/// checked before the file is mapped), so no access within the mapping raises SIGBUS. Untouched
/// pages cost nothing.
#[derive(Debug)]
pub(super) struct Mapping {
    base: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the pointer refers to memory shared between processes, which is accessed only through
// atomics or by the rules of the ring and of `Ni`. None of these depends on the thread.
unsafe impl Send for Mapping {}
// SAFETY: accesses through a shared reference follow the same rules, which do not depend on the
// thread.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the file of a rank, aligned to a huge page.
    pub(super) fn new(fd: impl AsFd, layout: &Layout, huge_pages: bool) -> io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let reserved = layout.total + HUGE_PAGE;
        // SAFETY: this creates a new anonymous mapping without access rights, at an address that
        // the system chooses.
        let start = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                reserved,
                ProtFlags::empty(),
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )?
        };
        let lead = start.addr().next_multiple_of(HUGE_PAGE) - start.addr();
        // SAFETY: `lead + total` lies within the reservation made above, which is not shared yet.
        let mapped = unsafe {
            let base = start.byte_add(lead);
            rustix::mm::mmap(
                base,
                layout.total,
                protection,
                MapFlags::SHARED | MapFlags::NORESERVE | MapFlags::FIXED,
                fd,
                0,
            )
        };
        let base = match mapped {
            Ok(base) => base,
            Err(error) => {
                // SAFETY: this is the reservation made above, and no pointers into it exist.
                unsafe { rustix::mm::munmap(start, reserved)? };
                return Err(error);
            }
        };
        // Unmaps the rest of the reservation, before and behind the mapping. SAFETY: both parts
        // belong to the reservation and not to the mapping; both lengths are multiples of the page
        // size.
        unsafe {
            if lead > 0 {
                rustix::mm::munmap(start, lead)?;
            }
            rustix::mm::munmap(base.byte_add(layout.total), HUGE_PAGE - lead)?;
        }
        let mapping = Self {
            base: NonNull::new(base.cast()).ok_or(io::Errno::NOMEM)?,
            layout: layout.clone(),
        };
        if huge_pages {
            // This is only advice. If the system has no huge pages for shared memory, small pages
            // are used.
            let len = layout.total - layout.region_offset;
            // SAFETY: the range lies within the mapping, and the advice changes no contents.
            let advised = unsafe {
                rustix::mm::madvise(
                    mapping.at(layout.region_offset).cast(),
                    len,
                    Advice::LinuxHugepage,
                )
            };
            if let Err(error) = advised {
                tracing::warn!(%error, "huge pages are not available");
            }
        }
        // Core files should not include terabytes of reserved addresses. SAFETY: the range is the
        // whole mapping, and the advice changes no contents.
        let hidden = unsafe { rustix::mm::madvise(base, layout.total, Advice::LinuxDontDump) };
        if let Err(error) = hidden {
            tracing::debug!(%error, "cannot exclude the mapping from core files");
        }
        Ok(mapping)
    }

    pub(super) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Returns the address of an offset, which must be at most `total`.
    #[inline]
    pub(super) fn at(&self, offset: usize) -> *mut u8 {
        debug_assert!(offset <= self.layout.total);
        // SAFETY: the address lies within the mapping or at its end, because offsets come from the
        // layout or were checked by `range`.
        unsafe { self.base.as_ptr().add(offset) }
    }

    /// Returns the address of `len` bytes at an offset that a peer has specified, or `None` if the
    /// bytes don't lie in the staging pieces or regions.
    #[inline]
    pub(super) fn range(&self, offset: u64, len: usize) -> Option<*mut u8> {
        let end = offset.checked_add(len as u64)?;
        if offset < self.layout.piece_offset as u64 || end > self.layout.total as u64 {
            return None;
        }
        Some(self.at(offset as usize))
    }

    /// Returns the offset of `len` bytes at an address of this process, if they lie in this
    /// mapping's regions.
    #[inline]
    pub(super) fn region_offset_of(&self, address: *const u8, len: usize) -> Option<usize> {
        let offset = address.addr().checked_sub(self.base.as_ptr().addr())?;
        let end = offset.checked_add(len)?;
        (offset >= self.layout.region_offset && end <= self.layout.total).then_some(offset)
    }

    /// Returns the control words, which begin the first page.
    #[inline]
    pub(super) fn control(&self) -> &Control {
        // SAFETY: the mapping is page-aligned and begins with a `Control`, which is asserted to
        // fit. All of its fields are atomics, for which every bit pattern is valid.
        unsafe { self.base.cast::<Control>().as_ref() }
    }

    /// Returns a ring of a published queue, or `None` if there is no such ring or the owner's queue
    /// entry is invalid. If `shared` is set, the queue's first ring is one of all sources.
    pub(super) fn ring(
        &self,
        queue: &QueueEntry,
        index: usize,
        shared: bool,
    ) -> Option<(RingView, Extent)> {
        // SYNC (queue): this acquire pairs with the release store in `make_queue`, so a thread that
        // sees the offset also sees the extent.
        let offset = queue.offset.load(Ordering::Acquire);
        let (shift, part) = (&queue.shift, &queue.part);
        let (shift, part) = (shift.load(Ordering::Relaxed), part.load(Ordering::Relaxed));
        if offset == 0
            || !(1..=31).contains(&shift)
            || !(1..=shift).contains(&part)
            || index >= queue.rings.load(Ordering::Relaxed) as usize
            || !(offset as usize).is_multiple_of(align_of::<RingControl>())
        {
            return None;
        }
        let start = usize::try_from(offset)
            .ok()?
            .checked_add(ring_start(index, shift, part, shared)?)?;
        let shift = if shared && index == 0 { part } else { shift };
        let end = start.checked_add(ring_stride(shift))?;
        if start < self.layout.queue_offset || end > self.layout.queue_end {
            return None;
        }
        let control = NonNull::new(self.at(start).cast::<RingControl>())?;
        // SAFETY: the slots follow the control words within the same ring, and the ring lies in the
        // mapping, as checked above.
        let ring = unsafe { RingView::new(control, control.add(1).cast()) };
        Some((ring, Extent { shift, part }))
    }

    /// Returns the state of a staging piece, or `None` if there is no such piece.
    #[inline]
    pub(super) fn piece_state(&self, piece: usize) -> Option<&AtomicU32> {
        if piece >= self.layout.pieces {
            return None;
        }
        let offset = self.layout.piece_states + piece * size_of::<PieceState>();
        // SAFETY: the address is that of an aligned element of the table of states, which lies
        // within the mapping. The element is an atomic.
        unsafe { Some(&(*self.at(offset).cast::<PieceState>()).0) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let (base, len) = (self.base.as_ptr().cast(), self.layout.total);
        // SAFETY: `new` has mapped this range with this length. Every holder of a pointer into
        // the mapping also holds the network, which in turn holds the mapping.
        let unmapped = unsafe { rustix::mm::munmap(base, len) };
        if let Err(error) = unmapped {
            tracing::debug!(%error, "cannot unmap a rank's memory");
        }
    }
}
