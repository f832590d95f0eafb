//! Remote atomics on numbers in a segment.

use conduit_core::atomics::AtomicRequest;
use conduit_core::kernel::{Blocking, Completion};
use conduit_core::ni::{self, AtomicType, Rank};
use conduit_core::threads::Mode;

use crate::{Conduit, Handle, Result};

/// A number type that remote atomics support: an integer or a float of 32 or 64 bits.
///
/// Integer operations wrap. Floating-point results are rounded as the processor rounds them.
/// [`Conduit::compare_swap`] compares floats bitwise: it can expect a NaN, and 0 does not equal -0.
pub trait Atom: Copy + sealed::Sealed {
    /// The atomic operations on this type that take one operand.
    type Op: Copy + Into<ni::AtomicOp>;
    /// This type's identifier on the network.
    const TYPE: AtomicType;
    /// Converts the value to its bits on the network.
    fn to_bits(self) -> u64;
    /// Converts bits from the network to a value.
    fn from_bits(bits: u64) -> Self;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! atom {
    ($($type:ty, $name:ident, $op:ty, $unsigned:ty, $to:expr, $from:expr;)*) => {$(
        impl sealed::Sealed for $type {}
        impl Atom for $type {
            type Op = $op;
            const TYPE: AtomicType = AtomicType::$name;
            #[inline]
            fn to_bits(self) -> u64 {
                let to: fn(Self) -> $unsigned = $to;
                u64::from(to(self))
            }
            #[inline]
            fn from_bits(bits: u64) -> Self {
                let from: fn($unsigned) -> Self = $from;
                from(bits as $unsigned)
            }
        }
    )*};
}
atom! {
    i32, I32, AtomicOp, u32, i32::cast_unsigned, u32::cast_signed;
    u32, U32, AtomicOp, u32, |x| x, |x| x;
    i64, I64, AtomicOp, u64, i64::cast_unsigned, u64::cast_signed;
    u64, U64, AtomicOp, u64, |x| x, |x| x;
    f32, F32, FloatOp, u32, f32::to_bits, f32::from_bits;
    f64, F64, FloatOp, u64, f64::to_bits, f64::from_bits;
}

/// An atomic operation on an integer `x` with one operand `a`. The documentation of each variant
/// gives the new value of `x`.
///
/// Operations without an operand or with two operands are not variants of this type. They have
/// methods of their own, [`Conduit::atomic_get`] and [`Conduit::compare_swap`]. This program does
/// not compile:
///
/// ```compile_fail
/// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 4096)?;
/// conduit.atomic(0, 8, conduit::AtomicOp::CompareSwap, 1u64)?;
/// # Ok::<(), conduit::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AtomicOp {
    /// The new value is `a`. If the atomic fetches, this is a swap.
    Set,
    /// `x + a`.
    Add,
    /// `x - a`.
    Sub,
    /// `x * a`.
    Mult,
    /// The smaller of `x` and `a`, compared as signed or unsigned numbers according to the type.
    Min,
    /// The larger of `x` and `a`, compared as signed or unsigned numbers according to the type.
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

/// An atomic operation on a float `x` with one operand `a`. The counterpart of [`AtomicOp`] for
/// floats.
///
/// ```
/// # fn main() -> conduit::Result<()> {
/// use conduit::FloatOp;
/// let conduit = conduit::start()?.attach(conduit::Handlers::new(), 4096)?;
/// let (residuals, largest) = (0, 8);
/// conduit.atomic(0, residuals, FloatOp::Add, 0.25f64)?;
/// conduit.atomic(0, largest, FloatOp::Max, 0.25f64)?;
/// conduit.barrier()?;
/// let sum: f64 = conduit.atomic_get(0, residuals)?;
/// assert_eq!(sum, 0.25 * f64::from(conduit.size()));
/// conduit.finish()
/// # }
/// ```
///
/// Floats have no bitwise operations, so this program does not compile:
///
/// ```compile_fail,E0308
/// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 4096)?;
/// conduit.atomic(0, 8, conduit::AtomicOp::Or, 1.0f64)?;
/// # Ok::<(), conduit::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FloatOp {
    /// The new value is `a`. If the atomic fetches, this is a swap.
    Set,
    /// `x + a`.
    Add,
    /// `x - a`.
    Sub,
    /// `x * a`.
    Mult,
    /// The smaller of the two: `x` if `x < a`, otherwise `a` (also if one of them is a NaN).
    Min,
    /// The larger of the two: `x` if `x > a`, otherwise `a` (also if one of them is a NaN).
    Max,
}

impl From<FloatOp> for ni::AtomicOp {
    #[inline]
    fn from(op: FloatOp) -> Self {
        match op {
            FloatOp::Set => Self::Set,
            FloatOp::Add => Self::Add,
            FloatOp::Sub => Self::Sub,
            FloatOp::Mult => Self::Mult,
            FloatOp::Min => Self::Min,
            FloatOp::Max => Self::Max,
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

/// Offsets must be multiples of the number's size. Atomics of one type on the same number are
/// atomic with respect to each other, regardless of the ranks and networks from which they come. An
/// atomic on mapped memory does not poll, so a program that waits for a number to change must poll
/// meanwhile ([`Conduit::wait_until`]).
///
/// The type determines the operations: [`AtomicOp`] for integers, [`FloatOp`] for floats.
impl<M: Mode> Conduit<M> {
    /// Applies `op` with `operand` to the number at `offset` in `target`'s segment, and returns the
    /// previous value.
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
    ///
    /// # Errors
    /// Same as [`Conduit::put`], plus [`EngineError::Misaligned`](crate::EngineError::Misaligned)
    /// if `offset` is not a multiple of the number's size.
    #[inline]
    pub fn atomic_fetch<T: Atom>(
        &self,
        target: Rank,
        offset: usize,
        op: T::Op,
        operand: T,
    ) -> Result<T> {
        self.fetch(
            "atomic_fetch",
            target,
            offset,
            request(op, operand, operand),
        )
    }

    /// Reads the number at `offset` in `target`'s segment.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 4096)?;
    /// # let peer = conduit.rank();
    /// conduit.put(peer, 12, &-40i32)?;
    /// let depth: i32 = conduit.atomic_get(peer, 12)?;
    /// assert_eq!(depth, -40);
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Conduit::atomic_fetch`].
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
        let old = (self.member.engine())
            .atomics()
            .atomic_fetch_in(call, target, offset, request);
        Ok(T::from_bits(self.done(call, old)?))
    }

    /// Like [`Conduit::atomic_fetch`], but does not return the previous value.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 4096)?;
    /// # let peer = conduit.rank();
    /// use conduit::AtomicOp;
    /// conduit.atomic(peer, 4, AtomicOp::Or, 0b0110u32)?;
    /// conduit.atomic(peer, 4, AtomicOp::And, 0b0011u32)?;
    /// assert_eq!(conduit.atomic_get::<u32>(peer, 4)?, 0b0010);
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Conduit::atomic_fetch`].
    #[inline]
    pub fn atomic<T: Atom>(
        &self,
        target: Rank,
        offset: usize,
        op: T::Op,
        operand: T,
    ) -> Result<()> {
        self.done(
            "atomic",
            self.member
                .engine()
                .atomics()
                .atomic(target, offset, request(op, operand, operand)),
        )
    }

    /// Starts an atomic that does not fetch the previous value.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 4096)?;
    /// # let peer = conduit.rank();
    /// use conduit::AtomicOp;
    /// let highest = conduit.atomic_nb(peer, 16, AtomicOp::Max, 40i64)?;
    /// let lowest = conduit.atomic_nb(peer, 24, AtomicOp::Min, -40i64)?;
    /// conduit.wait_all(&mut [highest, lowest])?;
    /// assert_eq!(conduit.atomic_get::<i64>(peer, 24)?, -40);
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Conduit::atomic_fetch`].
    #[inline]
    pub fn atomic_nb<T: Atom>(
        &self,
        target: Rank,
        offset: usize,
        op: T::Op,
        operand: T,
    ) -> Result<Handle> {
        let (request, completion) = (request(op, operand, operand), Completion::Handle);
        let engine = self.member.engine();
        let started =
            engine
                .atomics()
                .atomic_nb(target, offset, request, completion, Blocking::Wait);
        Ok(self.done("atomic_nb", started)?.unwrap_or(Handle::DONE))
    }

    /// Like [`Conduit::atomic_nb`], but returns `None` instead of waiting for resources.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 4096)?;
    /// # let peer = conduit.rank();
    /// use conduit::FloatOp;
    /// match conduit.atomic_nb_immediate(peer, 0, FloatOp::Add, 0.5f64)? {
    ///     Some(handle) => conduit.wait(handle)?,
    ///     // No resource is free, so try again later.
    ///     None => println!("not started"),
    /// }
    /// assert!(conduit.atomic_get::<f64>(peer, 0)? <= 0.5);
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Conduit::atomic_fetch`].
    #[inline]
    pub fn atomic_nb_immediate<T: Atom>(
        &self,
        target: Rank,
        offset: usize,
        op: T::Op,
        operand: T,
    ) -> Result<Option<Handle>> {
        let (request, completion) = (request(op, operand, operand), Completion::Handle);
        let engine = self.member.engine();
        let started =
            engine
                .atomics()
                .atomic_nb(target, offset, request, completion, Blocking::Immediate);
        self.done("atomic_nb_immediate", started)
    }

    /// Like [`Conduit::atomic_nb`], but starts one of this thread's implicit operations. A set
    /// counts as an implicit put, and any other operation as an implicit atomic
    /// ([`Conduit::wait_atomics`]).
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 4096)?;
    /// # let peer = conduit.rank();
    /// use conduit::AtomicOp;
    /// // A histogram of letters.
    /// for letter in "conduit".bytes() {
    ///     let bin = usize::from(letter - b'a') * 8;
    ///     conduit.atomic_nbi(peer, bin, AtomicOp::Add, 1u64)?;
    /// }
    /// conduit.wait_atomics()?;
    /// assert_eq!(conduit.atomic_get::<u64>(peer, 2 * 8)?, 1);
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Conduit::atomic_fetch`].
    #[inline]
    pub fn atomic_nbi<T: Atom>(
        &self,
        target: Rank,
        offset: usize,
        op: T::Op,
        operand: T,
    ) -> Result<()> {
        let (request, completion) = (request(op, operand, operand), Completion::Implicit);
        let engine = self.member.engine();
        let started =
            engine
                .atomics()
                .atomic_nb(target, offset, request, completion, Blocking::Wait);
        self.done("atomic_nbi", started).map(drop)
    }

    /// Starts an atomic. The previous value is written to `result`, where it is available once the
    /// handle has been waited for. [`Scope::atomic_fetch`](crate::Scope::atomic_fetch) is the safe
    /// alternative.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 4096)?;
    /// use conduit::AtomicOp;
    /// let mut place = u64::MAX;
    /// // SAFETY: `place` is not used before the wait.
    /// let handle = unsafe { conduit.atomic_fetch_nb(&raw mut place, 0, 8, AtomicOp::Add, 100)? };
    /// conduit.wait(handle)?;
    /// assert_eq!(place, 0);
    /// assert_eq!(conduit.atomic_get::<u64>(0, 8)?, 100);
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Conduit::atomic_fetch`].
    ///
    /// # Safety
    /// `result` must remain valid, and must be neither read nor written, until the handle has been
    /// waited for.
    #[inline]
    pub unsafe fn atomic_fetch_nb<T: Atom>(
        &self,
        result: *mut T,
        target: Rank,
        offset: usize,
        op: T::Op,
        operand: T,
    ) -> Result<Handle> {
        let (request, completion) = (request(op, operand, operand), Completion::Handle);
        // SAFETY: the caller guarantees that `result` remains valid and is not accessed until the
        // handle has been waited for.
        unsafe {
            self.fetch_to(
                "atomic_fetch_nb",
                result,
                target,
                offset,
                request,
                completion,
            )
        }
    }

    /// Like [`Conduit::atomic_fetch_nb`], but starts one of this thread's implicit atomics.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 4096)?;
    /// # let peer = conduit.rank();
    /// use conduit::AtomicOp;
    /// conduit.put(peer, 0, &10u32)?;
    /// let mut old = 0;
    /// // SAFETY: `old` is not used before `wait_atomics`.
    /// unsafe { conduit.atomic_fetch_nbi(&raw mut old, peer, 0, AtomicOp::Mult, 3)? };
    /// conduit.wait_atomics()?;
    /// assert_eq!((old, conduit.atomic_get(peer, 0)?), (10, 30));
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Conduit::atomic_fetch`].
    ///
    /// # Safety
    /// `result` must remain valid, and must be neither read nor written, until this thread's
    /// implicit atomics or the enclosing access region have been waited for.
    #[inline]
    pub unsafe fn atomic_fetch_nbi<T: Atom>(
        &self,
        result: *mut T,
        target: Rank,
        offset: usize,
        op: T::Op,
        operand: T,
    ) -> Result<()> {
        let (request, completion) = (request(op, operand, operand), Completion::Implicit);
        // SAFETY: the caller guarantees that `result` remains valid and is not accessed until the
        // operation has been waited for.
        let started = unsafe {
            self.fetch_to(
                "atomic_fetch_nbi",
                result,
                target,
                offset,
                request,
                completion,
            )
        };
        started.map(drop)
    }

    /// # Safety
    /// Same as [`Conduit::atomic_fetch_nb`] or [`Conduit::atomic_fetch_nbi`], depending on
    /// `completion`.
    #[inline]
    pub(crate) unsafe fn fetch_to<T: Atom>(
        &self,
        call: &'static str,
        result: *mut T,
        target: Rank,
        offset: usize,
        request: AtomicRequest,
        completion: Completion,
    ) -> Result<Handle> {
        let engine = self.member.engine();
        let (result, blocking) = (result.cast(), Blocking::Wait);
        // SAFETY: the caller guarantees that `result` remains valid and is not accessed until the
        // operation has completed. The engine writes the previous value there in the representation
        // of a `T`.
        let started = unsafe {
            engine
                .atomics()
                .atomic_fetch_nb(result, target, offset, request, completion, blocking)
        };
        Ok(self.done(call, started)?.unwrap_or(Handle::DONE))
    }

    /// Writes `new` to the number at `offset` in `target`'s segment if the number equals
    /// `expected`. Returns the previous value in either case.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 4096)?;
    /// const FREE: u32 = 0;
    /// let owner = conduit.rank() + 1;
    /// assert_eq!(conduit.compare_swap(0, 4, FREE, owner)?, FREE);
    /// // The lock is now taken, so another attempt changes nothing and returns its owner.
    /// assert_eq!(conduit.compare_swap(0, 4, FREE, owner + 1)?, owner);
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Conduit::atomic_fetch`].
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
