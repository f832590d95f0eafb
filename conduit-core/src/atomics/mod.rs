//! Remote atomics on 32- and 64-bit numbers of a segment.
//!
//! On mapped memory the processor does them, unless the network has its own: then all of them are
//! the network's, as only those are atomic with each other.

pub(crate) mod calls;

use crate::kernel::Kernel;
use crate::ni::{AtomicOp, AtomicType, Capabilities, Ni, apply_atomic};
use crate::threads::Mode;

/// What an atomic does: see [`AtomicOp`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AtomicRequest {
    /// The operation.
    pub op: AtomicOp,
    /// The number's type.
    pub ty: AtomicType,
    /// The operand; the low half for 32-bit types.
    pub operand: u64,
    /// The comparand of [`AtomicOp::CompareSwap`].
    pub comparand: u64,
}

impl AtomicRequest {
    /// Does it on a number of this process, and gives the value from before it.
    ///
    /// # Safety
    /// As for [`apply_atomic`].
    #[inline(always)]
    pub(crate) unsafe fn apply(&self, number: *mut u8) -> u64 {
        let Self {
            op,
            ty,
            operand,
            comparand,
        } = *self;
        // SAFETY: the caller's promise.
        unsafe { apply_atomic(number, op, ty, operand, comparand) }
    }
}

/// Who does a rank's atomics.
#[derive(Debug)]
pub(crate) struct Atomics {
    /// On mapped memory the processor, not the network.
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
