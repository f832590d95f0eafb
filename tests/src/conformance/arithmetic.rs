//! What atomics should do, by plain arithmetic in 128 bits.

use conduit_core::ni::{AtomicOp, AtomicType};

/// Old values and operands around every sign and overflow.
const VALUES: [u64; 8] = [
    0,
    1,
    0x7FFF_FFFF,
    0x8000_0000,
    0xFFFF_FFFF,
    0x7FFF_FFFF_FFFF_FFFF,
    0x8000_0000_0000_0001,
    0xFFFF_FFFF_FFFF_FFFE,
];

/// What an operation makes of `x`, in the type's low bits.
pub(crate) fn model(op: AtomicOp, ty: AtomicType, x: u64, a: u64, comparand: u64) -> u64 {
    let narrow = |value: u64| match ty {
        AtomicType::I32 => value as u32 as i32 as i128,
        AtomicType::U32 => value as u32 as i128,
        AtomicType::I64 => value as i64 as i128,
        AtomicType::U64 => value as i128,
    };
    let (wide_x, wide_a) = (narrow(x), narrow(a));
    let value = match op {
        AtomicOp::Get => wide_x,
        AtomicOp::Set => wide_a,
        AtomicOp::Add => wide_x + wide_a,
        AtomicOp::Sub => wide_x - wide_a,
        AtomicOp::Mult => wide_x.wrapping_mul(wide_a),
        AtomicOp::Min => wide_x.min(wide_a),
        AtomicOp::Max => wide_x.max(wide_a),
        AtomicOp::And => wide_x & wide_a,
        AtomicOp::Or => wide_x | wide_a,
        AtomicOp::Xor => wide_x ^ wide_a,
        AtomicOp::CompareSwap if wide_x == narrow(comparand) => wide_a,
        AtomicOp::CompareSwap => wide_x,
    };
    mask(ty, value as u64)
}

/// The bits of a value that a type has.
pub(super) fn mask(ty: AtomicType, value: u64) -> u64 {
    match ty.size() {
        4 => value & 0xFFFF_FFFF,
        _ => value,
    }
}

/// Values and operands for which an operation is tried: all pairs of [`VALUES`].
pub(super) fn pairs() -> impl Iterator<Item = (u64, u64)> {
    VALUES
        .iter()
        .flat_map(|&x| VALUES.iter().map(move |&a| (x, a)))
}
