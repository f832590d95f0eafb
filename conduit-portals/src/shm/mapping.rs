//! The memory of one rank, as mapped in this process.

use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io;
use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::ring::{Extent, SLOT, Slots};

use super::layout::{Control, HUGE_PAGE, Layout, PieceState, QueueEntry, RingControl, ring_stride};

/// A mapping of `layout.total` bytes of a rank's memory; unmapped when dropped.
///
/// The file behind it has that size from the start and can't shrink (it is sealed, which is looked at before a peer's is mapped), so
/// no access within the mapping raises SIGBUS. Untouched pages cost nothing.
#[derive(Debug)]
pub(super) struct Mapping {
    base: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the pointer names memory shared between processes, which is only accessed through atomics, or as the ring and
// the Ni contract hand it out; neither cares which thread does it.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

/// Makes the nameless file that holds a rank's memory. It vanishes with the last process that has it mapped. Whoever has it can
/// change what is in it and nothing else: not its size, not what may be done with it, and it is no program.
pub(super) fn create_file(layout: &Layout) -> io::Result<OwnedFd> {
    let create = |flags| {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | flags;
        rustix::fs::memfd_create("conduit-shm", flags)
    };
    let fd = match create(MemfdFlags::NOEXEC_SEAL) {
        // Linux before 6.3.
        Err(io::Errno::INVAL) => create(MemfdFlags::empty())?,
        created => created?,
    };
    rustix::fs::ftruncate(&fd, layout.total as u64)?;
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(&fd, seals)?;
    Ok(fd)
}

impl Mapping {
    /// Maps the file of a rank, aligned to a huge page.
    pub(super) fn new(fd: impl AsFd, layout: &Layout, huge_pages: bool) -> io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let reserved = layout.total + HUGE_PAGE;
        // SAFETY: a new anonymous mapping at an address of the system's choice, without access.
        let start = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                reserved,
                ProtFlags::empty(),
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )?
        };
        let lead = start.addr().next_multiple_of(HUGE_PAGE) - start.addr();
        // SAFETY: `lead + total` lies within the reservation made above, of which nobody else knows.
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
                // SAFETY: the reservation made above.
                unsafe { rustix::mm::munmap(start, reserved)? };
                return Err(error);
            }
        };
        // The rest of the reservation, before and behind.
        // SAFETY: both parts belong to the reservation and not to the mapping; lengths are whole pages.
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
            // Advice: where the system has no huge pages for shared memory, small ones do.
            let len = layout.total - layout.region_offset;
            // SAFETY: within the mapping; the advice changes no contents.
            let advised = unsafe {
                rustix::mm::madvise(
                    mapping.at(layout.region_offset).cast(),
                    len,
                    Advice::LinuxHugepage,
                )
            };
            if let Err(error) = advised {
                tracing::warn!(%error, "huge pages were asked for and are not available");
            }
        }
        // A core file should not walk through terabytes of reserved addresses.
        // SAFETY: the whole mapping; the advice changes no contents.
        let hidden = unsafe { rustix::mm::madvise(base, layout.total, Advice::LinuxDontDump) };
        if let Err(error) = hidden {
            tracing::debug!(%error, "the mapping stays in core files");
        }
        Ok(mapping)
    }

    pub(super) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The address of an offset, which is at most `total`.
    #[inline]
    pub(super) fn at(&self, offset: usize) -> *mut u8 {
        debug_assert!(offset <= self.layout.total);
        // SAFETY: within the mapping or at its end: offsets come from the layout, or were checked by `range`.
        unsafe { self.base.as_ptr().add(offset) }
    }

    /// The address of `len` bytes that a peer has named by their offset. `None` if they don't lie in staging or regions.
    #[inline]
    pub(super) fn range(&self, offset: u64, len: usize) -> Option<*mut u8> {
        let end = offset.checked_add(len as u64)?;
        if offset < self.layout.piece_offset as u64 || end > self.layout.total as u64 {
            return None;
        }
        Some(self.at(offset as usize))
    }

    /// The offset of `len` bytes at an address of this process, if they lie in this mapping's regions.
    #[inline]
    pub(super) fn region_offset_of(&self, address: *const u8, len: usize) -> Option<usize> {
        let offset = address.addr().checked_sub(self.base.as_ptr().addr())?;
        let end = offset.checked_add(len)?;
        (offset >= self.layout.region_offset && end <= self.layout.total).then_some(offset)
    }

    /// The first page.
    #[inline]
    pub(super) fn control(&self) -> &Control {
        // SAFETY: the mapping begins with a `Control` (asserted to fit), all of whose fields are atomics, for which
        // every bit pattern is valid; page-aligned.
        unsafe { self.base.cast::<Control>().as_ref() }
    }

    /// A ring of a queue that was published; `None` if what the owner wrote makes no sense.
    pub(super) fn ring(&self, queue: &QueueEntry, index: usize) -> Option<(RingView, Extent)> {
        // SYNC (queue): pairs with the release store in `eq_create`: the extent is there with the offset.
        let offset = queue.offset.load(Ordering::Acquire);
        let (shift, part) = (&queue.shift, &queue.part);
        let (shift, part) = (shift.load(Ordering::Relaxed), part.load(Ordering::Relaxed));
        if offset == 0
            || !(1..=31).contains(&shift)
            || !(1..=shift).contains(&part)
            || !(offset as usize).is_multiple_of(align_of::<RingControl>())
        {
            return None;
        }
        let stride = ring_stride(shift);
        let start = usize::try_from(offset)
            .ok()?
            .checked_add(index.checked_mul(stride)?)?;
        if start < self.layout.queue_offset || start.checked_add(stride)? > self.layout.queue_end {
            return None;
        }
        let control = NonNull::new(self.at(start).cast::<RingControl>())?;
        // SAFETY: the slots follow the control words within the same ring, which lies in the mapping (checked above).
        let slots = unsafe { control.add(1).cast() };
        Some((RingView { control, slots }, Extent { shift, part }))
    }

    /// The state of a staging piece, for `piece < pieces`.
    #[inline]
    pub(super) fn piece_state(&self, piece: usize) -> Option<&AtomicU32> {
        if piece >= self.layout.pieces {
            return None;
        }
        let offset = self.layout.piece_states + piece * size_of::<PieceState>();
        // SAFETY: an aligned element of the table of states, which lies within the mapping; an atomic.
        unsafe { Some(&(*self.at(offset).cast::<PieceState>()).0) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let (base, len) = (self.base.as_ptr().cast(), self.layout.total);
        // SAFETY: mapped by `new` with this length. Whoever holds pointers into it holds the network, which holds this.
        let unmapped = unsafe { rustix::mm::munmap(base, len) };
        if let Err(error) = unmapped {
            tracing::debug!(%error, "unmapping a rank's memory");
        }
    }
}

/// One ring of a mapping, of `2^shift` slots.
///
/// Holds pointers, not the mapping: rings are kept beside the mapping that they lie in, and dropped with it.
#[derive(Debug, Clone, Copy)]
pub(super) struct RingView {
    control: NonNull<RingControl>,
    slots: NonNull<[u8; SLOT]>,
}

// SAFETY: as for `Mapping`.
unsafe impl Send for RingView {}
// SAFETY: as for `Mapping`.
unsafe impl Sync for RingView {}

impl RingView {
    /// The first byte of a slot; those of the next ones follow.
    #[inline]
    pub(super) fn address(&self, slot: usize) -> *mut u8 {
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
