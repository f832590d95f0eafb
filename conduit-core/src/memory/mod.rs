//! Segments: the location of each rank's memory, and access to mapped segments.
//!
//! | file | subject |
//! |---|---|
//! | `attach`, `process`, `bound` | segments created by the network; process memory as segments; other memory |
//! | `segment`, `process_segments`, `bound_memory` | a rank's knowledge of the others' memory |
//! | `local`, `remote`, `description` | the two sides of a transfer; the description of bound memory |
//! | `calls`, `published` | the calls |
//!
//! A remote range is checked here, once, before it is used in any way. A rank uses 24 bytes of
//! memory for each other rank, or 40 if segments are process memory.

mod attach;
mod bound;
mod bound_memory;
pub(crate) mod calls;
mod description;
mod local;
mod process;
mod process_segments;
pub(crate) mod published;
mod remote;
mod segment;

use std::sync::OnceLock;

use am::{Long, limits};

use crate::fork::Wiped;
use crate::kernel::Kernel;
use crate::kernel::control::SharedPtr;
use crate::kernel::error::{Error, Result};
use crate::ni::{MdId, Ni, Rank};
use crate::process_memory;
use crate::threads::Mode;
use bound_memory::BoundMemory;
pub use description::Bound;
pub(crate) use local::{Local, Source};
use process_segments::ProcessSegments;
pub(crate) use remote::Remote;
use segment::NO_SEGMENT;
pub use segment::Segment;

/// The segments of all ranks, and the descriptor of this rank's own segment. Takes 24 bytes per
/// rank.
#[derive(Debug)]
pub(crate) struct Segments {
    /// The attached segments. In a child all of them are empty. The table has no elements if
    /// segments are process memory.
    of: Wiped<Segment>,
    /// The address of this rank's segment, if it was attached.
    own: SharedPtr,
    /// RARSRC: the descriptor over this rank's segment. `None` if that segment is empty.
    md: Option<MdId>,
    /// The segments if they are process memory, rather than memory of the network.
    process: Option<ProcessSegments>,
}

impl Segments {
    /// Returns a rank's segment, or `None` if the rank is not in the job.
    #[inline(always)]
    fn get(&self, rank: Rank) -> Option<&Segment> {
        match &self.process {
            Some(process) => process.of(rank),
            None => self.of.get(rank as usize),
        }
    }

    /// Returns the address and length of this rank's segment in this process.
    #[inline]
    fn own(&self, rank: Rank) -> (SharedPtr, usize) {
        let segment = self.get(rank).unwrap_or(&NO_SEGMENT);
        match self.process {
            Some(_) => (segment.window, segment.len),
            None => (self.own, segment.len),
        }
    }

    /// Finds the segment for [`Memory::remote`] in the uncommon case: the segment was not attached,
    /// or the range is invalid. A separate function, so that the common case is small enough to be
    /// inlined.
    #[cold]
    #[inline(never)]
    fn remote<N: Ni, M: Mode>(
        &self,
        kernel: &Kernel<N, M>,
        operation: &'static str,
        rank: Rank,
        offset: usize,
        length: usize,
    ) -> Result<&Segment> {
        // In a child every segment is empty.
        if kernel.job.is_child() {
            return Err(kernel.job.forked());
        }
        kernel.job.check_rank(operation, rank)?;
        let segment = self.get(rank).unwrap_or(&NO_SEGMENT);
        match segment.holds(offset, length) {
            true => Ok(segment),
            false => Err(Error::OutOfSegment {
                operation,
                rank,
                offset,
                length,
                segment: segment.len,
            }),
        }
    }

    fn is_everything(&self) -> bool {
        let process = self.process.as_ref();
        process.is_some_and(|process| process.is_everything)
    }
}

/// The reason why the data of a message can't be placed at this rank. The sender is at fault.
#[derive(Debug, Clone, Copy, thiserror::Error)]
pub(crate) enum Unplaced {
    #[error("data arrived for a segment that is not attached yet")]
    NotAttached,
    #[error("{length} bytes at offset {offset} do not lie in this rank's segment of {own} bytes")]
    OutOfSegment { offset: u64, length: u64, own: u64 },
    #[error("{length} bytes at address {offset:#x} are not all accessible memory of this rank")]
    NoMemory { offset: usize, length: usize },
}

/// The segments of all ranks, once this rank has attached.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    segments: OnceLock<Segments>,
    /// The memory other than segments that ranks have published to this rank.
    bound: BoundMemory,
}

impl Memory {
    /// Returns whether this rank has attached.
    pub(crate) fn is_attached(&self) -> bool {
        self.segments.get().is_some()
    }

    pub(crate) fn segments<N: Ni, M: Mode>(
        &self,
        kernel: &Kernel<N, M>,
        operation: &'static str,
    ) -> Result<&Segments> {
        match self.segments.get() {
            Some(segments) => Ok(segments),
            None => Err(Error::NotAttached {
                operation,
                rank: kernel.job.rank,
            }),
        }
    }

    /// Returns the segment that contains a remote range. Fails unless the rank is in the job, this
    /// rank has attached, and the range lies inside the segment.
    #[inline]
    pub(crate) fn remote<N: Ni, M: Mode>(
        &self,
        kernel: &Kernel<N, M>,
        operation: &'static str,
        rank: Rank,
        offset: usize,
        length: usize,
    ) -> Result<&Segment> {
        let segments = self.segments(kernel, operation)?;
        match segments.of.get(rank as usize) {
            Some(segment) if segment.holds(offset, length) => Ok(segment),
            _ => segments.remote(kernel, operation, rank, offset, length),
        }
    }

    /// Returns this rank's segment as arriving messages need it: its address in this process, its
    /// length, and whether it is everything.
    pub(crate) fn own_of_messages<N: Ni, M: Mode>(
        &self,
        kernel: &Kernel<N, M>,
    ) -> Result<(SharedPtr, usize, bool), Unplaced> {
        let segments = self.segments.get().ok_or(Unplaced::NotAttached)?;
        let (own, len) = segments.own(kernel.job.rank);
        Ok((own, len, segments.is_everything()))
    }

    /// Returns the address and length of this rank's segment in this process.
    ///
    /// # Errors
    /// If no segment is attached yet.
    pub(crate) fn own<N: Ni, M: Mode>(
        &self,
        kernel: &Kernel<N, M>,
        operation: &'static str,
    ) -> Result<(SharedPtr, usize)> {
        let segments = self.segments(kernel, operation)?;
        match segments.own(kernel.job.rank) {
            (_, 0) if segments.process.is_some() => Err(Error::NotAttached {
                operation,
                rank: kernel.job.rank,
            }),
            own => Ok(own),
        }
    }

    /// Returns the descriptor of this rank's segment and the offset in the segment of a local
    /// range. Returns `None` if the segment does not contain the whole range.
    pub(crate) fn own_descriptor(
        &self,
        rank: Rank,
        base: *const u8,
        length: usize,
    ) -> Option<(MdId, usize)> {
        let segments = self.segments.get()?;
        let (own, len) = segments.own(rank);
        let within = base.addr().wrapping_sub(own.0.addr());
        let holds = within < len && length <= len - within;
        segments.md.filter(|_| holds).map(|md| (md, within))
    }

    /// Returns the segment that contains a range, as [`Memory::remote`] does, for a put, get or
    /// atomic. In debug builds this fails in handlers, even if the operation would only be a copy.
    #[inline]
    pub(crate) fn remote_access<N: Ni, M: Mode>(
        &self,
        kernel: &Kernel<N, M>,
        operation: &'static str,
        rank: Rank,
        offset: usize,
        length: usize,
    ) -> Result<&Segment> {
        kernel
            .job
            .check_context(operation, am::Operation::Request)?;
        self.remote(kernel, operation, rank, offset, length)
    }

    /// Returns the address to which bytes for a peer's segment can be copied. Returns `None` if the
    /// segment is not mapped, or if the range is empty, too long or outside the segment.
    #[inline(always)]
    pub(crate) fn place_for(&self, target: Rank, offset: usize, length: usize) -> Option<*mut u8> {
        let segment = self.segments.get()?.get(target)?;
        let fits = segment.holds(offset, length)
            && length > 0
            && length <= limits::MAX_LONG
            && !segment.window.0.is_null();
        // SAFETY: the check above ensures that the range lies within the segment, and the whole
        // segment is mapped at the window.
        fits.then(|| unsafe { segment.window.0.add(offset) })
    }

    /// Checks the destination of a long whose data is there already or will be placed there. The
    /// destination must lie within this rank's segment, unless the long is empty.
    #[inline(always)]
    pub(crate) fn placed_long<N: Ni, M: Mode>(
        &self,
        kernel: &Kernel<N, M>,
        long: &Long,
    ) -> Result<(usize, usize), Unplaced> {
        let (offset, length) = (long.dest, long.length);
        if length > 0 {
            let segments = self.segments.get().ok_or(Unplaced::NotAttached)?;
            let own = segments.own(kernel.job.rank).1 as u64;
            if length > own || offset > own - length {
                return Err(Unplaced::OutOfSegment {
                    offset,
                    length,
                    own,
                });
            }
        }
        let (offset, length) = (offset as usize, length as usize);
        Ok((offset, length))
    }

    /// Checks a packed long as [`Memory::placed_long`] does, and copies its data to its
    /// destination.
    pub(crate) fn place_packed<N: Ni, M: Mode>(
        &self,
        kernel: &Kernel<N, M>,
        long: &Long,
        packed: &[u8],
    ) -> Result<(usize, usize), Unplaced> {
        let (offset, length) = self.placed_long(kernel, long)?;
        if length > 0 {
            let (own, _, is_everything) = self.own_of_messages(kernel)?;
            // `Long::read` has checked that a packed long carries its data.
            let data = &packed[..length];
            if is_everything {
                if !process_memory::place(offset, data) {
                    return Err(Unplaced::NoMemory { offset, length });
                }
            } else {
                let to = own.0.wrapping_add(offset);
                // SAFETY: `placed_long` has checked that the range lies in this rank's segment.
                // `data` is the body of a message, which never overlaps a segment. Concurrent
                // accesses by others are races of the program, as with every put.
                unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), to, length) };
            }
        }
        Ok((offset, length))
    }
}
