//! The start of a rank's message layer, which creates its buffers and fills its match lists.

use am::handlers::{RegisterError, Table};
use am::lid::LidGenerator;
use am::select;
use credits::Plan;

use super::Messages;
use super::flow::{Accounts, Flow};
use super::handlers::Handlers;
use super::inbox::AmSide;
use super::kind::MessageKind;
use super::replies::Replies;
use super::shuffle::Shuffle;
use crate::kernel::Kernel;
use crate::kernel::chunks::SendBuffer;
use crate::kernel::error::{Error, Result};
use crate::kernel::portal_table::{CHUNKS, SELECT_RPL_RB, index, tag};
use crate::ni::{MatchEntry, MeMemory, MeOptions, Ni};
use crate::threads::{Lock, Mode};

/// The number of reply buffers, which injected replies fill in turn.
const REPLY_BUFFERS: u32 = 3;

impl<M: Mode, H: Clone> Messages<M, H> {
    /// Replaces the table of handlers by a copy to which `enter` has added handlers.
    pub(crate) fn register<N: Ni>(
        &self,
        kernel: &Kernel<N, M>,
        enter: impl FnOnce(&mut Table<H>) -> Result<(), RegisterError>,
    ) -> Result<()> {
        let registered = self.handlers.replace(enter);
        registered.map_err(|reason| Error::Register {
            rank: kernel.job.rank,
            reason,
        })
    }

    /// Creates the message state. `replies` holds the chunks for outgoing replies.
    pub(crate) fn new<N: Ni>(kernel: &Kernel<N, M>, plan: &Plan, replies: SendBuffer<M>) -> Self {
        let (job, settings) = (&kernel.job, &kernel.job.settings);
        let shuffle = |seed| Box::new(Shuffle::new(seed, job.rank));
        let most_longs = (plan.total() / 2).max(64) as usize;
        Self {
            credits: Accounts {
                flow: Flow::new(plan, job.rank, settings.sb_chunks),
                scale: plan.scale(),
                statistics: None,
            },
            replies: Replies::new(replies),
            arriving: Lock::new(AmSide::new(
                job.size,
                most_longs,
                plan.buffer_bytes() as usize,
                settings.am_limit,
                settings.shuffle.map(shuffle),
            )),
            last_reply: Lock::new(MessageKind::none()),
            handlers: Handlers::new(),
            lids: Lock::new(LidGenerator::new()),
        }
    }

    /// Fills the match lists with four kinds of entries: the request buffers, the catch basin
    /// behind them, the buffers for injected replies, and the chunks, into which other replies are
    /// put.
    pub(crate) fn link<N: Ni>(&self, kernel: &Kernel<N, M>, plan: &Plan) -> Result<()> {
        for _ in 0..plan.buffers().max(2) {
            kernel.job.ni.me_append(
                index::AM,
                request_buffer(kernel, plan.buffer_bytes() as usize),
            )?;
        }
        let basin = MatchEntry {
            options: MeOptions::PUT | MeOptions::TRUNCATE | MeOptions::OVERFLOW,
            ..kernel.unmanaged(select::CB, tag::CATCH_BASIN)
        };
        kernel.job.ni.me_append(index::AM, basin)?;
        // A reply that found no buffer would be lost without notice, and its requester would hang.
        // This overflow entry detects such a reply.
        let no_buffer = MatchEntry {
            match_bits: SELECT_RPL_RB.into(),
            ..basin
        };
        kernel.job.ni.me_append(index::SAFE, no_buffer)?;
        for _ in 0..REPLY_BUFFERS {
            kernel.job.ni.me_append(index::SAFE, reply_buffer(kernel))?;
        }
        let chunks = MatchEntry {
            memory: MeMemory::Region {
                region: CHUNKS,
                offset: 0,
                len: kernel.chunks.bytes(),
            },
            ..kernel.unmanaged(select::REQ_SB, tag::REQ_SB)
        };
        kernel.job.ni.me_append(index::SAFE, chunks)?;
        Ok(())
    }
}

/// Returns a ReqRB entry. It is appended at start, and again each time that its buffer has been
/// drained.
pub(crate) fn request_buffer<N: Ni, M: Mode>(kernel: &Kernel<N, M>, bytes: usize) -> MatchEntry {
    kernel.managed(bytes, select::REQ_RB, tag::REQ_RB)
}

/// Returns the entry of a buffer for injected replies.
pub(crate) fn reply_buffer<N: Ni, M: Mode>(kernel: &Kernel<N, M>) -> MatchEntry {
    // A rank has at most `sb_chunks` requests outstanding, each with one reply. Most replies are
    // small, so a buffer has room for `sb_chunks` replies of 128 bytes. It also has room for as
    // many replies of the largest size as a single poll may take. A drained buffer is linked again
    // only after the poll, so the other buffers must suffice until then: a reply that finds no
    // buffer is lost.
    let outstanding = kernel.job.settings.sb_chunks;
    let at_once = match kernel.job.settings.safe_limit {
        0 => outstanding,
        limit => outstanding.min(limit),
    };
    let bytes =
        (outstanding as usize * 128).max(at_once as usize * kernel.job.chunk) + kernel.job.chunk;
    kernel.managed(bytes, SELECT_RPL_RB, tag::RPL_RB)
}
