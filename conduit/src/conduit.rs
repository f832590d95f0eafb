//! The attached rank and its calls.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use conduit_core::barrier::BarrierOutcome;
use conduit_core::barrier::Value;
use conduit_core::kernel::Error as EngineError;
use conduit_core::ni::Rank;
use conduit_core::stderr;
use conduit_core::threads::{Mode, Movable, Par, ParSync, Seq, Shared};

use crate::settings::Settings;
use crate::{Error, Member, Result, process_code};

/// An attached rank of a job.
///
/// Any call may poll, and a poll runs handlers. In [`crate::Par`], several threads can use one
/// `Conduit` through shared references.
///
/// When another rank ends the job ([`Conduit::exit`]), the next call that polls ends this process
/// with exit code 0. The other rank exits with the job's code, and the launcher reports that rank.
///
/// Dropping a `Conduit` without calling [`finish`](Conduit::finish) abandons the other ranks and
/// prints a warning to standard error.
///
/// A child process made by `fork` may only `exec` or `_exit`, because everything that it inherits
/// of the job belongs to the rank. In the child, every call that would use the network returns
/// [`EngineError::Forked`], dropping the `Conduit` has no effect, and [`exit`](Conduit::exit) ends
/// only the child. A child made in a handler must not return from that handler either, because the
/// surrounding poll would continue.
pub struct Conduit<M: Mode = Seq> {
    pub(crate) member: Member<M>,
    finished: AtomicBool,
}

impl<M: Mode> std::fmt::Debug for Conduit<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Conduit")
            .field("rank", &self.rank())
            .field("size", &self.size())
            .finish_non_exhaustive()
    }
}

impl<M: Mode> Conduit<M> {
    pub(crate) fn new(member: Member<M>) -> Self {
        Self {
            member,
            finished: AtomicBool::new(false),
        }
    }

    /// Returns this rank, in `0..size`.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 0)?;
    /// // The ranks form a ring.
    /// let left = (conduit.rank() + conduit.size() - 1) % conduit.size();
    /// assert!(left < conduit.size());
    /// assert_eq!((left + 1) % conduit.size(), conduit.rank());
    /// # conduit.finish()
    /// # }
    /// ```
    #[inline]
    pub fn rank(&self) -> Rank {
        self.member.engine().rank()
    }

    /// Returns the number of ranks in the job.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 0)?;
    /// // This rank's share of 1,000 rows.
    /// let (rank, size) = (conduit.rank() as usize, conduit.size() as usize);
    /// let rows = 1000 * rank / size..1000 * (rank + 1) / size;
    /// assert!(rows.len().abs_diff(1000 / size) <= 1);
    /// # conduit.finish()
    /// # }
    /// ```
    #[inline]
    pub fn size(&self) -> u32 {
        self.member.engine().size()
    }

    /// Returns the host of `rank`. Hosts are numbered from 0 in the order of their first ranks.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 0)?;
    /// let here = conduit.host_of(conduit.rank())?;
    /// let mut on_this_host = 0;
    /// for rank in 0..conduit.size() {
    ///     on_this_host += u32::from(conduit.host_of(rank)? == here);
    /// }
    /// assert!((1..=conduit.size()).contains(&on_this_host));
    /// assert!(conduit.host_of(conduit.size()).is_err());
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns [`EngineError::NoSuchRank`](crate::EngineError::NoSuchRank) if the job has no such
    /// rank.
    pub fn host_of(&self, rank: Rank) -> Result<u32> {
        let host = self.member.host_of(rank);
        host.ok_or_else(|| self.no_such_rank("host_of", rank))
    }

    /// Returns the neighbourhood of `rank`.
    ///
    /// Ranks of one neighbourhood map each other's segments ([`Conduit::window`]). Neighbourhoods
    /// are numbered in the same way as [hosts](Conduit::host_of).
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 4096)?;
    /// let own = conduit.neighbourhood_of(conduit.rank())?;
    /// for rank in 0..conduit.size() {
    ///     if conduit.neighbourhood_of(rank)? == own {
    ///         assert!(conduit.window(rank)?.is_some());
    ///     }
    /// }
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Conduit::host_of`].
    pub fn neighbourhood_of(&self, rank: Rank) -> Result<u32> {
        let neighbourhood = self.member.neighbourhood_of(rank);
        neighbourhood.ok_or_else(|| self.no_such_rank("neighbourhood_of", rank))
    }

    fn no_such_rank(&self, call: &'static str, rank: Rank) -> Error {
        let error = EngineError::NoSuchRank {
            operation: call,
            rank,
            size: self.size(),
        };
        Error::of(call, self.rank(), error)
    }

    /// Returns the settings with which this rank runs.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 4096)?;
    /// # let peer = conduit.rank();
    /// let most = conduit.settings().engine.max_operations; // CONDUIT_MAX_OPERATIONS
    /// let mut handles = Vec::new();
    /// for place in 0..most.min(512) as usize {
    ///     handles.push(conduit.put_nb(peer, place * 8, &place)?);
    /// }
    /// conduit.wait_all(&mut handles)?;
    /// assert!(conduit.get_value(peer, 8 * handles.len() - 8, 8)? < u64::from(most));
    /// # conduit.finish()
    /// # }
    /// ```
    pub fn settings(&self) -> &Settings {
        self.member.settings()
    }

    /// Translates the result of an engine call. If another rank has ended the job, ends this
    /// process.
    #[inline]
    pub(crate) fn done<T>(&self, call: &'static str, result: Result<T, EngineError>) -> Result<T> {
        match result {
            Ok(value) => Ok(value),
            Err(error) => Err(self.member.failed(call, error)),
        }
    }

    /// Polls the network once: processes completions and messages, and runs handlers.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let mut handlers = conduit::Handlers::new();
    /// # let pong = handlers.short(|call, ()| call.segment().put(0, &1u32).expect("the flag"));
    /// # let ping = handlers.short(move |call, ()| call.reply(pong, ()).expect("the first reply"));
    /// # let conduit = conduit::start()?.attach(handlers, 4096)?;
    /// # let peer = conduit.rank();
    /// conduit.request(peer, ping, ())?;
    /// // The handler of the reply sets a flag in this segment.
    /// while conduit.segment().atomic_get::<u32>(0)? == 0 {
    ///     // ... compute a little ...
    ///     conduit.poll()?;
    /// }
    /// assert_eq!(conduit.get_value(peer, 0, 4)?, 1);
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns [`EngineError::Context`](crate::Error#calls-in-handlers) in a handler, and any
    /// [failure of the job](crate::Error#failure-of-the-job).
    #[inline]
    pub fn poll(&self) -> Result<()> {
        self.done("poll", self.member.engine().poll())
    }

    /// Polls until `condition` holds, spinning, yielding or sleeping between polls.
    ///
    /// The condition should be one that becomes true through handlers, or through other ranks' puts
    /// and atomics. It returns a `bool`, or a [`Result`] whose error ends the wait. `wait_until` is
    /// not allowed in a handler, because the condition may depend on that handler's return.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 4096)?;
    /// let segment = conduit.segment();
    /// conduit.put(conduit.rank(), 0, &1u64)?;
    /// conduit.wait_until(|| Ok(segment.atomic_get::<u64>(0)? == 1))?;
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns the error that the condition returned. If the condition does not hold yet, also
    /// returns [`EngineError::Context`](crate::Error#calls-in-handlers) in a handler, and any
    /// [failure of the job](crate::Error#failure-of-the-job).
    #[inline]
    pub fn wait_until<C: Condition>(&self, mut condition: impl FnMut() -> C) -> Result<()> {
        let mut refused = None;
        let waited = self.member.engine().wait_until(|| {
            condition().holds().unwrap_or_else(|error| {
                refused = Some(error);
                true
            })
        });
        match refused {
            Some(error) => Err(error),
            None => self.done("wait_until", waited),
        }
    }

    /// Waits until all ranks have entered the barrier. Stores that any rank made before the
    /// barrier, and puts that it completed before the barrier, are visible to every rank after the
    /// barrier.
    ///
    /// A barrier does not wait for messages: a message sent before the barrier may be handled after
    /// it. Use [`Conduit::quiesce`] to wait for messages too.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 4096)?;
    /// let right = (conduit.rank() + 1) % conduit.size();
    /// conduit.put(right, 16, &conduit.rank())?;
    /// conduit.barrier()?;
    /// let left = conduit.segment().atomic_get::<u32>(16)?;
    /// assert_eq!((left + 1) % conduit.size(), conduit.rank());
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::BarrierMismatch`] on all ranks if a rank has called [`Conduit::quiesce`] or
    /// [`Conduit::finish`] instead, or if two ranks gave different ids. Returns
    /// [`EngineError::Barrier`](crate::EngineError::Barrier) between [`Conduit::barrier_notify`]
    /// and its wait, [`EngineError::Context`](crate::Error#calls-in-handlers) in a handler, and any
    /// [failure of the job](crate::Error#failure-of-the-job).
    #[inline]
    pub fn barrier(&self) -> Result<()> {
        let outcome = self.done(
            "barrier",
            self.member.engine().barriers().barrier(Value::Anonymous),
        )?;
        self.matched("barrier", outcome)
    }

    /// Waits until all ranks have called `quiesce`, and until all requests that any rank sent
    /// before its call, and the replies to them, have been handled.
    ///
    /// A `quiesce` costs two barriers and nothing per message. If other threads of a rank send
    /// messages during the call, it waits for these messages too.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// use std::sync::{Arc, atomic::{AtomicU32, Ordering::Relaxed}};
    /// let greeted = Arc::new(AtomicU32::new(0));
    /// let mut handlers = conduit::Handlers::new();
    /// let hello = handlers.short({
    ///     let greeted = greeted.clone();
    ///     move |_, ()| {
    ///         greeted.fetch_add(1, Relaxed);
    ///     }
    /// });
    /// let conduit = conduit::start()?.attach(handlers, 0)?;
    /// for rank in 0..conduit.size() {
    ///     conduit.request(rank, hello, ())?;
    /// }
    /// conduit.quiesce()?;
    /// assert_eq!(greeted.load(Relaxed), conduit.size());
    /// conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::BarrierMismatch`] on all ranks if a rank has called [`Conduit::barrier`] or
    /// [`Conduit::finish`] instead. Returns [`EngineError::Barrier`](crate::EngineError::Barrier)
    /// between [`Conduit::barrier_notify`] and its wait,
    /// [`EngineError::Context`](crate::Error#calls-in-handlers) in a handler, and any [failure of
    /// the job](crate::Error#failure-of-the-job).
    pub fn quiesce(&self) -> Result<()> {
        let outcome = self.done("quiesce", self.member.engine().barriers().quiesce())?;
        self.matched("quiesce", outcome)
    }

    /// Waits at a barrier named `id`. Fails if two ranks give different names. A rank that gives no
    /// name, as in [`Conduit::barrier`], matches any name.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 4096)?;
    /// # let peer = conduit.rank();
    /// for step in 0..3 {
    ///     conduit.put(peer, 0, &step)?;
    ///     conduit.barrier_named(step)?; // all ranks are in the same step
    ///     assert_eq!(conduit.segment().atomic_get::<u32>(0)?, step);
    /// }
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Conduit::barrier`].
    pub fn barrier_named(&self, id: u32) -> Result<()> {
        let outcome = self.done(
            "barrier_named",
            self.member.engine().barriers().barrier(Value::Named(id)),
        )?;
        self.matched("barrier_named", outcome)
    }

    /// Starts a split-phase [barrier](Conduit::barrier), with an id or without one (`None`), by
    /// announcing this rank's arrival. [`Conduit::barrier_wait`] or [`Conduit::barrier_try`] must
    /// complete the barrier.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 4096)?;
    /// conduit.barrier_notify(None)?;
    /// // Another barrier cannot begin before the wait.
    /// assert!(conduit.barrier_notify(None).is_err());
    /// conduit.barrier_wait(None)?;
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns [`EngineError::Barrier`](crate::EngineError::Barrier) if the previous barrier has
    /// been notified but not waited for, [`EngineError::Context`](crate::Error#calls-in-handlers)
    /// in a handler, and any [failure of the job](crate::Error#failure-of-the-job).
    pub fn barrier_notify(&self, id: Option<u32>) -> Result<()> {
        self.done(
            "barrier_notify",
            self.member.engine().barriers().barrier_notify(value(id)),
        )
    }

    /// Completes a split-phase barrier by waiting for all other ranks.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 0)?;
    /// use conduit::Error;
    /// conduit.barrier_notify(Some(7))?;
    /// conduit.barrier_wait(Some(7))?;
    /// conduit.barrier_notify(Some(8))?;
    /// let error = conduit.barrier_wait(Some(9)).unwrap_err();
    /// assert!(matches!(error, Error::BarrierMismatch { .. }));
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::BarrierMismatch`] on all ranks if the ids of two ranks differ or if a rank
    /// has called [`Conduit::quiesce`] or [`Conduit::finish`] instead. Returns it on this rank only
    /// if `id` is not the id on which the ranks agreed. Returns
    /// [`EngineError::Barrier`](crate::EngineError::Barrier) if there was no preceding
    /// [`Conduit::barrier_notify`]. If some ranks have not arrived yet, also returns
    /// [`EngineError::Context`](crate::Error#calls-in-handlers) in a handler, and any [failure of
    /// the job](crate::Error#failure-of-the-job).
    pub fn barrier_wait(&self, id: Option<u32>) -> Result<()> {
        let outcome = self.done(
            "barrier_wait",
            self.member.engine().barriers().barrier_wait(value(id)),
        )?;
        self.matched("barrier_wait", outcome)
    }

    /// Like [`Conduit::barrier_wait`], but polls once instead of waiting. Returns whether the
    /// barrier has completed.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 0)?;
    /// conduit.barrier_notify(Some(1))?;
    /// while !conduit.barrier_try(Some(1))? {
    ///     // ... compute a little ...
    /// }
    /// // The barrier has completed, so none is left to wait for.
    /// assert!(conduit.barrier_wait(Some(1)).is_err());
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Conduit::barrier_wait`] and [`Conduit::poll`].
    pub fn barrier_try(&self, id: Option<u32>) -> Result<bool> {
        match self.done(
            "barrier_try",
            self.member.engine().barriers().barrier_try(value(id)),
        )? {
            Some(outcome) => self.matched("barrier_try", outcome).map(|()| true),
            None => Ok(false),
        }
    }

    fn matched(&self, call: &'static str, outcome: BarrierOutcome) -> Result<()> {
        match outcome {
            BarrierOutcome::Match(_) => Ok(()),
            BarrierOutcome::Mismatch(calls) => Err(Error::BarrierMismatch {
                call,
                rank: self.rank(),
                calls,
            }),
        }
    }

    /// Leaves the job cleanly. Waits until all ranks have called `finish` and all messages have
    /// been handled, as [`Conduit::quiesce`] does, and then reports the end to the launcher.
    /// Collective; may be called only once.
    ///
    /// `finish` takes `&self`, so that a shared or static `Conduit` can finish too. Later calls
    /// that would use the network fail on all threads of this rank. Copies to and from memory that
    /// is mapped here still succeed. Operations that other threads start during this call may be
    /// lost, so those threads must end first.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// let conduit = conduit::start()?.attach(conduit::Handlers::new(), 4096)?;
    /// conduit.put(conduit.rank(), 0, &1u64)?;
    /// conduit.finish()?;
    /// assert!(conduit.barrier().is_err());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If a rank has called [`Conduit::barrier`] or [`Conduit::quiesce`] instead, returns
    /// [`Error::BarrierMismatch`] on all ranks, and no rank has finished. Returns
    /// [`EngineError::Barrier`](crate::EngineError::Barrier) between [`Conduit::barrier_notify`]
    /// and its wait, [`EngineError::Finished`](crate::EngineError::Finished) on a second call,
    /// [`EngineError::Context`](crate::Error#calls-in-handlers) in a handler, and any [failure of
    /// the job](crate::Error#failure-of-the-job). Returns
    /// [`EngineError::Bootstrap`](crate::EngineError::Bootstrap) if the launcher fails.
    pub fn finish(&self) -> Result<()> {
        const CALL: &str = "finish";
        if self.finished.swap(true, Relaxed) {
            return self.done(CALL, Err(EngineError::Finished));
        }
        let outcome = self.done(CALL, self.member.engine().barriers().finish());
        let quiet = outcome.and_then(|outcome| self.matched(CALL, outcome));
        if quiet.is_err() {
            self.finished.store(false, Relaxed);
        }
        quiet?;
        // All messages from other ranks have arrived by now. This rank's own messages may still be
        // queued, and would be lost when the process ends.
        let limit = self.member.settings().engine.exit_wait(self.size());
        self.member.engine().drain(limit);
        self.member.finish()
    }

    /// Ends the whole job with this exit code.
    ///
    /// Notifies the other ranks, waits for them for a bounded time (`CONDUIT_EXIT_TIMEOUT`), and
    /// ends this process. May be called at any time, even while other ranks compute, because the
    /// launcher ends ranks that do not react.
    pub fn exit(&self, code: i32) -> ! {
        self.member.end(code, || ());
        std::process::exit(process_code(code))
    }

    /// Returns the number of credits for requests to `peer` that are available now
    /// (`gasnet_send_credits` in C).
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let mut handlers = conduit::Handlers::new();
    /// # let hello = handlers.short(|call, ()| println!("hello from {}", call.source()));
    /// # let conduit = conduit::start()?.attach(handlers, 0)?;
    /// # let peer = conduit.rank();
    /// let before = conduit.send_credits(peer)?;
    /// conduit.request(peer, hello, ())?;
    /// assert!(conduit.send_credits(peer)? <= before);
    /// // A handled request has returned its credit.
    /// conduit.quiesce()?;
    /// assert_eq!(conduit.send_credits(peer)?, before);
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns [`EngineError::NoSuchRank`](crate::EngineError::NoSuchRank) if the job has no such
    /// rank, and [`EngineError::Protocol`](crate::EngineError::Protocol) if `peer` has returned
    /// credits that it did not hold.
    pub fn send_credits(&self, peer: Rank) -> Result<u32> {
        self.done(
            "send_credits",
            self.member.engine().messages().credits(peer),
        )
        .map(|credits| credits.send)
    }

    /// Returns the number of credits that this rank has lent to `peer`.
    ///
    /// # Errors
    /// Same as [`Conduit::send_credits`].
    pub fn lent_credits(&self, peer: Rank) -> Result<u32> {
        self.done(
            "lent_credits",
            self.member.engine().messages().credits(peer),
        )
        .map(|credits| credits.lent)
    }

    /// Returns the number of times that a request to `peer` had to wait for credits
    /// (`gasnet_credit_stalls` in C).
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let mut handlers = conduit::Handlers::new();
    /// # let hello = handlers.short(|call, ()| println!("hello from {}", call.source()));
    /// # let conduit = conduit::start()?.attach(handlers, 0)?;
    /// # let peer = conduit.rank();
    /// for _ in 0..conduit.send_credits(peer)?.min(10) {
    ///     conduit.request(peer, hello, ())?;
    /// }
    /// // There was a credit for each of these requests.
    /// assert_eq!(conduit.credit_stalls(peer)?, 0);
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Conduit::send_credits`].
    pub fn credit_stalls(&self, peer: Rank) -> Result<u64> {
        self.done(
            "credit_stalls",
            self.member.engine().messages().credits(peer),
        )
        .map(|credits| credits.stalls)
    }

    /// Returns the number of credits in this rank's bank (`gasnet_banked_credits` in C).
    pub fn banked_credits(&self) -> u32 {
        self.member.engine().messages().banked_credits()
    }

    /// Returns the number of credits that `peer` has revoked from this rank so far
    /// (`gasnet_revoked_credits` in C).
    ///
    /// # Errors
    /// Same as [`Conduit::send_credits`].
    pub fn revoked_credits(&self, peer: Rank) -> Result<u64> {
        self.done(
            "revoked_credits",
            self.member.engine().messages().credits(peer),
        )
        .map(|credits| credits.revoked)
    }
}

impl<M: Mode> Drop for Conduit<M> {
    fn drop(&mut self) {
        // There is no warning in a job of one rank or in a child process, because no rank is
        // abandoned. There is none after a panic or a fault of the job either, because these have
        // already been reported.
        let engine = self.member.engine();
        let leaves = !self.finished.load(Relaxed) && self.size() > 1 && !engine.job().is_child();
        if leaves && !std::thread::panicking() && engine.job().fault().is_none() {
            stderr::write_line(format_args!(
                "conduit: rank {} of {} leaves the job without Conduit::finish; the other ranks cannot continue",
                self.rank(),
                self.size()
            ));
        }
    }
}

/// The result of a condition for [`Conduit::wait_until`]: a `bool` or a [`Result`] with a `bool`.
pub trait Condition {
    /// Returns whether the condition holds.
    ///
    /// # Errors
    /// Returns the error that ends the wait.
    fn holds(self) -> Result<bool>;
}

impl Condition for bool {
    #[inline]
    fn holds(self) -> Result<bool> {
        Ok(self)
    }
}

impl Condition for Result<bool> {
    #[inline]
    fn holds(self) -> Result<bool> {
        self
    }
}

fn value(id: Option<u32>) -> Value {
    id.map_or(Value::Anonymous, Value::Named)
}

// SAFETY: the fields are `Sync` in each mode that is `Shared`, as the constant below checks.
unsafe impl<M: Shared> Sync for Conduit<M> {}
// SAFETY: the fields are `Send` in each mode that is `Movable`, as the constant below checks.
unsafe impl<M: Movable> Send for Conduit<M> {}

const _: () = {
    const fn shared<T: Sync>() {}
    const fn moved<T: Send>() {}
    shared::<(Member<Par>, AtomicBool)>();
    moved::<(Member<Par>, AtomicBool)>();
    moved::<(Member<ParSync>, AtomicBool)>();
};
