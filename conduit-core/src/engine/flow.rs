//! Flow control of requests: credits, the budget of outstanding requests, and coalesced returns.
//!
//! A reply brings its request's credits back. Where a handler sends none and nothing else has to travel, the implied reply
//! is coalesced: the target adds the credits to a counter in the requester's control region, which it alone writes, and
//! the requester reads the counter when it runs short. The algorithm sees the same credits as with a message for each.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use credits::{Bank, CreditByte, FlowControl, Plan, Policy, System, Violation};

use crate::ni::Rank;
use crate::threads::{Lock, Mode};

/// A running count of what a peer has given back, in one word: credits (24 bits), requests (24), and for how many of them
/// the reply tells that the peer has ended an epoch (16). All wrap. A rank never has as many requests outstanding, so the
/// difference of two counts is what came between.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Returned(u64);

impl Returned {
    /// Bits of the count of credits, and of that of requests.
    const BITS: u32 = 24;

    pub(crate) fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    pub(crate) fn bits(self) -> u64 {
        self.0
    }

    /// So many more.
    #[inline]
    pub(crate) fn add(self, requests: u32, credits: u32) -> Self {
        let count = u64::from(requests) << Self::BITS | u64::from(credits);
        self.and(Self(count))
    }

    /// A reply tells that the peer has ended an epoch.
    #[inline]
    pub(crate) fn add_epoch(self) -> Self {
        self.and(Self(1 << (2 * Self::BITS)))
    }

    /// Both. One sum: what a field carries into the next one, the difference of two counts takes out again.
    #[inline]
    pub(crate) fn and(self, other: Self) -> Self {
        Self(self.0.wrapping_add(other.0))
    }

    /// What was given back between `earlier` and now.
    pub(crate) fn since(self, earlier: Self) -> Since {
        let difference = self.0.wrapping_sub(earlier.0);
        let field = |number| (difference >> (number * Self::BITS)) as u32 & ((1 << Self::BITS) - 1);
        Since {
            credits: field(0),
            requests: field(1),
            epochs: field(2),
        }
    }
}

/// What was given back between two counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Since {
    pub(crate) credits: u32,
    pub(crate) requests: u32,
    pub(crate) epochs: u32,
}

/// What this rank lends its peers and they lend it.
///
/// In PAR the peers are dealt out to parts with a lock each, so that threads which talk to different peers seldom meet.
#[derive(Debug)]
pub(crate) struct Flow<M: Mode> {
    parts: Box<[M::Lock<Part<M>>]>,
    /// Number of parts, a power of two, less one.
    mask: u32,
    /// Its bits.
    shift: u32,
    /// The part that may ask a peer for credits first: each in turn, else the peers of the last are never asked.
    turn: AtomicU32,
    /// Requests without a reply yet, to all peers.
    outstanding: AtomicU32,
    limit: u32,
}

#[derive(Debug)]
struct Part<M: Mode> {
    policy: Policy<M::Bank>,
    /// What has been read from each peer's counter, by the peer's place in the part. 8 bytes per rank.
    seen: Box<[Returned]>,
    /// Up to how many credits in flight to a peer its counter need not be read again. 2 bytes per rank.
    trusted: Box<[u16]>,
    ahead: Ahead,
}

/// Most credits that are set apart for requests to come.
const MOST_AHEAD: u32 = 64;

/// Credits for requests to the peer that the last one went to, each with its place in the budget: set apart while they
/// are [ready](FlowControl::ready), so that a request needs no look at the rules. The rules are told how many were taken
/// before they are asked for anything else; so they see what they would have seen.
#[derive(Debug, Clone, Copy, Default)]
struct Ahead {
    /// The last request went to `peer`, and the rules have not been asked for anything since. Only then is another likely to
    /// follow: credits are set apart for a flood, not for requests that wait for their replies.
    again: bool,
    peer: Rank,
    /// Not taken yet.
    left: u32,
    set_apart: u32,
    requests: u32,
    /// What the last request took, if it was by itself; nothing else is said.
    single: CreditByte,
    /// What `peer` has given back with a reply to that, and the place in the budget: kept for the next request, as in a round trip it
    /// goes to the same peer and takes the same. The rules then need not be told of either, for they would be where they are. Once they
    /// are asked for anything else they are told first. Not while `again`, nor with anything set apart.
    back: Option<CreditByte>,
}

impl Ahead {
    /// A request has gone to a peer: its byte, if it tells and asks nothing.
    #[inline]
    fn note_single(&mut self, peer: Rank, credits: u8) -> CreditByte {
        self.again = true;
        self.peer = peer;
        self.single = CreditByte::new(false, 0, credits);
        self.single
    }
}

impl<M: Mode> Part<M> {
    /// Should the peer's counter be read before these credits are taken? Without it the request would stall, or be the
    /// most in flight of late; and that it really is shows only when the counter has been read. While use grows, each
    /// reading is good for an eighth of what is lent: for so much, use may be taken for higher than it is.
    fn is_stale(&self, peer: Rank, place: usize, credits: u8) -> bool {
        let policy = &self.policy;
        policy.is_stale(peer, credits)
            && (policy.in_flight(peer) + u32::from(credits) > u32::from(self.trusted[place])
                || policy.available(peer) < u32::from(credits))
    }
}

impl<M: Mode> Flow<M> {
    /// `limit`: most requests outstanding to all peers.
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
                ahead: Ahead::default(),
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

    /// The part that `peer` belongs to, which knows of all requests.
    #[inline(always)]
    fn part(&self, peer: Rank) -> impl std::ops::DerefMut<Target = Part<M>> {
        let mut part = self.locked(peer);
        self.settle_ahead(&mut part);
        part
    }

    /// Tells the rules what was taken of the credits that were set apart, and gives the rest back.
    #[inline]
    fn settle_ahead(&self, part: &mut Part<M>) {
        part.ahead.again = false;
        if part.ahead.set_apart > 0 {
            self.settle_some_ahead(part);
        }
        self.settle_back(part);
    }

    /// Tells the rules what came back with the last reply.
    #[inline]
    fn settle_back(&self, part: &mut Part<M>) {
        if let Some(back) = part.ahead.back.take() {
            let peer = part.ahead.peer;
            let settled = part.policy.settle(peer, back);
            debug_assert!(settled.is_ok(), "what the last request took is in flight");
            self.end_requests(1);
        }
    }

    #[inline(never)]
    fn settle_some_ahead(&self, part: &mut Part<M>) {
        let Ahead {
            peer,
            left,
            set_apart,
            requests,
            ..
        } = part.ahead;
        part.policy.take_ready(peer, set_apart - left);
        self.end_requests(set_apart - requests);
        part.ahead = Ahead::default();
    }

    /// Credits for requests that need no look at the rules, and none at the peer's counter.
    #[inline]
    fn ready(&self, part: &Part<M>, peer: Rank) -> u32 {
        let trusted = part.trusted[self.place(peer)];
        part.policy.ready(peer, trusted.into())
    }

    /// Sets credits apart for more requests like the last one.
    #[inline(never)]
    fn set_apart(&self, part: &mut Part<M>, peer: Rank) {
        let places = self.begin_requests(self.ready(part, peer).min(MOST_AHEAD));
        part.ahead = Ahead {
            again: true,
            peer,
            left: places,
            set_apart: places,
            ..Ahead::default()
        };
    }

    /// Where a part keeps what belongs to `peer`.
    #[inline]
    fn place(&self, peer: Rank) -> usize {
        (peer >> self.shift) as usize
    }

    /// A place in the budget.
    #[inline]
    fn begin_request(&self) -> bool {
        self.begin_requests(1) == 1
    }

    /// Up to `most` places in the budget; how many.
    #[inline]
    fn begin_requests(&self, most: u32) -> u32 {
        let some = |outstanding: u32| most.min(self.limit.saturating_sub(outstanding));
        let outstanding = self.outstanding.load(Relaxed);
        if !M::PARALLEL {
            // One thread at a time: no need for a locked operation, which would wait for all stores before it.
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

    /// Credits and a place in the budget, or neither. `None` may also mean that the peer's counter ought to be read
    /// first, see [`Flow::take_collected`].
    #[inline(always)]
    pub(crate) fn take(&self, peer: Rank, credits: u8) -> Option<CreditByte> {
        self.take_noting(peer, credits, || ())
    }

    /// The same, and says if requests to the peer follow one another, without replies between them.
    #[inline(always)]
    pub(crate) fn take_noting(
        &self,
        peer: Rank,
        credits: u8,
        flood: impl FnOnce(),
    ) -> Option<CreditByte> {
        let mut part = self.locked(peer);
        let ahead = &mut part.ahead;
        let plain = CreditByte::new(false, 0, credits);
        if ahead.peer == peer {
            if ahead.left >= u32::from(credits) {
                ahead.left -= u32::from(credits);
                ahead.requests += 1;
                flood();
                return Some(plain);
            }
            if ahead.back == Some(plain) {
                ahead.back = None;
                ahead.again = true;
                return Some(plain);
            }
        }
        self.take_next(&mut part, peer, credits)
    }

    /// [`Self::take`] where nothing suitable is set apart.
    #[inline(never)]
    fn take_next(&self, part: &mut Part<M>, peer: Rank, credits: u8) -> Option<CreditByte> {
        self.settle_back(part);
        if part.ahead.set_apart == 0 && !part.ahead.again {
            // The first after a reply, as each of a round trip is, by itself and without a call.
            if !self.begin_request() {
                return None;
            }
            let trusted = part.trusted[self.place(peer)];
            if part.policy.take_if_ready(peer, credits, trusted.into()) {
                return Some(part.ahead.note_single(peer, credits));
            }
            self.end_requests(1);
        }
        self.take_otherwise(part, peer, credits)
    }

    #[inline(never)]
    fn take_otherwise(&self, part: &mut Part<M>, peer: Rank, credits: u8) -> Option<CreditByte> {
        let second = part.ahead.again && part.ahead.peer == peer;
        self.settle_ahead(part);
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
            self.set_apart(part, peer);
        }
        part.ahead.note_single(peer, credits);
        Some(byte)
    }

    /// The same, after the peer's counter has been read. A request that gets no credits has stalled.
    #[inline]
    pub(crate) fn take_collected(&self, peer: Rank, credits: u8) -> Option<CreditByte> {
        let mut part = self.part(peer);
        if !self.begin_request() {
            return None;
        }
        self.take_held(&mut part, peer, credits)
    }

    /// Credits for a request whose place in the budget is held; without them it is given back.
    #[inline]
    fn take_held(&self, part: &mut Part<M>, peer: Rank, credits: u8) -> Option<CreditByte> {
        let byte = part.policy.take(peer, credits).ok();
        if byte.is_none() {
            self.end_requests(1);
        }
        byte
    }

    /// A request from `peer` has been handled: the byte for its reply, and whether system messages are to be sent.
    #[inline]
    pub(crate) fn grant(&self, peer: Rank, byte: CreditByte) -> (CreditByte, bool) {
        let mut part = self.part(peer);
        let back = part.policy.grant(peer, byte);
        (back, part.policy.has_system())
    }

    /// As many requests from `peer`, all with plain bytes, have been handled: whether one of the replies has to say that this
    /// rank has ended an epoch, and whether system messages are to be sent.
    #[inline]
    pub(crate) fn grant_plain(&self, peer: Rank, requests: u32) -> (bool, bool) {
        let mut part = self.part(peer);
        let end_of_epoch = part.policy.grant_plain(peer, requests);
        (end_of_epoch, part.policy.has_system())
    }

    /// A reply has come.
    #[inline(always)]
    pub(crate) fn settle(&self, peer: Rank, byte: CreditByte) -> Result<(), Violation> {
        let mut part = self.locked(peer);
        let ahead = &mut part.ahead;
        let to_single = ahead.again && ahead.set_apart == 0 && ahead.peer == peer;
        // Elsewhere other parts can end an epoch meanwhile, which a request has to tell.
        if !M::PARALLEL && to_single && byte == ahead.single {
            ahead.again = false;
            ahead.back = Some(byte);
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
        self.settle_ahead(part);
        part.policy.settle(peer, byte)?;
        self.end_requests(1);
        Ok(())
    }

    /// A peer's counter has been read.
    pub(crate) fn collect(
        &self,
        peer: Rank,
        counter: impl FnOnce() -> Returned,
    ) -> Result<(), Violation> {
        let mut part = self.part(peer);
        // Read under the lock, so that no thread brings an older value after a newer one.
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

    /// A system message about credits has come; the answer, if it needs one.
    pub(crate) fn on_system(
        &self,
        peer: Rank,
        message: System,
    ) -> Result<Option<System>, Violation> {
        self.part(peer).policy.on_system(peer, message)
    }

    /// The next system message to send.
    pub(crate) fn next_system(&self) -> Option<(Rank, System)> {
        let first = self.turn.load(Relaxed);
        (0..self.parts.len() as u32).find_map(|step| {
            let number = first.wrapping_add(step) & self.mask;
            let message = self.parts[number as usize].lock().policy.next_system()?;
            // Two threads at once may give a part two turns, which does no harm.
            self.turn.store(number + 1, Relaxed);
            Some(message)
        })
    }

    /// Whether there may be one.
    pub(crate) fn has_system(&self) -> bool {
        self.parts
            .iter()
            .any(|part| part.lock().policy.has_system())
    }

    /// Looks at the flow control that is responsible for `peer`.
    pub(crate) fn look<T>(&self, peer: Rank, look: impl FnOnce(&Policy<M::Bank>) -> T) -> T {
        look(&self.part(peer).policy)
    }

    /// Is it the budget, not a peer's credits, that stands in the way?
    pub(crate) fn budget_is_spent(&self) -> bool {
        self.outstanding() >= self.limit
    }

    /// Requests without a reply yet.
    pub(crate) fn outstanding(&self) -> u32 {
        for part in &self.parts {
            self.settle_ahead(&mut part.lock());
        }
        self.outstanding.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::threads::{Par, Seq};

    #[test]
    fn counters_wrap() {
        let mut before = Returned::from_bits(u64::MAX - 1);
        for step in 0..20 {
            let after = before.add(1, 3).add(0x00FF_FFF0, 0x00FF_FFF7).add(4, 1);
            let after = (0..step).fold(after, |count, _| count.add_epoch());
            let since = Since {
                credits: 0x00FF_FFFB,
                requests: 0x00FF_FFF5,
                epochs: step,
            };
            assert_eq!(after.since(before), since);
            before = Returned::from_bits(after.bits());
        }
    }

    fn the_budget_limits_requests_and_collect_gives_it_back<M: Mode>() {
        let unlimited = || Policy::Unlimited(credits::Unlimited);
        let flow: Flow<M> = Flow::with(vec![unlimited(), unlimited()], 5, 2);
        assert!(flow.take(1, 1).is_some());
        assert!(flow.take(4, 1).is_some());
        assert!(flow.take(1, 1).is_none());
        assert!(flow.budget_is_spent());
        flow.collect(4, || Returned::default().add(1, 0)).unwrap();
        assert_eq!(flow.outstanding(), 1);
        flow.collect(4, || Returned::default().add(1, 0)).unwrap();
        assert_eq!(flow.outstanding(), 1, "the same counter brings nothing");
        flow.settle(1, CreditByte::default()).unwrap();
        assert_eq!(flow.outstanding(), 0);
    }

    #[test]
    fn budget() {
        the_budget_limits_requests_and_collect_gives_it_back::<Seq>();
        the_budget_limits_requests_and_collect_gives_it_back::<Par>();
    }

    fn credits_set_apart_are_neither_lost_nor_hidden<M: Mode>() {
        let overrides = credits::Overrides {
            credits_per_peer: Some(400),
            dynamic: true,
            ..credits::Overrides::default()
        };
        let scale = credits::Scale::for_chunk(1024).unwrap();
        let plan = Plan::new(3, scale, &overrides).unwrap();
        let flow: Flow<M> = Flow::new(&plan, 0, 200);
        let in_flight = |peer| flow.look(peer, |policy| policy.in_flight(peer));
        // So that as many have been in use, and all are back.
        for _ in 0..100 {
            let byte = flow.take(1, 1).or_else(|| flow.take_collected(1, 1));
            assert!(byte.is_some());
        }
        flow.collect(1, || Returned::default().add(100, 100))
            .unwrap();
        assert_eq!((in_flight(1), flow.outstanding()), (0, 0));
        for taken in 1..=100 {
            assert!(flow.take(1, 1).is_some());
            if taken % 7 == 0 {
                assert_eq!((in_flight(1), flow.outstanding()), (taken, taken));
            }
        }
        // Those for another peer come after what is left has been given back.
        let byte = flow.take(2, 3).or_else(|| flow.take_collected(2, 3));
        assert!(byte.is_some());
        assert_eq!((in_flight(1), in_flight(2)), (100, 3));
        assert_eq!(flow.outstanding(), 101);
        flow.settle(1, CreditByte::new(false, 0, 1)).unwrap();
        assert_eq!((in_flight(1), flow.outstanding()), (99, 100));
    }

    #[test]
    fn set_apart() {
        credits_set_apart_are_neither_lost_nor_hidden::<Seq>();
        credits_set_apart_are_neither_lost_nor_hidden::<Par>();
    }

    #[derive(Debug, Clone)]
    enum Step {
        /// Requests one after the other.
        Take {
            peer: Rank,
            credits: u8,
            times: u8,
        },
        /// The reply to the newest or the oldest request, which may tell that an epoch has ended.
        Settle {
            newest: bool,
            end_of_epoch: bool,
        },
        /// Requests that wait for their replies.
        RoundTrips {
            peer: Rank,
            credits: u8,
            times: u8,
        },
        /// A request has been handled.
        Grant {
            peer: Rank,
            credits: u8,
        },
        Look {
            peer: Rank,
        },
    }

    fn step() -> impl Strategy<Value = Step> {
        let peer = || 1..3_u32;
        prop_oneof![
            (peer(), 1..3_u8, 1..5_u8).prop_map(|(peer, credits, times)| Step::Take {
                peer,
                credits,
                times
            }),
            (any::<bool>(), proptest::bool::weighted(0.3)).prop_map(|(newest, end_of_epoch)| {
                Step::Settle {
                    newest,
                    end_of_epoch,
                }
            }),
            (peer(), 1..3_u8, 1..5_u8).prop_map(|(peer, credits, times)| Step::RoundTrips {
                peer,
                credits,
                times
            }),
            (peer(), 1..3_u8).prop_map(|(peer, credits)| Step::Grant { peer, credits }),
            peer().prop_map(|peer| Step::Look { peer }),
        ]
    }

    /// The flow, and the rules alone, which are told of everything at once.
    struct Both {
        flow: Flow<Seq>,
        rules: Policy,
        outstanding: Vec<(Rank, u8)>,
    }

    impl Both {
        const LIMIT: usize = 9;

        fn take(&mut self, peer: Rank, credits: u8) -> bool {
            let byte = self.flow.take(peer, credits).or_else(|| {
                self.flow.collect(peer, Returned::default).unwrap();
                self.flow.take_collected(peer, credits)
            });
            let is_in_budget = self.outstanding.len() < Self::LIMIT;
            let expected = is_in_budget.then(|| self.rules.take(peer, credits).ok());
            assert_eq!(byte, expected.flatten());
            if byte.is_some() {
                self.outstanding.push((peer, credits));
            }
            byte.is_some()
        }

        fn settle(&mut self, place: usize, end_of_epoch: bool) {
            let (peer, credits) = self.outstanding.remove(place);
            let byte = CreditByte::new(end_of_epoch, 0, credits);
            self.flow.settle(peer, byte).unwrap();
            self.rules.settle(peer, byte).unwrap();
        }

        fn step(&mut self, step: &Step) {
            match *step {
                Step::Take {
                    peer,
                    credits,
                    times,
                } => {
                    (0..times).all(|_| self.take(peer, credits));
                }
                Step::Settle {
                    newest,
                    end_of_epoch,
                } => {
                    if let Some(last) = self.outstanding.len().checked_sub(1) {
                        self.settle(if newest { last } else { 0 }, end_of_epoch);
                    }
                }
                Step::RoundTrips {
                    peer,
                    credits,
                    times,
                } => {
                    for _ in 0..times {
                        if self.take(peer, credits) {
                            self.settle(self.outstanding.len() - 1, false);
                        }
                    }
                }
                Step::Grant { peer, credits } => {
                    let byte = CreditByte::new(false, 0, credits);
                    let (back, _) = self.flow.grant(peer, byte);
                    assert_eq!(back, self.rules.grant(peer, byte));
                }
                Step::Look { peer } => {
                    let looks = |policy: &Policy| {
                        let (here, all) = (policy.in_flight(peer), policy.available(peer));
                        (here, all, policy.stalls(peer))
                    };
                    assert_eq!(self.flow.look(peer, looks), looks(&self.rules));
                    assert_eq!(self.flow.outstanding() as usize, self.outstanding.len());
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 1024, ..ProptestConfig::default() })]
        #[test]
        fn the_rules_see_what_they_would_have_seen(steps in proptest::collection::vec(step(), 1..200)) {
            let overrides = credits::Overrides {
                credits_per_peer: Some(6),
                dynamic: true,
                tuning: credits::Tuning {
                    epoch: 5,
                    ..credits::Tuning::default()
                },
                ..credits::Overrides::default()
            };
            let scale = credits::Scale::for_chunk(1024).unwrap();
            let plan = Plan::new(3, scale, &overrides).unwrap();
            let mut both = Both {
                flow: Flow::new(&plan, 0, Both::LIMIT as u32),
                rules: Policy::from_plan(&plan, 0),
                outstanding: Vec::new(),
            };
            for step in &steps {
                both.step(step);
            }
        }
    }

    #[test]
    fn no_reply_gives_back_more_than_was_taken() {
        let scale = credits::Scale::for_chunk(1024).unwrap();
        let plan = Plan::new(3, scale, &credits::Overrides::default()).unwrap();
        let flow: Flow<Seq> = Flow::new(&plan, 0, 100);
        let byte = |credits| CreditByte::new(false, 0, credits);
        for _ in 0..3 {
            assert!(
                flow.take(1, 1)
                    .or_else(|| flow.take_collected(1, 1))
                    .is_some()
            );
            assert!(flow.settle(1, byte(2)).is_err());
            assert!(flow.settle(1, byte(1)).is_ok());
            assert!(flow.settle(1, byte(1)).is_err());
        }
        assert!(flow.take(1, 1).is_some());
        assert!(flow.settle(1, byte(1)).is_ok());
        assert!(
            flow.settle(1, byte(1)).is_err(),
            "it is kept for a request, once"
        );
    }

    #[test]
    fn peers_of_all_parts_are_asked_in_turn() {
        let overrides = credits::Overrides {
            credits_per_peer: Some(8),
            banked: Some(0),
            dynamic: true,
            buffer_chunks: 8,
            tuning: credits::Tuning {
                lender_limit: u16::MAX,
                ..credits::Tuning::default()
            },
            ..credits::Overrides::default()
        };
        let scale = credits::Scale::for_chunk(1024).unwrap();
        let plan = Plan::new(5, scale, &overrides).unwrap();
        let flow: Flow<Par> = Flow::new(&plan, 0, 100);
        assert!(flow.parts.len() >= 4);
        let mut asked = Vec::new();
        for _ in 0..40 {
            // Rank 1 has stalled: it wants what the bank does not have.
            flow.grant(1, CreditByte::new(false, 1, 1));
            while let Some((peer, message)) = flow.next_system() {
                assert!(matches!(message, System::Revoke { .. }));
                asked.push(peer);
                // It gives back a credit, which goes to rank 1.
                let answer = System::Return {
                    credits: 1,
                    end_of_epoch: false,
                };
                flow.on_system(peer, answer).unwrap();
            }
        }
        assert_eq!(asked[..6], [2, 3, 4, 2, 3, 4]);
    }

    #[test]
    fn while_use_grows_the_counter_is_read_seldom() {
        let overrides = credits::Overrides {
            credits_per_peer: Some(400),
            dynamic: true,
            ..credits::Overrides::default()
        };
        let scale = credits::Scale::for_chunk(1024).unwrap();
        let plan = Plan::new(2, scale, &overrides).unwrap();
        let flow: Flow<Seq> = Flow::new(&plan, 0, 1000);
        let mut readings = 0;
        for _ in 0..400 {
            if flow.take(1, 1).is_none() {
                readings += 1;
                flow.collect(1, Returned::default).unwrap();
                assert!(flow.take_collected(1, 1).is_some());
            }
        }
        // One for each eighth.
        assert!((7..10).contains(&readings), "{readings}");
        assert_eq!(flow.look(1, |policy| policy.in_flight(1)), 400);
        // All have come back: what is trusted now starts from nothing.
        flow.collect(1, || Returned::default().add(400, 400))
            .unwrap();
        for _ in 0..400 {
            assert!(flow.take(1, 1).is_some(), "no new high");
        }
        assert!(flow.take(1, 1).is_none(), "read before it is a stall");
        assert_eq!(flow.look(1, |policy| policy.stalls(1)), 0);
    }

    #[test]
    fn a_request_has_not_stalled_before_the_counter_was_read() {
        let overrides = credits::Overrides {
            credits_per_peer: Some(8),
            banked: Some(0),
            dynamic: true,
            ..credits::Overrides::default()
        };
        let scale = credits::Scale::for_chunk(1024).unwrap();
        let plan = Plan::new(3, scale, &overrides).unwrap();
        let flow: Flow<Par> = Flow::new(&plan, 0, 100);
        for _ in 0..2 {
            assert!(flow.take(2, 4).is_none(), "more than ever before");
            assert!(flow.take_collected(2, 4).is_some());
        }
        assert!(flow.take(2, 1).is_none());
        assert_eq!(flow.look(2, |policy| policy.stalls(2)), 0);
        flow.collect(2, || Returned::default().add(1, 4)).unwrap();
        assert!(flow.take(2, 1).is_some());
        assert!(flow.take_collected(2, 4).is_none());
        assert_eq!(flow.look(2, |policy| policy.stalls(2)), 1);
        assert_eq!(flow.outstanding(), 2);
    }
}
