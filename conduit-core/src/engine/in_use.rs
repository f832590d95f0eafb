//! What an engine holds at the moment, for diagnosis: after all is synchronised and answered,
//! nothing.

use crate::engine::Engine;
use crate::kernel::error::Result;
use crate::kernel::job::send_tickets;
use crate::ni::Ni;
use crate::threads::{Lock, Mode};

/// What operations and messages under way hold. What a rank always keeps ready for its next reply
/// is not counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct InUse {
    /// Send tickets (`GASNET_PORTAL_MSG_LIMIT`).
    pub tickets: u32,
    /// Temporary memory descriptors (`GASNET_PORTAL_NUM_TMPMD`).
    pub descriptors: u32,
    /// ReqSB chunks (`GASNET_PORTAL_SB_CHUNKS`).
    pub request_chunks: u32,
    /// RplSB chunks (`GASNET_PORTAL_RPL_CHUNKS`).
    pub reply_chunks: u32,
    /// Operations that have not ended or not been synchronised (`CONDUIT_MAX_OPERATIONS`).
    pub operations: u32,
    /// Requests without a reply yet.
    pub requests: u32,
    /// Peers that have been asked for credits and have not answered.
    pub revokes: u32,
    /// Longs to this rank of which one half has arrived.
    pub half_longs: u32,
}

impl<N: Ni, M: Mode> Engine<N, M> {
    /// What is in use now. Reads what peers have given back; does not poll.
    ///
    /// # Errors
    /// A peer has given back what it never had.
    pub fn in_use(&self) -> Result<InUse> {
        self.credits
            .collect_of(&self.job, &self.control, 0..self.job.size)?;
        // Another thread, or a handler's caller further up this thread's stack, may be serving
        // requests.
        let (ready_ticket, ready_chunk, half_longs) = match self.am.try_lock() {
            Some(side) => side.held(),
            None => (0, 0, 0),
        };
        let all = send_tickets(&self.job.settings);
        Ok(InUse {
            tickets: (all - self.job.tickets.free()).saturating_sub(ready_ticket),
            descriptors: self.job.settings.num_tmpmd - self.descriptors.tickets.free(),
            request_chunks: self.req_sb.held(),
            reply_chunks: self.replies.buffer.held().saturating_sub(ready_chunk),
            operations: self.operations.live(),
            requests: self.credits.flow.outstanding(),
            revokes: self
                .credits
                .flow
                .look(self.job.rank, credits::FlowControl::asked),
            half_longs,
        })
    }

    /// Whether the engine holds nothing and owes nothing.
    ///
    /// # Errors
    /// As [`Engine::in_use`].
    pub fn is_quiet(&self) -> Result<bool> {
        let waits =
            self.has_retries() || self.replies.is_waiting() || self.collectives.has_outgoing();
        Ok(!waits && self.in_use()? == InUse::default())
    }

    /// Whether something waits for a poll that tries it again; exact, also while another thread is
    /// at it.
    pub(crate) fn has_retries(&self) -> bool {
        self.job.wants_poll()
            || !self.system.is_empty()
            || !self.descriptors.are_released()
            || self.credits.flow.has_system()
    }
}
