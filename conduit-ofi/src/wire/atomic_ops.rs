//! The atomics that a provider supports, and their representation in libfabric.

use conduit_core::ni::{AtomicOp, AtomicType};
use libfabric_sys::{
    FI_ATOMIC_READ, FI_ATOMIC_WRITE, FI_BAND, FI_BOR, FI_BXOR, FI_CSWAP, FI_DOUBLE, FI_FLOAT,
    FI_INT32, FI_INT64, FI_MAX, FI_MIN, FI_PROD, FI_SUM, FI_UINT32, FI_UINT64,
    fi_compare_atomicvalid, fi_datatype, fi_fetch_atomicvalid, fi_op,
};

use crate::wire::objects::Objects;

/// The distance in bytes between the operand, the comparand and the result in an operation's
/// buffer.
pub(super) const EACH: usize = 8;
/// The offset of the result.
pub(super) const RESULT: usize = 2 * EACH;

/// Writes an operand at offset `at`. `is_wide` says whether it has 8 bytes or 4.
pub(super) fn put(words: &mut [u8], at: usize, value: u64, is_wide: bool) {
    match is_wide {
        true => words[at..at + 8].copy_from_slice(&value.to_ne_bytes()),
        // The cast keeps the low half, which is the whole operand.
        false => words[at..at + 4].copy_from_slice(&(value as u32).to_ne_bytes()),
    }
}

/// Returns the old value from an operation's buffer.
pub(super) fn result(words: &[u8], is_wide: bool) -> u64 {
    let words = &words[RESULT..];
    match is_wide {
        true => words
            .first_chunk()
            .map_or(0, |word| u64::from_ne_bytes(*word)),
        false => words
            .first_chunk()
            .map_or(0, |word| u32::from_ne_bytes(*word).into()),
    }
}

pub(super) fn op(op: AtomicOp) -> fi_op {
    match op {
        AtomicOp::Get => FI_ATOMIC_READ,
        AtomicOp::Set => FI_ATOMIC_WRITE,
        // A subtraction is a sum with the negated operand (`AtomicType::negated`).
        AtomicOp::Add | AtomicOp::Sub => FI_SUM,
        AtomicOp::Mult => FI_PROD,
        AtomicOp::Min => FI_MIN,
        AtomicOp::Max => FI_MAX,
        AtomicOp::And => FI_BAND,
        AtomicOp::Or => FI_BOR,
        AtomicOp::Xor => FI_BXOR,
        AtomicOp::CompareSwap => FI_CSWAP,
    }
}

/// Returns the data type of an operation. Operations without arithmetic treat a float's bits as an
/// integer, because libfabric compares floats by value.
pub(super) fn datatype(op: AtomicOp, ty: AtomicType) -> fi_datatype {
    match ty {
        AtomicType::F32 if op.is_arithmetic() => FI_FLOAT,
        AtomicType::F64 if op.is_arithmetic() => FI_DOUBLE,
        AtomicType::F32 => FI_UINT32,
        AtomicType::F64 => FI_UINT64,
        AtomicType::I32 => FI_INT32,
        AtomicType::U32 => FI_UINT32,
        AtomicType::I64 => FI_INT64,
        AtomicType::U64 => FI_UINT64,
    }
}

/// The set of atomics that a provider supports, with one bit for each.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Atomics(u128);

impl Atomics {
    fn bit(op: AtomicOp, ty: AtomicType) -> u128 {
        1 << (op as u32 * AtomicType::ALL.len() as u32 + ty as u32)
    }

    /// Queries which atomics the endpoint supports.
    pub(super) fn of(objects: &Objects) -> Self {
        let mut all = Self::default();
        if !objects.offer.has_atomics() {
            return all;
        }
        for what in AtomicOp::ALL {
            for ty in AtomicType::ALL {
                // Providers differ in the handling of NaNs and of signed zeros.
                if ty.is_float() && matches!(what, AtomicOp::Min | AtomicOp::Max) {
                    continue;
                }
                let mut count = 0;
                // SAFETY: the endpoint is open, and `count` is valid for writes.
                let result = unsafe {
                    let (ty, code) = (datatype(what, ty), op(what));
                    match what {
                        AtomicOp::CompareSwap => {
                            fi_compare_atomicvalid(objects.ep, ty, code, &mut count)
                        }
                        _ => fi_fetch_atomicvalid(objects.ep, ty, code, &mut count),
                    }
                };
                if result == 0 && count > 0 {
                    all.0 |= Self::bit(what, ty);
                }
            }
        }
        all
    }

    pub(super) fn has(self, op: AtomicOp, ty: AtomicType) -> bool {
        self.0 & Self::bit(op, ty) != 0
    }
}
