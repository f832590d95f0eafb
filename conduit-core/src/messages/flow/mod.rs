//! Flow control of requests: credits, the budget of outstanding requests, and coalesced returns.
//!
//! A reply returns the credits of its request. If a handler sends no reply and nothing else has to
//! be sent, the implied reply is coalesced: the target adds the credits to a counter in the
//! requester's control region, which only the target writes. The requester reads the counter when
//! it runs short of credits. The credit algorithm sees the same credits as it would with one
//! message per reply.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use credits::{Bank, CreditByte, FlowControl, Plan, Policy, System, Violation};

use crate::ni::Rank;
use crate::threads::{Lock, Mode};

mod accounts;
mod returned;
mod statistics;
#[cfg(test)]
mod tests;

pub(crate) use accounts::Accounts;
pub(crate) use returned::Returned;
pub(crate) use statistics::{Statistics, When};

/// The credits that this rank lends to its peers and borrows from them.
///
/// In PAR the peers are distributed over several parts, each with a lock of its own, so that
/// threads that communicate with different peers seldom contend.
#[derive(Debug)]
pub(crate) struct Flow<M: Mode> {
    parts: Box<[M::Lock<Part<M>>]>,
    /// The number of parts minus one. The number of parts is a power of two.
    mask: u32,
    /// The number of bits in `mask`.
    shift: u32,
    /// The part that may ask a peer for credits first. It rotates, because otherwise the peers of
    /// the last part would never be asked.
    turn: AtomicU32,
    /// The number of requests to all peers that have no reply yet.
    outstanding: AtomicU32,
    limit: u32,
}

#[derive(Debug)]
struct Part<M: Mode> {
    policy: Policy<M::Bank>,
    /// The last value read from each peer's counter, indexed by the peer's place in the part. Takes
    /// 8 bytes per rank.
    seen: Box<[Returned]>,
    /// For each peer, the number of credits in flight up to which the peer's counter need not be
    /// read again. Takes 2 bytes per rank.
    trusted: Box<[u16]>,
    cache: CreditCache,
}

/// Maximum number of credits reserved for future requests.
const MOST_CACHED: u32 = 64;

/// Credits reserved for requests to the peer of the last request. Each also holds a place in the
/// budget. Credits are reserved only while the policy is [ready](FlowControl::ready), so that a
/// request need not consult the policy. Before the policy is used for anything else, it learns how
/// many of the credits were taken, so its decisions are the same as without the cache.
#[derive(Debug, Clone, Copy, Default)]
struct CreditCache {
    /// Whether the last request went to `peer` and the policy has not been used since. Only then is
    /// another request likely to follow. Credits are thus reserved for a flood of requests, but not
    /// for requests that each wait for their reply.
    again: bool,
    peer: Rank,
    /// The number of reserved credits that have not been taken yet.
    left: u32,
    reserved: u32,
    requests: u32,
    /// A plain credit byte with as many credits as the last request took. Valid while `again` is
    /// set and nothing is reserved.
    last: CreditByte,
    /// The credits that `peer` returned in the reply to that request, together with the request's
    /// place in the budget. They are kept for the next request, because in a round trip the next
    /// request goes to the same peer and takes the same number of credits. The policy then need not
    /// learn of the reply or of the next request, because together they leave its state unchanged.
    /// Before the policy is used for anything else, it learns of the return. Never set while
    /// `again` is set or anything is reserved.
    recycled: Option<CreditByte>,
}

impl CreditCache {
    /// Records a request to a peer and returns its credit byte, which is plain.
    #[inline]
    fn note_last(&mut self, peer: Rank, credits: u8) -> CreditByte {
        self.again = true;
        self.peer = peer;
        self.last = CreditByte::new(false, 0, credits);
        self.last
    }
}

impl<M: Mode> Part<M> {
    /// Returns whether the peer's counter should be read before `credits` are taken. It should be
    /// read if the request would otherwise stall or raise the recent maximum in flight, because
    /// only the counter shows whether either is really the case. While the number of credits in use
    /// grows, each reading is trusted for an eighth of the credits lent, so the number in use may
    /// be overestimated by that much.
    fn is_stale(&self, peer: Rank, place: usize, credits: u8) -> bool {
        let policy = &self.policy;
        policy.is_stale(peer, credits)
            && (policy.in_flight(peer) + u32::from(credits) > u32::from(self.trusted[place])
                || policy.available(peer) < u32::from(credits))
    }
}

impl<M: Mode> Flow<M> {
    /// Creates the flow control. `limit` is the maximum number of requests that may be outstanding
    /// to all peers together.
    pub(crate) fn new(plan: &Plan, rank: Rank, limit: u32) -> Self {
        let most = if M::PARALLEL { M::Bank::MOST_PARTS } else { 1 };
        let parts = most.min(plan.ranks().next_power_of_two());
        Self::with(Policy::parts(plan, rank, parts), plan.ranks(), limit)
    }

    fn with(policies: Vec<Policy<M::Bank>>, ranks: u32, limit: u32) -> Self {
        let count = policies.len() as u32;
        let parts = policies.into_iter().zip(credits::Part::all(count));
        let parts = parts.map(|(policy, part)| {
            let peers = part.len(ranks) as usize;
            Lock::new(Part {
                policy,
                seen: vec![Returned::default(); peers].into(),
                trusted: vec![0; peers].into(),
                cache: CreditCache::default(),
            })
        });
        Self {
            parts: parts.collect(),
            mask: count - 1,
            shift: count.trailing_zeros(),
            turn: AtomicU32::new(0),
            outstanding: AtomicU32::new(0),
            limit,
        }
    }

    #[inline(always)]
    fn locked(&self, peer: Rank) -> <M::Lock<Part<M>> as Lock<Part<M>>>::Guard<'_> {
        let number = if M::PARALLEL { peer & self.mask } else { 0 };
        self.parts[number as usize].lock()
    }

    /// Locks the part of `peer` and reports all requests and replies so far to its policy.
    #[inline(always)]
    fn part(&self, peer: Rank) -> impl std::ops::DerefMut<Target = Part<M>> {
        let mut part = self.locked(peer);
        self.settle_cache(&mut part);
        part
    }

    /// Reports to the policy the requests and replies that it has not learned of, and returns the
    /// reserved credits that were not taken.
    #[inline]
    fn settle_cache(&self, part: &mut Part<M>) {
        part.cache.again = false;
        if part.cache.reserved > 0 {
            self.settle_reserved(part);
        }
        self.settle_recycled(part);
    }

    /// Reports to the policy the credits that the last reply returned.
    #[inline]
    fn settle_recycled(&self, part: &mut Part<M>) {
        if let Some(back) = part.cache.recycled.take() {
            let peer = part.cache.peer;
            let settled = part.policy.settle(peer, back);
            debug_assert!(
                settled.is_ok(),
                "the credits of the last request are in flight"
            );
            self.end_requests(1);
        }
    }

    #[inline(never)]
    fn settle_reserved(&self, part: &mut Part<M>) {
        let CreditCache {
            peer,
            left,
            reserved,
            requests,
            ..
        } = part.cache;
        part.policy.take_ready(peer, reserved - left);
        self.end_requests(reserved - requests);
        part.cache = CreditCache::default();
    }

    /// Returns the number of credits for requests that need neither the policy nor the peer's
    /// counter.
    #[inline]
    fn ready(&self, part: &Part<M>, peer: Rank) -> u32 {
        let trusted = part.trusted[self.place(peer)];
        part.policy.ready(peer, trusted.into())
    }

    /// Reserves credits for more requests like the last one.
    #[inline(never)]
    fn reserve(&self, part: &mut Part<M>, peer: Rank) {
        let places = self.begin_requests(self.ready(part, peer).min(MOST_CACHED));
        part.cache = CreditCache {
            again: true,
            peer,
            left: places,
            reserved: places,
            ..CreditCache::default()
        };
    }

    /// Returns the index of `peer` in its part.
    #[inline]
    fn place(&self, peer: Rank) -> usize {
        (peer >> self.shift) as usize
    }

    /// Takes a place in the budget. Returns false if the budget is exhausted.
    #[inline]
    fn begin_request(&self) -> bool {
        self.begin_requests(1) == 1
    }

    /// Takes up to `most` places in the budget and returns their number.
    #[inline]
    fn begin_requests(&self, most: u32) -> u32 {
        let some = |outstanding: u32| most.min(self.limit.saturating_sub(outstanding));
        let outstanding = self.outstanding.load(Relaxed);
        if !M::PARALLEL {
            // Outside PAR only one thread is inside at a time, so no locked instruction is needed.
            // A locked instruction would wait for all earlier stores.
            self.outstanding
                .store(outstanding + some(outstanding), Relaxed);
            return some(outstanding);
        }
        let more = |outstanding| Some(outstanding + some(outstanding));
        let before = self.outstanding.fetch_update(Relaxed, Relaxed, more);
        some(before.unwrap_or(outstanding))
    }

    #[inline]
    fn end_requests(&self, count: u32) {
        let less = |outstanding: u32| outstanding.saturating_sub(count);
        if M::PARALLEL {
            let _ = self
                .outstanding
                .fetch_update(Relaxed, Relaxed, |outstanding| Some(less(outstanding)));
        } else {
            let outstanding = self.outstanding.load(Relaxed);
            self.outstanding.store(less(outstanding), Relaxed);
        }
    }

    /// Takes credits and a place in the budget, or neither. Returns `None` if there are none, or if
    /// the peer's counter should be read first; see [`Flow::take_collected`].
    #[inline(always)]
    pub(crate) fn take(&self, peer: Rank, credits: u8) -> Option<CreditByte> {
        self.take_noting(peer, credits, || ())
    }

    /// Takes credits as [`Flow::take`] does. Calls `flood` if requests to the peer follow one
    /// another without replies in between.
    #[inline(always)]
    pub(crate) fn take_noting(
        &self,
        peer: Rank,
        credits: u8,
        flood: impl FnOnce(),
    ) -> Option<CreditByte> {
        let mut part = self.locked(peer);
        let cache = &mut part.cache;
        let plain = CreditByte::new(false, 0, credits);
        if cache.peer == peer {
            if cache.left >= u32::from(credits) {
                cache.left -= u32::from(credits);
                cache.requests += 1;
                flood();
                return Some(plain);
            }
            if cache.recycled == Some(plain) {
                cache.recycled = None;
                cache.again = true;
                return Some(plain);
            }
        }
        self.take_next(&mut part, peer, credits)
    }

    /// Performs the work of [`Self::take`] if nothing suitable is reserved.
    #[inline(never)]
    fn take_next(&self, part: &mut Part<M>, peer: Rank, credits: u8) -> Option<CreditByte> {
        self.settle_recycled(part);
        if part.cache.reserved == 0 && !part.cache.again {
            // The first request after a reply, which is the usual case in a round trip, is handled
            // here without a further call.
            if !self.begin_request() {
                return None;
            }
            let trusted = part.trusted[self.place(peer)];
            if part.policy.take_if_ready(peer, credits, trusted.into()) {
                return Some(part.cache.note_last(peer, credits));
            }
            self.end_requests(1);
        }
        self.take_otherwise(part, peer, credits)
    }

    #[inline(never)]
    fn take_otherwise(&self, part: &mut Part<M>, peer: Rank, credits: u8) -> Option<CreditByte> {
        let second = part.cache.again && part.cache.peer == peer;
        self.settle_cache(part);
        if !self.begin_request() {
            return None;
        }
        let trusted = part.trusted[self.place(peer)];
        let byte = if part.policy.take_if_ready(peer, credits, trusted.into()) {
            CreditByte::new(false, 0, credits)
        } else if part.is_stale(peer, self.place(peer), credits) {
            self.end_requests(1);
            return None;
        } else {
            self.take_held(part, peer, credits)?
        };
        if second {
            self.reserve(part, peer);
        }
        part.cache.note_last(peer, credits);
        Some(byte)
    }

    /// Takes credits once the peer's counter has been read. A request that gets none counts as
    /// stalled.
    #[inline]
    pub(crate) fn take_collected(&self, peer: Rank, credits: u8) -> Option<CreditByte> {
        let mut part = self.part(peer);
        if !self.begin_request() {
            return None;
        }
        self.take_held(&mut part, peer, credits)
    }

    /// Takes credits for a request that holds a place in the budget. If there are none, gives the
    /// place back.
    #[inline]
    fn take_held(&self, part: &mut Part<M>, peer: Rank, credits: u8) -> Option<CreditByte> {
        let byte = part.policy.take(peer, credits).ok();
        if byte.is_none() {
            self.end_requests(1);
        }
        byte
    }

    /// Gives back the credits of a request that is not sent after all.
    #[cold]
    pub(crate) fn give_back(&self, peer: Rank, byte: CreditByte) {
        self.part(peer).policy.give_back(peer, byte);
        self.end_requests(1);
    }

    /// Grants a handled request from `peer`. Returns the byte for its reply, and whether system
    /// messages are pending.
    #[inline]
    pub(crate) fn grant(&self, peer: Rank, byte: CreditByte) -> (CreditByte, bool) {
        let mut part = self.part(peer);
        let back = part.policy.grant(peer, byte);
        (back, part.policy.has_system())
    }

    /// Grants `requests` handled requests from `peer`, all of which had plain bytes. Returns
    /// whether one of the replies must announce that this rank has ended an epoch, and whether
    /// system messages are pending.
    #[inline]
    pub(crate) fn grant_plain(&self, peer: Rank, requests: u32) -> (bool, bool) {
        let mut part = self.part(peer);
        let end_of_epoch = part.policy.grant_plain(peer, requests);
        (end_of_epoch, part.policy.has_system())
    }

    /// Settles the credits that a reply returns.
    #[inline(always)]
    pub(crate) fn settle(&self, peer: Rank, byte: CreditByte) -> Result<(), Violation> {
        let mut part = self.locked(peer);
        let cache = &mut part.cache;
        let to_last = cache.again && cache.reserved == 0 && cache.peer == peer;
        // In PAR an epoch may end in another part meanwhile, which the next request must announce.
        // The credits are therefore not kept.
        if !M::PARALLEL && to_last && byte == cache.last {
            cache.again = false;
            cache.recycled = Some(byte);
            return Ok(());
        }
        self.settle_now(&mut part, peer, byte)
    }

    #[inline(never)]
    fn settle_now(
        &self,
        part: &mut Part<M>,
        peer: Rank,
        byte: CreditByte,
    ) -> Result<(), Violation> {
        self.settle_cache(part);
        part.policy.settle(peer, byte)?;
        self.end_requests(1);
        Ok(())
    }

    /// Settles the credits that a peer has returned by counter.
    pub(crate) fn collect(
        &self,
        peer: Rank,
        counter: impl FnOnce() -> Returned,
    ) -> Result<(), Violation> {
        let mut part = self.part(peer);
        // The counter is read under the lock, so that an older value never replaces a newer one.
        let counter = counter();
        let place = self.place(peer);
        let since = counter.since(part.seen[place]);
        if since.requests > 0 {
            part.policy.settle_many(peer, since.credits, since.epochs)?;
            part.seen[place] = counter;
            self.end_requests(since.requests);
        }
        let in_flight = part.policy.in_flight(peer);
        let lent = in_flight.saturating_add(part.policy.available(peer));
        let trusted = in_flight.saturating_add(lent / 8);
        part.trusted[place] = u16::try_from(trusted).unwrap_or(u16::MAX);
        Ok(())
    }

    /// Handles a system message about credits. Returns the answer, if the message needs one.
    pub(crate) fn on_system(
        &self,
        peer: Rank,
        message: System,
    ) -> Result<Option<System>, Violation> {
        self.part(peer).policy.on_system(peer, message)
    }

    /// Returns the next system message to send.
    pub(crate) fn next_system(&self) -> Option<(Rank, System)> {
        let first = self.turn.load(Relaxed);
        (0..self.parts.len() as u32).find_map(|step| {
            let number = first.wrapping_add(step) & self.mask;
            let message = self.parts[number as usize].lock().policy.next_system()?;
            // Two concurrent threads may give a part two turns, which is harmless.
            self.turn.store(number + 1, Relaxed);
            Some(message)
        })
    }

    /// Returns whether there may be a system message to send.
    pub(crate) fn has_system(&self) -> bool {
        self.parts
            .iter()
            .any(|part| part.lock().policy.has_system())
    }

    /// Passes the policy responsible for `peer` to `look`.
    pub(crate) fn look<T>(&self, peer: Rank, look: impl FnOnce(&Policy<M::Bank>) -> T) -> T {
        look(&self.part(peer).policy)
    }

    /// Returns whether the budget is exhausted, as opposed to a peer's credits.
    pub(crate) fn budget_is_spent(&self) -> bool {
        self.outstanding() >= self.limit
    }

    /// Returns the number of requests that have no reply yet.
    pub(crate) fn outstanding(&self) -> u32 {
        for part in &self.parts {
            self.settle_cache(&mut part.lock());
        }
        self.outstanding.load(Relaxed)
    }
}
