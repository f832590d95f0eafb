//! The engine, which composes the subjects, routes the events of a poll to them, and waits. It is
//! written once, for every network.
//!
//! | file | subject |
//! |---|---|
//! | `calls` | the subjects' calls, as views of the engine |
//! | `start`, `exit` | start and end of a rank |
//! | `poll`, `handlers` | the poll and the routing of its events; registration and execution of handlers |
//! | `waiting`, `report` | the one wait; reports of what a rank waits for |
//! | `in_use` | the resources that the engine holds, for diagnosis |
//!
//! Functions of a subject that only attempt something never wait. They take the
//! [kernel](crate::kernel) and know nothing of the engine. A call that waits must poll, and a poll
//! reaches every subject. Calls are therefore views of the engine, defined in the folders of their
//! subjects.
//!
//! For a peer whose memory is mapped, most of the resources of GASNet's portals-conduit are not
//! needed: a put is a copy, a short or medium is one injected message, and a long is a copy and a
//! message. For other peers, every operation works as in that conduit, with a ticket, a source
//! role, an operation id, a message and a completion event.

mod calls;
mod exit;
pub(crate) mod handlers;
mod in_use;
mod poll;
pub(crate) mod report;
mod start;
pub(crate) mod waiting;

use std::sync::Arc;

pub use calls::{Calls, subject};
pub use in_use::InUse;

use crate::atomics::Atomics;
use crate::barrier::state::Barriers;
use crate::collectives::state::Collectives;
use crate::kernel::job::Job;
use crate::kernel::{Error, Kernel, Result, context, polling};
use crate::memory::Memory;
use crate::messages::flow::When;
use crate::messages::reserve::ReplyReserve;
use crate::messages::{Messages, Payload};
use crate::ni::{Ni, Rank};
use crate::rma::{Rma, implicit};
use crate::threads::{Lock, Mode};

/// One rank's engine over one network.
///
/// Every call may poll and run handlers unless its documentation says otherwise.
pub struct Engine<N: Ni, M: Mode> {
    pub(crate) kernel: Kernel<N, M>,
    pub(crate) memory: Memory,
    pub(crate) messages: Messages<M, Handler<N, M>>,
    pub(crate) rma: Rma<M>,
    pub(crate) atomics: Atomics,
    pub(crate) barriers: Barriers<M>,
    pub(crate) collectives: Collectives<M>,
    _mode: M,
}

type Function<N, M> = dyn Fn(&Call<'_, N, M>);

/// A client's handler. It is called once for each message that bears its id, on whichever thread
/// polls.
pub struct Handler<N: Ni, M: Mode>(pub(crate) Arc<Function<N, M>>);

impl<N: Ni, M: Mode> Handler<N, M> {
    /// Creates a handler that may run in every mode.
    pub fn new(function: impl Fn(&Call<'_, N, M>) + Send + Sync + 'static) -> Self {
        Self(Arc::new(function))
    }

    /// Creates a handler for this mode.
    ///
    /// # Safety
    /// The mode must be able to [run](crate::threads::Runs) the function, or everything that the
    /// function holds.
    pub unsafe fn of_mode(function: impl Fn(&Call<'_, N, M>) + 'static) -> Self {
        Self(Arc::new(function))
    }
}

impl<N: Ni, M: Mode> Clone for Handler<N, M> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<N: Ni, M: Mode> std::fmt::Debug for Handler<N, M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Handler")
    }
}

// SAFETY: a mode that is `Send` is not `Seq`. In the modes other than `Seq`, every function is
// `Send` and `Sync`. `new` has these bounds, `of_mode` requires them through `Runs`, and this
// crate's own handlers capture nothing.
unsafe impl<N: Ni, M: Mode + Send> Send for Handler<N, M> {}
// SAFETY: a mode that is `Sync` is not `Seq`, so the function is `Send` and `Sync` for the reasons
// given for `Send`.
unsafe impl<N: Ni, M: Mode + Sync> Sync for Handler<N, M> {}

/// A message passed to its handler.
pub struct Call<'a, N: Ni, M: Mode> {
    pub(crate) engine: &'a Engine<N, M>,
    pub(crate) token: &'a am::Token,
    pub(crate) reserve: Option<&'a ReplyReserve>,
    pub(crate) args: &'a [u32],
    pub(crate) payload: Payload<'a>,
}

impl<N: Ni, M: Mode> std::fmt::Debug for Call<'_, N, M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Call")
            .field("token", &self.token)
            .field("args", &self.args)
            .finish_non_exhaustive()
    }
}

impl<'a, N: Ni, M: Mode> Call<'a, N, M> {
    /// Returns the rank that sent the message.
    #[inline]
    pub fn source(&self) -> Rank {
        self.token.source
    }

    /// Returns the message's arguments, which are read in place, like the [bytes of a
    /// medium](Payload::Medium).
    #[inline]
    pub fn args(&self) -> &'a [u32] {
        self.args
    }

    /// Returns the message's payload.
    #[inline]
    pub fn payload(&self) -> Payload<'a> {
        self.payload
    }

    /// Returns whether the message is a request, to which the handler may reply.
    #[inline]
    pub fn is_request(&self) -> bool {
        self.token.role == am::Role::Request
    }

    /// Returns the engine that runs the handler. With checks, the engine refuses every call that a
    /// handler may not make. Without checks, it refuses only calls that poll or have to wait.
    #[inline]
    pub fn engine(&self) -> &'a Engine<N, M> {
        self.engine
    }
}

impl<N: Ni, M: Mode> std::fmt::Debug for Engine<N, M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("rank", &self.kernel.job.rank)
            .field("size", &self.kernel.job.size)
            .field("mode", &M::NAME)
            .finish_non_exhaustive()
    }
}

impl<N: Ni, M: Mode> Drop for Engine<N, M> {
    fn drop(&mut self) {
        // The statistics file belongs to the parent.
        if !self.kernel.job.is_child() {
            self.messages
                .credits
                .write_statistics(&self.kernel, When::End);
        }
        implicit::forget(self.kernel.identity);
    }
}

impl<N: Ni, M: Mode> Engine<N, M> {
    /// Returns this rank.
    #[inline]
    pub fn rank(&self) -> Rank {
        self.kernel.job.rank
    }

    /// Returns the number of ranks in the job.
    #[inline]
    pub fn size(&self) -> u32 {
        self.kernel.job.size
    }

    /// Returns the rank's job: its network, its settings and its fault.
    #[inline]
    pub fn job(&self) -> &Job<N> {
        &self.kernel.job
    }

    /// Refuses, in any build, calls that poll, may wait, or leave memory of the caller with the
    /// network, if they are made in a handler or between prepare and commit. Such a call could not
    /// serve the queue that is already being served, and might never return.
    #[inline]
    pub(crate) fn check_outside(&self, operation: &'static str, what: am::Operation) -> Result<()> {
        self.kernel.job.check_context(operation, what)?;
        // Outside PAR only one thread at a time is inside the engine. That thread holds the lock of
        // what it serves, even while a reduction's function runs.
        let is_inside = match M::PARALLEL {
            true => polling::is_inside(),
            false => {
                self.messages.arriving.try_lock().is_none()
                    || self.messages.last_reply.try_lock().is_none()
                    || self.collectives.is_busy()
            }
        };
        let context = match is_inside {
            true => am::Context::Handler,
            false if context::is_prepared() => am::Context::Prepared,
            false => return Ok(()),
        };
        Err(self.kernel.job.not_allowed(operation, what, context))
    }

    /// Records that this rank has left the network. Later calls that need the network fail, and the
    /// rank's operations no longer access callers' memory.
    pub fn retire(&self) {
        self.kernel.job.fail(Error::Finished);
        // The next call reports the error.
        let _ = self.abandon();
    }

    #[inline]
    pub(crate) fn check_fault(&self) -> Result<()> {
        match self.kernel.job.stands() {
            true => Ok(()),
            false => self.abandon(),
        }
    }

    /// Stops completions and the network from accessing the program's memory. A caller that gets an
    /// error therefore gets back all memory that it passed to a call or an operation.
    ///
    /// # Errors
    /// The fault, if there is one. In a child, [`Error::Forked`], because the child's memory is a
    /// copy in which the threads that were polling do not exist.
    #[cold]
    pub(crate) fn abandon(&self) -> Result<()> {
        self.kernel.job.check_process()?;
        if M::PARALLEL {
            self.kernel.job.polling.wait_until_out();
        }
        self.kernel.chunks.forget_bounces();
        self.rma.transfers.forget();
        self.kernel.job.ni.abandon();
        self.kernel
            .job
            .fault()
            .map_or(Ok(()), |fault| Err(fault.clone()))
    }
}
