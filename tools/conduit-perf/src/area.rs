//! The shared memory of a measurement. It consists of raw bytes that every side has mapped. The
//! addresses may differ between sides, so only offsets mean the same everywhere.
//!
//! The first [`CONTROL_BYTES`] bytes are the control block of [`crate::side::Side`]. The rest is
//! the work area, which limits and figures use in turn.

use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use crate::Error;

/// The distance in bytes between two words that different sides write. It is two pairs of 64-byte
/// lines, because processors fetch lines in pairs.
pub const LINE_SPACING: usize = 256;

/// The number of bytes at the start of the area that belong to the control block.
pub const CONTROL_BYTES: usize = 4096;

/// The number of bytes of an area that is large enough for every limit in
/// [`crate::limits::catalogue`].
pub const AREA_BYTES: usize = CONTROL_BYTES + (16 << 20);

/// A piece of memory shared by all sides of a measurement.
#[derive(Debug)]
pub struct SharedArea<'a> {
    base: NonNull<u8>,
    len: usize,
    memory: PhantomData<&'a [AtomicU64]>,
}

impl<'a> SharedArea<'a> {
    /// Makes the `len` bytes at `base` the area.
    ///
    /// # Errors
    /// Fails if the base is not a multiple of [`LINE_SPACING`], or if the area is smaller than the
    /// control block and one page of work area.
    ///
    /// # Safety
    /// For the lifetime `'a`, the bytes must be mapped, readable and writable, and must be the same
    /// memory on every side. They must be zero before the first side joins, and only the sides of
    /// one measurement may access them.
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

    /// Returns this side's address of the `len` bytes at `offset` in the work area.
    ///
    /// Accessing the bytes takes `unsafe` code, in which the sides of a measurement must order
    /// their accesses.
    ///
    /// # Errors
    /// Fails if some of the bytes are outside the work area.
    pub fn work(&self, offset: usize, len: usize) -> Result<NonNull<u8>, Error> {
        let have = self.work_len();
        match offset.checked_add(len) {
            // SAFETY: `CONTROL_BYTES + offset + len` is at most the area's length, and the caller
            // of `new` guarantees that the area's bytes are mapped.
            Some(need) if need <= have => Ok(unsafe { self.base.add(CONTROL_BYTES + offset) }),
            Some(need) => Err(Error::AreaTooSmall { need, have }),
            None => Err(Error::AreaTooSmall {
                need: usize::MAX,
                have,
            }),
        }
    }

    /// Returns word number `index` of those words in the work area that share no cache lines with
    /// each other.
    ///
    /// # Errors
    /// Fails if the word is outside the work area.
    pub fn word(&self, index: usize) -> Result<&AtomicU64, Error> {
        let at = self.work(index.saturating_mul(LINE_SPACING), LINE_SPACING)?;
        // SAFETY: `work` checked that the word is within the area. The base and the spacing are
        // multiples of 8, so the word is aligned, and any bytes are a valid `AtomicU64`. The caller
        // of `new` guarantees that the memory stays mapped for `'a` and that only the sides access
        // it.
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
        // SAFETY: the mapping contains the bytes, is zeroed and has no other users. The areas are
        // not accessed.
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
