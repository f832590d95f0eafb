//! Copies to and from memory that other processes and threads access.

use std::ptr;

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod long;
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod wide;

/// Copies `len` bytes. The two ranges may overlap.
///
/// Copies of 1, 2, 4 or 8 bytes use one load and one store. GASNet's clients rely on this, for
/// example to hand over locks. The C library's copy, whose length is known only at run time, may
/// store such a word twice. If another thread answered the first store with a store of its own, the
/// second store would overwrite the answer.
///
/// # Safety
/// `from` must be valid for reads and `to` for writes of `len` bytes.
#[inline(always)]
pub unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the caller guarantees that both ranges are valid. The reads and writes need no
    // alignment.
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
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            long::FROM.. => copy_long(from, to, len),
            _ => ptr::copy(from, to, len),
        }
    }
}

/// # Safety
/// Same as [`copy`]. In addition, `len` must be at least [`long::FROM`].
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[cold]
unsafe fn copy_long(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the caller guarantees that both ranges are valid and long enough.
    unsafe { copy_by(long::is_there(), long::copy, from, to, len) }
}

/// Copies with `way` if `is_there` is true and the ranges are disjoint, and otherwise with the C
/// library's copy.
///
/// # Safety
/// Same as [`copy`]. In addition, if `is_there` is true and the ranges are disjoint, `way` must be
/// able to copy between them.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
unsafe fn copy_by(
    is_there: bool,
    way: unsafe fn(*const u8, *mut u8, usize),
    from: *const u8,
    to: *mut u8,
    len: usize,
) {
    if is_there && from.addr().abs_diff(to.addr()) >= len {
        // SAFETY: the caller guarantees that both ranges are valid, and the check above that they
        // are disjoint.
        unsafe { way(from, to, len) }
    } else {
        // SAFETY: the caller guarantees that both ranges are valid.
        unsafe { ptr::copy(from, to, len) }
    }
}

/// Copies as [`copy`] does, to a destination that only this process uses, as in a get.
///
/// Puts do not use this function, because a copy through registers takes half as long again if
/// another processor has read the cache lines of the destination.
///
/// # Safety
/// Same as [`copy`].
#[inline(always)]
pub unsafe fn load(from: *const u8, to: *mut u8, len: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if wide::LENGTHS.contains(&len) {
        // SAFETY: the caller guarantees that both ranges are valid.
        return unsafe { load_some(from, to, len) };
    }
    // SAFETY: the caller guarantees that both ranges are valid.
    unsafe { copy(from, to, len) }
}

/// # Safety
/// Same as [`copy`]. In addition, `len` must be one of [`wide::LENGTHS`].
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(never)]
unsafe fn load_some(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the caller guarantees that both ranges are valid and that their length is one of
    // `LENGTHS`.
    unsafe { copy_by(wide::is_there(), wide::copy, from, to, len) }
}

#[cfg(test)]
mod tests {
    use std::hint::{black_box, spin_loop};
    use std::sync::atomic::AtomicU64;
    use std::sync::atomic::Ordering::{Acquire, Release};
    use std::thread;

    const ROUNDS: u64 = 200_000;

    /// Copies each of these lengths between addresses of every alignment. Checks that all bytes
    /// arrive and that the bytes around the destination are unchanged.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    pub(super) fn copies_exactly(
        lengths: impl Iterator<Item = usize> + Clone,
        copy: impl Fn(*const u8, *mut u8, usize),
    ) {
        const LINE: usize = 64;
        const AROUND: usize = 300;
        let last = lengths.clone().max().unwrap();
        let source: Vec<u8> = (0..last + LINE).map(|at| (at % 251) as u8).collect();
        let mut place = vec![0; last + LINE + 2 * AROUND];
        for (number, len) in lengths.enumerate() {
            let (skip, lead) = (number * 7 % LINE, number * 11 % LINE);
            place.fill(255);
            let begin = AROUND + lead;
            let from = &source[skip..skip + len];
            let to = &mut place[begin..begin + len];
            copy(from.as_ptr(), to.as_mut_ptr(), len);
            assert!(from == to, "{len} bytes from {skip} to {lead}");
            let untouched = place[..begin].iter().chain(&place[begin + len..]);
            assert!(
                untouched.copied().all(|byte| byte == 255),
                "bytes around {len} copied bytes changed"
            );
        }
    }

    /// Waits until a word is zero, or until it is not zero, and returns its value.
    fn wait(word: &AtomicU64, zero: bool) -> u64 {
        let mut turns = 0u8;
        loop {
            let value = word.load(Acquire);
            if (value == 0) == zero {
                return value;
            }
            turns = turns.wrapping_add(1);
            match turns {
                0 => thread::yield_now(),
                _ => spin_loop(),
            }
        }
    }

    #[test]
    fn a_word_is_stored_once() {
        const END: u64 = u64::MAX;
        let word = AtomicU64::new(0);
        let seen = thread::scope(|scope| {
            let answers = scope.spawn(|| {
                let mut seen = Vec::new();
                loop {
                    let value = wait(&word, false);
                    if value == END {
                        return seen;
                    }
                    word.store(0, Release);
                    seen.push(value);
                }
            });
            for round in 1..=ROUNDS {
                let from = (&raw const round).cast();
                // SAFETY: both ranges are one valid word, and the other thread reads and writes
                // that word as a whole.
                unsafe { super::copy(from, word.as_ptr().cast(), black_box(8)) };
                wait(&word, true);
            }
            word.store(END, Release);
            answers.join().unwrap()
        });
        // A second store of the same word would come after the answer to the first, and would be
        // answered too.
        let repeated = seen
            .iter()
            .zip(&seen[1..])
            .filter(|(one, next)| one == next);
        assert_eq!(repeated.count(), 0);
        assert_eq!(seen.len() as u64, ROUNDS);
    }

    #[test]
    fn every_length_is_copied_also_where_ranges_overlap() {
        for len in 0..=20 {
            for (from, to) in [(0, 24), (3, 25), (0, 1), (1, 0), (2, 5)] {
                let mut bytes: Vec<u8> = (0..48).collect();
                let mut expected = bytes.clone();
                expected.copy_within(from..from + len, to);
                let base = bytes.as_mut_ptr();
                // SAFETY: both ranges lie within the vector.
                unsafe { super::copy(base.add(from), base.add(to), len) };
                assert_eq!(bytes, expected, "{len} bytes from {from} to {to}");
            }
        }
    }

    #[test]
    fn a_long_load_may_overlap_too() {
        for len in [2048, 2049, 5000, 8192, 8193, 600_000] {
            for (from, to) in [
                (0, 1_000_000),
                (3, 25),
                (25, 3),
                (0, len),
                (len - 1, 0),
                (7, 7),
            ] {
                let mut bytes: Vec<u8> = (0..1_600_000).map(|at| (at % 251) as u8).collect();
                let mut expected = bytes.clone();
                expected.copy_within(from..from + len, to);
                let base = bytes.as_mut_ptr();
                // SAFETY: both ranges lie in the vector.
                unsafe { super::load(base.add(from), base.add(to), len) };
                assert!(bytes == expected, "{len} bytes from {from} to {to}");
            }
        }
    }
}
