//! The attached rank: what everything is called on.

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
/// Any call may poll and so run handlers. In [`crate::Par`] it can be shared between threads by reference.
///
/// When another rank ends the job ([`Conduit::exit`]), the next call that polls ends this process: with 0, as the code is the other
/// rank's to give, which the launcher then names.
///
/// To drop it without [`finish`](Conduit::finish) leaves the others alone, which is told on standard error.
///
/// A child that this process makes by `fork` may only `exec`, or end by `_exit`: what it inherits of the job is the rank's. Every
/// call that would use the network is refused there ([`conduit_core::kernel::Error::Forked`]), to drop this does nothing, and
/// [`exit`](Conduit::exit) ends the child alone. A child that is made in a handler must not return from that either, as the poll
/// around it would go on.
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

    /// This rank, `0..size`.
    #[inline]
    pub fn rank(&self) -> Rank {
        self.member.engine().rank()
    }

    /// Ranks in the job.
    #[inline]
    pub fn size(&self) -> u32 {
        self.member.engine().size()
    }

    /// The host of a rank: hosts are numbered from 0 in the order of their first ranks.
    ///
    /// # Errors
    /// Returns [`EngineError::NoSuchRank`](crate::EngineError::NoSuchRank) if the job has no such
    /// rank.
    pub fn host_of(&self, rank: Rank) -> Result<u32> {
        let host = self.member.host_of(rank);
        host.ok_or_else(|| self.no_such_rank("host_of", rank))
    }

    /// The neighbourhood of a rank: ranks of the same one map each other's segments ([`Conduit::window`]). Numbered as
    /// [hosts](Conduit::host_of) are.
    ///
    /// # Errors
    /// As for [`Conduit::host_of`].
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

    /// The settings that this rank runs with.
    pub fn settings(&self) -> &Settings {
        self.member.settings()
    }

    /// Translates the engine's result of a call. Where another rank has ended the job, this one ends here.
    #[inline]
    pub(crate) fn done<T>(&self, call: &'static str, result: Result<T, EngineError>) -> Result<T> {
        match result {
            Ok(value) => Ok(value),
            Err(error) => Err(self.member.failed(call, error)),
        }
    }

    /// Serves the network once: completions, messages. Runs handlers. Refused in a handler.
    ///
    /// # Errors
    /// Returns [`EngineError::Context`](crate::Error#calls-in-handlers) in a handler, and any
    /// [failure of the job](crate::Error#failure-of-the-job).
    #[inline]
    pub fn poll(&self) -> Result<()> {
        self.done("poll", self.member.engine().poll())
    }

    /// Polls until the condition holds; waits in between as is best on this host. For conditions that handlers or other
    /// ranks' puts make true: a `bool`, or a [`Result`] whose error ends the wait. Not in a handler, where what would make it true
    /// may wait for the handler's end.
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
    /// Returns the error of the condition. While that does not hold, also
    /// [`EngineError::Context`](crate::Error#calls-in-handlers) in a handler and any [failure of
    /// the job](crate::Error#failure-of-the-job).
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

    /// Waits until all ranks have called it. What any rank has stored, or put and synchronised, before it is there after it.
    ///
    /// It does not deliver messages: one that was sent before it may be handled after it. [`Conduit::quiesce`] does.
    ///
    /// # Errors
    /// Returns [`Error::BarrierMismatch`] on all ranks if one of them has called
    /// [`Conduit::quiesce`] or [`Conduit::finish`] instead, or if two gave different ids. Returns
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

    /// A barrier that delivers messages: returns when all ranks have called it and every message that any of them sent before
    /// has been handled, requests and their replies.
    ///
    /// Costs two barriers, and nothing for each message. Where several threads of a rank send, it waits for what the others send
    /// meanwhile too.
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
    /// In a handler. A rank has failed. Another rank has called a barrier or [`Conduit::finish`] instead: then on all ranks. Between
    /// [`Conduit::barrier_notify`] and its wait.
    pub fn quiesce(&self) -> Result<()> {
        let outcome = self.done("quiesce", self.member.engine().barriers().quiesce())?;
        self.matched("quiesce", outcome)
    }

    /// A barrier with a name: an error if ranks give different ones (or one that no rank gave).
    ///
    /// # Errors
    /// As for [`Conduit::barrier`].
    pub fn barrier_named(&self, id: u32) -> Result<()> {
        let outcome = self.done(
            "barrier_named",
            self.member.engine().barriers().barrier(Value::Named(id)),
        )?;
        self.matched("barrier_named", outcome)
    }

    /// First half of a [barrier](Conduit::barrier), named or anonymous (`None`): this rank has arrived. Then [`Conduit::barrier_wait`] or
    /// [`Conduit::barrier_try`].
    ///
    /// # Errors
    /// Returns [`EngineError::Barrier`](crate::EngineError::Barrier) if the barrier notified before
    /// has not been waited for, [`EngineError::Context`](crate::Error#calls-in-handlers) in a
    /// handler, and any [failure of the job](crate::Error#failure-of-the-job).
    pub fn barrier_notify(&self, id: Option<u32>) -> Result<()> {
        self.done(
            "barrier_notify",
            self.member.engine().barriers().barrier_notify(value(id)),
        )
    }

    /// Second half of a barrier: waits for all others.
    ///
    /// # Errors
    /// Returns [`Error::BarrierMismatch`] if the ids of two ranks differ, if `id` is not the one
    /// that the ranks agreed on, or if another rank has called [`Conduit::quiesce`] or
    /// [`Conduit::finish`]. Returns [`EngineError::Barrier`](crate::EngineError::Barrier) without a
    /// [`Conduit::barrier_notify`] before. While ranks are missing, also
    /// [`EngineError::Context`](crate::Error#calls-in-handlers) in a handler and any [failure of
    /// the job](crate::Error#failure-of-the-job).
    pub fn barrier_wait(&self, id: Option<u32>) -> Result<()> {
        let outcome = self.done(
            "barrier_wait",
            self.member.engine().barriers().barrier_wait(value(id)),
        )?;
        self.matched("barrier_wait", outcome)
    }

    /// As [`Conduit::barrier_wait`] without waiting: has the barrier ended?
    ///
    /// # Errors
    /// As for [`Conduit::barrier_wait`] and [`Conduit::poll`].
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

    /// Leaves the job in good order: waits until all ranks have called it and all messages have been handled
    /// ([`Conduit::quiesce`]), then tells the launcher. Collective, once.
    ///
    /// It takes a reference, so a rank that is shared or static can finish too. Later calls that would use the network are errors,
    /// on all threads; copies to and from memory that is mapped here are still made. What other threads start while this call runs may
    /// be lost: a program that has some ends them before.
    ///
    /// # Errors
    /// In a handler. A rank has failed. Another rank has called a barrier or [`Conduit::quiesce`] instead: then on all ranks, and
    /// none has finished. Between [`Conduit::barrier_notify`] and its wait. A second call.
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
        // It is over here when the others' messages are in; this rank's own may still have to go out, and
        // nobody sends them once it is gone.
        let limit = self.member.settings().engine.exit_wait(self.size());
        self.member.engine().drain(limit);
        self.member.finish()
    }

    /// Ends the whole job with this exit code: tells the other ranks, waits for them for a bounded time
    /// (`CONDUIT_EXIT_TIMEOUT`), ends this process. May be called at any time, also while others compute: the launcher
    /// ends those that do not notice.
    pub fn exit(&self, code: i32) -> ! {
        self.member.end(code, || ());
        std::process::exit(process_code(code))
    }

    /// Credits for requests to `peer` that are free now (`gasnet_send_credits`).
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

    /// Credits that this rank has lent to `peer`.
    ///
    /// # Errors
    /// As for [`Conduit::send_credits`].
    pub fn lent_credits(&self, peer: Rank) -> Result<u32> {
        self.done(
            "lent_credits",
            self.member.engine().messages().credits(peer),
        )
        .map(|credits| credits.lent)
    }

    /// How often a request to `peer` had to wait for credits (`gasnet_credit_stalls`).
    ///
    /// # Errors
    /// As for [`Conduit::send_credits`].
    pub fn credit_stalls(&self, peer: Rank) -> Result<u64> {
        self.done(
            "credit_stalls",
            self.member.engine().messages().credits(peer),
        )
        .map(|credits| credits.stalls)
    }

    /// Credits in this rank's bank (`gasnet_banked_credits`).
    pub fn banked_credits(&self) -> u32 {
        self.member.engine().messages().banked_credits()
    }

    /// Credits that `peer` has taken back from this rank (`gasnet_revoked_credits`).
    ///
    /// # Errors
    /// As for [`Conduit::send_credits`].
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
        // A job of one leaves nobody, nor does a child; a panic or the error that ended the job has
        // said more.
        let engine = self.member.engine();
        let leaves = !self.finished.load(Relaxed) && self.size() > 1 && !engine.job().is_child();
        if leaves && !std::thread::panicking() && engine.job().fault().is_none() {
            stderr::write_line(format_args!(
                "conduit: rank {} of {} leaves the job without Conduit::finish, and the others can't go on",
                self.rank(),
                self.size()
            ));
        }
    }
}

/// What [`Conduit::wait_until`] waits for: `bool`, or a [`Result`] of it.
pub trait Condition {
    /// Whether it holds.
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

// SAFETY: the fields are `Sync` in each mode that is `Shared`, which the constant below checks.
unsafe impl<M: Shared> Sync for Conduit<M> {}
// SAFETY: the fields are `Send` in each mode that is `Movable`, which the constant below checks.
unsafe impl<M: Movable> Send for Conduit<M> {}

const _: () = {
    const fn shared<T: Sync>() {}
    const fn moved<T: Send>() {}
    shared::<(Member<Par>, AtomicBool)>();
    moved::<(Member<Par>, AtomicBool)>();
    moved::<(Member<ParSync>, AtomicBool)>();
};
