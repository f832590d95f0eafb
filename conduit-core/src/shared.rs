//! Copies from and to memory that other processes and threads see.

use std::ptr;

/// Copies `len` bytes. The two ranges may overlap.
///
/// 1, 2, 4 or 8 bytes are one load and one store, as they are for GASNet's clients, which hand over locks that way. The C library's
/// copy of a length known at run time may store such a word twice: whoever sees the first store and answers it by one of
/// its own would have that overwritten by the second.
///
/// # Safety
/// `from` is valid for reads of `len` bytes, `to` for writes of as many.
#[inline(always)]
pub unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the caller's promise; the reads and writes need no alignment.
    unsafe {
        match len {
            8 => to
                .cast::<u64>()
                .write_unaligned(from.cast::<u64>().read_unaligned()),
            4 => to
                .cast::<u32>()
                .write_unaligned(from.cast::<u32>().read_unaligned()),
            2 => to
                .cast::<u16>()
                .write_unaligned(from.cast::<u16>().read_unaligned()),
            1 => to.write(from.read()),
            _ => ptr::copy(from, to, len),
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_length_is_copied_also_where_ranges_overlap() {
        for len in 0..=20 {
            for (from, to) in [(0, 24), (3, 25), (0, 1), (1, 0), (2, 5)] {
                let mut bytes: Vec<u8> = (0..48).collect();
                let mut expected = bytes.clone();
                expected.copy_within(from..from + len, to);
                let base = bytes.as_mut_ptr();
                // SAFETY: both ranges lie in the vector.
                unsafe { super::copy(base.add(from), base.add(to), len) };
                assert_eq!(bytes, expected, "{len} bytes from {from} to {to}");
            }
        }
    }
}
