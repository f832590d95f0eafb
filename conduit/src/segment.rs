//! This rank's own segment.

use conduit_core::ni::Rank;
use conduit_core::threads::Mode;
use zerocopy::{FromBytes, IntoBytes};

use crate::{Conduit, Error, Result};

impl<M: Mode> Conduit<M> {
    /// Bytes of a rank's segment.
    pub fn segment_len(&self, rank: Rank) -> Result<usize> {
        Ok(self.done(self.member.engine().segment_of(rank))?.0)
    }

    /// Address of a rank's segment in that rank's own process.
    pub fn segment_address(&self, rank: Rank) -> Result<u64> {
        Ok(self.done(self.member.engine().segment_of(rank))?.1)
    }

    /// First byte of this rank's segment, aligned to a page; dangling if it is empty. Valid as long as `self`.
    pub fn segment_ptr(&self) -> Result<*mut u8> {
        Ok(self.done(self.member.engine().segment())?.0)
    }

    /// First byte of a rank's segment as it is mapped in this process; `None` where it is not.
    pub fn window(&self, rank: Rank) -> Result<Option<*mut u8>> {
        let (len, _, window) = self.done(self.member.engine().segment_of(rank))?;
        Ok((len > 0 && !window.is_null()).then_some(window))
    }

    /// A part of this rank's segment as a slice: `count` elements from byte `offset`.
    ///
    /// # Safety
    /// While the slice lives no other rank accesses these bytes, and no other slice of them exists here. Barriers before
    /// and after are the usual way.
    #[expect(
        clippy::mut_from_ref,
        reason = "the segment is shared memory; the contract makes it exclusive"
    )]
    pub unsafe fn segment_slice<T: FromBytes + IntoBytes>(
        &self,
        offset: usize,
        count: usize,
    ) -> Result<&mut [T]> {
        let (base, len) = self.done(self.member.engine().segment())?;
        let size = size_of::<T>();
        let refuse = |problem| {
            let operation = "segment_slice";
            Err(Error::Local {
                operation,
                rank: self.rank(),
                offset,
                count,
                size,
                problem,
            })
        };
        match count.checked_mul(size) {
            Some(bytes) if bytes <= len && offset <= len - bytes => {}
            _ => return refuse("do not lie in the segment"),
        }
        if !offset.is_multiple_of(align_of::<T>()) {
            return refuse("are not aligned");
        }
        if count == 0 {
            return Ok(&mut []);
        }
        // SAFETY: in bounds and aligned, as just checked (a segment starts at a page); any bytes are a `T` (FromBytes); the
        // caller makes it exclusive; the memory lives as long as `self`.
        Ok(unsafe { std::slice::from_raw_parts_mut(base.add(offset).cast::<T>(), count) })
    }
}
