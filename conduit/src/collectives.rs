//! Broadcasts and reductions over all ranks of the job. All other collective operations are in
//! `team`.

use conduit_core::ni::Rank;
use conduit_core::threads::Mode;
use zerocopy::{FromBytes, Immutable, IntoBytes};

pub use conduit_core::collectives::{DataType, ReduceOp};

use crate::{Conduit, Result};

/// A number type that reductions support.
pub trait Element: Copy + FromBytes + IntoBytes + Immutable + sealed::Sealed {
    /// The identifier of the type in a reduction.
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

/// These calls are collective: all ranks must make the same calls in the same order, with values of
/// the same length. The calls are not barriers: a rank may return before other ranks have made the
/// call. While a call waits, it handles messages. [`Conduit::team`] provides more collective
/// operations.
impl<M: Mode> Conduit<M> {
    /// Copies `value` from the rank `root` to all other ranks.
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
    /// Same as [`Team::broadcast`](crate::Team::broadcast).
    pub fn broadcast<T: FromBytes + IntoBytes + ?Sized>(
        &self,
        root: Rank,
        value: &mut T,
    ) -> Result<()> {
        self.team().broadcast(root, value)
    }

    /// Reduces the `values` of all ranks elementwise. The result replaces the values of `root`. The
    /// values of all other ranks are unchanged.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 0)?;
    /// use conduit::ReduceOp;
    /// let mut votes = [1u32, conduit.rank()];
    /// conduit.reduce(0, ReduceOp::Add, &mut votes)?;
    /// if conduit.rank() == 0 {
    ///     assert_eq!(votes[0], conduit.size());
    /// }
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Team::reduce`](crate::Team::reduce).
    pub fn reduce<T: Element>(&self, root: Rank, op: ReduceOp, values: &mut [T]) -> Result<()> {
        self.team().reduce(root, op, values)
    }

    /// Like [`Conduit::reduce`], but the result replaces the values of all ranks. The result is
    /// bitwise identical on all ranks, and the same data always yields the same result.
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
    ///
    /// # Errors
    /// Same as [`Conduit::reduce`].
    pub fn reduce_all<T: Element>(&self, op: ReduceOp, values: &mut [T]) -> Result<()> {
        self.team().reduce_all(op, values)
    }

    /// Like [`Conduit::reduce_all`], but reduces with `function`. The function must be associative
    /// and commutative and must not call into this crate. Any thread that polls may run it.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 0)?;
    /// // The point that lies nearest to the origin.
    /// let mut nearest = [[3.0f64, 4.0 + f64::from(conduit.rank())]];
    /// conduit.reduce_all_with(&mut nearest, |one: [f64; 2], other| {
    ///     if one[0].hypot(one[1]) <= other[0].hypot(other[1]) { one } else { other }
    /// })?;
    /// assert_eq!(nearest, [[3.0, 4.0]]);
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Team::reduce_all_with`](crate::Team::reduce_all_with).
    pub fn reduce_all_with<T>(
        &self,
        values: &mut [T],
        function: impl Fn(T, T) -> T + Send + 'static,
    ) -> Result<()>
    where
        T: Copy + FromBytes + IntoBytes + Immutable,
    {
        self.team().reduce_all_with(values, function)
    }
}
