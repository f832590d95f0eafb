//! Compares the flow control, which reserves and recycles credits, with the policy alone.

use proptest::prelude::*;

use super::*;
use crate::messages::flow::returned::Since;
use crate::threads::{Par, Seq};

/// The plan of a small job with chunks of 1 KiB.
fn plan(ranks: u32, overrides: &credits::Overrides) -> Plan {
    let scale = credits::Scale::for_chunk(1024).unwrap();
    Plan::new(ranks, scale, overrides).unwrap()
}

fn with_short_epochs() -> credits::Overrides {
    credits::Overrides {
        dynamic: true,
        tuning: credits::Tuning {
            epoch: 5,
            ..credits::Tuning::default()
        },
        ..credits::Overrides::default()
    }
}

/// Takes credits for a request, reading the peer's counter if necessary.
fn take<M: Mode>(flow: &Flow<M>, peer: Rank, credits: u8) -> Option<CreditByte> {
    flow.take(peer, credits)
        .or_else(|| flow.take_collected(peer, credits))
}

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
    assert_eq!(
        flow.outstanding(),
        1,
        "reading the same counter again settles nothing"
    );
    flow.settle(1, CreditByte::default()).unwrap();
    assert_eq!(flow.outstanding(), 0);
    let unsent = flow.take(4, 1).unwrap();
    flow.give_back(4, unsent);
    assert_eq!(flow.outstanding(), 0);
}

#[test]
fn budget() {
    the_budget_limits_requests_and_collect_gives_it_back::<Seq>();
    the_budget_limits_requests_and_collect_gives_it_back::<Par>();
}

fn reserved_credits_are_neither_lost_nor_hidden<M: Mode>() {
    let overrides = credits::Overrides {
        credits_per_peer: Some(400),
        dynamic: true,
        ..credits::Overrides::default()
    };
    let plan = plan(3, &overrides);
    let flow: Flow<M> = Flow::new(&plan, 0, 200);
    let in_flight = |peer| flow.look(peer, |policy| policy.in_flight(peer));
    // Raises the recent maximum of credits in use, and then returns all credits.
    for _ in 0..100 {
        let byte = take(&flow, 1, 1);
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
    // Before credits for another peer are taken, the reserved credits that are left are returned.
    let byte = take(&flow, 2, 3);
    assert!(byte.is_some());
    assert_eq!((in_flight(1), in_flight(2)), (100, 3));
    assert_eq!(flow.outstanding(), 101);
    flow.settle(1, CreditByte::new(false, 0, 1)).unwrap();
    assert_eq!((in_flight(1), flow.outstanding()), (99, 100));
}

#[test]
fn credits_are_reserved() {
    reserved_credits_are_neither_lost_nor_hidden::<Seq>();
    reserved_credits_are_neither_lost_nor_hidden::<Par>();
}

#[derive(Debug, Clone)]
enum Step {
    /// Several requests one after the other.
    Take {
        peer: Rank,
        credits: u8,
        times: u8,
    },
    /// A reply to the newest or to the oldest request, which may announce the end of an epoch.
    Settle {
        newest: bool,
        end_of_epoch: bool,
    },
    /// Several requests, each of which waits for its reply.
    RoundTrips {
        peer: Rank,
        credits: u8,
        times: u8,
    },
    /// A handled request is granted.
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

/// The flow control under test, and the policy alone, which learns of every step at once.
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
            ..with_short_epochs()
        };
        let plan = plan(3, &overrides);
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
    let plan = plan(3, &credits::Overrides::default());
    let flow: Flow<Seq> = Flow::new(&plan, 0, 100);
    let byte = |credits| CreditByte::new(false, 0, credits);
    for _ in 0..3 {
        assert!(take(&flow, 1, 1).is_some());
        assert!(flow.settle(1, byte(2)).is_err());
        assert!(flow.settle(1, byte(1)).is_ok());
        assert!(flow.settle(1, byte(1)).is_err());
    }
    assert!(flow.take(1, 1).is_some());
    assert!(flow.settle(1, byte(1)).is_ok());
    assert!(
        flow.settle(1, byte(1)).is_err(),
        "a return is kept only once per request"
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
    let plan = plan(5, &overrides);
    let flow: Flow<Par> = Flow::new(&plan, 0, 100);
    assert!(flow.parts.len() >= 4);
    let mut asked = Vec::new();
    for _ in 0..40 {
        // Rank 1 has stalled, because it needs more credits than the bank has.
        flow.grant(1, CreditByte::new(false, 1, 1));
        while let Some((peer, message)) = flow.next_system() {
            assert!(matches!(message, System::Revoke { .. }));
            asked.push(peer);
            // The rank that was asked returns a credit, which goes to rank 1.
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
    let plan = plan(2, &overrides);
    let flow: Flow<Seq> = Flow::new(&plan, 0, 1000);
    let mut readings = 0;
    for _ in 0..400 {
        if flow.take(1, 1).is_none() {
            readings += 1;
            flow.collect(1, Returned::default).unwrap();
            assert!(flow.take_collected(1, 1).is_some());
        }
    }
    // The counter is read once for each eighth of the credits lent.
    assert!((7..10).contains(&readings), "{readings}");
    assert_eq!(flow.look(1, |policy| policy.in_flight(1)), 400);
    // All credits have been returned, so the trusted number starts from zero again.
    flow.collect(1, || Returned::default().add(400, 400))
        .unwrap();
    for _ in 0..400 {
        assert!(
            flow.take(1, 1).is_some(),
            "the number in use is not a new maximum"
        );
    }
    assert!(
        flow.take(1, 1).is_none(),
        "the counter must be read before this counts as a stall"
    );
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
    let plan = plan(3, &overrides);
    let flow: Flow<Par> = Flow::new(&plan, 0, 100);
    for _ in 0..2 {
        assert!(
            flow.take(2, 4).is_none(),
            "the number in use would be a new maximum"
        );
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

#[test]
fn what_comes_back_is_kept_until_something_else_is_asked() {
    let plan = plan(3, &credits::Overrides::default());
    let flow: Flow<Seq> = Flow::new(&plan, 0, 100);
    let plain = CreditByte::new(false, 0, 1);
    let take = || take(&flow, 1, 1);
    assert_eq!(take(), Some(plain));
    for _ in 0..3 {
        flow.settle(1, plain).unwrap();
        assert_eq!(flow.parts[0].lock().cache.recycled, Some(plain));
        assert_eq!(flow.take(1, 1), Some(plain));
        assert_eq!(flow.parts[0].lock().cache.recycled, None);
    }
    // Another request without a reply in between makes this a flood.
    assert_eq!(flow.take(1, 1), Some(plain));
    assert!(flow.parts[0].lock().cache.reserved > 0);
    for _ in 0..2 {
        flow.settle(1, plain).unwrap();
    }
    assert_eq!(flow.outstanding(), 0);
    // The policy learns of the return before it is used for another peer.
    assert!(take().is_some());
    flow.settle(1, plain).unwrap();
    assert!(flow.take(2, 1).is_some());
    assert_eq!(flow.look(1, |policy| policy.in_flight(1)), 0);
    assert_eq!(flow.outstanding(), 1);
}

/// The parts share the bank, so an epoch may have ended in another part. The next request must
/// announce that end, so no credits are kept for it.
#[test]
fn with_several_threads_nothing_is_kept() {
    let plan = plan(3, &with_short_epochs());
    let flow: Flow<Par> = Flow::new(&plan, 0, 100);
    let plain = CreditByte::new(false, 0, 1);
    let take = || take(&flow, 1, 1);
    for _ in 0..2 {
        assert_eq!(take(), Some(plain));
        flow.settle(1, plain).unwrap();
    }
    for _ in 0..6 {
        flow.grant(2, plain);
    }
    assert!(take().is_some_and(|byte| byte.end_of_epoch()));
}
