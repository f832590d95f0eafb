//! Tests that no message from a peer and no setting causes a panic, and that a message that is
//! reported as an error changes nothing.

use crate::reference::{Checked, Reference};
use credits::{
    CreditByte, Dense, Dynamic, FlowControl, Growth, Overrides, OwnBank, Peer, Plan, Policy, Scale,
    Sparse, Static, Store, System, Tuning, Violation,
};
use proptest::prelude::*;

const RANKS: u32 = 3;

#[derive(Clone, Debug)]
enum Event {
    Take(u32, u8),
    Grant(u32, u8),
    Settle(u32, u8),
    SettleMany(u32, u32, u32),
    System(u32, System),
    Poll,
}

fn event() -> impl Strategy<Value = Event> {
    // One of the numbers is not that of an existing rank.
    let peer = || 0..=RANKS;
    let system = prop_oneof![
        any::<bool>().prop_map(|end_of_epoch| System::Revoke { end_of_epoch }),
        (prop_oneof![0u16..8, any::<u16>()], any::<bool>()).prop_map(|(credits, end_of_epoch)| {
            System::Return {
                credits,
                end_of_epoch,
            }
        }),
    ];
    prop_oneof![
        3 => (0..RANKS, 1u8..=8).prop_map(|(peer, credits)| Event::Take(peer, credits)),
        1 => (peer(), any::<u8>()).prop_map(|(peer, byte)| Event::Grant(peer, byte)),
        2 => (peer(), any::<u8>()).prop_map(|(peer, byte)| Event::Settle(peer, byte)),
        1 => (peer(), 0u8..=8).prop_map(|(peer, byte)| Event::Settle(peer, byte)),
        1 => (peer(), prop_oneof![0u32..20, any::<u32>()], 0u32..40)
            .prop_map(|(peer, credits, epochs)| Event::SettleMany(peer, credits, epochs)),
        2 => (peer(), system).prop_map(|(peer, system)| Event::System(peer, system)),
        1 => Just(Event::Poll),
    ]
}

fn tuning() -> impl Strategy<Value = Tuning> {
    let growth = prop_oneof![Just(Growth::Missing), Just(Growth::Doubling)];
    let limit = || prop_oneof![0u16..12, any::<u16>()];
    (
        1u32..20,
        limit(),
        limit(),
        0u32..4,
        0u32..4,
        growth,
        8u16..60,
        any::<bool>(),
    )
        .prop_map(
            |(
                epoch,
                revoke_limit,
                lender_limit,
                scavenge,
                revokes_per_epoch,
                growth,
                max_per_peer,
                hold,
            )| Tuning {
                epoch,
                revoke_limit,
                lender_limit,
                scavenge,
                revokes_per_epoch,
                growth,
                hold,
                max_per_peer,
                ..Tuning::default()
            },
        )
}

/// Runs rank 0 with peers that send arbitrary messages. Compares it with the reference, and checks
/// that:
///
/// * every credit is either lent or banked, whatever peers send, and no loan leaves its range;
/// * a peer's message does not change the state between rank 0 and another peer (apart from the
///   bank, which all peers share);
/// * an error names the peer that violated the rules.
fn against_anything<S: Store<Value = Peer>>(
    loan: u16,
    banked: u32,
    tuning: Tuning,
    events: &[Event],
) -> Result<(), TestCaseError> {
    let real = Dynamic::<S, OwnBank>::new(RANKS, 0, loan, banked, tuning);
    let reference = Reference::new(RANKS, 0, loan, banked, tuning);
    let mut flow = Checked::new(real, reference);
    let at = |flow: &Checked<S, OwnBank>| {
        let of = |peer| (flow.lent(peer), flow.available(peer), flow.in_flight(peer));
        [0, 1, 2].map(of)
    };
    for event in events {
        let before = (at(&flow), flow.banked());
        let (about, violation) = match *event {
            Event::Take(peer, credits) => {
                let _ = flow.take(peer, credits);
                (peer, None)
            }
            Event::Grant(peer, bits) => {
                let byte = CreditByte::from_bits(bits);
                let back = flow.grant(peer, byte);
                prop_assert_eq!(back.credits(), byte.credits());
                prop_assert!(back.extra() <= byte.extra());
                (peer, None)
            }
            Event::Settle(peer, bits) => {
                let result = flow.settle(peer, CreditByte::from_bits(bits));
                (peer, result.err())
            }
            Event::SettleMany(peer, credits, epochs) => {
                (peer, flow.settle_many(peer, credits, epochs).err())
            }
            Event::System(peer, message) => (peer, flow.on_system(peer, message).err()),
            Event::Poll => match flow.next_system() {
                Some((peer, _)) => (peer, None),
                None => continue,
            },
        };
        let after = (at(&flow), flow.banked());
        if let Some(violation) = violation {
            prop_assert_eq!(before, after);
            let named = violation.to_string().contains(&format!("rank {about}"));
            prop_assert!(named, "{}", violation);
        }
        let mut lent = 0;
        for peer in 0..RANKS {
            let now = after.0[peer as usize];
            prop_assert!(peer == about || now == before.0[peer as usize]);
            let range = u32::from(tuning.minimum)..=u32::from(tuning.max_per_peer);
            prop_assert!(range.contains(&now.0) && now.1 + now.2 <= *range.end());
            lent += now.0;
        }
        prop_assert_eq!(lent + after.1, u32::from(loan) * RANKS + banked);
    }
    Ok(())
}

proptest! {
    // At least 1,000 cases are run. `PROPTEST_CASES` can set a larger number.
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.max(1000)))]

    #[test]
    fn dynamic_credits_stay_where_they_are_whatever_peers_send(
        loan in 4u16..=8,
        banked in 0u32..=20,
        tuning in tuning(),
        events in prop::collection::vec(event(), 1..300),
    ) {
        against_anything::<Dense<Peer>>(loan, banked, tuning, &events)?;
        against_anything::<Sparse<Peer>>(loan, banked, tuning, &events)?;
    }
}

proptest! {
    #[test]
    fn static_credits_count_as_plain_numbers_do(
        loan in 8u16..=40,
        events in prop::collection::vec(event(), 1..300),
    ) {
        let mut flow: Policy = Policy::Static(Static::new(RANKS, loan, 5));
        let mut in_flight = [0i64; RANKS as usize];
        let mut need = [0u8; RANKS as usize];
        let mut stalls = [0u64; RANKS as usize];
        for event in events {
            let mut settle = |peer: u32, credits: u32, result: Result<(), Violation>| {
                let good = in_flight.get(peer as usize).is_some_and(|&most| i64::from(credits) <= most);
                prop_assert_eq!(result.is_ok(), good);
                if good {
                    in_flight[peer as usize] -= i64::from(credits);
                }
                Ok(())
            };
            match event {
                Event::Take(peer, credits) => {
                    let at = peer as usize;
                    let left = i64::from(loan) - in_flight[at] - i64::from(credits);
                    match flow.take(peer, credits) {
                        Ok(byte) => {
                            prop_assert!(left >= 0);
                            prop_assert_eq!(byte, CreditByte::new(false, need[at], credits));
                            in_flight[at] += i64::from(credits);
                            need[at] = 0;
                        }
                        Err(short) => {
                            prop_assert_eq!(i64::from(short.missing), -left);
                            stalls[at] += u64::from(need[at] == 0);
                            need[at] = need[at].max(short.missing.min(7));
                        }
                    }
                }
                Event::Grant(peer, byte) => {
                    let byte = CreditByte::from_bits(byte);
                    prop_assert_eq!(flow.grant(peer, byte), CreditByte::new(false, 0, byte.credits()));
                }
                Event::Settle(peer, byte) => {
                    let byte = CreditByte::from_bits(byte);
                    let result = flow.settle(peer, byte);
                    if byte.extra() > 0 {
                        prop_assert_eq!(result, Err(Violation::UnexpectedGrant { peer, extra: byte.extra() }));
                    } else {
                        settle(peer, byte.credits().into(), result)?;
                    }
                }
                Event::SettleMany(peer, credits, epochs) => {
                    let result = flow.settle_many(peer, credits, epochs);
                    settle(peer, credits, result)?;
                }
                Event::System(peer, message) => {
                    let answered = matches!(flow.on_system(peer, message), Ok(Some(System::Return { credits: 0, .. })));
                    prop_assert_eq!(answered, peer < RANKS && matches!(message, System::Revoke { .. }));
                }
                Event::Poll => prop_assert!(!flow.has_system()),
            }
            for peer in 0..RANKS {
                let at = peer as usize;
                prop_assert_eq!(i64::from(flow.in_flight(peer)), in_flight[at]);
                prop_assert_eq!(flow.available(peer) + flow.in_flight(peer), u32::from(loan));
                prop_assert_eq!(flow.stalls(peer), stalls[at]);
                prop_assert_eq!(flow.revoked(peer), 0);
            }
            prop_assert_eq!(flow.banked(), 5);
            prop_assert_eq!(flow.next_system(), None);
        }
    }

    #[test]
    fn a_plan_never_lends_more_than_its_buffers_cover(
        ranks in prop_oneof![0u32..100, any::<u32>()],
        chunk in prop_oneof![0u32..1 << 17, any::<u32>()],
        credits_per_peer in prop::option::of(prop_oneof![0u32..500, any::<u32>()]),
        banked in prop::option::of(prop_oneof![0u32..100_000, any::<u32>()]),
        receive_space in prop::option::of(prop_oneof![0u64..1 << 36, any::<u64>()]),
        max_per_peer in prop::option::of(prop_oneof![0u32..500, any::<u32>()]),
        dynamic: bool,
        buffer_chunks in prop_oneof![0u32..2000, any::<u32>()],
        uncovered_buffers in prop_oneof![0u32..4, any::<u32>()],
    ) {
        let Ok(scale) = Scale::for_chunk(chunk) else {
            prop_assert!(chunk <= 768);
            return Ok(());
        };
        let overrides = Overrides {
            credits_per_peer, banked, receive_space, max_per_peer, dynamic, buffer_chunks, uncovered_buffers,
            flow_control: true, ..Overrides::default()
        };
        let Ok(plan) = Plan::new(ranks, scale, &overrides) else { return Ok(()) };
        let wide = u128::from;
        let covered = wide(plan.buffers() - uncovered_buffers) * wide(buffer_chunks - 1) * wide(chunk);
        prop_assert!(wide(plan.total()) * wide(scale.bytes_per_credit()) <= covered);
        prop_assert!(plan.credits_per_peer() >= u16::from(scale.full_cost()));
        prop_assert!(plan.credits_per_peer() <= plan.max_per_peer());
        prop_assert!(max_per_peer.is_none_or(|most| u32::from(plan.credits_per_peer()) <= most));
        if let Some(space) = receive_space {
            prop_assert!(wide(plan.buffers()) * u128::from(plan.buffer_bytes()) <= u128::from(space));
        }
        if dynamic {
            prop_assert!(credits_per_peer.is_none_or(|given| u32::from(plan.credits_per_peer()) == given));
            prop_assert!(banked.is_none_or(|given| plan.banked() >= given));
        }
    }
}
