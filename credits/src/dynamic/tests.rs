//! Tests of the rules one by one, between two or three ranks that the tests drive step by step.

use proptest::prelude::*;

use super::*;
use crate::Sparse;

type Rank = Dynamic<Dense<Peer>>;

fn tuning() -> Tuning {
    Tuning {
        epoch: 8,
        ..Tuning::default()
    }
}

fn rank(rank: u32, loan: u16, banked: u32) -> Rank {
    Rank::new(3, rank, loan, banked, tuning())
}

/// Sends a request from `x` (rank 0) to `y` (rank 1), and its reply. No other messages are in
/// transit.
fn round_trip(x: &mut Rank, y: &mut Rank, credits: u8) {
    let byte = x.take(1, credits).unwrap();
    let back = y.grant(0, byte);
    x.settle(1, back).unwrap();
}

/// Uses up the credits that `x` has for `y`, so that the next request stalls. Returns the bytes of
/// the requests that used them.
fn fill(x: &mut Rank) -> Vec<CreditByte> {
    let mut bytes = Vec::new();
    while x.available(1) > 0 {
        bytes.push(x.take(1, x.available(1).min(4) as u8).unwrap());
    }
    bytes
}

/// Makes a request from `x` to `y` stall for lack of 4 credits and then succeed. Returns the reply
/// of `y`.
fn stall(x: &mut Rank, y: &mut Rank) -> CreditByte {
    let bytes = fill(x);
    assert_eq!(x.take(1, 4), Err(Short { missing: 4 }));
    for byte in bytes {
        let back = y.grant(0, byte);
        x.settle(1, back).unwrap();
    }
    let byte = x.take(1, 4).unwrap();
    assert_eq!(byte.extra(), 4);
    let back = y.grant(0, byte);
    x.settle(1, back).unwrap();
    back
}

#[test]
fn a_peer_takes_32_bytes() {
    assert_eq!(size_of::<Peer>(), 32);
}

#[test]
fn nothing_moves_without_demand() {
    let (mut x, mut y) = (rank(0, 8, 100), rank(1, 8, 100));
    for _ in 0..100 {
        round_trip(&mut x, &mut y, 4);
        assert_eq!((x.next_system(), y.next_system()), (None, None));
    }
    assert_eq!((x.available(1), y.banked()), (8, 100));
}

#[test]
fn a_stalled_request_brings_credits_from_the_bank() {
    let (mut x, mut y) = (rank(0, 8, 100), rank(1, 8, 100));
    let back = stall(&mut x, &mut y);
    assert_eq!(back.extra(), 4);
    assert_eq!((x.available(1), y.banked()), (12, 96));
    assert_eq!(y.peer_state(0).loan, 12);
    assert_eq!(x.stalls(1), 1);
    assert!(!y.has_system(), "the bank was not short");
}

#[test]
fn a_bank_that_is_short_gives_what_it_has_and_asks_others() {
    let (mut x, mut y, mut z) = (rank(0, 8, 3), rank(1, 8, 3), rank(2, 8, 3));
    assert_eq!(stall(&mut x, &mut y).extra(), 3);
    assert_eq!(y.banked(), 0);
    // The rank asks neither itself nor the rank that wants more.
    let (peer, revoke) = y.next_system().unwrap();
    assert_eq!(peer, 2);
    assert_eq!(
        y.next_system(),
        None,
        "only one message to a peer at a time"
    );
    let answer = z.on_system(1, revoke).unwrap().unwrap();
    assert_eq!(
        answer,
        System::Return {
            credits: 4,
            end_of_epoch: false
        },
        "all above the minimum"
    );
    assert_eq!(y.on_system(2, answer), Ok(None));
    assert_eq!((y.banked(), y.peer_state(2).loan), (4, 4));
    assert_eq!((z.available(1), z.revoked(1)), (4, 4));
    assert_eq!(stall(&mut x, &mut y).extra(), 4);
    assert!(
        y.next_system().is_none(),
        "no peer is left with more than the minimum"
    );
}

#[test]
fn what_was_used_recently_is_not_given_back() {
    let (mut z, mut y) = (rank(0, 20, 0), rank(1, 20, 0));
    let bytes: Vec<_> = (0..3).map(|_| z.take(1, 4).unwrap()).collect();
    for byte in bytes {
        let back = y.grant(0, byte);
        z.settle(1, back).unwrap();
    }
    assert_eq!(z.peer_state(1).max, 12);
    let revoke = System::Revoke {
        end_of_epoch: false,
    };
    let returned = |answer: Option<System>| match answer {
        Some(System::Return { credits, .. }) => credits,
        other => panic!("{other:?}"),
    };
    assert_eq!(returned(z.on_system(1, revoke).unwrap()), 8);
    assert_eq!(returned(z.on_system(1, revoke).unwrap()), 0);
    // At the end of the lender's epoch, the use is divided by four, but the rank keeps at least the
    // minimum.
    let revoke = System::Revoke { end_of_epoch: true };
    assert_eq!(returned(z.on_system(1, revoke).unwrap()), 8);
    assert_eq!(z.available(1), 4);
}

#[test]
fn what_was_used_in_the_epoch_before_can_be_held() {
    let hold = Tuning {
        hold: true,
        revoke_limit: 1000,
        ..tuning()
    };
    let mut z = Rank::new(2, 0, 100, 0, hold);
    let mut used = |credits: u8| {
        let bytes: Vec<_> = (0..credits / 4).map(|_| z.take(1, 4).unwrap()).collect();
        for byte in bytes {
            let back = CreditByte::new(false, 0, byte.credits());
            z.settle(1, back).unwrap();
        }
        // The revoke reports the end of the lender's epoch.
        let answer = z.on_system(1, System::Revoke { end_of_epoch: true });
        let Ok(Some(System::Return { credits, .. })) = answer else {
            panic!("{answer:?}");
        };
        (credits, z.available(1))
    };
    assert_eq!(used(80), (20, 80));
    assert_eq!(
        used(40),
        (40, 40),
        "80 were used in the epoch before the last one"
    );
    assert_eq!(used(0), (30, 10), "40 were used before the last one");
    assert_eq!(used(0), (6, 4), "then a quarter, not less than the minimum");
}

#[test]
fn credits_in_flight_are_never_given_back() {
    let mut z = rank(0, 20, 0);
    let _ = (0..4).map(|_| z.take(1, 4).unwrap()).count();
    for _ in 0..5 {
        let answer = z.on_system(1, System::Revoke { end_of_epoch: true });
        assert!(matches!(answer, Ok(Some(System::Return { .. }))));
    }
    assert_eq!((z.available(1), z.in_flight(1)), (0, 16));
}

#[test]
fn who_stalled_recently_gives_nothing_back() {
    let (mut x, mut y) = (rank(0, 8, 100), rank(1, 8, 100));
    let _ = stall(&mut x, &mut y);
    let answer = x.on_system(
        1,
        System::Revoke {
            end_of_epoch: false,
        },
    );
    assert_eq!(
        answer,
        Ok(Some(System::Return {
            credits: 0,
            end_of_epoch: false
        }))
    );
}

#[test]
fn a_rank_gives_back_no_more_than_the_limit_in_an_epoch() {
    let mut z = Rank::new(
        2,
        0,
        100,
        0,
        Tuning {
            revoke_limit: 30,
            ..tuning()
        },
    );
    for (end_of_epoch, returned) in [(false, 30), (false, 0), (true, 23), (true, 23)] {
        let answer = z.on_system(1, System::Revoke { end_of_epoch });
        let expected = System::Return {
            credits: returned,
            end_of_epoch: false,
        };
        assert_eq!(answer, Ok(Some(expected)));
    }
}

#[test]
fn a_lender_lends_no_more_than_the_limits() {
    let limits = Tuning {
        lender_limit: 10,
        max_per_peer: 22,
        ..tuning()
    };
    let mut y = Rank::new(2, 1, 8, 1000, limits);
    let mut ask = |requests| {
        let one = CreditByte::new(false, 7, 1);
        (0..requests).map(|_| y.grant(0, one).extra()).sum::<u8>()
    };
    assert_eq!(ask(7), 10, "the epoch's limit");
    assert_eq!(ask(8), 4, "then all that a peer may have");
    assert_eq!(ask(20), 0);
    assert_eq!((y.peer_state(0).loan, y.banked()), (22, 986));
    assert!(!y.has_system(), "the bank was never short");
}

#[test]
fn the_end_of_an_epoch_is_told_once_to_each_peer_by_whatever_goes_there() {
    let mut y = rank(1, 8, 100);
    for _ in 0..7 {
        assert!(!y.grant(0, CreditByte::new(false, 0, 1)).end_of_epoch());
    }
    assert!(y.grant(0, CreditByte::new(false, 0, 1)).end_of_epoch());
    assert!(!y.grant(0, CreditByte::new(false, 0, 1)).end_of_epoch());
    assert!(y.take(2, 1).unwrap().end_of_epoch());
    assert!(!y.take(2, 1).unwrap().end_of_epoch());
    let answer = y.on_system(
        1,
        System::Revoke {
            end_of_epoch: false,
        },
    );
    assert!(matches!(
        answer,
        Ok(Some(System::Return {
            end_of_epoch: true,
            ..
        }))
    ));
    assert_eq!(y.epoch(), 1);
}

#[test]
fn who_had_nothing_to_spare_is_asked_again_in_the_next_epoch_only() {
    let mut y = rank(1, 8, 0);
    let ask = CreditByte::new(false, 7, 1);
    let _ = y.grant(0, ask);
    let (peer, _) = y.next_system().unwrap();
    assert_eq!(peer, 2);
    let nothing = System::Return {
        credits: 0,
        end_of_epoch: false,
    };
    assert_eq!(y.on_system(2, nothing), Ok(None));
    for _ in 0..6 {
        let _ = y.grant(0, ask);
        assert_eq!(y.next_system(), None);
    }
    let _ = y.grant(0, ask);
    assert_eq!(y.epoch(), 1);
    assert_eq!(y.next_system().map(|(peer, _)| peer), Some(2));
}

#[test]
fn peers_are_asked_in_turn_and_so_many_at_a_time() {
    let mut y = Dynamic::<Sparse<Peer>>::new(
        100,
        0,
        6,
        0,
        Tuning {
            scavenge: 3,
            ..tuning()
        },
    );
    let ask = CreditByte::new(false, 7, 1);
    let _ = y.grant(50, ask);
    let asked: Vec<_> = std::iter::from_fn(|| y.next_system().map(|(peer, _)| peer)).collect();
    assert_eq!(asked, [1, 2, 3]);
    let _ = y.grant(50, ask);
    assert_eq!(y.next_system(), None, "three are under way");
    let two = System::Return {
        credits: 2,
        end_of_epoch: false,
    };
    y.on_system(2, two).unwrap();
    assert_eq!(y.grant(50, ask).extra(), 2);
    assert_eq!(y.next_system().map(|(peer, _)| peer), Some(4));
    assert_eq!(y.next_system(), None);
    assert!(
        y.store().used() < 10,
        "memory is used only for peers that were touched"
    );
}

/// Serves a request from rank 40, which asks for more if `asks` is set. Returns the peers that the
/// serving rank then asks. Each of them gives back one credit.
fn serve_40(y: &mut Rank, asks: bool) -> Vec<u32> {
    let _ = y.grant(40, CreditByte::new(false, if asks { 7 } else { 0 }, 1));
    let mut asked = Vec::new();
    while let Some((peer, _)) = y.next_system() {
        asked.push(peer);
        let answer = System::Return {
            credits: 1,
            end_of_epoch: false,
        };
        y.on_system(peer, answer).unwrap();
    }
    assert!(!y.has_system());
    asked
}

#[test]
fn with_a_pace_peers_are_asked_one_at_a_time() {
    let pace = Tuning {
        epoch: 8,
        revokes_per_epoch: 2,
        lender_limit: 1000,
        max_per_peer: 1000,
        ..tuning()
    };
    let mut y = Rank::new(50, 0, 6, 0, pace);
    let asked: Vec<usize> = (0..16).map(|_| serve_40(&mut y, true).len()).collect();
    assert_eq!(asked, [1, 0, 0, 0].repeat(4));
}

#[test]
fn with_a_pace_peers_are_asked_in_good_time_and_no_longer_than_needed() {
    let pace = Tuning {
        epoch: 8,
        revokes_per_epoch: 4,
        scavenge: 3,
        ..tuning()
    };
    // 100 credits may move: 50 of them are in the bank, and each of 50 ranks has one above the
    // minimum.
    let mut y = Rank::new(50, 0, 5, 50, pace);
    let mut asked = Vec::new();
    for _ in 0..3 {
        asked.extend(serve_40(&mut y, true));
    }
    assert_eq!((y.banked(), asked.len()), (50 - 3 * 7, 0), "enough is left");
    let mut asked = 0;
    for step in 0..40 {
        asked += serve_40(&mut y, step == 0).len();
    }
    // The bank is below a quarter. Each of the three gives back its one credit above the minimum.
    assert_eq!(asked, 3);
}

#[test]
fn with_a_pace_only_who_has_been_silent_for_an_epoch_is_asked() {
    let pace = Tuning {
        epoch: 8,
        revokes_per_epoch: 8,
        lender_limit: 1000,
        max_per_peer: 1000,
        ..tuning()
    };
    // The bank has something to give throughout the test.
    let mut y = Rank::new(4, 0, 20, 20, pace);
    // Rank 1 constantly wants more. Rank 2 sends one request, in the first epoch.
    let mut asked = Vec::new();
    for request in 0..32 {
        let (peer, extra) = if request == 3 { (2, 0) } else { (1, 1) };
        let _ = y.grant(peer, CreditByte::new(false, extra, 1));
        while let Some((peer, _)) = y.next_system() {
            asked.push((request, peer));
            let answer = System::Return {
                credits: 1,
                end_of_epoch: false,
            };
            y.on_system(peer, answer).unwrap();
        }
    }
    assert!(asked.iter().all(|&(_, peer)| peer == 2 || peer == 3));
    let two = asked.iter().filter(|&&(_, peer)| peer == 2);
    let two: Vec<u32> = two.map(|&(request, _)| request).collect();
    // Rank 2 is asked before it has sent anything, and then not before the start of the second
    // epoch after its request.
    assert!(!two.iter().any(|at| (3..15).contains(at)), "{two:?}");
    assert!(two[0] < 3 && two.iter().any(|&at| at >= 15), "{two:?}");
}

#[test]
fn a_doubling_loan_takes_no_more_than_half_of_the_bank() {
    let doubling = Tuning {
        growth: Growth::Doubling,
        lender_limit: 1000,
        max_per_peer: 1000,
        ..tuning()
    };
    let mut y = Rank::new(3, 1, 4, 100, doubling);
    let mut given = Vec::new();
    for _ in 0..8 {
        // This is the most that the three bits can ask for.
        let back = y.grant(0, CreditByte::new(false, 7, 1));
        given.push(doubling.credits(back.extra()));
    }
    // The bank held 100, 68, 36, 20, 12, 8, 4 and 0 credits before these grants.
    assert_eq!(given, [32, 32, 16, 8, 4, 4, 4, 0]);
}

#[test]
fn doubling_reaches_what_is_needed_in_few_requests() {
    let doubling = Tuning {
        growth: Growth::Doubling,
        lender_limit: 1000,
        max_per_peer: 5000,
        ..tuning()
    };
    let (mut x, mut y) = (
        Rank::new(3, 0, 4, 1000, doubling),
        Rank::new(3, 1, 4, 1000, doubling),
    );
    let mut loans = Vec::new();
    for _ in 0..7 {
        let bytes = fill(&mut x);
        assert!(x.take(1, 4).is_err());
        for byte in bytes {
            let back = y.grant(0, byte);
            x.settle(1, back).unwrap();
        }
        round_trip(&mut x, &mut y, 4);
        loans.push(x.available(1));
    }
    assert_eq!(loans, [8, 16, 32, 64, 128, 256, 512]);
    assert_eq!(y.banked() + 512 + 4 + 4, 1000 + 3 * 4);
}

#[test]
fn a_large_loan_that_stalls_once_goes_on_to_the_most() {
    let doubling = Tuning {
        growth: Growth::Doubling,
        lender_limit: 1000,
        max_per_peer: 400,
        ..tuning()
    };
    // The small bank cannot give the second amount that is asked for.
    for (banked, expected) in [
        (1000, [128, 256, 384, 400, 400]),
        (128, [128, 160, 160, 160, 160]),
    ] {
        let (mut x, mut y) = (
            Rank::new(3, 0, 64, banked, doubling),
            Rank::new(3, 1, 64, banked, doubling),
        );
        let bytes = fill(&mut x);
        assert!(x.take(1, 4).is_err());
        for byte in bytes {
            let back = y.grant(0, byte);
            x.settle(1, back).unwrap();
        }
        let mut loans = Vec::new();
        for _ in 0..5 {
            round_trip(&mut x, &mut y, 4);
            loans.push(x.available(1));
        }
        assert_eq!(loans, expected);
        assert_eq!(x.stalls(1), 1);
        assert_eq!(y.lent(0), x.available(1));
    }
}

#[test]
fn whoever_can_be_lent_no_more_makes_nobody_be_asked() {
    let pace = Tuning {
        revokes_per_epoch: 4,
        max_per_peer: 20,
        ..tuning()
    };
    // The bank is below its reserve, because all but 10 of the 810 credits that may move are lent.
    let mut y = Rank::new(50, 0, 20, 10, pace);
    assert_eq!(serve_40(&mut y, true), []);
    let more = Tuning {
        max_per_peer: 30,
        ..pace
    };
    let mut y = Rank::new(50, 0, 20, 10, more);
    assert_eq!(serve_40(&mut y, true).len(), 1);
}

#[test]
fn a_peer_that_breaks_the_rules_is_named_and_changes_nothing() {
    let mut x = rank(0, 8, 10);
    let returned = |credits| System::Return {
        credits,
        end_of_epoch: true,
    };
    let before = x.clone();
    assert_eq!(
        x.on_system(1, returned(1)),
        Err(Violation::UnexpectedReturn {
            peer: 1,
            credits: 1
        })
    );
    assert!(x.on_system(7, returned(1)).is_err());
    assert!(x.settle(1, CreditByte::new(false, 0, 1)).is_err());
    assert!(x.settle(7, CreditByte::new(true, 3, 0)).is_err());
    assert_eq!(x, before);
    let mut x = Rank::new(
        3,
        0,
        8,
        0,
        Tuning {
            max_per_peer: 9,
            ..tuning()
        },
    );
    let before = x.clone();
    assert_eq!(
        x.settle(1, CreditByte::new(false, 2, 0)),
        Err(Violation::UnexpectedGrant { peer: 1, extra: 2 })
    );
    assert_eq!(x, before);
    let _ = x.grant(1, CreditByte::new(false, 1, 1));
    let (peer, _) = x.next_system().unwrap();
    let before = x.clone();
    assert!(matches!(
        x.on_system(peer, returned(5)),
        Err(Violation::ReturnBelowMinimum { most: 4, .. })
    ));
    assert_eq!(x, before);
}

/// A step of rank 0, whose peers are 1 and 2.
#[derive(Clone, Debug)]
enum Step {
    Take(u32, u8),
    Grant(u32, u8),
    Settle(u32, u8),
    System(u32, System),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let peer = 1u32..3;
    let step = prop_oneof![
        4 => (peer.clone(), 1u8..=8).prop_map(|(peer, credits)| Step::Take(peer, credits)),
        2 => (peer.clone(), any::<u8>()).prop_map(|(peer, byte)| Step::Grant(peer, byte)),
        2 => (peer.clone(), any::<u8>()).prop_map(|(peer, byte)| Step::Settle(peer, byte)),
        1 => (peer, any::<bool>())
            .prop_map(|(peer, end_of_epoch)| Step::System(peer, System::Revoke { end_of_epoch })),
    ];
    prop::collection::vec(step, 0..60)
}

/// Returns rank 0 after these steps. Their results are ignored.
fn after(steps: Vec<Step>) -> Rank {
    let mut x = rank(0, 20, 50);
    for step in steps {
        match step {
            Step::Take(peer, credits) => drop(x.take(peer, credits)),
            Step::Grant(peer, byte) => drop(x.grant(peer, CreditByte::from_bits(byte))),
            Step::Settle(peer, byte) => drop(x.settle(peer, CreditByte::from_bits(byte))),
            Step::System(peer, message) => drop(x.on_system(peer, message)),
        }
    }
    x
}

#[test]
fn what_a_request_tells_and_asks_goes_with_the_next_if_it_is_given_back() {
    for growth in [Growth::Missing, Growth::Doubling] {
        let tuning = Tuning {
            growth,
            max_per_peer: 64,
            ..tuning()
        };
        let mut x: Rank = Rank::new(3, 0, 8, 0, tuning);
        // An epoch of rank 0 ends, and a request waits for credits of rank 1.
        for _ in 0..tuning.epoch {
            let _ = x.grant(2, CreditByte::new(false, 0, 1));
        }
        let first = x.take(1, 8).unwrap();
        assert_eq!(first, CreditByte::new(true, 0, 8));
        assert_eq!(x.take(1, 4), Err(Short { missing: 4 }));
        x.give_back(1, first);
        assert_eq!((x.in_flight(1), x.available(1)), (0, 8));
        let asks = x.take(1, 4).unwrap();
        assert!(asks.end_of_epoch() && asks.extra() > 0, "{asks:?}");
        x.give_back(1, asks);
        assert_eq!(x.take(1, 4), Ok(asks));
        assert_eq!(x.take(1, 4), Ok(CreditByte::new(false, 0, 4)), "told once");
        // If the cancelled request reported nothing, the next one has nothing to report either.
        x.give_back(1, CreditByte::new(false, 0, 4));
        assert_eq!(x.take(1, 4), Ok(CreditByte::new(false, 0, 4)));
    }
}

proptest! {
    #[test]
    fn coalesced_replies_are_as_those_that_came_singly(steps in steps(), peer in 1u32..3, replies in prop::collection::vec((0u8..3, any::<bool>()), 0..30)) {
        let mut x = after(steps);
        let mut other = x.clone();
        // The replies that report an epoch are settled first.
        let (mut credits, mut epochs) = (0, 0);
        for &(_, ends) in &replies {
            epochs += u32::from(ends);
            prop_assert_eq!(other.settle(peer, CreditByte::new(ends, 0, 0)), Ok(()));
        }
        for &(some, _) in &replies {
            if other.settle(peer, CreditByte::new(false, 0, some)).is_ok() {
                credits += u32::from(some);
            }
        }
        prop_assert_eq!(x.settle_many(peer, credits, epochs), Ok(()));
        prop_assert_eq!(x, other);
    }

    #[test]
    fn ready_credits_taken_at_once_are_as_those_taken_singly(steps in steps(), peer in 1u32..3, trusted in 0u32..100, requests in prop::collection::vec(1u8..=8, 1..9)) {
        let mut x = after(steps);
        let mut other = x.clone();
        let ready = x.ready(peer, trusted);
        let mut taken = 0;
        for credits in requests {
            if taken + u32::from(credits) <= ready {
                taken += u32::from(credits);
                let is_known = other.in_flight(peer) + u32::from(credits) <= trusted;
                prop_assert!(is_known || !other.is_stale(peer, credits));
                prop_assert_eq!(other.take(peer, credits), Ok(CreditByte::new(false, 0, credits)));
            }
        }
        x.take_ready(peer, taken);
        prop_assert_eq!(x, other);
    }

    #[test]
    fn requests_granted_at_once_are_as_many_granted_singly(steps in steps(), peer in 1u32..3, requests in 1u32..30) {
        let mut x = after(steps);
        let mut other = x.clone();
        let told = x.grant_plain(peer, requests);
        // The requests before the last one are only counted, so the last reply reports the epochs
        // that all of them have ended.
        for _ in 1..requests {
            other.note_requests(1);
        }
        prop_assert_eq!(other.grant(peer, CreditByte::new(false, 0, 1)), CreditByte::new(told, 0, 1));
        prop_assert_eq!(x, other);
    }
}

#[test]
fn a_peer_that_begins_anew_owes_no_answer_to_a_revoke() {
    let mut y = rank(1, 8, 0);
    // The bank has nothing to lend to rank 0, so another rank is asked.
    let _ = y.grant(0, CreditByte::new(false, 4, 1));
    let (peer, _) = y.next_system().unwrap();
    let asked = y.bank.revokes();
    y.restart(peer);
    assert_eq!(y.bank.revokes(), asked - 1);
    assert!(!y.peer_state(peer).asked);
    let late = System::Return {
        credits: 4,
        end_of_epoch: false,
    };
    assert!(y.on_system(peer, late).is_err());
}
