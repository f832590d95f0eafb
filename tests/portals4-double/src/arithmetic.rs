//! The arithmetic of atomics. It uses plain loads and stores, as the reference library does, so
//! atomics are atomic only with respect to each other.

use portals4_sys::*;

use crate::wire::Header;

/// Applies a message's operation to an integer of this type.
macro_rules! on {
    ($integer:ty, $start:expr, $bytes:expr, $header:expr) => {{
        let Some(operand) = $bytes.first_chunk() else {
            return;
        };
        let a = <$integer>::from_ne_bytes(*operand);
        let comparand = $header.comparand as $integer;
        let place = $start.cast::<$integer>();
        // SAFETY: the caller of `apply` guarantees that the memory at `place` is valid for reads,
        // and the read may be unaligned.
        let x = unsafe { place.read_unaligned() };
        let new = match $header.atomic.0 {
            PTL_MIN => x.min(a),
            PTL_MAX => x.max(a),
            PTL_SUM => x.wrapping_add(a),
            PTL_PROD => x.wrapping_mul(a),
            PTL_BOR => x | a,
            PTL_BAND => x & a,
            PTL_BXOR => x ^ a,
            PTL_SWAP => a,
            PTL_CSWAP if x == comparand => a,
            _ => x,
        };
        // SAFETY: the caller of `apply` guarantees that the memory at `place` is valid for writes,
        // and the write may be unaligned.
        unsafe { place.write_unaligned(new) };
    }};
}

/// Applies a message's operation to a float of this type.
macro_rules! on_float {
    ($float:ty, $start:expr, $bytes:expr, $header:expr) => {{
        let Some(operand) = $bytes.first_chunk() else {
            return;
        };
        let a = <$float>::from_ne_bytes(*operand);
        let place = $start.cast::<$float>();
        // SAFETY: the caller of `apply` guarantees that the memory at `place` is valid for reads,
        // and the read may be unaligned.
        let x = unsafe { place.read_unaligned() };
        let new = match $header.atomic.0 {
            PTL_MIN if x < a => x,
            PTL_MAX if x > a => x,
            PTL_MIN | PTL_MAX => a,
            PTL_SUM => x + a,
            PTL_PROD => x * a,
            _ => x,
        };
        // SAFETY: the caller of `apply` guarantees that the memory at `place` is valid for writes,
        // and the write may be unaligned.
        unsafe { place.write_unaligned(new) };
    }};
}

/// Applies the atomic of a message. An atomic that was truncated has no effect.
///
/// # Safety
/// `start` must point to `length` bytes that are valid for reads and writes and that nothing else
/// accesses meanwhile.
pub(crate) unsafe fn apply(header: &Header, start: *mut u8, length: usize, bytes: &[u8]) {
    match (header.atomic.1, length) {
        (PTL_INT32_T, 4) => on!(i32, start, bytes, header),
        (PTL_UINT32_T, 4) => on!(u32, start, bytes, header),
        (PTL_INT64_T, 8) => on!(i64, start, bytes, header),
        (PTL_UINT64_T, 8) => on!(u64, start, bytes, header),
        (PTL_FLOAT, 4) => on_float!(f32, start, bytes, header),
        (PTL_DOUBLE, 8) => on_float!(f64, start, bytes, header),
        _ => {}
    }
}
