//! A copy of some KiB by the widest registers.
//!
//! Beyond 2 KiB or so the C library leaves a copy to one instruction of the processor. That one
//! moves half of what the first cache could, and takes as long to begin as 1 KiB takes. It is best
//! for many bytes, and where another processor has the destination's lines, since it need not fetch
//! what it overwrites whole.

/// Bytes of a register.
const REGISTER: usize = 64;
/// Bytes that a turn moves.
const TURN: usize = 4 * REGISTER;
/// Lengths, in bytes, that are copied here: those at which it is ahead, also where not all is in
/// the first cache.
pub(super) const LENGTHS: std::ops::RangeInclusive<usize> = 2049..=8192;

const _: () = assert!(*LENGTHS.start() > TURN + REGISTER);

/// Whether this processor can, and does not slow down for it as the first that could did: these had
/// no such permutations.
#[inline]
pub(super) fn is_there() -> bool {
    is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vbmi2")
}

/// Copies `len` bytes, one of [`LENGTHS`].
///
/// # Safety
/// `from` is valid for reads of `len` bytes, `to` for writes of as many, and the ranges have no
/// byte in common. [`is_there`] is true.
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    debug_assert!(LENGTHS.contains(&len));
    // Up to the next place of the destination that is aligned. The first register's bytes cover the
    // way there.
    let lead = REGISTER - to.addr() % REGISTER;
    // SAFETY: the length is more than a register and a turn. A register at the start and a turn at
    // the end cover what the aligned turns between leave; these begin within the first register and
    // at least one byte before the last turn's start, so they end within the range. Ranges without
    // a common byte may be read and written in any order. The registers exist by the function's
    // feature.
    unsafe {
        std::arch::asm!(
            "vmovdqu64 zmm16, [{from}]",
            "vmovdqu64 [{to}], zmm16",
            "2:",
            "vmovdqu64 zmm16, [{from} + {at}]",
            "vmovdqu64 zmm17, [{from} + {at} + 64]",
            "vmovdqu64 zmm18, [{from} + {at} + 128]",
            "vmovdqu64 zmm19, [{from} + {at} + 192]",
            "vmovdqa64 [{to} + {at}], zmm16",
            "vmovdqa64 [{to} + {at} + 64], zmm17",
            "vmovdqa64 [{to} + {at} + 128], zmm18",
            "vmovdqa64 [{to} + {at} + 192], zmm19",
            "add {at}, 256",
            "cmp {at}, {last}",
            "jb 2b",
            "vmovdqu64 zmm16, [{from} + {last}]",
            "vmovdqu64 zmm17, [{from} + {last} + 64]",
            "vmovdqu64 zmm18, [{from} + {last} + 128]",
            "vmovdqu64 zmm19, [{from} + {last} + 192]",
            "vmovdqu64 [{to} + {last}], zmm16",
            "vmovdqu64 [{to} + {last} + 64], zmm17",
            "vmovdqu64 [{to} + {last} + 128], zmm18",
            "vmovdqu64 [{to} + {last} + 192], zmm19",
            from = in(reg) from,
            to = in(reg) to,
            at = inout(reg) lead => _,
            last = in(reg) len - TURN,
            out("zmm16") _,
            out("zmm17") _,
            out("zmm18") _,
            out("zmm19") _,
            options(nostack),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::tests::copies_exactly;

    #[test]
    fn every_length_and_alignment_is_copied_and_nothing_else() {
        if !is_there() {
            eprintln!("this processor has no such registers: nothing was tested");
            return;
        }
        let (first, last) = LENGTHS.into_inner();
        // All remainders of a turn's bytes, at both ends.
        let lengths = (first..first + 2 * TURN).chain(last - 2 * TURN..=last);
        copies_exactly(lengths, |from, to, len| {
            // SAFETY: two slices of that length; the registers are there.
            unsafe { copy(from, to, len) };
        });
    }
}
