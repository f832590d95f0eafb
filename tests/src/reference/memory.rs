//! Regions of the reference network, and arithmetic on their bytes.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};

use conduit_core::ni::{Atomic, AtomicOp, AtomicType};

pub(super) const PAGE: usize = 4096;

/// Pages that are zeroed at first.
#[derive(Debug)]
pub(super) struct Pages {
    pub(super) base: *mut u8,
    pub(super) len: usize,
    /// Whether `Pages` allocated the memory itself. Otherwise another owner keeps it.
    own: bool,
}

impl Pages {
    /// Allocates `len` zeroed bytes. `len` must be a multiple of the page size and not 0.
    pub(super) fn new(len: usize) -> Self {
        // SAFETY: the layout's size is not 0, because `layout` panics for a length of 0.
        let base = unsafe { alloc_zeroed(layout(len)) };
        if base.is_null() {
            handle_alloc_error(layout(len));
        }
        Self {
            base,
            len,
            own: true,
        }
    }

    /// Wraps pages that another owner keeps.
    pub(super) fn of_others(base: *mut u8, len: usize) -> Self {
        Self {
            base,
            len,
            own: false,
        }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        if self.own {
            // SAFETY: the allocator returned `base` for this layout, and only this value frees it.
            unsafe { dealloc(self.base, layout(self.len)) }
        }
    }
}

fn layout(len: usize) -> Layout {
    assert!(len > 0, "a region needs at least one page");
    Layout::from_size_align(len, PAGE).expect("a length within the limits")
}

/// Copies bytes. The two ranges may overlap, because a rank may put to itself.
pub(super) fn copy(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: both sides were checked against their region or descriptor, whose owner keeps the
    // memory live (`Ni::md_bind`).
    unsafe { from.copy_to(to, len) }
}

/// Returns a copy of `len` bytes.
pub(super) fn read(from: *const u8, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    copy(from, bytes.as_mut_ptr(), len);
    bytes
}

macro_rules! apply {
    ($ty:ty, $at:expr, $atomic:expr) => {{
        let bytes: [u8; size_of::<$ty>()] = read($at, size_of::<$ty>())
            .try_into()
            .expect("all bytes were read");
        let (x, a) = (<$ty>::from_ne_bytes(bytes), $atomic.operand as $ty);
        let new = match $atomic.op {
            AtomicOp::Get => x,
            AtomicOp::Set => a,
            AtomicOp::Add => x.wrapping_add(a),
            AtomicOp::Sub => x.wrapping_sub(a),
            AtomicOp::Mult => x.wrapping_mul(a),
            AtomicOp::Min => x.min(a),
            AtomicOp::Max => x.max(a),
            AtomicOp::And => x & a,
            AtomicOp::Or => x | a,
            AtomicOp::Xor => x ^ a,
            AtomicOp::CompareSwap if x == $atomic.comparand as $ty => a,
            AtomicOp::CompareSwap => x,
        };
        copy(new.to_ne_bytes().as_ptr(), $at, size_of::<$ty>());
        x as u64
    }};
}

/// Applies an arithmetic operation to floats. The operands are bits, as in the other operations.
macro_rules! apply_float {
    ($float:ty, $bits:ty, $at:expr, $atomic:expr) => {{
        let a = <$float>::from_bits($atomic.operand as $bits);
        let old = apply!(
            $bits,
            $at,
            Atomic {
                op: AtomicOp::Get,
                ..*$atomic
            }
        );
        let x = <$float>::from_bits(old as $bits);
        let new = match $atomic.op {
            AtomicOp::Add => x + a,
            AtomicOp::Sub => x - a,
            AtomicOp::Mult => x * a,
            AtomicOp::Min if x < a => x,
            AtomicOp::Max if x > a => x,
            AtomicOp::Min | AtomicOp::Max => a,
            _ => return apply!($bits, $at, $atomic),
        };
        copy(new.to_ne_bytes().as_ptr(), $at, size_of::<$float>());
        old
    }};
}

/// Applies an atomic at `at`, which must be checked and aligned, and returns the old value.
pub(super) fn apply(at: *mut u8, atomic: &Atomic) -> u64 {
    match atomic.ty {
        AtomicType::I32 => apply!(i32, at, atomic),
        AtomicType::U32 => apply!(u32, at, atomic),
        AtomicType::I64 => apply!(i64, at, atomic),
        AtomicType::U64 => apply!(u64, at, atomic),
        AtomicType::F32 => apply_float!(f32, u32, at, atomic),
        AtomicType::F64 => apply_float!(f64, u64, at, atomic),
    }
}
