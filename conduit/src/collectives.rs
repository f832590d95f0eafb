//! Broadcasts and reductions over all ranks.

use conduit_core::engine::{JOB_TEAM, Reduction};
use conduit_core::ni::Rank;
use conduit_core::threads::Mode;
use zerocopy::{FromBytes, Immutable, IntoBytes};

pub use conduit_core::collective::{DataType, ReduceOp};

use crate::{Conduit, Result};

/// A number that reductions know.
pub trait Element: Copy + FromBytes + IntoBytes + Immutable + sealed::Sealed {
    /// Its type in a reduction.
    const TYPE: DataType;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! element {
    ($($type:ty, $name:ident;)*) => {$(
        impl sealed::Sealed for $type {}
        impl Element for $type {
            const TYPE: DataType = DataType::$name;
        }
    )*};
}
element! {
    i32, I32;
    u32, U32;
    i64, I64;
    u64, U64;
    f32, F32;
    f64, F64;
}

/// Collective: all ranks make the same calls in the same order, with values of the same length. They are no barriers: a rank may
/// return before others have called. Messages are handled meanwhile.
impl<M: Mode> Conduit<M> {
    /// Copies `value` from the rank `root` to all others.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// let conduit = conduit::start()?.attach(conduit::Handlers::new(), 0)?;
    /// let mut seed = if conduit.rank() == 0 { 42u64 } else { 0 };
    /// conduit.broadcast(0, &mut seed)?;
    /// assert_eq!(seed, 42);
    /// conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// No such rank; in a handler. Other ranks have made another call, or one of another length: that ends the job.
    pub fn broadcast<T: FromBytes + IntoBytes + ?Sized>(
        &self,
        root: Rank,
        value: &mut T,
    ) -> Result<()> {
        const CALL: &str = "broadcast";
        let (engine, bytes) = (self.member.engine(), value.as_mut_bytes());
        let (base, len) = (bytes.as_mut_ptr(), bytes.len());
        // SAFETY: the value is mutably borrowed until the operation has ended: this call waits for it, and where that fails the engine
        // has given the memory up.
        let started = unsafe { engine.broadcast_nb(JOB_TEAM, root, base, base, len) };
        let handle = self.done(CALL, started)?;
        self.done(CALL, engine.wait_in(CALL, handle))
    }

    /// Reduces the `values` of all ranks, those of the same place with each other; the result replaces those of `root`. The others' stay.
    ///
    /// # Errors
    /// As [`Conduit::broadcast`], and an operation on bits for floating-point numbers.
    pub fn reduce<T: Element>(&self, root: Rank, op: ReduceOp, values: &mut [T]) -> Result<()> {
        let reduction = Reduction::Known(T::TYPE, op);
        self.reduction("reduce", Some(root), values, reduction)
    }

    /// As [`Conduit::reduce`]; the result replaces the values of all ranks. Each gets the same bits, and the same data gives the same
    /// bits again.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// use conduit::ReduceOp;
    /// let conduit = conduit::start()?.attach(conduit::Handlers::new(), 0)?;
    /// let mut values = [1.0f64, conduit.rank().into()];
    /// conduit.reduce_all(ReduceOp::Max, &mut values)?;
    /// assert_eq!(values, [1.0, (conduit.size() - 1).into()]);
    /// conduit.finish()
    /// # }
    /// ```
    pub fn reduce_all<T: Element>(&self, op: ReduceOp, values: &mut [T]) -> Result<()> {
        let reduction = Reduction::Known(T::TYPE, op);
        self.reduction("reduce_all", None, values, reduction)
    }

    /// As [`Conduit::reduce_all`] by a function, which is associative and commutative. It makes no calls of this crate; any
    /// thread that polls may call it.
    pub fn reduce_all_with<T>(
        &self,
        values: &mut [T],
        function: impl Fn(T, T) -> T + Send + 'static,
    ) -> Result<()>
    where
        T: Copy + FromBytes + IntoBytes + Immutable,
    {
        let element = size_of::<T>();
        let function = Box::new(move |left: &[u8], right: &mut [u8]| {
            let each = left
                .chunks_exact(element)
                .zip(right.chunks_exact_mut(element));
            for (left, right) in each {
                // Both have the size of an element.
                if let (Ok(one), Ok(other)) = (T::read_from_bytes(left), T::read_from_bytes(right))
                {
                    right.copy_from_slice(function(one, other).as_bytes());
                }
            }
        });
        let reduction = Reduction::Custom { element, function };
        self.reduction("reduce_all_with", None, values, reduction)
    }

    fn reduction<T: FromBytes + IntoBytes>(
        &self,
        call: &'static str,
        root: Option<Rank>,
        values: &mut [T],
        reduction: Reduction,
    ) -> Result<()> {
        let (engine, count) = (self.member.engine(), values.len());
        let base = values.as_mut_bytes().as_mut_ptr();
        // SAFETY: as in `broadcast`; the result is the source at all ranks that get it.
        let started = unsafe { engine.reduce_nb(JOB_TEAM, root, base, base, count, reduction) };
        let handle = self.done(call, started)?;
        self.done(call, engine.wait_in(call, handle))
    }
}
