//! The interface between the engine and an algorithm of flow control.

use crate::CreditByte;

/// An algorithm of flow control, for one rank and all its peers. All ranks of a job must use the same, with the same
/// settings.
///
/// Words: a *loan* is what we have lent to a peer; *send credits* are what a peer has lent to us. Apart from messages
/// under way the peer's loan to us is our send credits: available plus in flight.
///
/// Peers are ranks. Where the engine names the peer ([`take`](FlowControl::take) and the queries) it must be one of the
/// job's, which the engine has checked; where a message comes from the network, an unknown peer is an error.
pub trait FlowControl {
    /// Sender: takes `credits`, 1 to [`MAX_CREDITS`](crate::MAX_CREDITS), for a request to `peer`, which then carries the
    /// byte. More than a full medium costs may be more than the peer ever lends.
    ///
    /// # Errors
    /// [`Short`] when the peer has lent us too little. Poll and ask again; the stall is recorded, so that the request
    /// that gets through asks for more in its extra bits. Retry is a status here: nothing has been taken.
    ///
    /// # Panics
    /// When `peer` is not a rank of the job.
    fn take(&mut self, peer: u32, credits: u8) -> Result<CreditByte, Short>;

    /// Sender: how many credits are *ready* to be taken for requests to `peer` without asking for each:
    /// [`take`](FlowControl::take) would give each request a [plain](CreditByte::is_plain) byte, and
    /// [nothing is stale](FlowControl::is_stale), or it doesn't matter: the caller knows well enough what is in flight as
    /// long as it is at most `trusted`. They stay ready until anything but [`take_ready`](FlowControl::take_ready) is
    /// called. 0 says nothing.
    ///
    /// # Panics
    /// As [`take`](FlowControl::take).
    #[inline]
    fn ready(&self, peer: u32, trusted: u32) -> u32 {
        let _ = (peer, trusted);
        0
    }

    /// Sender: `credits` that were [ready](FlowControl::ready) have been taken, for one request or for many.
    ///
    /// # Panics
    /// As [`take`](FlowControl::take).
    #[inline]
    fn take_ready(&mut self, peer: u32, credits: u32) {
        debug_assert_eq!(credits, 0, "none are ever ready for rank {peer}");
    }

    /// Sender: takes `credits` for one request if they are [ready](FlowControl::ready).
    ///
    /// # Panics
    /// As [`take`](FlowControl::take).
    #[inline]
    fn take_if_ready(&mut self, peer: u32, credits: u8, trusted: u32) -> bool {
        let ready = self.ready(peer, trusted) >= u32::from(credits);
        if ready {
            self.take_ready(peer, credits.into());
        }
        ready
    }

    /// Sender: a request to `peer` that has [taken](FlowControl::take) `byte` is not sent after all. What the byte tells and asks
    /// for goes with the next one.
    ///
    /// # Panics
    /// As [`take`](FlowControl::take).
    fn give_back(&mut self, peer: u32, byte: CreditByte);

    /// Receiver: a request from `peer` carried `byte`; gives the byte that goes back with its reply. To be called once
    /// for each request, when its handler has run or replies. Bytes that lend nothing may be
    /// [coalesced](FlowControl::settle_many).
    #[must_use]
    fn grant(&mut self, peer: u32, byte: CreditByte) -> CreditByte;

    /// Receiver: the same for `requests` requests from `peer` at once, all with [plain](CreditByte::is_plain) bytes: the
    /// credits go back as they came, and the answer is whether one of the replies has to tell that we have ended an epoch.
    #[inline]
    #[must_use]
    fn grant_plain(&mut self, peer: u32, requests: u32) -> bool {
        (0..requests).fold(false, |end_of_epoch, _| {
            end_of_epoch | self.grant(peer, CreditByte::default()).end_of_epoch()
        })
    }

    /// Sender: a reply from `peer` brought `byte` back.
    ///
    /// # Errors
    /// When the peer gives back more than it has got, or grants what the algorithm does not provide for; nothing is then
    /// changed.
    fn settle(&mut self, peer: u32, byte: CreditByte) -> Result<(), Violation>;

    /// Sender: coalesced replies from `peer` brought `credits` back at once, and `epochs` of them said that it has ended
    /// an epoch. Which ones is not known; as if it were the first ones, what all of them bring back counts as in use at
    /// the end of these epochs: it was, for all that the sender knew.
    ///
    /// # Errors
    /// As [`settle`](FlowControl::settle).
    fn settle_many(&mut self, peer: u32, credits: u32, epochs: u32) -> Result<(), Violation>;

    /// A system message from `peer` has arrived; gives the one to send back to it, if it needs an answer.
    ///
    /// # Errors
    /// When the message answers nothing or returns more than was lent.
    fn on_system(&mut self, peer: u32, message: System) -> Result<Option<System>, Violation>;

    /// The next system message that should be sent, and to which peer. To be called when polling and after
    /// [`grant`](FlowControl::grant), until it gives none. At most one message to a peer is under way until its answer
    /// has come.
    fn next_system(&mut self) -> Option<(u32, System)>;

    /// Whether [`next_system`](FlowControl::next_system) should be called: a cheap question for every poll.
    #[inline]
    fn has_system(&self) -> bool {
        false
    }

    /// Sender: whether credits that have come back without a message of their own should be
    /// [settled](FlowControl::settle_many) before `credits` are taken: the request would stall, or look like more use than
    /// there is.
    #[inline]
    fn is_stale(&self, peer: u32, credits: u8) -> bool {
        self.available(peer) < u32::from(credits)
    }

    /// Send credits that could be taken now for requests to `peer`.
    fn available(&self, peer: u32) -> u32;

    /// Send credits taken and not yet brought back.
    fn in_flight(&self, peer: u32) -> u32;

    /// Credits of ours that `peer` has, as far as we know: what it gives back counts when it has arrived.
    fn lent(&self, peer: u32) -> u32;

    /// Peers that have been asked to give credits back and have not answered yet.
    fn asked(&self) -> u32 {
        0
    }

    /// How many requests to `peer` had to wait for credits, since the start.
    fn stalls(&self, peer: u32) -> u64;

    /// Credits in our bank.
    fn banked(&self) -> u32;

    /// Send credits that `peer` has taken back, since the start.
    fn revoked(&self, peer: u32) -> u64;
}

/// A system message about credits: no payload, and each revoke is answered by one return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum System {
    /// From a lender: give back what you do not need.
    Revoke {
        /// The sender has ended an epoch.
        end_of_epoch: bool,
    },
    /// The answer.
    Return {
        /// Credits given back, maybe none.
        credits: u16,
        /// The sender has ended an epoch.
        end_of_epoch: bool,
    },
}

/// There are too few credits for a request just now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{missing} credits are missing")]
pub struct Short {
    /// How many more are needed, at least one.
    pub missing: u8,
}

/// A peer has broken the rules. The engine ends the job with it: the credits no longer say how full the buffers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// Not a rank of the job.
    #[error("credits from rank {peer}, the job has {ranks} ranks")]
    UnknownPeer {
        /// The rank.
        peer: u32,
        /// Ranks in the job.
        ranks: u32,
    },
    /// More credits came back than requests had taken.
    #[error("rank {peer} gave back {returned} credits, {in_flight} are in flight to it")]
    TooManyReturned {
        /// The rank.
        peer: u32,
        /// Credits given back.
        returned: u32,
        /// Credits it may give back at most.
        in_flight: u32,
    },
    /// Extra credits were granted although the algorithm (or the largest loan) does not allow it.
    #[error("rank {peer} granted {extra} extra credits that it may not grant")]
    UnexpectedGrant {
        /// The rank.
        peer: u32,
        /// Extra credits.
        extra: u8,
    },
    /// A revoke was answered with more than the peer may give: what it has above the minimum.
    #[error("rank {peer} returned {returned} credits, it could spare {most} at most")]
    ReturnBelowMinimum {
        /// The rank.
        peer: u32,
        /// Credits returned.
        returned: u16,
        /// Credits it may return at most.
        most: u16,
    },
    /// A system message that answers nothing we asked.
    #[error("rank {peer} returned {credits} credits without having been asked")]
    UnexpectedReturn {
        /// The rank.
        peer: u32,
        /// Credits returned.
        credits: u16,
    },
}
