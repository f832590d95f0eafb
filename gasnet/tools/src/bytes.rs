//! Checksums and the counting of zero bytes.

use std::ffi::{c_int, c_void};

/// Computes a checksum: multiplies and rotates a word for every eight bytes, in four independent
/// chains, so that no multiplication waits for the previous one.
pub(crate) fn checksum(bytes: &[u8]) -> u64 {
    /// An odd number whose bits are spread evenly, taken from the golden ratio.
    const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;
    let step = |state: u64, word: u64| (state ^ word).wrapping_mul(FACTOR).rotate_left(29);
    let word = |bytes: &[u8]| {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(word)
    };
    // Include the length, so that trailing zeros change the checksum.
    let length = bytes.len() as u64;
    let mut state = [length, length ^ FACTOR, !length, length.rotate_left(32)];
    let mut lines = bytes.chunks_exact(32);
    for line in &mut lines {
        for (state, bytes) in state.iter_mut().zip(line.chunks_exact(8)) {
            *state = step(*state, word(bytes));
        }
    }
    for (state, bytes) in state.iter_mut().zip(lines.remainder().chunks(8)) {
        *state = step(*state, word(bytes));
    }
    let sum = state.iter().fold(0, |sum, &word| step(sum, word));
    sum ^ (sum >> 32)
}

/// Returns the number of zero bytes. The bytes are counted in blocks whose counts fit in a byte, so
/// that the compiler can count a whole register at once.
pub(crate) fn count_zeros(bytes: &[u8]) -> usize {
    bytes
        .chunks(255)
        .map(|block| {
            usize::from(
                block
                    .iter()
                    .fold(0u8, |count, &byte| count + u8::from(byte == 0)),
            )
        })
        .sum()
}

/// Copies bytes and returns the number of zero bytes among them. Works on pieces that fit in the
/// nearest cache.
pub(crate) fn count_zeros_copying(to: &mut [u8], from: &[u8]) -> usize {
    to.chunks_mut(4096)
        .zip(from.chunks(4096))
        .map(|(to, from)| {
            to.copy_from_slice(from);
            count_zeros(to)
        })
        .sum()
}

/// # Safety
/// `p` must be null or point to `length` bytes that do not change during `'a`. If `length` is 0,
/// `p` may be any pointer.
unsafe fn slice<'a>(p: *const c_void, length: usize) -> &'a [u8] {
    if p.is_null() || length == 0 {
        return &[];
    }
    // SAFETY: `p` is not null and `length` is not 0, so the caller guarantees that `p` points to
    // `length` bytes that do not change during `'a`.
    unsafe { std::slice::from_raw_parts(p.cast::<u8>(), length) }
}

// ---- The edge to C ----

/// # Safety
/// `p` must be null or refer to `numbytes` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn gasnett_checksum(p: *const c_void, numbytes: c_int) -> u64 {
    // SAFETY: the caller guarantees that `p` is null or refers to `numbytes` bytes.
    checksum(unsafe { slice(p, usize::try_from(numbytes).unwrap_or(0)) })
}

/// # Safety
/// `p` must be null or refer to `numbytes` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn gasnett_count0s(p: *const c_void, numbytes: usize) -> usize {
    // SAFETY: the caller guarantees that `p` is null or refers to `numbytes` bytes.
    count_zeros(unsafe { slice(p, numbytes) })
}

/// # Safety
/// `dst` and `src` must each be null or refer to `numbytes` bytes, and must not overlap.
#[unsafe(no_mangle)]
unsafe extern "C" fn gasnett_count0s_copy(
    dst: *mut c_void,
    src: *const c_void,
    numbytes: usize,
) -> usize {
    if dst.is_null() || src.is_null() || numbytes == 0 {
        return 0;
    }
    // SAFETY: the caller guarantees that both pointers refer to `numbytes` bytes and do not
    // overlap.
    unsafe {
        count_zeros_copying(
            std::slice::from_raw_parts_mut(dst.cast::<u8>(), numbytes),
            slice(src, numbytes),
        )
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn zeros_are_counted_as_one_by_one(bytes in proptest::collection::vec(0u8..3, 0..10_000)) {
            let expected = bytes.iter().filter(|&&byte| byte == 0).count();
            prop_assert_eq!(count_zeros(&bytes), expected);
            let mut copy = vec![9; bytes.len()];
            prop_assert_eq!(count_zeros_copying(&mut copy, &bytes), expected);
            prop_assert_eq!(copy, bytes);
        }

        #[test]
        fn any_changed_bit_changes_the_checksum(
            mut bytes in proptest::collection::vec(any::<u8>(), 1..200), at: prop::sample::Index, bit in 0u32..8,
        ) {
            let before = checksum(&bytes);
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            prop_assert_ne!(checksum(&bytes), before);
        }

        #[test]
        fn the_length_and_the_order_count(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut longer = bytes.clone();
            longer.push(0);
            prop_assert_ne!(checksum(&longer), checksum(&bytes));
            let mut turned = bytes.clone();
            turned.reverse();
            prop_assert_eq!(checksum(&turned) == checksum(&bytes), turned == bytes);
        }
    }
}
