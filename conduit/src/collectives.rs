//! Broadcasts and reductions over all ranks. Those of teams, and the other collective operations, are in `team`.

use conduit_core::ni::Rank;
use conduit_core::threads::Mode;
use zerocopy::{FromBytes, Immutable, IntoBytes};

pub use conduit_core::collectives::{DataType, ReduceOp};

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
/// return before others have called. Messages are handled meanwhile. [`Conduit::team`] has more of them.
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
    /// As for [`Team::broadcast`](crate::Team::broadcast).
    pub fn broadcast<T: FromBytes + IntoBytes + ?Sized>(
        &self,
        root: Rank,
        value: &mut T,
    ) -> Result<()> {
        self.team().broadcast(root, value)
    }

    /// Reduces the `values` of all ranks, those of the same place with each other; the result replaces those of `root`. The others' stay.
    ///
    /// # Errors
    /// As [`Conduit::broadcast`], and an operation on bits for floating-point numbers.
    pub fn reduce<T: Element>(&self, root: Rank, op: ReduceOp, values: &mut [T]) -> Result<()> {
        self.team().reduce(root, op, values)
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
    ///
    /// # Errors
    /// As for [`Conduit::reduce`].
    pub fn reduce_all<T: Element>(&self, op: ReduceOp, values: &mut [T]) -> Result<()> {
        self.team().reduce_all(op, values)
    }

    /// As [`Conduit::reduce_all`] by a function, which is associative and commutative. It makes no calls of this crate; any
    /// thread that polls may call it.
    ///
    /// # Errors
    /// As for [`Team::reduce_all_with`](crate::Team::reduce_all_with).
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
