//! The interface between the engine and a flow control algorithm.

use crate::CreditByte;

/// A flow control algorithm, for one rank and all of its peers. All ranks of a job must use the
/// same algorithm with the same settings.
///
/// Terms: "we" are the rank that owns the algorithm's state. A peer's *loan* consists of the
/// credits that we have lent to it. Our *send credits* for a peer are the credits that it has lent
/// to us, whether available or in flight. While no message is in transit, our send credits for a
/// peer equal our loan in the peer's state.
///
/// Peers are ranks. If the engine chooses the peer, as for [`take`](FlowControl::take) and the
/// queries, it must ensure that the peer is a rank of the job. If the peer is the source of a
/// message, methods that can fail return an error for an unknown peer.
pub trait FlowControl {
    /// Sender: takes `credits`, which must be from 1 to [`MAX_CREDITS`](crate::MAX_CREDITS), for a
    /// request to `peer`. Returns the byte that the request must carry. `credits` should not exceed
    /// the cost of a full medium, because the peer may never lend more credits than that.
    ///
    /// # Errors
    /// Returns [`Short`] if too few of the credits that the peer has lent are available. In that
    /// case, no credits have been taken, and the caller should poll and try again. The stall is
    /// recorded, so that the request that finally succeeds asks for more in its extra bits.
    ///
    /// # Panics
    /// Panics if `peer` is not a rank of the job.
    fn take(&mut self, peer: u32, credits: u8) -> Result<CreditByte, Short>;

    /// Sender: returns the number of credits for requests to `peer` that are *ready*, which means
    /// that a single call may take them for many requests. Credits are ready if
    /// [`take`](FlowControl::take) would give each request a [plain](CreditByte::is_plain) byte,
    /// and if either [nothing is stale](FlowControl::is_stale) or at most `trusted` credits would
    /// be in flight, so that staleness does not matter. The credits remain ready until any method
    /// other than [`take_ready`](FlowControl::take_ready) is called. If the result is 0, `take` may
    /// succeed nevertheless.
    ///
    /// # Panics
    /// Same as [`take`](FlowControl::take).
    #[inline]
    fn ready(&self, peer: u32, trusted: u32) -> u32 {
        let _ = (peer, trusted);
        0
    }

    /// Sender: takes `credits` credits for one or more requests. They must be
    /// [ready](FlowControl::ready).
    ///
    /// # Panics
    /// Same as [`take`](FlowControl::take).
    #[inline]
    fn take_ready(&mut self, peer: u32, credits: u32) {
        debug_assert_eq!(credits, 0, "no credits are ready for rank {peer}");
    }

    /// Sender: takes `credits` credits for one request if they are [ready](FlowControl::ready).
    /// Returns whether they were taken.
    ///
    /// # Panics
    /// Same as [`take`](FlowControl::take).
    #[inline]
    fn take_if_ready(&mut self, peer: u32, credits: u8, trusted: u32) -> bool {
        let ready = self.ready(peer, trusted) >= u32::from(credits);
        if ready {
            self.take_ready(peer, credits.into());
        }
        ready
    }

    /// Sender: cancels a request to `peer` that has [taken](FlowControl::take) `byte`. The next
    /// request reports and asks for what the cancelled one would have reported and asked for.
    ///
    /// # Panics
    /// Same as [`take`](FlowControl::take).
    fn give_back(&mut self, peer: u32, byte: CreditByte);

    /// Receiver: handles the `byte` of a request from `peer`. Returns the byte for the reply. The
    /// engine must call this once for each request, when the request's handler replies or has
    /// returned. Replies whose bytes lend nothing may be [coalesced](FlowControl::settle_many).
    #[must_use]
    fn grant(&mut self, peer: u32, byte: CreditByte) -> CreditByte;

    /// Receiver: handles `requests` requests from `peer` at once, all with
    /// [plain](CreditByte::is_plain) bytes. Their replies give back exactly the credits that the
    /// requests used. Returns whether one of the replies must report that this rank has ended an
    /// epoch.
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
    /// Returns an error if the peer gives back more credits than are in flight to it, or grants
    /// credits that the algorithm does not allow. Nothing changes in that case.
    fn settle(&mut self, peer: u32, byte: CreditByte) -> Result<(), Violation>;

    /// Sender: handles coalesced replies from `peer`, which together bring back `credits` credits.
    /// `epochs` of the replies report that the peer has ended an epoch. It is unknown which of the
    /// replies do, so these are assumed to be the first ones. Thus all `credits` count as in flight
    /// when these epochs end, as the sender believed at that time.
    ///
    /// # Errors
    /// Same as [`settle`](FlowControl::settle).
    fn settle_many(&mut self, peer: u32, credits: u32, epochs: u32) -> Result<(), Violation>;

    /// Handles a system message from `peer`. Returns the reply to it, if it needs one.
    ///
    /// # Errors
    /// Returns an error if the message is a return that no revoke asked for, or gives back more
    /// credits than the peer may give back.
    fn on_system(&mut self, peer: u32, message: System) -> Result<Option<System>, Violation>;

    /// Returns the next system message to send, with its destination. The caller must call this
    /// when polling and after [`grant`](FlowControl::grant), until it returns `None`. At most one
    /// revoke per peer is outstanding at a time.
    fn next_system(&mut self) -> Option<(u32, System)>;

    /// Returns whether [`next_system`](FlowControl::next_system) should be called. This is a cheap
    /// test for every poll.
    #[inline]
    fn has_system(&self) -> bool {
        false
    }

    /// Sender: returns whether credits that came back without a message should be
    /// [settled](FlowControl::settle_many) before `credits` credits are taken. Otherwise, the
    /// request would stall, or more credits would seem to be in flight than really are.
    #[inline]
    fn is_stale(&self, peer: u32, credits: u8) -> bool {
        self.available(peer) < u32::from(credits)
    }

    /// Returns the number of send credits that could be taken now for requests to `peer`.
    fn available(&self, peer: u32) -> u32;

    /// Returns the number of send credits for `peer` that have been taken and have not come back
    /// yet.
    fn in_flight(&self, peer: u32) -> u32;

    /// Returns the number of this rank's credits that `peer` has. Credits that the peer gives back
    /// count until they have arrived.
    fn lent(&self, peer: u32) -> u32;

    /// Returns the number of peers that were asked to give credits back and have not answered yet.
    fn asked(&self) -> u32 {
        0
    }

    /// Returns the number of requests to `peer` that have had to wait for credits since the start.
    fn stalls(&self, peer: u32) -> u64;

    /// Returns the number of credits in this rank's bank.
    fn banked(&self) -> u32;

    /// Returns the number of send credits that `peer` has taken back since the start.
    fn revoked(&self, peer: u32) -> u64;
}

/// A system message about credits. It has no payload. Each revoke is answered by one return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum System {
    /// Sent by a lender to ask the receiver to give back what it does not need.
    Revoke {
        /// Whether the sender has ended an epoch.
        end_of_epoch: bool,
    },
    /// The answer to a revoke.
    Return {
        /// The number of credits given back, possibly 0.
        credits: u16,
        /// Whether the sender has ended an epoch.
        end_of_epoch: bool,
    },
}

/// An error that says that too few credits are available for a request at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{missing} credits are missing")]
pub struct Short {
    /// The number of credits missing, at least one.
    pub missing: u8,
}

/// A violation of the rules by a peer. The engine must end the job, because the credits no longer
/// say how full the buffers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// The sender is not a rank of the job.
    #[error("received credits from rank {peer}, but the job has {ranks} ranks")]
    UnknownPeer {
        /// The rank that sent the credits.
        peer: u32,
        /// The number of ranks in the job.
        ranks: u32,
    },
    /// More credits came back than requests had taken.
    #[error("rank {peer} gave back {returned} credits, but only {in_flight} are in flight to it")]
    TooManyReturned {
        /// The rank.
        peer: u32,
        /// The number of credits given back.
        returned: u32,
        /// The maximum number of credits that the rank may give back.
        in_flight: u32,
    },
    /// Extra credits were granted although the algorithm or the maximum loan does not allow that.
    #[error("rank {peer} granted {extra} extra credits, more than it may grant")]
    UnexpectedGrant {
        /// The rank.
        peer: u32,
        /// The code of the extra credits, as in the credit byte.
        extra: u8,
    },
    /// A return gave back more credits than the peer has above the minimum.
    #[error("rank {peer} returned {returned} credits, but could spare at most {most}")]
    ReturnBelowMinimum {
        /// The rank.
        peer: u32,
        /// The number of credits returned.
        returned: u16,
        /// The maximum number of credits that the rank may return.
        most: u16,
    },
    /// A return arrived without a revoke.
    #[error("rank {peer} returned {credits} credits without having been asked")]
    UnexpectedReturn {
        /// The rank.
        peer: u32,
        /// The number of credits returned.
        credits: u16,
    },
}
