//! Remote atomics on 32- and 64-bit numbers of a segment.
//!
//! The processor performs the atomics on mapped memory, unless the network has atomics of its own.
//! In that case the network performs all of them, because its atomics are atomic only with respect
//! to each other.

pub(crate) mod calls;

use crate::kernel::Kernel;
use crate::ni::{AtomicOp, AtomicType, Capabilities, Ni, apply_atomic};
use crate::threads::Mode;

/// An atomic's operation, type and operands; see [`AtomicOp`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AtomicRequest {
    /// The operation.
    pub op: AtomicOp,
    /// The number's type.
    pub ty: AtomicType,
    /// The operand, which is in the low 32 bits for 32-bit types.
    pub operand: u64,
    /// The comparand of [`AtomicOp::CompareSwap`].
    pub comparand: u64,
}

impl AtomicRequest {
    /// Applies the atomic to a number of this process and returns the old value.
    ///
    /// # Safety
    /// See [`apply_atomic`].
    #[inline(always)]
    pub(crate) unsafe fn apply(&self, number: *mut u8) -> u64 {
        let Self {
            op,
            ty,
            operand,
            comparand,
        } = *self;
        // SAFETY: the caller guarantees what `apply_atomic` requires.
        unsafe { apply_atomic(number, op, ty, operand, comparand) }
    }
}

/// The choice between processor and network for a rank's atomics.
#[derive(Debug)]
pub(crate) struct Atomics {
    /// Whether the processor, rather than the network, performs atomics on mapped memory.
    pub(crate) by_processor: bool,
}

impl Atomics {
    pub(crate) fn of<N: Ni, M: Mode>(kernel: &Kernel<N, M>) -> Self {
        let capabilities = kernel.job.ni.reach(kernel.job.rank).capabilities;
        Self {
            by_processor: !capabilities.contains(Capabilities::NATIVE_ATOMICS),
        }
    }
}
