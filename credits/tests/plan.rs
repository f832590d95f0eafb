//! Tests of plans: loans, banks and memory in jobs of different sizes and with different settings.

use credits::{Overrides, Plan, PlanError, Scale};

fn scale() -> Scale {
    Scale::for_chunk(1024).unwrap()
}

fn plan(ranks: u32, overrides: &Overrides) -> Plan {
    Plan::new(ranks, scale(), overrides).unwrap()
}

/// The number of credits that stand for one buffer of 1,024 chunks of 1 KiB.
const BUFFER: u32 = 1023 * 4;

#[test]
fn dynamic_credits_keep_the_table_and_bank_the_surplus() {
    let plan = plan(
        64,
        &Overrides {
            dynamic: true,
            ..Overrides::default()
        },
    );
    // The table's 170 x 64 + 25,600 = 36,480 credits fill 8.9 buffers.
    assert_eq!(
        (plan.credits_per_peer(), plan.max_per_peer(), plan.buffers()),
        (170, 1024, 9 + 1)
    );
    assert_eq!(plan.total(), 9 * BUFFER);
    assert_eq!(plan.banked(), 9 * BUFFER - 170 * 64);
    assert_eq!(plan.bytes(), 10 * (1 << 20) + u64::from(9 * BUFFER) * 128);
}

#[test]
fn without_dynamic_credits_the_bank_is_shared_out() {
    let plan = plan(64, &Overrides::default());
    assert_eq!(u32::from(plan.credits_per_peer()), 9 * BUFFER / 64);
    assert_eq!(plan.banked(), 9 * BUFFER % 64);
}

#[test]
fn the_most_per_peer_limits_defaults_and_shares() {
    let most = Overrides {
        max_per_peer: Some(20),
        ..Overrides::default()
    };
    assert_eq!(plan(64, &most).credits_per_peer(), 20);
    let contradiction = Overrides {
        credits_per_peer: Some(21),
        ..most
    };
    let error = Plan::new(64, scale(), &contradiction).unwrap_err();
    assert_eq!(
        error.to_string(),
        "GASNET_PORTAL_CRED_PER_NODE is 21, must be 4 to 20"
    );
}

#[test]
fn the_most_per_peer_grows_with_the_bank() {
    let most = |ranks, credits_per_peer, banked| {
        let overrides = Overrides {
            credits_per_peer,
            banked,
            dynamic: true,
            // Buffers are small, so that rounding up to whole buffers adds few credits.
            buffer_chunks: 8,
            ..Overrides::default()
        };
        let plan = plan(ranks, &overrides);
        (plan.max_per_peer(), plan.banked() / 16)
    };
    assert_eq!(most(64, None, Some(0)).0, 400);
    assert_eq!(most(64, None, Some(6_000)).0, 400);
    let (per_peer, share) = most(64, None, Some(10_000));
    assert_eq!(u32::from(per_peer), share);
    assert!((625..630).contains(&share));
    for ranks in [64, 1_000, 10_000, 1_000_000] {
        assert_eq!(most(ranks, None, None).0, 1024);
    }
    assert_eq!(most(2, Some(3_000), None).0, 3_000);
}

#[test]
fn more_space_than_can_be_counted_is_left_unused() {
    let overrides = Overrides {
        receive_space: Some(u64::MAX),
        dynamic: true,
        ..Overrides::default()
    };
    let plan = plan(64, &overrides);
    assert!(plan.total() > u32::MAX - BUFFER);
}

#[test]
fn the_notes_example_of_ten_thousand_nodes() {
    // The notes say that 4 credits per node need 15 MB, and that 6 need 22 MB and let 20,000
    // credits move.
    let space = |per_peer: u32| {
        f64::from(10_000 * per_peer * scale().space_per_credit()) / f64::from(1 << 20)
    };
    assert_eq!((space(4).round(), space(6).round()), (15.0, 22.0));
    for per_peer in [4, 6] {
        let overrides = Overrides {
            credits_per_peer: Some(per_peer),
            banked: Some(0),
            dynamic: true,
            ..Overrides::default()
        };
        let plan = plan(10_000, &overrides);
        assert!(plan.total() >= 10_000 * per_peer);
        // Rounding up and the uncovered buffer add at most two buffers, and the events of one
        // buffer.
        let planned = plan.bytes() as f64 / f64::from(1 << 20);
        assert!(
            planned >= space(per_peer) && planned < space(per_peer) + 2.6,
            "{planned} MiB"
        );
    }
    let least = u32::from(scale().full_cost());
    assert_eq!((6 - least) * 10_000, 20_000);
}

#[test]
fn a_million_ranks_can_be_planned() {
    let plan = plan(
        1_000_000,
        &Overrides {
            dynamic: true,
            ..Overrides::default()
        },
    );
    assert_eq!(plan.credits_per_peer(), 4);
    assert!(plan.bytes() < 1_700_000_000);
}

#[test]
fn a_rank_alone_can_send_to_itself() {
    assert!(plan(1, &Overrides::default()).credits_per_peer() >= 4);
    assert_eq!(
        Plan::new(0, scale(), &Overrides::default()),
        Err(PlanError::NoRanks)
    );
}

#[test]
fn a_given_space_shrinks_defaults_but_not_overrides() {
    // Two buffers fit into the space, one of which is covered by credits.
    let space = Overrides {
        receive_space: Some((2 << 20) + 5),
        dynamic: true,
        ..Overrides::default()
    };
    let small = plan(64, &space);
    assert_eq!((small.buffers(), small.total()), (2, BUFFER));
    assert_eq!(u32::from(small.credits_per_peer()), BUFFER / 64);
    let large = plan(
        64,
        &Overrides {
            receive_space: Some(100 << 20),
            ..space.clone()
        },
    );
    assert_eq!(
        (large.buffers(), large.credits_per_peer(), large.total()),
        (100, 170, 99 * BUFFER)
    );

    let fixed = Overrides {
        credits_per_peer: Some(170),
        ..space.clone()
    };
    let error = Plan::new(64, scale(), &fixed).unwrap_err();
    assert_eq!(
        error,
        PlanError::SpaceTooSmall {
            given: (2 << 20) + 5,
            needed: 4 << 20,
            ranks: 64
        }
    );
    assert!(
        Plan::new(
            64,
            scale(),
            &Overrides {
                receive_space: Some(4 << 20),
                ..fixed
            }
        )
        .is_ok()
    );
    let none = Overrides {
        receive_space: Some(0),
        ..space
    };
    assert!(matches!(
        Plan::new(64, scale(), &none),
        Err(PlanError::SpaceTooSmall { .. })
    ));
}

#[test]
fn settings_out_of_range_are_named() {
    for (overrides, setting) in [
        (
            Overrides {
                credits_per_peer: Some(3),
                ..Overrides::default()
            },
            "GASNET_PORTAL_CRED_PER_NODE",
        ),
        (
            Overrides {
                max_per_peer: Some(70_000),
                ..Overrides::default()
            },
            "GASNET_PORTAL_MAX_CRED_PER_NODE",
        ),
        (
            Overrides {
                buffer_chunks: 1,
                ..Overrides::default()
            },
            "chunks per request buffer",
        ),
        (
            Overrides {
                uncovered_buffers: 0,
                ..Overrides::default()
            },
            "uncovered request buffers",
        ),
    ] {
        let error = Plan::new(8, scale(), &overrides).unwrap_err();
        assert!(error.to_string().starts_with(setting), "{error}");
    }
    let many = Overrides {
        credits_per_peer: Some(65_535),
        ..Overrides::default()
    };
    assert!(matches!(
        Plan::new(1_000_000, scale(), &many),
        Err(PlanError::TooManyCredits { .. })
    ));
}
