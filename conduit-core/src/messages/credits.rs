//! The credits of a rank, as callers may look at them.

use credits::FlowControl;

use crate::engine::{Calls, subject};
use crate::kernel::error::Result;
use crate::ni::{Ni, Rank};
use crate::threads::Mode;

/// The credits between a rank and a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerCredits {
    /// Those that the peer has granted this rank and that are free now.
    pub send: u32,
    /// Those that this rank has lent to the peer.
    pub lent: u32,
    /// How often a request to the peer had to wait for credits.
    pub stalls: u64,
    /// Those that the peer has taken back from this rank.
    pub revoked: u64,
}

impl<'e, N: Ni, M: Mode> Calls<'e, N, M, subject::Messages> {
    /// The credits between this rank and `peer`. Reads what the peer has given back; does not poll.
    ///
    /// # Errors
    /// No such rank; a peer has given back what it never had.
    pub fn credits(self, peer: Rank) -> Result<PeerCredits> {
        self.job().check_rank("credits", peer)?;
        self.engine.messages.credits.collect(self.kernel(), peer)?;
        Ok(self
            .engine
            .messages
            .credits
            .flow
            .look(peer, |policy| PeerCredits {
                send: policy.available(peer),
                lent: policy.lent(peer),
                stalls: policy.stalls(peer),
                revoked: policy.revoked(peer),
            }))
    }

    /// Credits that this rank has in its bank.
    pub fn banked_credits(self) -> u32 {
        self.engine
            .messages
            .credits
            .flow
            .look(self.job().rank, FlowControl::banked)
    }
}
