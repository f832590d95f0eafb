//! The interface between the engine and a flow control algorithm.

use crate::CreditByte;

/// A flow control algorithm, for one rank and all its peers. All ranks of a job must use the same
/// algorithm with the same settings.
///
/// Terms: a *loan* is the credits that we have lent to a peer; *send credits* are the credits that
/// a peer has lent to us, available plus in flight. Apart from messages in transit, our send
/// credits equal the peer's loan to us.
///
/// Peers are ranks. Where the engine names the peer ([`take`](FlowControl::take) and the queries),
/// it must be a rank of the job, which the engine has checked; where a message comes from the
/// network, an unknown peer is an error.
pub trait FlowControl {
    /// Sender: takes `credits`, 1 to [`MAX_CREDITS`](crate::MAX_CREDITS), for a request to `peer`.
    /// Returns the byte that the request carries. A number above the cost of a full medium may
    /// exceed what the peer ever lends.
    ///
    /// # Errors
    /// [`Short`] if the peer has lent us too little. Poll and try again; the stall is recorded, so
    /// that the request that finally succeeds asks for more in its extra bits. The error only means
    /// "retry": nothing has been taken.
    ///
    /// # Panics
    /// If `peer` is not a rank of the job.
    fn take(&mut self, peer: u32, credits: u8) -> Result<CreditByte, Short>;

    /// Sender: returns how many credits are *ready* to be taken for requests to `peer` without a
    /// call for each. Ready means that [`take`](FlowControl::take) would give each request a
    /// [plain](CreditByte::is_plain) byte, and that [nothing is stale](FlowControl::is_stale) or
    /// staleness doesn't matter: up to `trusted` credits in flight, the caller's knowledge of them
    /// is good enough. They stay ready until any method but [`take_ready`](FlowControl::take_ready)
    /// is called. 0 means nothing.
    ///
    /// # Panics
    /// As [`take`](FlowControl::take).
    #[inline]
    fn ready(&self, peer: u32, trusted: u32) -> u32 {
        let _ = (peer, trusted);
        0
    }

    /// Sender: takes `credits` that were [ready](FlowControl::ready), for one request or for many.
    ///
    /// # Panics
    /// As [`take`](FlowControl::take).
    #[inline]
    fn take_ready(&mut self, peer: u32, credits: u32) {
        debug_assert_eq!(credits, 0, "no credits are ready for rank {peer}");
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

    /// Sender: cancels a request to `peer` that has [taken](FlowControl::take) `byte`. The next
    /// request reports and asks for what this one would have.
    ///
    /// # Panics
    /// As [`take`](FlowControl::take).
    fn give_back(&mut self, peer: u32, byte: CreditByte);

    /// Receiver: handles the `byte` of a request from `peer`; returns the byte for its reply. Must
    /// be called once for each request, when its handler has run or replies. Bytes that lend
    /// nothing may be [coalesced](FlowControl::settle_many).
    #[must_use]
    fn grant(&mut self, peer: u32, byte: CreditByte) -> CreditByte;

    /// Receiver: handles `requests` requests from `peer` at once, all with
    /// [plain](CreditByte::is_plain) bytes. Their credits go back unchanged. Returns whether one of
    /// the replies has to report that we have ended an epoch.
    #[inline]
    #[must_use]
    fn grant_plain(&mut self, peer: u32, requests: u32) -> bool {
        (0..requests).fold(false, |end_of_epoch, _| {
            end_of_epoch | self.grant(peer, CreditByte::default()).end_of_epoch()
        })
    }

    /// Sender: handles the `byte` of a reply from `peer`.
    ///
    /// # Errors
    /// If the peer gives back more than it received, or grants credits that the algorithm does not
    /// provide for; in that case nothing changes.
    fn settle(&mut self, peer: u32, byte: CreditByte) -> Result<(), Violation>;

    /// Sender: handles coalesced replies from `peer`, which bring back `credits` in total; `epochs`
    /// of them report that it has ended an epoch. Which ones is unknown. They are treated as the
    /// first ones, so all the credits count as in use at the end of these epochs: as far as the
    /// sender knew, they were.
    ///
    /// # Errors
    /// As [`settle`](FlowControl::settle).
    fn settle_many(&mut self, peer: u32, credits: u32, epochs: u32) -> Result<(), Violation>;

    /// Handles a system message from `peer`; returns the reply to it, if it needs one.
    ///
    /// # Errors
    /// If the message is a return without a revoke, or returns more than was lent.
    fn on_system(&mut self, peer: u32, message: System) -> Result<Option<System>, Violation>;

    /// Returns the next system message to send, and its peer. Call it when polling and after
    /// [`grant`](FlowControl::grant), until it returns `None`. At most one revoke per peer is
    /// outstanding until its return has arrived.
    fn next_system(&mut self) -> Option<(u32, System)>;

    /// Returns whether [`next_system`](FlowControl::next_system) should be called: a cheap test for
    /// every poll.
    #[inline]
    fn has_system(&self) -> bool {
        false
    }

    /// Sender: returns whether credits that came back without a message should be
    /// [settled](FlowControl::settle_many) before `credits` are taken: otherwise the request would
    /// stall, or look like more use than there is.
    #[inline]
    fn is_stale(&self, peer: u32, credits: u8) -> bool {
        self.available(peer) < u32::from(credits)
    }

    /// Returns the send credits that could be taken now for requests to `peer`.
    fn available(&self, peer: u32) -> u32;

    /// Returns the send credits taken and not yet brought back.
    fn in_flight(&self, peer: u32) -> u32;

    /// Returns our credits that `peer` has, as far as we know: credits that it gives back count
    /// once they have arrived.
    fn lent(&self, peer: u32) -> u32;

    /// Returns the number of peers that were asked to give credits back and have not answered yet.
    fn asked(&self) -> u32 {
        0
    }

    /// Returns how many requests to `peer` had to wait for credits since the start.
    fn stalls(&self, peer: u32) -> u64;

    /// Returns the credits in our bank.
    fn banked(&self) -> u32;

    /// Returns the send credits that `peer` has taken back since the start.
    fn revoked(&self, peer: u32) -> u64;
}

/// A system message about credits. It has no payload; each revoke is answered by one return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum System {
    /// From a lender: give back what you do not need.
    Revoke {
        /// Whether the sender has ended an epoch.
        end_of_epoch: bool,
    },
    /// The answer to a revoke.
    Return {
        /// Credits given back, possibly none.
        credits: u16,
        /// Whether the sender has ended an epoch.
        end_of_epoch: bool,
    },
}

/// There are too few credits for a request at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{missing} credits are missing")]
pub struct Short {
    /// The number of credits missing, at least one.
    pub missing: u8,
}

/// A peer has violated the rules. The engine then ends the job, because the credits no longer say
/// how full the buffers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// The sender is not a rank of the job.
    #[error("received credits from rank {peer}, the job has {ranks} ranks")]
    UnknownPeer {
        /// The rank.
        peer: u32,
        /// Ranks in the job.
        ranks: u32,
    },
    /// More credits came back than requests had taken.
    #[error("rank {peer} gave back {returned} credits, only {in_flight} are in flight to it")]
    TooManyReturned {
        /// The rank.
        peer: u32,
        /// Credits given back.
        returned: u32,
        /// The most credits it may give back.
        in_flight: u32,
    },
    /// Extra credits were granted although the algorithm (or the largest loan) does not allow it.
    #[error("rank {peer} granted {extra} extra credits, more than it may grant")]
    UnexpectedGrant {
        /// The rank.
        peer: u32,
        /// Extra credits.
        extra: u8,
    },
    /// A return gave back more than the peer has above the minimum.
    #[error("rank {peer} returned {returned} credits, it could spare at most {most}")]
    ReturnBelowMinimum {
        /// The rank.
        peer: u32,
        /// Credits returned.
        returned: u16,
        /// The most credits it may return.
        most: u16,
    },
    /// A return without a revoke.
    #[error("rank {peer} returned {credits} credits without having been asked")]
    UnexpectedReturn {
        /// The rank.
        peer: u32,
        /// Credits returned.
        credits: u16,
    },
}
