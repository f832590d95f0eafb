//! The shared memory of a measurement: raw bytes that every side has mapped, possibly at different
//! addresses, so that only offsets mean the same everywhere.
//!
//! The first [`CONTROL_BYTES`] are the control block of [`crate::side::Side`]; the rest is the work
//! area, which limits and figures use in turn.

use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use crate::Error;

/// Distance in bytes between two words that different sides write: two pairs of 64-byte lines,
/// because processors fetch lines in pairs.
pub const LINE_SPACING: usize = 256;

/// Bytes at the start of the area that belong to the control block.
pub const CONTROL_BYTES: usize = 4096;

/// Bytes of an area that is large enough for every limit of [`crate::limits::catalogue`].
pub const AREA_BYTES: usize = CONTROL_BYTES + (16 << 20);

/// A piece of memory shared by all sides of a measurement.
#[derive(Debug)]
pub struct SharedArea<'a> {
    base: NonNull<u8>,
    len: usize,
    memory: PhantomData<&'a [AtomicU64]>,
}

impl<'a> SharedArea<'a> {
    /// Takes `len` bytes from `base` as the area.
    ///
    /// # Errors
    /// The base is not a multiple of [`LINE_SPACING`], or the area is smaller than the control
    /// block and one page of work area.
    ///
    /// # Safety
    /// For `'a`, the bytes must be mapped, readable and writable, and the same memory on every
    /// side. They must be zero before the first side joins, and only the sides of one measurement
    /// may access them.
    pub unsafe fn new(base: NonNull<u8>, len: usize) -> Result<Self, Error> {
        if !base.addr().get().is_multiple_of(LINE_SPACING) {
            return Err(Error::AreaMisaligned);
        }
        let have = len.saturating_sub(CONTROL_BYTES);
        if have < CONTROL_BYTES {
            return Err(Error::AreaTooSmall {
                need: CONTROL_BYTES,
                have,
            });
        }
        Ok(Self {
            base,
            len,
            memory: PhantomData,
        })
    }

    /// Returns the start of the control block.
    pub(crate) fn control(&self) -> NonNull<u8> {
        self.base
    }

    /// Returns the bytes of the work area.
    #[must_use]
    pub fn work_len(&self) -> usize {
        self.len - CONTROL_BYTES
    }

    /// Returns the address, on this side, of `len` bytes at `offset` of the work area.
    ///
    /// Accessing them is the caller's `unsafe`: the sides of a measurement must order their
    /// accesses.
    ///
    /// # Errors
    /// The bytes are not all inside the work area.
    pub fn work(&self, offset: usize, len: usize) -> Result<NonNull<u8>, Error> {
        let have = self.work_len();
        match offset.checked_add(len) {
            // SAFETY: `CONTROL_BYTES + offset + len` is at most the area's length, which `new`'s
            // caller guarantees.
            Some(need) if need <= have => Ok(unsafe { self.base.add(CONTROL_BYTES + offset) }),
            Some(need) => Err(Error::AreaTooSmall { need, have }),
            None => Err(Error::AreaTooSmall {
                need: usize::MAX,
                have,
            }),
        }
    }

    /// Returns the `index`-th word of the work area that does not share its cache lines.
    ///
    /// # Errors
    /// The word is not inside the work area.
    pub fn word(&self, index: usize) -> Result<&AtomicU64, Error> {
        let at = self.work(index.saturating_mul(LINE_SPACING), LINE_SPACING)?;
        // SAFETY: `work` checked the bounds, the base and the spacing are multiples of 8, any bytes
        // are a valid AtomicU64, and `new`'s caller keeps the memory mapped and exclusive to the
        // sides for `'a`.
        Ok(unsafe { at.cast::<AtomicU64>().as_ref() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::Mapping;

    #[test]
    fn a_range_past_the_end_is_refused() {
        let mapping = Mapping::anonymous(2 * CONTROL_BYTES).expect("mapping");
        let area = mapping.area().expect("area");
        assert_eq!(area.work_len(), CONTROL_BYTES);
        assert!(area.work(0, CONTROL_BYTES).is_ok());
        assert!(area.work(CONTROL_BYTES, 0).is_ok());
        assert!(area.work(1, CONTROL_BYTES).is_err());
        assert!(area.work(usize::MAX, 2).is_err());
        assert!(area.word(CONTROL_BYTES / LINE_SPACING - 1).is_ok());
        assert!(area.word(CONTROL_BYTES / LINE_SPACING).is_err());
        assert!(area.word(usize::MAX).is_err());
    }

    #[test]
    fn a_short_or_crooked_area_is_refused() {
        let mapping = Mapping::anonymous(4 * CONTROL_BYTES).expect("mapping");
        let base = mapping.base();
        // SAFETY: both pointers are inside the fresh mapping, and are not used.
        unsafe {
            assert!(matches!(
                SharedArea::new(base, 2 * CONTROL_BYTES - 1),
                Err(Error::AreaTooSmall { .. })
            ));
            assert!(matches!(
                SharedArea::new(base.add(64), 3 * CONTROL_BYTES),
                Err(Error::AreaMisaligned)
            ));
        }
    }
}
