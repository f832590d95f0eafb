//! Teams: some of a job's ranks, in an order, that do collective operations among themselves.

use std::fmt;

use conduit_core::collective::{Kind, ReduceOp, Team as Members, TeamId};
use conduit_core::engine::{CollectiveSync, Error as EngineError, Join, Reduction};
use conduit_core::ni::Rank;
use conduit_core::threads::{Mode, Seq};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::collectives::Element;
use crate::{Conduit, Result};

/// Ranks of a job that do collective operations together: all of them ([`Conduit::team`]), or some.
///
/// Each call but [`Team::split`] and [`Team::create`], which are of the parent, is collective over the team: all its ranks make the
/// same calls in the same order, with values of the same length. But for [`Team::barrier`] they are no barriers: a rank may return
/// before others have called. Ranks in its calls are the team's. A rank may be in many teams, whose operations know nothing of each
/// other. To drop one leaves it; nobody waits.
///
/// A team takes 4 bytes a member, 8 where its order is not the job's, and some 700 bytes.
///
/// ```
/// # fn main() -> conduit::Result<()> {
/// let conduit = conduit::start()?.attach(conduit::Handlers::new(), 0)?;
/// let all = conduit.team();
/// // Rows of four.
/// let row = all.split(Some(conduit.rank() / 4), 0)?.expect("this rank has a color");
/// let mut sum = [1u64];
/// row.reduce_all(conduit::ReduceOp::Add, &mut sum)?;
/// assert_eq!(sum[0], u64::from(row.size()));
/// # drop(row);
/// # drop(all);
/// conduit.finish()
/// # }
/// ```
pub struct Team<'c, M: Mode = Seq> {
    conduit: &'c Conduit<M>,
    members: Members,
}

impl<M: Mode> fmt::Debug for Team<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Team")
            .field("rank", &self.rank())
            .field("size", &self.size())
            .finish_non_exhaustive()
    }
}

impl<M: Mode> Conduit<M> {
    /// The team of all ranks of the job.
    pub fn team(&self) -> Team<'_, M> {
        Team {
            conduit: self,
            members: Members::of_job(self.rank(), self.size()),
        }
    }
}

impl<M: Mode> Drop for Team<'_, M> {
    fn drop(&mut self) {
        let id = self.members.id;
        if id != TeamId::JOB {
            // Nothing is under way, as calls wait; after a fault it does not matter any more.
            let _ = self.conduit.member.engine().team_destroy(id);
        }
    }
}

impl<'c, M: Mode> Team<'c, M> {
    /// This rank in the team.
    pub fn rank(&self) -> u32 {
        self.members.rank
    }

    /// Ranks of the team.
    pub fn size(&self) -> u32 {
        self.members.size
    }

    /// The job's rank of one of the team's; `None`: the team has no such rank.
    pub fn to_job(&self, rank: u32) -> Option<Rank> {
        self.members.to_job(rank)
    }

    /// The team's rank of one of the job's; `None`: that is no member.
    pub fn from_job(&self, rank: Rank) -> Option<u32> {
        self.members.from_job(rank)
    }

    /// Makes a team of all ranks that give the same color, in the order of their keys, then of this team. `None`: this rank will be in
    /// none. Waits for all of this team.
    ///
    /// # Errors
    /// In a handler; the job has failed.
    pub fn split(&self, color: Option<u32>, key: i32) -> Result<Option<Team<'c, M>>> {
        let join = color.map_or(Join::None, |color| Join::Color { color, key });
        self.join("split", join)
    }

    /// Makes teams of ranks that are named: each rank gives the members of its own new team, ranks of the job in the team's order, of
    /// which it is one; or none, and will be in none. All members of a team give the same. Waits for all of this team.
    ///
    /// # Errors
    /// A rank is named twice or is not in this team, this one is not named, or another has given other members. In a handler.
    pub fn create(&self, members: &[Rank]) -> Result<Option<Team<'c, M>>> {
        let join = match members {
            [] => Join::None,
            members => Join::Members(members),
        };
        self.join("create", join)
    }

    fn join(&self, call: &'static str, join: Join<'_>) -> Result<Option<Team<'c, M>>> {
        let conduit = self.conduit;
        let made = conduit.member.engine().team_create(self.members.id, join);
        let members = conduit.done(call, made)?;
        Ok(members.map(|members| Team { conduit, members }))
    }

    /// Returns when all ranks of the team have called. Messages that were sent before may be handled later, as with
    /// [`Conduit::barrier`].
    pub fn barrier(&self) -> Result<()> {
        let engine = self.conduit.member.engine();
        self.conduit
            .done("barrier", engine.team_meet("barrier", self.members.id))
    }

    /// Copies `value` from the rank `root` to all others.
    ///
    /// # Errors
    /// No such rank; in a handler. Other ranks have made another call, or one of another length: that ends the job.
    pub fn broadcast<T: FromBytes + IntoBytes + ?Sized>(
        &self,
        root: u32,
        value: &mut T,
    ) -> Result<()> {
        let bytes = value.as_mut_bytes();
        let (base, len) = (bytes.as_mut_ptr(), bytes.len());
        // SAFETY: the value is mutably borrowed, and both sides of a broadcast may be the same.
        unsafe { self.moved("broadcast", Kind::Broadcast { root }, base, base, len) }
    }

    /// Copies to each rank its share of `all` of the rank `root`: as many values as `own` has, in the order of ranks. Elsewhere `all` is
    /// ignored.
    ///
    /// # Errors
    /// As [`Team::broadcast`]; `all` is not the right number of values.
    pub fn scatter<T>(&self, root: u32, all: &[T], own: &mut [T]) -> Result<()>
    where
        T: FromBytes + IntoBytes + Immutable,
    {
        const CALL: &str = "scatter";
        if root == self.rank() {
            self.check_shares(CALL, all.len(), own.len())?;
        }
        let (source, own) = (all.as_bytes().as_ptr(), own.as_mut_bytes());
        // SAFETY: borrowed, and of the length that the check has found.
        unsafe {
            self.moved(
                CALL,
                Kind::Scatter { root },
                own.as_mut_ptr(),
                source,
                own.len(),
            )
        }
    }

    /// Copies `own` of each rank to its share of `all` at the rank `root`, in the order of ranks. Elsewhere `all` is ignored.
    ///
    /// # Errors
    /// As [`Team::scatter`].
    pub fn gather<T>(&self, root: u32, own: &[T], all: &mut [T]) -> Result<()>
    where
        T: FromBytes + IntoBytes + Immutable,
    {
        const CALL: &str = "gather";
        if root == self.rank() {
            self.check_shares(CALL, all.len(), own.len())?;
        }
        let (result, own) = (all.as_mut_bytes().as_mut_ptr(), own.as_bytes());
        // SAFETY: as in `scatter`.
        unsafe { self.moved(CALL, Kind::Gather { root }, result, own.as_ptr(), own.len()) }
    }

    /// As [`Team::gather`], to all ranks.
    ///
    /// # Errors
    /// As [`Team::scatter`].
    pub fn gather_all<T>(&self, own: &[T], all: &mut [T]) -> Result<()>
    where
        T: FromBytes + IntoBytes + Immutable,
    {
        const CALL: &str = "gather_all";
        self.check_shares(CALL, all.len(), own.len())?;
        let (result, own) = (all.as_mut_bytes().as_mut_ptr(), own.as_bytes());
        // SAFETY: as in `scatter`.
        unsafe { self.moved(CALL, Kind::GatherAll, result, own.as_ptr(), own.len()) }
    }

    /// Copies to each rank its share of `source`, in the order of ranks, and from each this rank's to its share of `result`.
    ///
    /// # Errors
    /// As [`Team::broadcast`]; the two have not the same length, or that is no multiple of the team's size.
    pub fn exchange<T>(&self, source: &[T], result: &mut [T]) -> Result<()>
    where
        T: FromBytes + IntoBytes + Immutable,
    {
        const CALL: &str = "exchange";
        let share = source.len() / self.size() as usize;
        self.check_shares(CALL, source.len(), share)?;
        self.check_shares(CALL, result.len(), share)?;
        let (result, source) = (
            result.as_mut_bytes().as_mut_ptr(),
            source.as_bytes().as_ptr(),
        );
        // SAFETY: as in `scatter`.
        unsafe { self.moved(CALL, Kind::Exchange, result, source, share * size_of::<T>()) }
    }

    /// Reduces the `values` of all ranks, those of the same place with each other; the result replaces those of `root`. The others'
    /// stay.
    ///
    /// # Errors
    /// As [`Team::broadcast`], and an operation on bits for floating-point numbers.
    pub fn reduce<T: Element>(&self, root: u32, op: ReduceOp, values: &mut [T]) -> Result<()> {
        self.reduction("reduce", Some(root), values, Reduction::Known(T::TYPE, op))
    }

    /// As [`Team::reduce`]; the result replaces the values of all ranks. Each gets the same bits, and the same data gives the same
    /// bits again.
    pub fn reduce_all<T: Element>(&self, op: ReduceOp, values: &mut [T]) -> Result<()> {
        self.reduction("reduce_all", None, values, Reduction::Known(T::TYPE, op))
    }

    /// As [`Team::reduce_all`] by a function, which is associative and commutative. It makes no calls of this crate; any
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

    fn check_shares(&self, call: &'static str, all: usize, own: usize) -> Result<()> {
        let size = self.size();
        if own.checked_mul(size as usize) == Some(all) {
            return Ok(());
        }
        self.conduit.done(
            call,
            Err(EngineError::Collective {
                operation: call,
                rank: self.conduit.rank(),
                reason: format!("{all} values are not {own} for each of {size} ranks"),
            }),
        )
    }

    /// # Safety
    /// Both are valid for what the operation has there until this returns, and nobody else uses them.
    unsafe fn moved(
        &self,
        call: &'static str,
        kind: Kind,
        result: *mut u8,
        source: *const u8,
        bytes: usize,
    ) -> Result<()> {
        let (engine, sync) = (self.conduit.member.engine(), CollectiveSync::default());
        // SAFETY: the caller's promise, as this waits for the operation; where that fails the engine has given the memory up.
        let started = unsafe { engine.move_nb(self.members.id, kind, result, source, bytes, sync) };
        let handle = self.conduit.done(call, started)?;
        self.conduit.done(call, engine.wait_in(call, handle))
    }

    fn reduction<T: FromBytes + IntoBytes>(
        &self,
        call: &'static str,
        root: Option<u32>,
        values: &mut [T],
        reduction: Reduction,
    ) -> Result<()> {
        let (engine, count) = (self.conduit.member.engine(), values.len());
        let base = values.as_mut_bytes().as_mut_ptr();
        // SAFETY: as in `moved`; the result is the source at all ranks that get it.
        let started =
            unsafe { engine.reduce_nb(self.members.id, root, base, base, count, reduction) };
        let handle = self.conduit.done(call, started)?;
        self.conduit.done(call, engine.wait_in(call, handle))
    }
}
