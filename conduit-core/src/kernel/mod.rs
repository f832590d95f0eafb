//! The foundation of all subjects (puts and gets, messages, barriers and so on): the job and the
//! network, the resources of operations in flight, system messages, and the rules of waiting. The
//! kernel depends on no subject.
//!
//! | file | subject |
//! |---|---|
//! | `job`, `polling`, `context` | the network, the settings, shortcuts, the job's fault; the threads that poll; a thread's context |
//! | `queues`, `portal_table`, `token`, `completion` | event queues, indices and tags; how completions are recognised, and what they free |
//! | `operations`, `handle`, `options` | operations in flight, their ids and handles; options of the calls that start them |
//! | `chunks`, `tickets`, `control` | chunks, descriptors, send tickets; control words of mapped peers |
//! | `system` | system messages |
//! | `backoff`, `reports`, `liveness` | when a waiting rank spins, yields and sleeps; when it reports its wait; dead peers |
//! | `error` | errors of calls, and of a job |
//!
//! A rank uses 9 bytes of memory for each peer: a counter by which a mapped peer returns credits,
//! and a flag that lets requests to the peer take the shortcut.

pub(crate) mod backoff;
pub(crate) mod chunks;
mod completion;
pub(crate) mod context;
pub(crate) mod control;
pub(crate) mod error;
pub(crate) mod handle;
pub(crate) mod job;
mod liveness;
pub(crate) mod operations;
pub(crate) mod options;
pub(crate) mod polling;
pub(crate) mod portal_table;
pub(crate) mod queues;
pub(crate) mod reports;
mod start;
pub(crate) mod system;
pub(crate) mod tickets;
pub(crate) mod token;

pub use backoff::Waiter;
pub use control::SharedPtr;
pub use error::{Error, Result};
pub use handle::Handle;
pub use job::Job;
pub use options::{Blocking, Completion};

use backoff::Backoff;
use chunks::{Descriptors, SendBuffer};
use control::Control;
use handle::OpId;
use operations::Operations;
use queues::Queues;
use reports::Reports;
use system::{Message, System};

use crate::ni::{MatchEntry, Ni, PtIndex, Rank};
use crate::threads::Mode;

/// The state described in the documentation of this module.
pub(crate) struct Kernel<N: Ni, M: Mode> {
    pub(crate) job: Job<N>,
    pub(crate) queues: Queues,
    pub(crate) control: Control,
    pub(crate) system: System<M>,
    /// ReqSB: the chunks for requests and for bounced transfers.
    pub(crate) chunks: SendBuffer<M>,
    pub(crate) descriptors: Descriptors<M>,
    pub(crate) operations: Operations<M>,
    pub(crate) backoff: Backoff,
    /// Present if the settings enable reports.
    pub(crate) reports: Option<Reports>,
    /// A number that distinguishes the engines of one process. Thread-local state uses it.
    pub(crate) identity: u64,
}

impl<N: Ni, M: Mode> Kernel<N, M> {
    /// Begins an operation; see [`Operations::begin`].
    pub(crate) fn begin(
        &self,
        operation: &'static str,
        group: Option<OpId>,
        peer: Option<Rank>,
    ) -> Result<OpId> {
        self.operations.begin(&self.job, operation, group, peer)
    }

    /// Begins a group of operations; see [`Operations::begin_group`].
    pub(crate) fn begin_group(&self, operation: &'static str, open: bool) -> Result<OpId> {
        self.operations.begin_group(&self.job, operation, open)
    }

    /// Ends those operations among the handles that have completed; see [`Operations::sweep`].
    pub(crate) fn sweep(
        &self,
        operation: &'static str,
        handles: &mut [Handle],
    ) -> Result<(usize, bool)> {
        self.operations.sweep(&self.job, operation, handles)
    }

    /// Counts one piece of an operation as finished.
    pub(crate) fn finish(&self, op: OpId) {
        self.operations.finish(&self.job, &self.descriptors, op);
    }

    /// Ends an operation if it has completed; see [`Operations::take`].
    pub(crate) fn take(&self, operation: &'static str, op: OpId) -> Result<Option<u64>> {
        self.operations.take(&self.job, operation, op)
    }

    /// Frees a chunk. Ends the job if the chunk is not in use.
    pub(crate) fn give_chunk(&self, chunk: u32) {
        self.chunks.give(&self.job, chunk);
    }

    /// Sends a system message, either now or at a later poll.
    pub(crate) fn send_system(&self, target: Rank, message: Message) {
        self.system.send(&self.job, target, message);
    }

    /// Performs pending work: ends the job if that is due, releases descriptors, and sends system
    /// messages. Returns whether all system messages have been sent.
    pub(crate) fn retry(&self) -> bool {
        if self.job.is_child() {
            return false;
        }
        self.job.begin_retries();
        self.job.end_when_due();
        self.descriptors.release_delayed(&self.job);
        self.system.flush(&self.job)
    }

    /// Returns whether work for [`Kernel::retry`] is pending. The result is exact even while
    /// another thread is performing that work.
    pub(crate) fn has_retries(&self) -> bool {
        self.job.wants_poll() || !self.system.is_empty() || !self.descriptors.are_released()
    }

    /// Appends a match entry again after it has been used up and unlinked.
    pub(crate) fn relink(&self, index: PtIndex, entry: MatchEntry) {
        if let Err(error) = self.job.ni.me_append(index, entry) {
            self.job.fail(error.into());
        }
    }
}
