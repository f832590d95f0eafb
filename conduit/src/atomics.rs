//! Remote atomics on the integers of a segment.

use conduit_core::engine::AtomicRequest;
use conduit_core::ni::{self, AtomicType, Rank};
use conduit_core::threads::Mode;

use conduit_core::engine::Blocking;

use crate::{Conduit, Handle, Result};

/// An integer that remote atomics work on.
pub trait Atom: Copy + sealed::Sealed {
    /// Its type on the network.
    const TYPE: AtomicType;
    /// As it travels.
    fn to_bits(self) -> u64;
    /// From how it travels.
    fn from_bits(bits: u64) -> Self;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! atom {
    ($($type:ty, $name:ident, $unsigned:ty;)*) => {$(
        impl sealed::Sealed for $type {}
        impl Atom for $type {
            const TYPE: AtomicType = AtomicType::$name;
            #[inline]
            fn to_bits(self) -> u64 {
                u64::from(self as $unsigned)
            }
            #[inline]
            fn from_bits(bits: u64) -> Self {
                bits as $unsigned as Self
            }
        }
    )*};
}
atom! {
    i32, I32, u32;
    u32, U32, u32;
    i64, I64, u64;
    u64, U64, u64;
}

/// What an atomic makes of the integer `x` and its operand `a`. What needs no operand, or two, has a method of its own:
/// [`Conduit::atomic_get`], [`Conduit::compare_swap`].
///
/// ```compile_fail
/// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 4096)?;
/// conduit.atomic(0, 8, conduit::AtomicOp::CompareSwap, 1u64)?;
/// # Ok::<(), conduit::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AtomicOp {
    /// `a` (fetching: swap).
    Set,
    /// `x + a`.
    Add,
    /// `x - a`.
    Sub,
    /// `x * a`.
    Mult,
    /// The smaller, by the type's sign.
    Min,
    /// The larger, by the type's sign.
    Max,
    /// `x & a`.
    And,
    /// `x | a`.
    Or,
    /// `x ^ a`.
    Xor,
}

impl From<AtomicOp> for ni::AtomicOp {
    #[inline]
    fn from(op: AtomicOp) -> Self {
        match op {
            AtomicOp::Set => Self::Set,
            AtomicOp::Add => Self::Add,
            AtomicOp::Sub => Self::Sub,
            AtomicOp::Mult => Self::Mult,
            AtomicOp::Min => Self::Min,
            AtomicOp::Max => Self::Max,
            AtomicOp::And => Self::And,
            AtomicOp::Or => Self::Or,
            AtomicOp::Xor => Self::Xor,
        }
    }
}

pub(crate) fn request<T: Atom>(
    op: impl Into<ni::AtomicOp>,
    operand: T,
    comparand: T,
) -> AtomicRequest {
    AtomicRequest {
        op: op.into(),
        ty: T::TYPE,
        operand: operand.to_bits(),
        comparand: comparand.to_bits(),
    }
}

/// Offsets are multiples of the integer's size. Atomics of all ranks on the same integer are atomic with each other. A
/// program that waits for a change polls meanwhile ([`Conduit::wait_until`]): an atomic on mapped memory doesn't.
impl<M: Mode> Conduit<M> {
    /// Does `op` with `operand` on the integer at `offset` of `target`'s segment, and gives the value from before.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// use conduit::AtomicOp;
    /// let conduit = conduit::start()?.attach(conduit::Handlers::new(), 4096)?;
    /// let ticket = conduit.atomic_fetch(0, 8, AtomicOp::Add, 1u64)?;
    /// assert!(ticket < u64::from(conduit.size()));
    /// conduit.finish()
    /// # }
    /// ```
    #[inline]
    pub fn atomic_fetch<T: Atom>(
        &self,
        target: Rank,
        offset: usize,
        op: AtomicOp,
        operand: T,
    ) -> Result<T> {
        self.fetch(
            "atomic_fetch",
            target,
            offset,
            request(op, operand, operand),
        )
    }

    /// Reads the integer at `offset` of `target`'s segment.
    #[inline]
    pub fn atomic_get<T: Atom>(&self, target: Rank, offset: usize) -> Result<T> {
        let none = T::from_bits(0);
        let get = request(ni::AtomicOp::Get, none, none);
        self.fetch("atomic_get", target, offset, get)
    }

    #[inline]
    fn fetch<T: Atom>(
        &self,
        call: &'static str,
        target: Rank,
        offset: usize,
        request: AtomicRequest,
    ) -> Result<T> {
        let old = (self.member.engine()).atomic_fetch_in(call, target, offset, request);
        Ok(T::from_bits(self.done(call, old)?))
    }

    /// As [`Conduit::atomic_fetch`], without the value from before.
    #[inline]
    pub fn atomic<T: Atom>(
        &self,
        target: Rank,
        offset: usize,
        op: AtomicOp,
        operand: T,
    ) -> Result<()> {
        self.done(
            "atomic",
            self.member
                .engine()
                .atomic(target, offset, request(op, operand, operand)),
        )
    }

    /// Starts an atomic without the value from before.
    #[inline]
    pub fn atomic_nb<T: Atom>(
        &self,
        target: Rank,
        offset: usize,
        op: AtomicOp,
        operand: T,
    ) -> Result<Handle> {
        let request = request(op, operand, operand);
        let handle = self.done(
            "atomic_nb",
            self.member
                .engine()
                .atomic_nb(target, offset, request, Blocking::Wait),
        )?;
        Ok(handle.unwrap_or(Handle::DONE))
    }

    /// Writes `new` if the integer is `expected`; gives the value from before either way.
    #[inline]
    pub fn compare_swap<T: Atom>(
        &self,
        target: Rank,
        offset: usize,
        expected: T,
        new: T,
    ) -> Result<T> {
        let request = request(ni::AtomicOp::CompareSwap, new, expected);
        self.fetch("compare_swap", target, offset, request)
    }
}
