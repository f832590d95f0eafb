//! Tests of goal 3 of the scheme: with a traffic pattern that lasts, credits come to rest, no
//! matter what happened before.
//!
//! In each round of a pattern, every rank sends every other rank a burst of full mediums, all at
//! once if it has the credits. At rest, no request stalls and no credit moves. The tests show that
//! this state is reached under these conditions:
//!
//! * There are enough credits for all bursts of a round. These include the initial loan to the rank
//!   itself, because a rank does not ask itself for credits. The patterns have no requests from a
//!   rank to itself, because these could make that loan grow for good.
//! * With loans that double, there are twice as many credits, because a loan may exceed what its
//!   borrower needs, and the borrower gives the excess back only while its requests do not stall.
//!   With fewer credits, most patterns never come to rest. A loan of a quarter of the maximum grows
//!   on to the maximum.
//! * With a pace, there are half as many again. With fewer, the bank never has its reserve, and if
//!   epochs are shorter than a round, a peer that is silent for one epoch is asked for credits that
//!   it needs in the next round.
//!
//! It does not matter how long epochs are and when they end. A burst may last longer than an epoch.
//! If a revoke takes credits that the next burst needs, that burst stalls and gets credits that
//! another rank does not use.

use credits::Growth;
use proptest::prelude::*;

use super::dynamic::{Kind, Setup, at_home, tuning};
use super::world::World;

/// The number of requests from each rank to each rank in a round.
type Pattern = Vec<Vec<u32>>;

/// The number of credits for a full medium, which is also the minimum.
const FULL: u32 = 4;
/// The maximum number of credits lent to one peer.
const MOST: u32 = 100;

fn round(world: &mut World, pattern: &Pattern) {
    let mut unsent = pattern.clone();
    loop {
        for (source, unsent) in unsent.iter_mut().enumerate() {
            for (target, left) in unsent.iter_mut().enumerate() {
                while *left > 0 && world.send(source, target, 1024) {
                    *left -= 1;
                }
            }
        }
        world.drain().unwrap();
        if unsent.iter().flatten().all(|&left| left == 0) {
            return;
        }
    }
}

/// Returns the number of requests per round that the busiest receiver gets.
fn busiest(pattern: &Pattern) -> u32 {
    let to = |y: usize| pattern.iter().map(|bursts| bursts[y]).sum();
    (0..pattern.len()).map(to).max().unwrap_or(0)
}

/// Returns the largest number of credits that a rank needs to lend at rest.
fn needs(pattern: &Pattern, growth: Growth, at_start: u32) -> u32 {
    let one = |x: usize, y: usize| {
        let least = if x == y { at_start } else { FULL };
        let burst = FULL * pattern[x][y];
        let loan = match growth {
            Growth::Missing => burst,
            Growth::Doubling if 2 * burst < MOST / 4 => 2 * burst,
            Growth::Doubling => MOST,
        };
        loan.max(least)
    };
    let ranks = 0..pattern.len();
    let lent = |y: usize| ranks.clone().map(|x| one(x, y)).sum();
    ranks.clone().map(lent).max().unwrap_or(0)
}

fn pattern(ranks: usize) -> impl Strategy<Value = Pattern> {
    let burst = prop_oneof![2 => Just(0u32), 1 => Just(1), 1 => 2u32..=8];
    prop::collection::vec(prop::collection::vec(burst, ranks), ranks).prop_map(|mut pattern| {
        for (x, bursts) in pattern.iter_mut().enumerate() {
            bursts[x] = 0;
        }
        pattern
    })
}

fn patterns() -> impl Strategy<Value = [Pattern; 2]> {
    (2usize..=4).prop_flat_map(|ranks| [pattern(ranks), pattern(ranks)])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_pattern_that_lasts_comes_to_rest(
        patterns in patterns(),
        tuning in tuning(1..=120, 8..=32, 1..=6),
        credits_per_peer in FULL..=12,
        kind in prop_oneof![Just(Kind::Dense), Just(Kind::Parts(1)), Just(Kind::Parts(2))],
    ) {
        let ranks = patterns[0].len() as u32;
        let most = patterns.iter().map(|pattern| needs(pattern, tuning.growth, credits_per_peer)).max();
        let most = most.unwrap_or(0);
        let reserve = if tuning.revokes_per_epoch < u32::MAX { most.div_ceil(2) } else { 0 };
        let setup = Setup {
            ranks,
            credits_per_peer,
            banked: (most + reserve).saturating_sub(ranks * credits_per_peer),
            buffer_chunks: 2,
            threads: 1,
            max_per_peer: MOST,
            tuning,
            kind,
        };
        let mut world = setup.world();
        for pattern in &patterns {
            let epoch = tuning.epoch.div_ceil(busiest(pattern).max(1));
            for _ in 0..REST + REST * epoch {
                round(&mut world, pattern);
            }
            let moved = |world: &World| (world.stalls(), world.granted, world.revokes);
            let before = moved(&world);
            for _ in 0..4 * epoch + 4 {
                round(&mut world, pattern);
            }
            prop_assert_eq!(moved(&world), before);
            world.check();
            at_home(&world);
        }
    }
}

/// Patterns come to rest within this number of rounds plus this number of epochs.
const REST: u32 = 40;
