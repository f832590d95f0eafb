//! The effect of each [`AtomicOp`] on a number in shared memory.
//!
//! Networks in which the target's processor performs the atomics, and the engine for memory that is
//! mapped here, call the same function. Both thus use the processor's own atomic instructions, so
//! the atomics of each are atomic with respect to those of the other.

use std::sync::atomic::{AtomicI32, AtomicI64, AtomicU32, AtomicU64, Ordering};

use super::{AtomicOp, AtomicType};
use crate::process_memory;

/// Applies `op` to the number at `ptr` atomically and returns the old value.
///
/// `operand` and `comparand` are taken modulo the type's size. A 32-bit old value is returned
/// zero-extended. The operation is a release and an acquire, except [`AtomicOp::Get`], which is
/// only an acquire.
///
/// # Safety
/// `ptr` must be aligned to [`AtomicType::size`] and valid for reads and writes of that many bytes.
/// During the call, this and all other processes must access the number only with atomic
/// instructions of the same size.
#[inline]
pub unsafe fn apply_atomic(
    ptr: *mut u8,
    op: AtomicOp,
    ty: AtomicType,
    operand: u64,
    comparand: u64,
) -> u64 {
    /// Minimum and maximum depend on the sign, so each type has an expansion of its own. Everything
    /// else is the same for all types.
    macro_rules! apply {
        ($atomic:ty, $int:ty, $unsigned:ty) => {{
            // SAFETY: the caller guarantees that `ptr` is aligned and valid, and that the number is
            // accessed only with atomics during the call.
            let cell = unsafe { <$atomic>::from_ptr(ptr.cast::<$int>()) };
            let a = operand as $int;
            let old = match op {
                AtomicOp::Get => cell.load(Ordering::Acquire),
                AtomicOp::Set => cell.swap(a, Ordering::AcqRel),
                AtomicOp::Add => cell.fetch_add(a, Ordering::AcqRel),
                AtomicOp::Sub => cell.fetch_sub(a, Ordering::AcqRel),
                AtomicOp::Mult => update(
                    cell.load(Ordering::Relaxed),
                    |x| x.wrapping_mul(a),
                    |x, new| {
                        cell.compare_exchange_weak(x, new, Ordering::AcqRel, Ordering::Relaxed)
                    },
                ),
                AtomicOp::Min => cell.fetch_min(a, Ordering::AcqRel),
                AtomicOp::Max => cell.fetch_max(a, Ordering::AcqRel),
                AtomicOp::And => cell.fetch_and(a, Ordering::AcqRel),
                AtomicOp::Or => cell.fetch_or(a, Ordering::AcqRel),
                AtomicOp::Xor => cell.fetch_xor(a, Ordering::AcqRel),
                AtomicOp::CompareSwap => match cell.compare_exchange(
                    comparand as $int,
                    a,
                    Ordering::AcqRel,
                    Ordering::Acquire,
                ) {
                    Ok(old) | Err(old) => old,
                },
            };
            u64::from(old as $unsigned)
        }};
    }
    match ty {
        AtomicType::I32 => apply!(AtomicI32, i32, u32),
        AtomicType::U32 => apply!(AtomicU32, u32, u32),
        AtomicType::I64 => apply!(AtomicI64, i64, u64),
        AtomicType::U64 => apply!(AtomicU64, u64, u64),
        // SAFETY: the caller guarantees that `ptr` is aligned and valid, and that the number is
        // accessed only with atomics during the call.
        AtomicType::F32 | AtomicType::F64 => unsafe {
            apply_to_float(ptr, op, ty, operand, comparand)
        },
    }
}

/// Applies an atomic, as [`apply_atomic`] does, to a number in this process given by its address.
/// Returns `None`, without any effect, if the address is not a multiple of the type's size or is
/// not writable memory.
///
/// # Safety
/// The number must be accessed only with atomics and must remain mapped during the call. The
/// provider of the address must guarantee both.
pub unsafe fn apply_atomic_at(
    address: u64,
    op: AtomicOp,
    ty: AtomicType,
    operand: u64,
    comparand: u64,
) -> Option<u64> {
    // The number lies within one page, so checking its first four bytes covers all of it.
    if !address.is_multiple_of(ty.size() as u64) || !process_memory::is_writable(address) {
        return None;
    }
    let number = std::ptr::with_exposed_provenance_mut(address as usize);
    // SAFETY: the checks above ensure that the number is aligned and writable. The caller
    // guarantees that it remains mapped and is accessed only with atomics.
    Some(unsafe { apply_atomic(number, op, ty, operand, comparand) })
}

/// Implements [`apply_atomic`] for floats. Arithmetic and comparisons use compare-and-swap on the
/// bits; all other operations are the same as for integers.
///
/// # Safety
/// Same as [`apply_atomic`].
unsafe fn apply_to_float(
    ptr: *mut u8,
    op: AtomicOp,
    ty: AtomicType,
    operand: u64,
    comparand: u64,
) -> u64 {
    if !op.is_arithmetic() {
        // SAFETY: the caller guarantees that `ptr` is aligned and valid, and that the number is
        // accessed only with atomics during the call.
        return unsafe { apply_atomic(ptr, op, ty.bits(), operand, comparand) };
    }
    macro_rules! apply {
        ($atomic:ty, $float:ty, $bits:ty) => {{
            let a = <$float>::from_bits(operand as $bits);
            let next: fn($float, $float) -> $float = match op {
                AtomicOp::Add => |x, a| x + a,
                AtomicOp::Sub => |x, a| x - a,
                AtomicOp::Mult => |x, a| x * a,
                AtomicOp::Min => |x, a| if x < a { x } else { a },
                _ => |x, a| if x > a { x } else { a },
            };
            // SAFETY: the caller guarantees that `ptr` is aligned and valid, and that the number is
            // accessed only with atomics during the call.
            let cell = unsafe { <$atomic>::from_ptr(ptr.cast::<$bits>()) };
            let old = update(
                cell.load(Ordering::Relaxed),
                |x| next(<$float>::from_bits(x), a).to_bits(),
                |x, new| cell.compare_exchange_weak(x, new, Ordering::AcqRel, Ordering::Relaxed),
            );
            u64::from(old)
        }};
    }
    match ty.size() {
        4 => apply!(AtomicU32, f32, u32),
        _ => apply!(AtomicU64, f64, u64),
    }
}

/// Repeats a compare-and-swap from `x` to `next(x)` until it succeeds.
#[inline]
fn update<T: Copy>(
    first: T,
    next: impl Fn(T) -> T,
    compare_exchange: impl Fn(T, T) -> Result<T, T>,
) -> T {
    let mut x = first;
    loop {
        match compare_exchange(x, next(x)) {
            Ok(old) => return old,
            Err(seen) => x = seen,
        }
    }
}

/// Returns the value that an atomic stores in a word that holds `old`.
pub fn atomic_result(op: AtomicOp, ty: AtomicType, operand: u64, comparand: u64, old: u64) -> u64 {
    let (mut short, mut long) = (old as u32, old);
    let word: *mut u8 = match ty.size() {
        4 => (&raw mut short).cast(),
        _ => (&raw mut long).cast(),
    };
    // SAFETY: the pointer refers to a local variable that is aligned, has the type's size and is
    // accessed by nothing else.
    unsafe { apply_atomic(word, op, ty, operand, comparand) };
    match ty.size() {
        4 => short.into(),
        _ => long,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Computes floats in the arithmetic of their type. Computes integers in 128 bits: extends them
    /// by the type's sign, computes, and truncates the result.
    fn model(op: AtomicOp, ty: AtomicType, x: u64, a: u64, c: u64) -> u64 {
        if op.is_arithmetic() {
            match ty {
                AtomicType::F32 => {
                    let [x, a] = [x, a].map(|bits| f32::from_bits(bits as u32));
                    return float(op, x.into(), a.into(), |wide| {
                        (wide as f32).to_bits().into()
                    });
                }
                AtomicType::F64 => {
                    let [x, a] = [x, a].map(f64::from_bits);
                    return float(op, x, a, f64::to_bits);
                }
                _ => {}
            }
        }
        let widen = |v: u64| -> i128 {
            match ty {
                AtomicType::I32 => i128::from(v as u32 as i32),
                AtomicType::U32 | AtomicType::F32 => i128::from(v as u32),
                AtomicType::I64 => i128::from(v as i64),
                AtomicType::U64 | AtomicType::F64 => i128::from(v),
            }
        };
        let (wx, wa) = (widen(x), widen(a));
        let new = match op {
            AtomicOp::Get => wx,
            AtomicOp::Set => wa,
            AtomicOp::Add => wx + wa,
            AtomicOp::Sub => wx - wa,
            AtomicOp::Mult => wx.wrapping_mul(wa),
            AtomicOp::Min => wx.min(wa),
            AtomicOp::Max => wx.max(wa),
            AtomicOp::And => wx & wa,
            AtomicOp::Or => wx | wa,
            AtomicOp::Xor => wx ^ wa,
            AtomicOp::CompareSwap => {
                if wx == widen(c) {
                    wa
                } else {
                    wx
                }
            }
        };
        cut(ty, new as u64)
    }

    /// Computes in `f64`. Sums and products of two `f32` are exact in `f64`, or are rounded in a
    /// way that does not affect the subsequent rounding to `f32`.
    fn float(op: AtomicOp, x: f64, a: f64, narrow: fn(f64) -> u64) -> u64 {
        narrow(match op {
            AtomicOp::Add => x + a,
            AtomicOp::Sub => x - a,
            AtomicOp::Mult => x * a,
            AtomicOp::Min if x < a => x,
            AtomicOp::Max if x > a => x,
            _ => a,
        })
    }

    /// Compares two values. All NaNs are equal, because their bits are unspecified.
    fn same(ty: AtomicType, left: u64, right: u64) -> bool {
        let is_nan = |bits: u64| match ty {
            AtomicType::F32 => f32::from_bits(bits as u32).is_nan(),
            AtomicType::F64 => f64::from_bits(bits).is_nan(),
            _ => false,
        };
        left == right || is_nan(left) && is_nan(right)
    }

    fn cut(ty: AtomicType, value: u64) -> u64 {
        if ty.size() == 4 {
            value & 0xffff_ffff
        } else {
            value
        }
    }

    /// Generates small, extreme and arbitrary values, so that comparisons encounter equal values
    /// and values of either sign.
    fn value() -> impl Strategy<Value = u64> {
        prop_oneof![
            0_u64..4,
            Just(u64::MAX),
            Just(i64::MIN as u64),
            Just(0x8000_0000_u64),
            Just(0x7fff_ffff_u64),
            any::<f32>().prop_map(|x| x.to_bits().into()),
            any::<f64>().prop_map(f64::to_bits),
            any::<u64>(),
        ]
    }

    proptest! {
        #[test]
        fn every_operation_follows_the_model(
            op in proptest::sample::select(&AtomicOp::ALL[..]),
            ty in proptest::sample::select(&AtomicType::ALL[..]),
            x in value(),
            a in value(),
            c in value(),
        ) {
            // The integer lies between two others that must not change.
            let mut memory = [u64::MAX, u64::MAX, u64::MAX];
            memory[1] = if ty.size() == 4 { 0xffff_ffff_0000_0000 | cut(ty, x) } else { x };
            // SAFETY: the pointer refers to an aligned element of a local array, which nothing else
            // accesses.
            let old = unsafe { apply_atomic(memory.as_mut_ptr().add(1).cast(), op, ty, a, c) };
            prop_assert_eq!(old, cut(ty, x));
            let expected = model(op, ty, x, a, c);
            let found = cut(ty, memory[1]);
            prop_assert!(same(ty, found, expected), "{found:#x} for {expected:#x}");
            if ty.size() == 4 {
                prop_assert_eq!(memory[1] >> 32, 0xffff_ffff);
            }
            prop_assert_eq!((memory[0], memory[2]), (u64::MAX, u64::MAX));
        }
    }

    #[test]
    fn threads_lose_no_update() {
        let (product, sum) = (AtomicU64::new(1), AtomicU32::new(0.5_f32.to_bits()));
        let (three, quarter) = (3, 0.25_f32.to_bits().into());
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        let (p, s) = (product.as_ptr().cast(), sum.as_ptr().cast());
                        // SAFETY: the pointers refer to atomics of the right size that outlive this
                        // scope, whose threads access them only with atomics.
                        unsafe {
                            apply_atomic(p, AtomicOp::Mult, AtomicType::U64, three, 0);
                            apply_atomic(s, AtomicOp::Add, AtomicType::F32, quarter, 0);
                        }
                    }
                });
            }
        });
        let expected = (0..2000).fold(1_u64, |x, _| x.wrapping_mul(3));
        assert_eq!(product.into_inner(), expected);
        assert_eq!(f32::from_bits(sum.into_inner()), 500.5);
    }
}
