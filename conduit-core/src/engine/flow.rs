//! Flow control of requests: credits, the budget of outstanding requests, and coalesced returns.
//!
//! A reply brings its request's credits back. Where a handler sends none and nothing else has to travel, the implied reply
//! is coalesced: the target adds the credits to a counter in the requester's control region, which it alone writes, and
//! the requester reads the counter when it runs short. The algorithm sees the same credits as with a message for each.

use credits::{CreditByte, FlowControl, Policy, Violation};

use crate::ni::Rank;

/// A running count of what a peer has given back: credits in the low half, requests in the high one. Both wrap.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Returned(u64);

impl Returned {
    pub(crate) fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    pub(crate) fn bits(self) -> u64 {
        self.0
    }

    pub(crate) fn add(self, credits: u8) -> Self {
        let credits = (self.0 as u32).wrapping_add(u32::from(credits));
        let requests = ((self.0 >> 32) as u32).wrapping_add(1);
        Self(u64::from(requests) << 32 | u64::from(credits))
    }

    /// `(credits, requests)` given back between `earlier` and now.
    fn since(self, earlier: Self) -> (u32, u32) {
        (
            (self.0 as u32).wrapping_sub(earlier.0 as u32),
            ((self.0 >> 32) as u32).wrapping_sub((earlier.0 >> 32) as u32),
        )
    }
}

/// The requesting side.
#[derive(Debug)]
pub(crate) struct Flow {
    pub(crate) policy: Policy,
    /// Requests without a reply yet, to all peers.
    outstanding: u32,
    limit: u32,
    /// What has been read from each peer's counter. 8 bytes per rank.
    seen: Box<[Returned]>,
}

impl Flow {
    pub(crate) fn new(policy: Policy, size: u32, limit: u32) -> Self {
        Self {
            policy,
            outstanding: 0,
            limit,
            seen: vec![Returned::default(); size as usize].into(),
        }
    }

    /// Credits and a place in the budget, or neither.
    #[inline]
    pub(crate) fn take(&mut self, peer: Rank, credits: u8) -> Option<CreditByte> {
        if self.outstanding >= self.limit {
            return None;
        }
        let byte = self.policy.take(peer, credits).ok()?;
        self.outstanding += 1;
        Some(byte)
    }

    /// A reply has come.
    #[inline]
    pub(crate) fn settle(&mut self, peer: Rank, byte: CreditByte) -> Result<(), Violation> {
        self.policy.settle(peer, byte)?;
        self.outstanding = self.outstanding.saturating_sub(1);
        Ok(())
    }

    /// A peer's counter has been read.
    pub(crate) fn collect(&mut self, peer: Rank, counter: Returned) -> Result<(), Violation> {
        let (credits, requests) = counter.since(self.seen[peer as usize]);
        if requests > 0 {
            self.policy.settle_many(peer, credits)?;
            self.seen[peer as usize] = counter;
            self.outstanding = self.outstanding.saturating_sub(requests);
        }
        Ok(())
    }

    /// Is it the budget, not a peer's credits, that stands in the way?
    pub(crate) fn budget_is_spent(&self) -> bool {
        self.outstanding >= self.limit
    }

    /// Requests without a reply yet.
    pub(crate) fn outstanding(&self) -> u32 {
        self.outstanding
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_wrap() {
        let before = Returned::from_bits(u64::from(u32::MAX) << 32 | u64::from(u32::MAX - 1));
        let after = before.add(3).add(4);
        assert_eq!(after.since(before), (7, 2));
        assert_eq!(after.bits() as u32, 5);
    }

    #[test]
    fn the_budget_limits_requests_and_collect_gives_it_back() {
        let mut flow = Flow::new(Policy::Unlimited(credits::Unlimited), 2, 2);
        assert!(flow.take(1, 1).is_some());
        assert!(flow.take(1, 1).is_some());
        assert!(flow.take(1, 1).is_none());
        assert!(flow.budget_is_spent());
        flow.collect(1, Returned::default().add(0)).unwrap();
        assert_eq!(flow.outstanding(), 1);
        flow.collect(1, Returned::default().add(0)).unwrap();
        assert_eq!(flow.outstanding(), 1, "the same counter brings nothing");
    }
}
