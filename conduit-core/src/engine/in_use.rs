//! The resources that an engine holds, for diagnosis. The engine holds none once all operations are
//! synchronised and all messages answered.

use crate::engine::Engine;
use crate::kernel::error::Result;
use crate::kernel::job::send_tickets;
use crate::ni::Ni;
use crate::threads::{Lock, Mode};

/// The resources held by operations and messages in flight. The reserve that a rank always keeps
/// for its next reply does not count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct InUse {
    /// The number of send tickets (`GASNET_PORTAL_MSG_LIMIT`).
    pub tickets: u32,
    /// The number of temporary memory descriptors (`GASNET_PORTAL_NUM_TMPMD`).
    pub descriptors: u32,
    /// The number of ReqSB chunks (`GASNET_PORTAL_SB_CHUNKS`).
    pub request_chunks: u32,
    /// The number of RplSB chunks (`GASNET_PORTAL_RPL_CHUNKS`).
    pub reply_chunks: u32,
    /// The number of operations that have not ended or not been synchronised
    /// (`CONDUIT_MAX_OPERATIONS`).
    pub operations: u32,
    /// The number of requests that have no reply yet.
    pub requests: u32,
    /// The number of peers that were asked for credits and have not answered yet.
    pub revokes: u32,
    /// The number of long messages to this rank of which only one half has arrived.
    pub half_longs: u32,
}

impl<N: Ni, M: Mode> Engine<N, M> {
    /// Returns the resources in use now. Reads the credits that peers have returned; does not poll.
    ///
    /// # Errors
    /// If a peer has returned credits that it never had.
    pub fn in_use(&self) -> Result<InUse> {
        self.messages
            .credits
            .collect_of(&self.kernel, 0..self.kernel.job.size)?;
        // If the lock is held, requests are being served, either by another thread or by a function
        // further up this thread's stack.
        let (ready_ticket, ready_chunk, half_longs) = match self.messages.arriving.try_lock() {
            Some(side) => side.held(),
            None => (0, 0, 0),
        };
        let all = send_tickets(&self.kernel.job.settings);
        Ok(InUse {
            tickets: (all - self.kernel.job.tickets.free()).saturating_sub(ready_ticket),
            descriptors: self.kernel.job.settings.num_tmpmd
                - self.kernel.descriptors.tickets.free(),
            request_chunks: self.kernel.chunks.held(),
            reply_chunks: self
                .messages
                .replies
                .buffer
                .held()
                .saturating_sub(ready_chunk),
            operations: self.kernel.operations.live(),
            requests: self.messages.credits.flow.outstanding(),
            revokes: self
                .messages
                .credits
                .flow
                .look(self.kernel.job.rank, credits::FlowControl::asked),
            half_longs,
        })
    }

    /// Returns whether the engine holds nothing and has nothing pending.
    ///
    /// # Errors
    /// Same as [`Engine::in_use`].
    pub fn is_quiet(&self) -> Result<bool> {
        let waits = self.messages.credits.has_retries(&self.kernel)
            || self.messages.replies.is_waiting()
            || self.collectives.has_outgoing();
        Ok(!waits && self.in_use()? == InUse::default())
    }
}
