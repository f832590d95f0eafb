//! Teams: ordered groups of ranks of a job that perform collective operations together.

use std::fmt;

use conduit_core::collectives::{CollectiveKind, ReduceOp, Team as Members, TeamId};
use conduit_core::collectives::{CollectiveSync, Join, Reduction};
use conduit_core::kernel::{Completion, Error as EngineError, Handle};
use conduit_core::ni::Rank;
use conduit_core::threads::{Mode, Seq};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::collectives::Element;
use crate::{Conduit, Result};

/// A group of ranks that perform collective operations together. It consists of all ranks of the
/// job ([`Conduit::team`]) or of some of them.
///
/// Every operation is collective over the team: all ranks of the team must call the same operations
/// in the same order, with values of the same length. [`Team::split`] and [`Team::create`] are
/// collective over the parent team and wait for all its ranks, and [`Team::barrier`] waits for all
/// ranks of the team. Any other operation may return before other ranks have called it. Rank
/// arguments are ranks of the team. A rank may belong to many teams, whose operations are
/// independent of each other. Dropping a team leaves the team without waiting.
///
/// A team takes 4 bytes of memory per member (8 if its order differs from the job's), plus about
/// 700 bytes.
///
/// ```
/// # fn main() -> conduit::Result<()> {
/// let conduit = conduit::start()?.attach(conduit::Handlers::new(), 0)?;
/// let all = conduit.team();
/// // One team for each row of four ranks.
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
    pub(crate) conduit: &'c Conduit<M>,
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
    /// Returns the team of all ranks of the job.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 0)?;
    /// let all = conduit.team();
    /// assert_eq!((all.rank(), all.size()), (conduit.rank(), conduit.size()));
    /// all.barrier()?;
    /// # conduit.finish()
    /// # }
    /// ```
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
            // No operation is under way, because calls and scopes wait for their operations. After
            // a fault, it does not matter if the team cannot be destroyed.
            let _ = self.conduit.member.engine().collectives().team_destroy(id);
        }
    }
}

impl<'c, M: Mode> Team<'c, M> {
    /// Returns this rank's rank in the team.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 0)?;
    /// // The last rank of the job is the first of the team.
    /// let order: Vec<u32> = (0..conduit.size()).rev().collect();
    /// let reversed = conduit.team().create(&order)?.expect("this rank is a member");
    /// assert_eq!(reversed.rank(), conduit.size() - 1 - conduit.rank());
    /// # drop(reversed);
    /// # conduit.finish()
    /// # }
    /// ```
    pub fn rank(&self) -> u32 {
        self.members.rank
    }

    /// Returns the number of ranks in the team.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 0)?;
    /// let all = conduit.team();
    /// let even = all.split((conduit.rank() % 2 == 0).then_some(0), 0)?;
    /// if let Some(even) = &even {
    ///     assert_eq!(even.size(), conduit.size().div_ceil(2));
    /// }
    /// # drop((even, all));
    /// # conduit.finish()
    /// # }
    /// ```
    pub fn size(&self) -> u32 {
        self.members.size
    }

    /// Translates a rank of the team to a rank of the job. Returns `None` if the team has no such
    /// rank.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 0)?;
    /// let half = conduit.rank() * 2 / conduit.size();
    /// let team = conduit.team().split(Some(half), 0)?.expect("this rank has a color");
    /// // Rank 0 of the team serves it; others address it by its rank in the job.
    /// let server = team.to_job(0).expect("a team has a first rank");
    /// assert!(conduit.segment_len(server).is_ok());
    /// assert_eq!(team.to_job(team.size()), None);
    /// # drop(team);
    /// # conduit.finish()
    /// # }
    /// ```
    pub fn to_job(&self, rank: u32) -> Option<Rank> {
        self.members.to_job(rank)
    }

    /// Translates a rank of the job to a rank of the team. Returns `None` if that rank is not a
    /// member.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 0)?;
    /// let alone = conduit.team().create(&[conduit.rank()])?.expect("this rank is a member");
    /// assert_eq!(alone.from_job(conduit.rank()), Some(0));
    /// assert_eq!(alone.from_job(conduit.rank() + 1), None);
    /// # drop(alone);
    /// # conduit.finish()
    /// # }
    /// ```
    pub fn from_job(&self, rank: Rank) -> Option<u32> {
        self.members.from_job(rank)
    }

    /// Creates a team for each color that any rank passes. The members of the team are the ranks
    /// that pass this color, ordered by key and then by their rank in this team. Returns `None` on
    /// ranks that pass no color. Waits for all ranks of this team.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 0)?;
    /// let all = conduit.team();
    /// // Teams of up to 16 neighbours, numbered from the highest rank down.
    /// let (color, key) = (conduit.rank() / 16, -conduit.rank().cast_signed());
    /// let block = all.split(Some(color), key)?.expect("this rank has a color");
    /// assert!(block.size() <= 16);
    /// assert!(all.split(None, 0)?.is_none());
    /// # drop((block, all));
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns [`EngineError::Context`](crate::Error#calls-in-handlers) in a handler,
    /// [`EngineError::Exhausted`] if all operation ids are in use, and any [failure of the
    /// job](crate::Error#failure-of-the-job).
    pub fn split(&self, color: Option<u32>, key: i32) -> Result<Option<Team<'c, M>>> {
        let join = color.map_or(Join::None, |color| Join::Color { color, key });
        self.join("split", join)
    }

    /// Creates teams from lists of members. Each rank passes the members of its new team, including
    /// itself, as ranks of the job. Their order in the list is their order in the new team. All
    /// members of a new team must pass the same list. A rank that passes an empty list joins no
    /// team, and the call returns `None` on that rank. Waits for all ranks of this team.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 0)?;
    /// let all = conduit.team();
    /// let pair: Vec<u32> = (0..conduit.size().min(2)).collect();
    /// let mine = if pair.contains(&conduit.rank()) { &pair[..] } else { &[] };
    /// let team = all.create(mine)?;
    /// assert_eq!(team.is_some(), conduit.rank() < 2);
    /// # drop((team, all));
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Team::split`], plus [`EngineError::Collective`] if `members` contains a rank
    /// twice, contains a rank outside this team, omits this rank, or differs from another member's
    /// list.
    pub fn create(&self, members: &[Rank]) -> Result<Option<Team<'c, M>>> {
        let join = match members {
            [] => Join::None,
            members => Join::Members(members),
        };
        self.join("create", join)
    }

    fn join(&self, call: &'static str, join: Join<'_>) -> Result<Option<Team<'c, M>>> {
        let conduit = self.conduit;
        let made = conduit
            .member
            .engine()
            .collectives()
            .team_create(self.members.id, join);
        let members = conduit.done(call, made)?;
        Ok(members.map(|members| Team { conduit, members }))
    }

    /// Waits until all ranks of the team have entered the barrier. As with [`Conduit::barrier`],
    /// messages that were sent before the call may be handled after it.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 4096)?;
    /// let host = conduit.host_of(conduit.rank())?;
    /// let team = conduit.team().split(Some(host), 0)?.expect("this rank has a color");
    /// let first = team.to_job(0).expect("a team has a first rank");
    /// conduit.atomic(first, 0, conduit::AtomicOp::Add, 1u32)?;
    /// team.barrier()?;
    /// assert_eq!(conduit.atomic_get::<u32>(first, 0)?, team.size());
    /// # drop(team);
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns [`EngineError::Exhausted`](crate::EngineError::Exhausted) if all operation ids are
    /// in use, [`EngineError::Context`](crate::Error#calls-in-handlers) in a handler, and any
    /// [failure of the job](crate::Error#failure-of-the-job).
    pub fn barrier(&self) -> Result<()> {
        let engine = self.conduit.member.engine();
        self.conduit.done(
            "barrier",
            engine.collectives().team_meet("barrier", self.members.id),
        )
    }

    /// Copies `value` from the rank `root` to all other ranks.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 0)?;
    /// let team = conduit.team();
    /// let mut text = *b"........";
    /// if team.rank() == 0 {
    ///     text = *b"rank 0's";
    /// }
    /// team.broadcast(0, &mut text)?;
    /// assert_eq!(&text, b"rank 0's");
    /// # drop(team);
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns [`EngineError::Collective`] if the team has no rank `root`
    /// ([`EngineError::NoSuchRank`] if it is the team of all ranks), [`EngineError::Exhausted`] if
    /// all operation ids are in use, [`EngineError::Context`](crate::Error#calls-in-handlers) in a
    /// handler, and any [failure of the job](crate::Error#failure-of-the-job). If two ranks make
    /// different calls or pass values of different lengths, the job fails with
    /// [`EngineError::Protocol`].
    pub fn broadcast<T: FromBytes + IntoBytes + ?Sized>(
        &self,
        root: u32,
        value: &mut T,
    ) -> Result<()> {
        let call = CollectiveCall::waiting("broadcast");
        // SAFETY: `value` is borrowed until this call returns, and this call waits for the
        // operation.
        unsafe { self.start_broadcast(call, root, value.as_mut_bytes()) }
    }

    /// Divides the values that the rank `root` passes in `all` among all ranks, in rank order. Each
    /// rank receives as many values as its `own` holds. On all other ranks, `all` is ignored.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 0)?;
    /// let team = conduit.team();
    /// let all: Vec<u32> = (0..2 * team.size()).collect();
    /// let mut own = [0; 2];
    /// team.scatter(0, &all, &mut own)?;
    /// assert_eq!(own, [2 * team.rank(), 2 * team.rank() + 1]);
    /// # drop(team);
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Team::broadcast`], plus [`EngineError::Collective`] if the length of `all` is not
    /// the length of `own` times the size of the team.
    pub fn scatter<T>(&self, root: u32, all: &[T], own: &mut [T]) -> Result<()>
    where
        T: FromBytes + IntoBytes + Immutable,
    {
        // SAFETY: the values are borrowed until this call returns, and this call waits for the
        // operation.
        unsafe { self.start_scatter(CollectiveCall::waiting("scatter"), root, all, own) }
    }

    /// Collects the values in `own` of every rank, in rank order, in `all` of the rank `root`. On
    /// all other ranks, `all` is ignored.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 0)?;
    /// let team = conduit.team();
    /// let mut all = vec![0; team.size() as usize];
    /// team.gather(0, &[team.rank() * team.rank()], &mut all)?;
    /// if team.rank() == 0 {
    ///     assert!((0..).zip(&all).all(|(rank, &square)| square == rank * rank));
    /// }
    /// # drop(team);
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Team::scatter`].
    pub fn gather<T>(&self, root: u32, own: &[T], all: &mut [T]) -> Result<()>
    where
        T: FromBytes + IntoBytes + Immutable,
    {
        // SAFETY: the values are borrowed until this call returns, and this call waits for the
        // operation.
        unsafe { self.start_gather(CollectiveCall::waiting("gather"), Some(root), own, all) }
    }

    /// Like [`Team::gather`], but every rank receives the values in its own `all`.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 0)?;
    /// let team = conduit.team();
    /// let length = 10 + u64::from(team.rank());
    /// let mut lengths = vec![0; team.size() as usize];
    /// team.gather_all(&[length], &mut lengths)?;
    /// // Where this rank's part begins in the concatenation of all.
    /// let start: u64 = lengths[..team.rank() as usize].iter().sum();
    /// assert!(start >= 10 * u64::from(team.rank()));
    /// # drop(team);
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Team::scatter`].
    pub fn gather_all<T>(&self, own: &[T], all: &mut [T]) -> Result<()>
    where
        T: FromBytes + IntoBytes + Immutable,
    {
        // SAFETY: the values are borrowed until this call returns, and this call waits for the
        // operation.
        unsafe { self.start_gather(CollectiveCall::waiting("gather_all"), None, own, all) }
    }

    /// Sends each rank its share of `source`, and receives a share from each rank in `result`. Both
    /// slices hold the shares in rank order.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 0)?;
    /// let team = conduit.team();
    /// // Each rank sends a pair to each rank: its own number, and the receiver's number.
    /// let source: Vec<_> = (0..team.size()).map(|to| [team.rank(), to]).collect();
    /// let mut result = vec![[0; 2]; source.len()];
    /// team.exchange(&source, &mut result)?;
    /// assert!((0..).zip(result).all(|(from, pair)| pair == [from, team.rank()]));
    /// # drop(team);
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Team::broadcast`], plus [`EngineError::Collective`] if the lengths of `source` and
    /// `result` differ or are not multiples of the size of the team.
    pub fn exchange<T>(&self, source: &[T], result: &mut [T]) -> Result<()>
    where
        T: FromBytes + IntoBytes + Immutable,
    {
        // SAFETY: the values are borrowed until this call returns, and this call waits for the
        // operation.
        unsafe { self.start_exchange(CollectiveCall::waiting("exchange"), source, result) }
    }

    /// Reduces the `values` of all ranks elementwise. The result replaces the values of `root`. The
    /// values of all other ranks are unchanged.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 0)?;
    /// use conduit::ReduceOp;
    /// let team = conduit.team();
    /// let mut flags = [1i64 << team.rank(), 0];
    /// team.reduce(0, ReduceOp::Or, &mut flags)?;
    /// if team.rank() == 0 {
    ///     assert_eq!(flags, [(1 << team.size()) - 1, 0]);
    /// }
    /// # drop(team);
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Team::broadcast`], plus [`EngineError::Collective`] for a bitwise operation on
    /// floating-point numbers.
    pub fn reduce<T: Element>(&self, root: u32, op: ReduceOp, values: &mut [T]) -> Result<()> {
        let how = Reduction::Known(T::TYPE, op);
        // SAFETY: the values are borrowed until this call returns, and this call waits for the
        // operation.
        unsafe { self.start_reduction(CollectiveCall::waiting("reduce"), Some(root), values, how) }
    }

    /// Like [`Team::reduce`], but the result replaces the values of all ranks. The result is
    /// bitwise identical on all ranks, and the same data always yields the same result.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 0)?;
    /// use conduit::ReduceOp;
    /// let team = conduit.team();
    /// let mut fastest = [0.5f32 + team.rank() as f32];
    /// team.reduce_all(ReduceOp::Min, &mut fastest)?;
    /// assert_eq!(fastest, [0.5]);
    /// # drop(team);
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Team::reduce`].
    pub fn reduce_all<T: Element>(&self, op: ReduceOp, values: &mut [T]) -> Result<()> {
        let how = Reduction::Known(T::TYPE, op);
        // SAFETY: the values are borrowed until this call returns, and this call waits for the
        // operation.
        unsafe { self.start_reduction(CollectiveCall::waiting("reduce_all"), None, values, how) }
    }

    /// Like [`Team::reduce_all`], but reduces with `function`. The function must be associative and
    /// commutative and must not call into this crate. Any thread that polls may run it.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 0)?;
    /// // The smallest value and its rank.
    /// let team = conduit.team();
    /// let mut least = [[10, team.rank()]];
    /// team.reduce_all_with(&mut least, |one: [u32; 2], other| one.min(other))?;
    /// assert_eq!(least, [[10, 0]]);
    /// # drop(team);
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Team::broadcast`], plus
    /// [`EngineError::Collective`](crate::EngineError::Collective) if `T` is zero-sized.
    pub fn reduce_all_with<T>(
        &self,
        values: &mut [T],
        function: impl Fn(T, T) -> T + Send + 'static,
    ) -> Result<()>
    where
        T: Copy + FromBytes + IntoBytes + Immutable,
    {
        let (call, how) = (
            CollectiveCall::waiting("reduce_all_with"),
            by(function, false),
        );
        // SAFETY: the values are borrowed until this call returns, and this call waits for the
        // operation.
        unsafe { self.start_reduction(call, None, values, how) }
    }

    /// Like [`Team::reduce_all_with`], but `function` need not be commutative. The values of lower
    /// ranks are its left operands.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// let conduit = conduit::start()?.attach(conduit::Handlers::new(), 0)?;
    /// // The composition of functions `x -> a x + b`. The function of the first rank is the
    /// // outermost.
    /// let mut line = [[2, u64::from(conduit.rank())]];
    /// let compose = |[a, b]: [u64; 2], [c, d]: [u64; 2]| [a * c, a * d + b];
    /// conduit.team().reduce_all_in_order(&mut line, compose)?;
    /// assert_eq!(line[0][0], 1 << conduit.size());
    /// conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Team::reduce_all_with`].
    pub fn reduce_all_in_order<T>(
        &self,
        values: &mut [T],
        function: impl Fn(T, T) -> T + Send + 'static,
    ) -> Result<()>
    where
        T: Copy + FromBytes + IntoBytes + Immutable,
    {
        let (call, how) = (
            CollectiveCall::waiting("reduce_all_in_order"),
            by(function, true),
        );
        // SAFETY: the values are borrowed until this call returns, and this call waits for the
        // operation.
        unsafe { self.start_reduction(call, None, values, how) }
    }

    fn check_shares(&self, call: &'static str, all: usize, own: usize) -> Result<()> {
        let size = self.size();
        match own.checked_mul(size as usize) == Some(all) {
            true => Ok(()),
            false => self.refuse(
                call,
                format!("{all} values were passed; {own} are needed for each of {size} ranks"),
            ),
        }
    }

    pub(crate) fn refuse<T>(&self, operation: &'static str, reason: String) -> Result<T> {
        let refused = Err(EngineError::Collective {
            operation,
            rank: self.conduit.rank(),
            reason,
        });
        self.conduit.done(operation, refused)
    }

    /// # Safety
    /// Same as [`Team::start`].
    pub(crate) unsafe fn start_broadcast(
        &self,
        call: CollectiveCall,
        root: u32,
        value: &mut [u8],
    ) -> Result<()> {
        let (base, len) = (value.as_mut_ptr(), value.len());
        // SAFETY: the caller guarantees the conditions of `start` for `value`. A broadcast permits
        // its source and its destination to be the same.
        unsafe { self.start(call, CollectiveKind::Broadcast { root }, base, base, len) }
    }

    /// # Safety
    /// Same as [`Team::start`].
    pub(crate) unsafe fn start_scatter<T>(
        &self,
        call: CollectiveCall,
        root: u32,
        all: &[T],
        own: &mut [T],
    ) -> Result<()>
    where
        T: FromBytes + IntoBytes + Immutable,
    {
        if root == self.rank() {
            self.check_shares(call.name, all.len(), own.len())?;
        }
        let (source, own) = (all.as_bytes().as_ptr(), own.as_mut_bytes());
        let (result, len) = (own.as_mut_ptr(), own.len());
        // SAFETY: the caller guarantees the conditions of `start` for both slices. The root has
        // checked that `all` has a share for each rank.
        unsafe { self.start(call, CollectiveKind::Scatter { root }, result, source, len) }
    }

    /// Starts a gather to `root`, or to all ranks if `root` is `None`.
    ///
    /// # Safety
    /// Same as [`Team::start`].
    pub(crate) unsafe fn start_gather<T>(
        &self,
        call: CollectiveCall,
        root: Option<u32>,
        own: &[T],
        all: &mut [T],
    ) -> Result<()>
    where
        T: FromBytes + IntoBytes + Immutable,
    {
        if root.is_none_or(|root| root == self.rank()) {
            self.check_shares(call.name, all.len(), own.len())?;
        }
        let kind = root.map_or(CollectiveKind::GatherAll, |root| CollectiveKind::Gather {
            root,
        });
        let (result, own) = (all.as_mut_bytes().as_mut_ptr(), own.as_bytes());
        // SAFETY: the caller guarantees the conditions of `start` for both slices. Every rank that
        // receives the values has checked that `all` has room for each rank's `own`.
        unsafe { self.start(call, kind, result, own.as_ptr(), own.len()) }
    }

    /// # Safety
    /// Same as [`Team::start`].
    pub(crate) unsafe fn start_exchange<T>(
        &self,
        call: CollectiveCall,
        source: &[T],
        result: &mut [T],
    ) -> Result<()>
    where
        T: FromBytes + IntoBytes + Immutable,
    {
        let share = source.len() / self.size() as usize;
        self.check_shares(call.name, source.len(), share)?;
        self.check_shares(call.name, result.len(), share)?;
        let source = source.as_bytes().as_ptr();
        let (result, len) = (result.as_mut_bytes().as_mut_ptr(), share * size_of::<T>());
        // SAFETY: the caller guarantees the conditions of `start` for both slices. The checks
        // ensure that each of them has a share for each rank.
        unsafe { self.start(call, CollectiveKind::Exchange, result, source, len) }
    }

    /// # Safety
    /// Both buffers must be valid for the accesses of the operation, and must not be used in any
    /// other way, until the operation has completed. It has completed when this call returns or, if
    /// the call belongs to a scope, when the scope ends.
    unsafe fn start(
        &self,
        call: CollectiveCall,
        kind: CollectiveKind,
        result: *mut u8,
        source: *const u8,
        bytes: usize,
    ) -> Result<()> {
        let (engine, sync, team) = (
            self.conduit.member.engine(),
            CollectiveSync::default(),
            self.members.id,
        );
        let how = call.completion;
        // SAFETY: the caller guarantees that both buffers are valid and are not used in any other
        // way until the operation has completed. If a wait fails, the engine no longer accesses
        // them.
        let started = unsafe {
            engine
                .collectives()
                .move_nb(team, kind, result, source, bytes, sync, how)
        };
        self.finish(call, started)
    }

    /// # Safety
    /// Same as [`Team::start`].
    pub(crate) unsafe fn start_reduction<T: FromBytes + IntoBytes>(
        &self,
        call: CollectiveCall,
        root: Option<u32>,
        values: &mut [T],
        reduction: Reduction,
    ) -> Result<()> {
        let (engine, count, team) = (self.conduit.member.engine(), values.len(), self.members.id);
        let base = values.as_mut_bytes().as_mut_ptr();
        let how = call.completion;
        // SAFETY: the caller guarantees that `values` is valid and is not used in any other way
        // until the operation has completed. A reduction permits its result to replace its source.
        let started = unsafe {
            engine
                .collectives()
                .reduce_nb(team, root, base, base, count, reduction, how)
        };
        self.finish(call, started)
    }

    /// Waits for the operation, unless it belongs to a scope. The scope itself waits for such an
    /// operation.
    fn finish(&self, call: CollectiveCall, started: Result<Handle, EngineError>) -> Result<()> {
        let handle = self.conduit.done(call.name, started)?;
        let engine = self.conduit.member.engine();
        self.conduit
            .done(call.name, engine.rma().wait_in(call.name, handle))
    }
}

/// Returns a reduction that combines values with `function`.
pub(crate) fn by<T>(function: impl Fn(T, T) -> T + Send + 'static, in_order: bool) -> Reduction
where
    T: Copy + FromBytes + IntoBytes + Immutable,
{
    let element = size_of::<T>();
    let function = Box::new(move |left: &[u8], right: &mut [u8]| {
        let each = left
            .chunks_exact(element)
            .zip(right.chunks_exact_mut(element));
        for (left, right) in each {
            // Both slices have the size of an element, so both conversions succeed.
            if let (Ok(one), Ok(other)) = (T::read_from_bytes(left), T::read_from_bytes(right)) {
                right.copy_from_slice(function(one, other).as_bytes());
            }
        }
    });
    Reduction::Custom {
        element,
        function,
        in_order,
    }
}

/// The name of a collective call as the program made it, and whether the call waits.
#[derive(Clone, Copy)]
pub(crate) struct CollectiveCall {
    name: &'static str,
    completion: Completion,
}

impl CollectiveCall {
    fn waiting(name: &'static str) -> Self {
        let completion = Completion::Handle;
        Self { name, completion }
    }

    pub(crate) fn in_scope(name: &'static str) -> Self {
        let completion = Completion::Implicit;
        Self { name, completion }
    }
}
