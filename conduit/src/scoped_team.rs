//! Teams in a scope, whose collective operations may overlap.

use std::marker::PhantomData;

use conduit_core::collectives::ReduceOp;
use conduit_core::collectives::Reduction;
use conduit_core::threads::{Mode, Seq};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::collectives::Element;
use crate::team::{CollectiveCall, by};
use crate::{Result, Scope, Team};

/// A team in a [scope](crate::Conduit::scope). The calls on this type only start operations on
/// borrowed values. All these operations have completed when the scope ends.
///
/// Operations may overlap with each other, with those of other teams, and with puts, gets and
/// atomics. All ranks of the team must start the same operations in the same order. This order
/// includes the team's blocking calls outside the scope.
///
/// ```
/// # fn main() -> conduit::Result<()> {
/// use conduit::ReduceOp;
/// let conduit = conduit::start()?.attach(conduit::Handlers::new(), 0)?;
/// let all = conduit.team();
/// let (mut sum, mut largest) = ([1u64; 100], [conduit.rank()]);
/// let mut seed = if conduit.rank() == 0 { 42u64 } else { 0 };
/// conduit.scope(|scope| {
///     let all = scope.team(&all)?;
///     all.reduce_all(ReduceOp::Add, &mut sum)?;
///     all.reduce_all(ReduceOp::Max, &mut largest)?;
///     all.broadcast(0, &mut seed)
/// })?;
/// assert_eq!((sum[99], largest[0], seed), (conduit.size().into(), conduit.size() - 1, 42));
/// # drop(all);
/// conduit.finish()
/// # }
/// ```
///
/// Values remain borrowed until the scope ends, so this program does not compile:
///
/// ```compile_fail,E0502
/// # fn early(conduit: &conduit::Conduit, all: &conduit::Team<'_>) -> conduit::Result<()> {
/// let mut sum = [1u64];
/// conduit.scope(|scope| {
///     scope.team(all)?.reduce_all(conduit::ReduceOp::Add, &mut sum)?;
///     assert_eq!(sum[0], 1);
///     Ok(())
/// })
/// # }
/// ```
#[derive(Debug)]
pub struct ScopedTeam<'scope, 'c, M: Mode = Seq> {
    team: &'scope Team<'c, M>,
    /// Makes `'scope` invariant, as in [`Scope`]. A shorter borrow could end before the operation
    /// has completed.
    borrows: PhantomData<&'scope mut &'scope ()>,
    /// Makes the type `!Send`, as [`Scope`] is.
    thread: PhantomData<*const ()>,
}

impl<'scope, 'env, M: Mode> Scope<'scope, 'env, M> {
    /// Returns a view of `team`. The operations that its calls start complete before this scope
    /// ends.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 0)?;
    /// let (all, mut sum) = (conduit.team(), [2u32]);
    /// conduit.scope(|scope| {
    ///     scope.team(&all)?.reduce_all(conduit::ReduceOp::Add, &mut sum)
    /// })?;
    /// assert_eq!(sum, [2 * conduit.size()]);
    /// # drop(all);
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns [`EngineError::Collective`](crate::EngineError::Collective) if the team and the
    /// scope belong to different jobs.
    pub fn team<'c>(&'scope self, team: &'scope Team<'c, M>) -> Result<ScopedTeam<'scope, 'c, M>> {
        // The scope waits only for operations of its own job.
        if !std::ptr::eq(self.conduit, team.conduit) {
            return team.refuse(
                "Scope::team",
                "the team and the scope belong to different jobs".to_owned(),
            );
        }
        let (borrows, thread) = (PhantomData, PhantomData);
        Ok(ScopedTeam {
            team,
            borrows,
            thread,
        })
    }
}

impl<'scope, M: Mode> ScopedTeam<'scope, '_, M> {
    /// Starts a [broadcast](Team::broadcast).
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 0)?;
    /// let all = conduit.team();
    /// let (mut rows, mut columns) = if all.rank() == 0 { (100u32, 7u32) } else { (0, 0) };
    /// conduit.scope(|scope| {
    ///     scope.team(&all)?.broadcast(0, &mut rows)?;
    ///     scope.team(&all)?.broadcast(0, &mut columns)
    /// })?;
    /// assert_eq!((rows, columns), (100, 7));
    /// # drop(all);
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Team::broadcast`].
    pub fn broadcast<T: FromBytes + IntoBytes + ?Sized>(
        &self,
        root: u32,
        value: &'scope mut T,
    ) -> Result<()> {
        let call = CollectiveCall::in_scope("ScopedTeam::broadcast");
        // SAFETY: the value is borrowed until the scope ends, and the scope waits for the
        // operation.
        unsafe { self.team.start_broadcast(call, root, value.as_mut_bytes()) }
    }

    /// Starts a [scatter](Team::scatter).
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 0)?;
    /// let all = conduit.team();
    /// let seeds: Vec<u64> = (0..all.size()).map(|rank| 1000 + u64::from(rank)).collect();
    /// let mut own = [0];
    /// conduit.scope(|scope| scope.team(&all)?.scatter(0, &seeds, &mut own))?;
    /// assert_eq!(own, [1000 + u64::from(all.rank())]);
    /// # drop(all);
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Team::scatter`].
    pub fn scatter<T>(&self, root: u32, all: &'scope [T], own: &'scope mut [T]) -> Result<()>
    where
        T: FromBytes + IntoBytes + Immutable,
    {
        let call = CollectiveCall::in_scope("ScopedTeam::scatter");
        // SAFETY: the values are borrowed until the scope ends, and the scope waits for the
        // operation.
        unsafe { self.team.start_scatter(call, root, all, own) }
    }

    /// Starts a [gather](Team::gather).
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 0)?;
    /// let all = conduit.team();
    /// let (own, mut found) = ([all.rank(), 5], vec![0; 2 * all.size() as usize]);
    /// conduit.scope(|scope| scope.team(&all)?.gather(0, &own, &mut found))?;
    /// if all.rank() == 0 {
    ///     assert_eq!(found[..2], [0, 5]);
    /// }
    /// # drop(all);
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Team::gather`].
    pub fn gather<T>(&self, root: u32, own: &'scope [T], all: &'scope mut [T]) -> Result<()>
    where
        T: FromBytes + IntoBytes + Immutable,
    {
        let call = CollectiveCall::in_scope("ScopedTeam::gather");
        // SAFETY: the values are borrowed until the scope ends, and the scope waits for the
        // operation.
        unsafe { self.team.start_gather(call, Some(root), own, all) }
    }

    /// Starts a [gather to all](Team::gather_all).
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 0)?;
    /// let all = conduit.team();
    /// let (own, mut ready) = ([1u8], vec![0u8; all.size() as usize]);
    /// conduit.scope(|scope| {
    ///     scope.team(&all)?.gather_all(&own, &mut ready)
    ///     // ... start other operations ...
    /// })?;
    /// assert!(ready.iter().all(|&ready| ready == 1));
    /// # drop(all);
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Team::gather_all`].
    pub fn gather_all<T>(&self, own: &'scope [T], all: &'scope mut [T]) -> Result<()>
    where
        T: FromBytes + IntoBytes + Immutable,
    {
        let call = CollectiveCall::in_scope("ScopedTeam::gather_all");
        // SAFETY: the values are borrowed until the scope ends, and the scope waits for the
        // operation.
        unsafe { self.team.start_gather(call, None, own, all) }
    }

    /// Starts an [exchange](Team::exchange).
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 0)?;
    /// let all = conduit.team();
    /// let counts = vec![all.rank() * 10; all.size() as usize];
    /// let mut from = vec![u32::MAX; all.size() as usize];
    /// conduit.scope(|scope| scope.team(&all)?.exchange(&counts, &mut from))?;
    /// assert!((0..).zip(from).all(|(rank, count)| count == rank * 10));
    /// # drop(all);
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Team::exchange`].
    pub fn exchange<T>(&self, source: &'scope [T], result: &'scope mut [T]) -> Result<()>
    where
        T: FromBytes + IntoBytes + Immutable,
    {
        let call = CollectiveCall::in_scope("ScopedTeam::exchange");
        // SAFETY: the values are borrowed until the scope ends, and the scope waits for the
        // operation.
        unsafe { self.team.start_exchange(call, source, result) }
    }

    /// Starts a [reduction to one](Team::reduce).
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 0)?;
    /// use conduit::ReduceOp;
    /// let (all, mut product, mut errors) = (conduit.team(), [2.0f64], [0u32]);
    /// conduit.scope(|scope| {
    ///     let all = scope.team(&all)?;
    ///     all.reduce(0, ReduceOp::Mult, &mut product)?;
    ///     all.reduce(0, ReduceOp::Max, &mut errors)
    /// })?;
    /// assert!(product[0] >= 2.0 && errors == [0]);
    /// # drop(all);
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Team::reduce`].
    pub fn reduce<T: Element>(
        &self,
        root: u32,
        op: ReduceOp,
        values: &'scope mut [T],
    ) -> Result<()> {
        let (call, how) = (
            CollectiveCall::in_scope("ScopedTeam::reduce"),
            Reduction::Known(T::TYPE, op),
        );
        // SAFETY: the values are borrowed until the scope ends, and the scope waits for the
        // operation.
        unsafe { self.team.start_reduction(call, Some(root), values, how) }
    }

    /// Starts a [reduction to all](Team::reduce_all).
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 4096)?;
    /// # let peer = conduit.rank();
    /// use conduit::ReduceOp;
    /// let (all, row, mut norm) = (conduit.team(), [3.0f64; 8], [9.0f64]);
    /// conduit.scope(|scope| {
    ///     scope.put(peer, 0, &row)?; // overlaps the reduction
    ///     scope.team(&all)?.reduce_all(ReduceOp::Max, &mut norm)
    /// })?;
    /// assert_eq!(norm, [9.0]);
    /// # drop(all);
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Team::reduce_all`].
    pub fn reduce_all<T: Element>(&self, op: ReduceOp, values: &'scope mut [T]) -> Result<()> {
        let (call, how) = (
            CollectiveCall::in_scope("ScopedTeam::reduce_all"),
            Reduction::Known(T::TYPE, op),
        );
        // SAFETY: the values are borrowed until the scope ends, and the scope waits for the
        // operation.
        unsafe { self.team.start_reduction(call, None, values, how) }
    }

    /// Starts a [reduction by a function](Team::reduce_all_with).
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 0)?;
    /// let all = conduit.team();
    /// let mut bits = [[1u8 << (all.rank() % 8), 0]];
    /// conduit.scope(|scope| {
    ///     let both = |one: [u8; 2], other: [u8; 2]| [one[0] | other[0], one[1] | other[1]];
    ///     scope.team(&all)?.reduce_all_with(&mut bits, both)
    /// })?;
    /// assert_eq!(bits[0][0] & 1, 1);
    /// # drop(all);
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Team::reduce_all_with`].
    pub fn reduce_all_with<T>(
        &self,
        values: &'scope mut [T],
        function: impl Fn(T, T) -> T + Send + 'static,
    ) -> Result<()>
    where
        T: Copy + FromBytes + IntoBytes + Immutable,
    {
        let (call, how) = (
            CollectiveCall::in_scope("ScopedTeam::reduce_all_with"),
            by(function, false),
        );
        // SAFETY: the values are borrowed until the scope ends, and the scope waits for the
        // operation.
        unsafe { self.team.start_reduction(call, None, values, how) }
    }

    /// Starts a [reduction in rank order](Team::reduce_all_in_order).
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 0)?;
    /// let all = conduit.team();
    /// let mut first = [u64::from(all.rank()) + 4];
    /// conduit.scope(|scope| {
    ///     // Of two values, the lower rank's.
    ///     scope.team(&all)?.reduce_all_in_order(&mut first, |left: u64, _| left)
    /// })?;
    /// assert_eq!(first, [4]);
    /// # drop(all);
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Team::reduce_all_in_order`].
    pub fn reduce_all_in_order<T>(
        &self,
        values: &'scope mut [T],
        function: impl Fn(T, T) -> T + Send + 'static,
    ) -> Result<()>
    where
        T: Copy + FromBytes + IntoBytes + Immutable,
    {
        let (call, how) = (
            CollectiveCall::in_scope("ScopedTeam::reduce_all_in_order"),
            by(function, true),
        );
        // SAFETY: the values are borrowed until the scope ends, and the scope waits for the
        // operation.
        unsafe { self.team.start_reduction(call, None, values, how) }
    }
}
