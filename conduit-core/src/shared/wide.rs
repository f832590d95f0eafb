//! A copy of a few KiB through the widest registers.
//!
//! Beyond about 2 KiB the C library leaves a copy to one instruction of the processor (`rep
//! movsb`). That instruction reaches half the throughput of the first-level cache, and its start-up
//! takes as long as copying 1 KiB. It is the best choice for many bytes, and also if another
//! processor has the cache lines of the destination, because it need not fetch lines that it
//! overwrites completely.

/// The size of a register in bytes.
const REGISTER: usize = 64;
/// The number of bytes that one iteration copies.
const TURN: usize = 4 * REGISTER;
/// The lengths, in bytes, that are copied here. For these this copy is faster, even if some of the
/// data is not in the first-level cache.
pub(super) const LENGTHS: std::ops::RangeInclusive<usize> = 2049..=8192;

const _: () = assert!(*LENGTHS.start() > TURN + REGISTER);

/// Returns whether this processor has the registers and does not lower its clock when they are
/// used. The first processors with these registers did so; they are recognised by their lack of the
/// VBMI2 permutations.
#[inline]
pub(super) fn is_there() -> bool {
    is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vbmi2")
}

/// Copies `len` bytes. `len` must be one of [`LENGTHS`].
///
/// # Safety
/// `from` must be valid for reads and `to` for writes of `len` bytes, the ranges must not overlap,
/// and [`is_there`] must be true.
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    debug_assert!(LENGTHS.contains(&len));
    // The distance to the next aligned address of the destination. The first register covers the
    // bytes before that address.
    let lead = REGISTER - to.addr() % REGISTER;
    // SAFETY: the length is more than a register and an iteration. The register at the start and
    // the iteration at the end cover the bytes that the aligned iterations between them leave. The
    // aligned iterations begin within the first register and at least one byte before the start of
    // the last iteration, so they end within the range. The ranges do not overlap, so any order of
    // reads and writes is valid. The caller guarantees that the processor has the registers.
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
            eprintln!("skipped: this processor lacks AVX-512 VBMI2");
            return;
        }
        let (first, last) = LENGTHS.into_inner();
        // The lengths cover all remainders modulo the size of an iteration, at both ends of the
        // range.
        let lengths = (first..first + 2 * TURN).chain(last - 2 * TURN..=last);
        copies_exactly(lengths, |from, to, len| {
            // SAFETY: both pointers refer to disjoint slices of that length, and the check above
            // ensures that the processor has the registers.
            unsafe { copy(from, to, len) };
        });
    }
}
