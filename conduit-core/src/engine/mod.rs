//! The engine: GASNet's operations over the Ni contract. Written once, for every network.
//!
//! | file | subject |
//! |---|---|
//! | `start`, `attach` | memory, queues and lists of a rank; its segment |
//! | `poll`, `requests`, `polling` | poll order and limits, completions and replies; requests; who is polling |
//! | `waiting` | spin, yield, sleep |
//! | `rma`, `transfer`, `handle` | puts and gets: to mapped memory, and by messages; waiting for them |
//! | `implicit` | implicit handles and access regions, per thread |
//! | `atomic` | remote atomics |
//! | `request`, `request_plain`, `request_long`, `prepared` | requests on their way out |
//! | `deliver`, `plain`, `reply`, `hand` | messages that have come, to their handlers; replies and what they need |
//! | `credit_statistics` | the file that tells where the credits are |
//! | `flow` | credits, the budget of outstanding requests, coalesced returns |
//! | `barriers`, `quiesce`, `collective` | barriers; quiescence; broadcasts and reductions |
//! | `system` | system messages, the end of a job |
//! | `resources`, `operations`, `in_use` | tickets, chunks, operation ids; what is held |
//!
//! Where a peer's memory is mapped, the roles of the seed collapse: a put is a copy, a short or medium is one injected
//! message, a long is a copy and a message. Where it is not, every operation goes the seed's way: ticket, source role,
//! operation id, message, completion event.

mod atomic;
mod attach;
mod barriers;
mod collective;
mod credit_statistics;
mod deliver;
mod error;
mod everything;
mod flow;
mod hand;
mod handle;
mod implicit;
mod in_use;
mod operations;
mod plain;
mod poll;
mod polling;
mod prepared;
mod quiesce;
mod reply;
mod request;
mod request_long;
mod request_plain;
mod requests;
mod resources;
mod rma;
mod start;
mod system;
mod token;
mod transfer;
mod waiting;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

pub use atomic::AtomicRequest;
pub use attach::Segment;
pub use barriers::BarrierOutcome;
pub use collective::{JOB_TEAM, ReduceFunction, Reduction};
pub use deliver::{Call, Handler, Payload};
pub use error::{Error, Result};
pub use handle::Handle;
pub use in_use::InUse;
pub use prepared::{Prepared, PreparedReply};
pub use rma::Blocking;
pub use start::Shared;
pub use waiting::Waiter;

use crate::fork::{Standing, Wiped};
use crate::ni::{EqId, MdId, Ni, PtIndex, Rank, Ready};
use crate::settings::Settings;
use crate::threads::{Lock, Mode};
use attach::Segments;
use credits::FlowControl;
use flow::Flow;
use operations::{OpId, Operations};
use request_plain::{AtomicWay, Way};
use requests::AmSide;
use resources::{ChunkPool, Tickets};
use start::Control;

/// The portal table: one index per queue (`facts`: a target's queue belongs to its index).
mod index {
    use super::PtIndex;
    /// The segment, for puts and gets. No queue.
    pub(super) const RAR: PtIndex = PtIndex(0);
    /// Requests, and the data of long requests.
    pub(super) const AM: PtIndex = PtIndex(1);
    /// Replies.
    pub(super) const SAFE: PtIndex = PtIndex(2);
    /// System messages.
    pub(super) const SYS: PtIndex = PtIndex(3);
}

/// Names of match entries, given back in their events.
mod tag {
    pub(super) const RAR: u64 = 0;
    pub(super) const RARAM: u64 = 1;
    pub(super) const CATCH_BASIN: u64 = 2;
    pub(super) const REQ_SB: u64 = 3;
    pub(super) const SYS: u64 = 4;
    /// A request buffer; each has the same name, as each is appended again in the same way.
    pub(super) const REQ_RB: u64 = 5;
    /// A reply buffer.
    pub(super) const RPL_RB: u64 = 6;
}

/// The selector of the locally managed buffers that injected replies arrive in. The seed's conduit has no such role: its
/// replies always go to the requester's chunk. Here that is so only where a network cannot inject.
const SELECT_RPL_RB: u8 = 6;

/// One rank's engine over one network.
///
/// Every call may poll and run handlers, unless it says that it doesn't.
pub struct Engine<N: Ni, M: Mode> {
    ni: N,
    rank: Rank,
    size: u32,
    settings: Settings,
    chunk: usize,
    scale: credits::Scale,
    sys_eq: EqId,
    safe_eq: EqId,
    am_eq: EqId,
    /// What the network calls them when they have something.
    sys_ready: Ready,
    safe_ready: Ready,
    am_ready: Ready,
    req_md: MdId,
    rpl_md: MdId,
    control: Control,
    /// By rank: the short cut that requests to it may take; none in a child. 1 byte a rank.
    ways: Wiped<AtomicWay>,
    /// Bytes that every peer with [`Way::Injected`] takes injected.
    inject_size: usize,
    /// See [`Self::has_checks`].
    checks: bool,
    /// Atomics on a mapped segment are the processor's, not the network's.
    processor_atomics: bool,
    /// First byte of the ReqSB chunks; the RplSB chunks follow.
    chunks: crate::ni::Region,
    req_sb: M::Lock<ChunkPool>,
    rpl_sb: M::Lock<ChunkPool>,
    tickets: Tickets,
    tmpmd: Tickets,
    operations: M::Lock<Operations>,
    /// Collects operations that nobody waits for (long-async data).
    detached: OpId,
    flow: Flow<M>,
    credit_statistics: Option<M::Lock<credit_statistics::CreditStatistics>>,
    am: M::Lock<AmSide<N, M>>,
    /// A reply that the network would not take is in hand.
    reply_waiting: AtomicBool,
    handlers: deliver::Handlers<N, M>,
    lids: M::Lock<am::lid::LidGenerator>,
    barriers: barriers::Barriers<M>,
    collectives: collective::Collectives<M>,
    system: M::Lock<system::Outbox>,
    /// The outbox is not empty.
    system_waiting: AtomicBool,
    segments: OnceLock<Segments>,
    /// Falls when something has gone wrong for good, which `fault` tells. Whoever calls looks at it.
    standing: Standing,
    /// Who is inside a poll, in PAR.
    polling: polling::Polling,
    fault: OnceLock<Error>,
    exit_answers: AtomicU64,
    /// Tells engines of one process apart, for the state that threads keep.
    identity: u64,
    /// Polls that found nothing, for [`Engine::poll`].
    idle_polls: AtomicU32,
    /// Replies that have come last; whoever polls their queue has it.
    recent_replies: M::Lock<plain::Recent<N, M>>,
    /// Yields since one took long, and times that the rank is yet to sleep instead.
    yield_count: AtomicU32,
    sleeps: AtomicU32,
    spin: u32,
    yields: u32,
    _mode: M,
}

static IDENTITY: AtomicU64 = AtomicU64::new(0);

impl<N: Ni, M: Mode> std::fmt::Debug for Engine<N, M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("rank", &self.rank)
            .field("size", &self.size)
            .field("mode", &M::NAME)
            .finish_non_exhaustive()
    }
}

impl<N: Ni, M: Mode> Engine<N, M> {
    /// This rank.
    #[inline]
    pub fn rank(&self) -> Rank {
        self.rank
    }

    /// Ranks in the job.
    #[inline]
    pub fn size(&self) -> u32 {
        self.size
    }

    /// The network below.
    pub fn network(&self) -> &N {
        &self.ni
    }

    /// What this rank was started with.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    #[inline]
    fn check_rank(&self, operation: &'static str, rank: Rank) -> Result<()> {
        if rank < self.size {
            Ok(())
        } else {
            Err(Error::NoSuchRank {
                operation,
                rank,
                size: self.size,
            })
        }
    }

    /// Whether callers are checked. Never in optimised builds, where looking for it would cost every call.
    #[inline(always)]
    fn has_checks(&self) -> bool {
        cfg!(debug_assertions) && self.checks
    }

    /// With checks: may this thread do that where it is?
    #[inline]
    fn check_context(&self, operation: &'static str, what: am::Operation) -> Result<()> {
        if self.has_checks() {
            deliver::context::check(what).map_err(|reason| Error::Context {
                operation,
                rank: self.rank,
                reason,
            })?;
        }
        Ok(())
    }

    /// In any build: what polls, may wait, or leaves memory of the caller with the network, is not for handlers, nor for between
    /// prepare and commit. It would leave out what is being served already, and might go on for ever.
    #[inline]
    fn check_outside(&self, operation: &'static str, what: am::Operation) -> Result<()> {
        self.check_context(operation, what)?;
        if self.is_in_handler() {
            return Err(self.not_allowed(operation, what, am::Context::Handler));
        }
        if deliver::context::is_prepared() {
            return Err(self.not_allowed(operation, what, am::Context::Prepared));
        }
        Ok(())
    }

    /// Whether this thread is in a handler, or a function that reduces, in any build.
    #[inline]
    fn is_in_handler(&self) -> bool {
        match M::PARALLEL {
            true => polling::is_inside(),
            // The one thread holds what it serves.
            false => {
                self.am.try_lock().is_none()
                    || self.recent_replies.try_lock().is_none()
                    || self.collectives.is_busy()
            }
        }
    }

    #[cold]
    fn not_allowed(
        &self,
        operation: &'static str,
        what: am::Operation,
        context: am::Context,
    ) -> Error {
        Error::Context {
            operation,
            rank: self.rank,
            reason: am::ContextError::NotAllowed {
                operation: what,
                context,
            },
        }
    }

    /// Records what ends the job; the first reason stays.
    #[cold]
    fn fail(&self, error: Error) {
        let _ = self.fault.set(error);
        self.standing.fall();
        // Who takes a short cut does not look for a fault.
        for way in &*self.ways {
            way.set(Way::General);
        }
    }

    /// The reason for which this rank can't go on, if there is one.
    pub fn fault(&self) -> Option<&Error> {
        self.fault.get()
    }

    #[inline]
    fn check_fault(&self) -> Result<()> {
        if self.standing.stands() {
            Ok(())
        } else {
            self.fault_error()
        }
    }

    /// Who is told of an error gets the memory back that a call or an operation has been given, so nothing may touch that any more.
    #[cold]
    fn fault_error(&self) -> Result<()> {
        self.check_process()?;
        self.abandon();
        match self.fault.get() {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }

    /// Whether this process is a child of the rank's, in which nothing of the network may be used: see [`crate::fork`].
    #[inline]
    pub fn is_child(&self) -> bool {
        self.standing.is_child()
    }

    /// Refuses in a child, for what is done after a fault too, or without a look for one.
    #[inline]
    pub fn check_process(&self) -> Result<()> {
        match self.is_child() {
            true => Err(self.forked()),
            false => Ok(()),
        }
    }

    #[cold]
    fn forked(&self) -> Error {
        Error::Forked {
            rank: self.rank,
            process: std::process::id(),
        }
    }

    /// Nothing touches memory of the program's after this: neither completions nor the network.
    #[cold]
    fn abandon(&self) {
        // What a child has of it is a copy, and threads that polled are not in it.
        if self.is_child() {
            return;
        }
        if M::PARALLEL {
            self.polling.wait_until_out();
        }
        self.req_sb.lock().forget_bounces();
        self.ni.abandon();
    }

    /// Address of a ReqSB chunk.
    fn req_chunk(&self, chunk: u32) -> *mut u8 {
        // In bounds: chunk numbers come from a pool of `sb_chunks`, and `start` made the region for all of them.
        self.chunks.base.wrapping_add(chunk as usize * self.chunk)
    }

    /// Address of an RplSB chunk.
    fn rpl_chunk(&self, chunk: u32) -> *mut u8 {
        self.chunks
            .base
            .wrapping_add((self.settings.sb_chunks + chunk) as usize * self.chunk)
    }

    /// Send credits that `peer` has granted this rank and that are free now.
    pub fn send_credits(&self, peer: Rank) -> Result<u32> {
        self.check_rank("send_credits", peer)?;
        self.collect_returns(peer)?;
        Ok(self.flow.look(peer, |policy| policy.available(peer)))
    }

    /// Credits that this rank has lent to `peer`.
    pub fn lent_credits(&self, peer: Rank) -> Result<u32> {
        self.check_rank("lent_credits", peer)?;
        Ok(self.flow.look(peer, |policy| policy.lent(peer)))
    }

    /// How often a request to `peer` had to wait for credits.
    pub fn credit_stalls(&self, peer: Rank) -> Result<u64> {
        self.check_rank("credit_stalls", peer)?;
        Ok(self.flow.look(peer, |policy| policy.stalls(peer)))
    }

    /// Credits that this rank has in its bank.
    pub fn banked_credits(&self) -> u32 {
        self.flow.look(self.rank, FlowControl::banked)
    }

    /// Credits that `peer` has taken back from this rank.
    pub fn revoked_credits(&self, peer: Rank) -> Result<u64> {
        self.check_rank("revoked_credits", peer)?;
        Ok(self.flow.look(peer, |policy| policy.revoked(peer)))
    }
}
