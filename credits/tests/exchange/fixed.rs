//! Tests of static credits.

use credits::{FlowControl, Overrides, Plan, Policy, Scale};
use proptest::prelude::*;

use super::buffers::{CHUNK, CatchBasin};
use super::world::World;

fn world(plan: Plan, threads: usize) -> World {
    World::new(plan, threads, |plan, rank| {
        let policy: Policy = Policy::from_plan(plan, rank);
        vec![Box::new(policy) as Box<dyn FlowControl>]
    })
}

/// Returns a plan with small loans and small buffers, so that both often run out.
fn plan(ranks: u32, per_peer: u32, buffer_chunks: u32, threads: usize) -> Plan {
    let overrides = Overrides {
        credits_per_peer: Some(per_peer),
        banked: Some(0),
        buffer_chunks,
        uncovered_buffers: threads as u32,
        ..Overrides::default()
    };
    Plan::new(ranks, Scale::for_chunk(CHUNK).unwrap(), &overrides).unwrap()
}

/// Lets all ranks send to rank 0, which handles a request from time to time, until each rank has
/// sent `count` requests.
fn flood(
    mut world: World,
    count: usize,
    bytes: impl Fn(usize) -> u64,
) -> Result<World, CatchBasin> {
    let mut sent = vec![0; world.ranks.len()];
    let mut step = 0;
    while sent.iter().any(|&sent| sent < count) {
        for (source, sent) in sent.iter_mut().enumerate() {
            while *sent < count && world.send(source, 0, bytes(*sent)) {
                *sent += 1;
            }
        }
        while world.arrive(0, step)? {}
        world.begin(0);
        world.finish(0, step * 2);
        world.reply(step);
        step += 1;
    }
    Ok(world)
}

#[test]
fn a_flood_from_all_ranks_to_one_never_reaches_the_catch_basin() {
    let sizes: [fn(usize) -> u64; 4] = [|_| 1024, |_| 1, |i| [1, 257, 1024, 513][i % 4], |_| 768];
    for bytes in sizes {
        let world = flood(world(plan(16, 12, 4, 1), 1), 500, bytes).unwrap();
        world.check();
        assert!(
            (0..16).all(|rank| world.ranks[rank].flow(0).stalls(0) > 0),
            "the flood caused no stalls"
        );
    }
}

#[test]
fn without_flow_control_the_same_flood_reaches_it() {
    let overrides = Overrides {
        flow_control: false,
        credits_per_peer: Some(12),
        banked: Some(0),
        buffer_chunks: 4,
        ..Overrides::default()
    };
    let plan = Plan::new(16, Scale::for_chunk(CHUNK).unwrap(), &overrides).unwrap();
    assert!(matches!(
        flood(world(plan, 1), 500, |_| 1024),
        Err(CatchBasin)
    ));
}

#[test]
fn each_thread_in_a_handler_needs_a_buffer_that_no_credit_covers() {
    // Two ranks have 4 credits each, buffers have two chunks, and there are two threads. A handler
    // on one thread does not return and holds the first buffer. The other thread handles the
    // requests in the second buffer. Finally, all credits are used at once.
    let run = |uncovered| {
        let mut world = world(plan(2, 4, 2, uncovered), 2);
        assert!(world.send(0, 0, 256));
        world.arrive(0, 0)?;
        world.begin(0);
        for _ in 0..8 {
            assert!(world.send(1, 0, 256));
            world.arrive(0, 0)?;
            world.begin(0);
            world.finish(0, 1);
            world.return_coalesced(0, 1);
        }
        for source in [1, 0] {
            while world.send(source, 0, 256) {
                world.arrive(0, 0)?;
            }
        }
        world.check();
        Ok(())
    };
    assert_eq!(run(1), Err(CatchBasin));
    assert_eq!(run(2), Ok(()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn credits_are_conserved_and_buffers_never_overflow(
        ranks in 2u32..=4,
        per_peer in 4u32..=20,
        buffer_chunks in 2u32..=6,
        threads in 1usize..=3,
        steps in prop::collection::vec((0u8..12, any::<u16>(), 0u64..=1024), 1..600),
    ) {
        let mut world = world(plan(ranks, per_peer, buffer_chunks, threads), threads);
        let n = ranks as usize;
        for (action, pick, bytes) in steps {
            let pick = usize::from(pick);
            let (x, y) = (pick % n, pick / n % n);
            match action {
                // Most actions are sends, and most of these are to rank 0.
                0..=3 => { world.send(x, 0, bytes); }
                4 => { world.send(x, y, bytes); }
                5 => prop_assert!(world.arrive(0, pick / n).is_ok()),
                6 => prop_assert!(world.arrive(x, pick / n).is_ok()),
                7 => world.begin(x),
                8..=9 => world.finish(x, pick / n),
                10 => world.reply(pick),
                _ => world.return_coalesced(x, y),
            }
            world.check();
        }
        prop_assert!(world.drain().is_ok());
        world.check();
        for rank in &world.ranks {
            for peer in 0..ranks {
                prop_assert_eq!(rank.flow(peer as usize).in_flight(peer), 0);
            }
        }
    }
}
