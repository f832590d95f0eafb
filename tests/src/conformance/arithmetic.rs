//! The expected results of atomics, computed by plain arithmetic. Integers are computed in 128
//! bits, and floats in their own type.

use conduit_core::ni::{AtomicOp, AtomicType};

/// Old values and operands: values around every sign change and overflow, and floats, among which
/// are an infinity and a NaN.
const VALUES: [u64; 13] = [
    0,
    1,
    0x7FFF_FFFF,
    0x8000_0000,
    0xFFFF_FFFF,
    0x7FFF_FFFF_FFFF_FFFF,
    0x8000_0000_0000_0001,
    0xFFFF_FFFF_FFFF_FFFE,
    1.5_f32.to_bits() as u64,
    (-7.25_f32).to_bits() as u64,
    0.1_f64.to_bits(),
    (-3e200_f64).to_bits(),
    f64::INFINITY.to_bits() | f32::INFINITY.to_bits() as u64,
];

/// Returns the result of an operation with operand `a` on the old value `x`, in the low bits of the
/// type.
pub(crate) fn model(op: AtomicOp, ty: AtomicType, x: u64, a: u64, comparand: u64) -> u64 {
    macro_rules! float {
        ($float:ty, $bits:ty) => {{
            let [x, a] = [x, a].map(|bits| <$float>::from_bits(bits as $bits));
            let value = match op {
                AtomicOp::Add => x + a,
                AtomicOp::Sub => x - a,
                AtomicOp::Mult => x * a,
                AtomicOp::Min if x < a => x,
                AtomicOp::Max if x > a => x,
                _ => a,
            };
            return value.to_bits().into();
        }};
    }
    match ty {
        AtomicType::F32 if op.is_arithmetic() => float!(f32, u32),
        AtomicType::F64 if op.is_arithmetic() => float!(f64, u64),
        _ => {}
    }
    let narrow = |value: u64| match ty {
        AtomicType::I32 => value as u32 as i32 as i128,
        AtomicType::U32 | AtomicType::F32 => value as u32 as i128,
        AtomicType::I64 => value as i64 as i128,
        AtomicType::U64 | AtomicType::F64 => value as i128,
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

/// Returns `value` reduced to the bits of the type.
pub(super) fn mask(ty: AtomicType, value: u64) -> u64 {
    match ty.size() {
        4 => value & 0xFFFF_FFFF,
        _ => value,
    }
}

/// Returns whether two values are equal. All NaNs are equal here, because their bits are
/// unspecified.
pub(super) fn same(ty: AtomicType, left: u64, right: u64) -> bool {
    let is_nan = |bits: u64| match ty {
        AtomicType::F32 => f32::from_bits(bits as u32).is_nan(),
        AtomicType::F64 => f64::from_bits(bits).is_nan(),
        _ => false,
    };
    left == right || is_nan(left) && is_nan(right)
}

/// Returns the pairs of old value and operand that an operation is tested with, which are all pairs
/// of [`VALUES`].
pub(super) fn pairs() -> impl Iterator<Item = (u64, u64)> {
    VALUES
        .iter()
        .flat_map(|&x| VALUES.iter().map(move |&a| (x, a)))
}
