//! The calls that return the credits of a rank.

use credits::FlowControl;

use crate::engine::{Calls, subject};
use crate::kernel::error::Result;
use crate::ni::{Ni, Rank};
use crate::threads::Mode;

/// The credits between a rank and a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerCredits {
    /// The number of credits lent by the peer to this rank that are free now.
    pub send: u32,
    /// The number of credits that this rank has lent to the peer.
    pub lent: u32,
    /// The number of times that a request to the peer had to wait for credits.
    pub stalls: u64,
    /// The number of credits that the peer has taken back from this rank.
    pub revoked: u64,
}

impl<'e, N: Ni, M: Mode> Calls<'e, N, M, subject::Messages> {
    /// Returns the credits between this rank and `peer`. Reads the counter of credits that the peer
    /// has returned, but does not poll.
    ///
    /// # Errors
    /// If the rank does not exist, or the peer has returned credits that it never had.
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

    /// Returns the number of credits in this rank's bank.
    pub fn banked_credits(self) -> u32 {
        self.engine
            .messages
            .credits
            .flow
            .look(self.job().rank, FlowControl::banked)
    }
}
