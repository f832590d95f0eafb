//! Copies within mapped memory.

use std::ptr::{with_exposed_provenance, with_exposed_provenance_mut};

use crate::rma::vis::runs::collapse;
use crate::rma::vis::{Pieces, Places, Shape};
use crate::shared;

/// Copies `count` runs of `len` bytes, with a separate stride for each side.
///
/// # Safety
/// All runs from `from` must be valid for reads, and all runs from `to` for writes.
#[inline]
pub(crate) unsafe fn copy_rows(
    (to, to_stride): (*mut u8, isize),
    (from, from_stride): (*const u8, isize),
    len: usize,
    count: usize,
) {
    // SAFETY: the caller guarantees that all runs are valid. The reads and writes need no
    // alignment. Only the address after the last run may wrap around, and it is not accessed.
    unsafe {
        match len {
            1 => rows::<u8>(to, to_stride, from, from_stride, count),
            2 => rows::<u16>(to, to_stride, from, from_stride, count),
            4 => rows::<u32>(to, to_stride, from, from_stride, count),
            8 => rows::<u64>(to, to_stride, from, from_stride, count),
            16 => rows::<[u64; 2]>(to, to_stride, from, from_stride, count),
            32 => rows::<[u64; 4]>(to, to_stride, from, from_stride, count),
            64 => rows::<[u64; 8]>(to, to_stride, from, from_stride, count),
            _ => {
                let (mut to, mut from) = (to, from);
                for _ in 0..count {
                    shared::copy(from, to, len);
                    to = to.wrapping_offset(to_stride);
                    from = from.wrapping_offset(from_stride);
                }
            }
        }
    }
}

/// Copies as [`copy_rows`] does. The size of a run must be that of `T`, a type for which all bytes
/// are valid.
///
/// # Safety
/// Same as [`copy_rows`].
#[inline(always)]
unsafe fn rows<T: Copy>(
    mut to: *mut u8,
    to_stride: isize,
    mut from: *const u8,
    from_stride: isize,
    count: usize,
) {
    for _ in 0..count {
        // SAFETY: the caller guarantees that all runs are valid, and every run has the size of `T`.
        unsafe {
            to.cast::<T>()
                .write_unaligned(from.cast::<T>().read_unaligned())
        };
        to = to.wrapping_offset(to_stride);
        from = from.wrapping_offset(from_stride);
    }
}

/// Copies all ranges of a transfer between places that are addresses.
///
/// # Safety
/// All of `from` must be valid for reads, and all of `to` for writes. The two must have the same
/// number of bytes, and the provenance of their memory must be exposed.
pub(crate) unsafe fn copy_all(to: &Places<'_>, from: &Places<'_>) {
    if let (
        Shape::Strided {
            strides: to_strides,
            counts: to_counts,
            element: to_element,
        },
        Shape::Strided {
            strides: from_strides,
            counts: from_counts,
            element: from_element,
        },
    ) = (to.shape, from.shape)
        && to_counts == from_counts
        && (to_element, to.unit) == (from_element, from.unit)
    {
        if to_element == 0 || to_counts.contains(&0) {
            return;
        }
        let (skipped, element) =
            collapse([to_strides, from_strides], to_counts, to_element, to.unit);
        let array = Array {
            to: &to_strides[skipped..],
            from: &from_strides[skipped..],
            counts: &to_counts[skipped..],
            unit: to.unit.cast_signed(),
            element,
        };
        // SAFETY: the caller guarantees that both arrays are valid.
        return unsafe {
            array.copy(
                with_exposed_provenance_mut(to.origin),
                with_exposed_provenance(from.origin),
            )
        };
    }
    // Ranges of equal length need not be split, and merging adjacent ranges would take longer than
    // copying each of them.
    if let (
        Shape::Indexed { starts, len },
        Shape::Indexed {
            starts: from_starts,
            len: from_len,
        },
    ) = (to.shape, from.shape)
        && (len, to.unit) == (from_len, from.unit)
    {
        let at = |origin: usize, start: usize| origin.wrapping_add(start.wrapping_mul(to.unit));
        let len = len.wrapping_mul(to.unit);
        for (&to_start, &from_start) in starts.iter().zip(from_starts) {
            // SAFETY: the caller guarantees that both ranges are valid.
            unsafe {
                shared::copy(
                    with_exposed_provenance(at(from.origin, from_start)),
                    with_exposed_provenance_mut(at(to.origin, to_start)),
                    len,
                )
            };
        }
        return;
    }
    for piece in Pieces::new(to, from) {
        // SAFETY: the caller guarantees that both ranges are valid.
        unsafe {
            shared::copy(
                with_exposed_provenance(piece.remote),
                with_exposed_provenance_mut(piece.local),
                piece.len,
            )
        };
    }
}

/// Two arrays of the same dimensions.
#[derive(Clone, Copy)]
struct Array<'a> {
    to: &'a [isize],
    from: &'a [isize],
    counts: &'a [usize],
    unit: isize,
    element: usize,
}

impl Array<'_> {
    /// # Safety
    /// Same as [`copy_all`].
    unsafe fn copy(self, to: *mut u8, from: *const u8) {
        let Some((&count, counts)) = self.counts.split_last() else {
            // SAFETY: the caller guarantees that both elements are valid.
            return unsafe { shared::copy(from, to, self.element) };
        };
        let outer = counts.len();
        let to_stride = self.to[outer].wrapping_mul(self.unit);
        let from_stride = self.from[outer].wrapping_mul(self.unit);
        if outer == 0 {
            // SAFETY: the caller guarantees that both rows are valid.
            return unsafe { copy_rows((to, to_stride), (from, from_stride), self.element, count) };
        }
        let (mut to, mut from) = (to, from);
        for _ in 0..count {
            // SAFETY: the caller guarantees that both arrays are valid, so these parts with one
            // dimension less are valid too.
            unsafe { Self { counts, ..self }.copy(to, from) };
            to = to.wrapping_offset(to_stride);
            from = from.wrapping_offset(from_stride);
        }
    }
}
