//! Tests of dynamic credits.

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::sync::Arc;

use credits::{
    Bank, Dense, Dynamic, FlowControl, Growth, Overrides, OwnBank, Peer, Plan, Policy, Scale,
    SharedBank, Sparse, Store, Tuning,
};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use super::buffers::CHUNK;
use super::world::World;
use crate::reference::{Checked, Reference};

/// The implementation under test, and whether the reference runs beside it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Dense,
    Sparse,
    Parts(u32),
    CheckedDense,
    CheckedSparse,
    CheckedShared,
}

#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) ranks: u32,
    pub(crate) credits_per_peer: u32,
    pub(crate) banked: u32,
    pub(crate) buffer_chunks: u32,
    pub(crate) threads: usize,
    pub(crate) max_per_peer: u32,
    pub(crate) tuning: Tuning,
    pub(crate) kind: Kind,
}

/// Creates the planned real implementation, with the reference beside it.
fn checked<S, B>(plan: &Plan, rank: u32) -> Box<dyn FlowControl>
where
    S: Store<Value = Peer> + 'static,
    B: Bank + 'static,
{
    let real = Dynamic::<S, B>::from_plan(plan, rank, 1).next().unwrap();
    let loan = plan.credits_per_peer();
    let reference = Reference::new(plan.ranks(), rank, loan, plan.banked(), *plan.tuning());
    Box::new(Checked::new(real, reference))
}

impl Kind {
    fn open(self, plan: &Plan, rank: u32) -> Vec<Box<dyn FlowControl>> {
        let one = |part| Box::new(part) as Box<dyn FlowControl>;
        match self {
            Kind::Dense => vec![one(Policy::from_plan(plan, rank))],
            Kind::Sparse => {
                let parts = Dynamic::<Sparse<Peer>, OwnBank>::from_plan(plan, rank, 1);
                parts.map(|part| Box::new(part) as _).collect()
            }
            Kind::Parts(parts) => {
                let parts = Policy::<Arc<SharedBank>>::parts(plan, rank, parts);
                parts.into_iter().map(|part| Box::new(part) as _).collect()
            }
            Kind::CheckedDense => vec![checked::<Dense<Peer>, OwnBank>(plan, rank)],
            Kind::CheckedSparse => vec![checked::<Sparse<Peer>, OwnBank>(plan, rank)],
            Kind::CheckedShared => vec![checked::<Dense<Peer>, Arc<SharedBank>>(plan, rank)],
        }
    }
}

impl Setup {
    pub(crate) fn world(&self) -> World {
        let overrides = Overrides {
            dynamic: true,
            credits_per_peer: Some(self.credits_per_peer),
            banked: Some(self.banked),
            max_per_peer: Some(self.max_per_peer),
            buffer_chunks: self.buffer_chunks,
            uncovered_buffers: self.threads as u32,
            tuning: self.tuning,
            ..Overrides::default()
        };
        let scale = Scale::for_chunk(CHUNK).unwrap();
        let plan = Plan::new(self.ranks, scale, &overrides).unwrap();
        World::new(plan, self.threads, |plan, rank| self.kind.open(plan, rank))
    }
}

/// Generates tunings with every rule. The epoch, the limits of lending and of giving back, and the
/// number of peers asked at a time are from the given ranges.
pub(crate) fn tuning(
    epoch: RangeInclusive<u32>,
    limit: RangeInclusive<u16>,
    scavenge: RangeInclusive<u32>,
) -> impl Strategy<Value = Tuning> {
    (
        epoch,
        limit.clone(),
        limit,
        scavenge,
        prop_oneof![Just(u32::MAX), 1u32..=3],
        prop_oneof![Just(Growth::Missing), Just(Growth::Doubling)],
        any::<bool>(),
    )
        .prop_map(
            |(epoch, revoke_limit, lender_limit, scavenge, revokes_per_epoch, growth, hold)| {
                Tuning {
                    epoch,
                    revoke_limit,
                    lender_limit,
                    scavenge,
                    revokes_per_epoch,
                    growth,
                    hold,
                    ..Tuning::default()
                }
            },
        )
}

fn setup(kind: impl Strategy<Value = Kind>) -> impl Strategy<Value = Setup> {
    (
        (2u32..=5, 4u32..=12, 0u32..=8),
        (2u32..=4, 1usize..=3, 0u32..=12),
        // The numbers are small, so that every limit is reached.
        (tuning(1..=40, 1..=12, 1..=4), kind),
    )
        .prop_map(
            |(
                (ranks, credits_per_peer, banked),
                (buffer_chunks, threads, more),
                (tuning, kind),
            )| Setup {
                ranks,
                credits_per_peer,
                banked,
                buffer_chunks,
                threads,
                max_per_peer: credits_per_peer + more,
                tuning,
                kind,
            },
        )
}

fn plain() -> impl Strategy<Value = Kind> {
    prop_oneof![
        Just(Kind::Dense),
        Just(Kind::Sparse),
        Just(Kind::Parts(1)),
        Just(Kind::Parts(2)),
        Just(Kind::Parts(4)),
    ]
}

fn with_reference() -> impl Strategy<Value = Kind> {
    prop_oneof![
        Just(Kind::CheckedDense),
        Just(Kind::CheckedSparse),
        Just(Kind::CheckedShared),
    ]
}

/// A step of a random schedule: the action, a number that selects what it acts on, and the size of
/// a message.
type Step = (u8, u16, u64);

fn steps(most: usize) -> impl Strategy<Value = Vec<Step>> {
    let bytes = prop_oneof![Just(1024u64), 0u64..=1024];
    prop::collection::vec((0u8..17, any::<u16>(), bytes), 1..most)
}

/// Executes one step of a random schedule. A request is sent only if `send` returns `true` for its
/// sender and its receiver.
fn step(
    world: &mut World,
    (action, pick, bytes): Step,
    send: impl Fn(&World, usize, usize) -> bool,
) {
    let n = world.ranks.len();
    let pick = usize::from(pick);
    let (x, y) = (pick % n, pick / n % n);
    let rest = pick / n;
    match action {
        // Some pairs of ranks exchange more messages than others.
        0..=5 => {
            let y = if action < 3 { x / 2 } else { y };
            if action % 2 == 0 {
                world.refresh(x, y, bytes);
            }
            if send(world, x, y) {
                world.send(x, y, bytes);
            }
        }
        6 | 7 => {
            world.arrive(x, rest).unwrap();
        }
        8 => world.begin(x),
        9 | 10 => {
            world.begin(x);
            world.finish(x, rest);
        }
        11 => world.reply(pick),
        12 => world.return_coalesced(x, y),
        13 => {
            world.poll(x);
        }
        14 => {
            if send(world, x, y) {
                world.give_up(x, y, bytes);
            }
        }
        _ => world.deliver(pick),
    }
}

fn run(setup: &Setup, steps: Vec<Step>) -> World {
    let mut world = setup.world();
    for next in steps {
        step(&mut world, next, |_, _, _| true);
        world.check();
    }
    world.drain().unwrap();
    world.check();
    world
}

/// Asserts the conditions at the end of every run: no credits are in flight, and loans match on
/// both sides.
pub(crate) fn at_home(world: &World) {
    for (x, rank) in world.ranks.iter().enumerate() {
        for (y, lender) in world.ranks.iter().enumerate() {
            assert_eq!(rank.flow(y).in_flight(y as u32), 0);
            assert_eq!(rank.send_credits(y), lender.lent(x));
        }
    }
}

/// Not every schedule covers every event, but all of them together do.
#[test]
fn the_schedules_do_what_they_are_for() {
    let mut runner = TestRunner::deterministic();
    let (mut stalled, mut granted, mut asked, mut returned) = (0, 0, 0, 0);
    for _ in 0..100 {
        let schedule = (setup(plain()), steps(600));
        let (setup, steps) = schedule.new_tree(&mut runner).unwrap().current();
        let world = run(&setup, steps);
        let ranks = world.ranks.iter();
        let back: u64 = ranks.map(|rank| rank.revoked()).sum();
        stalled += u32::from(world.stalls() > 0);
        granted += u32::from(world.granted > 0);
        asked += u32::from(world.revokes > 0);
        returned += u32::from(back > 0);
    }
    let least = [stalled, granted, asked, returned].into_iter().min();
    assert!(
        least > Some(20),
        "{stalled} {granted} {asked} {returned} of 100"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn credits_that_move_are_conserved_and_buffers_never_overflow(setup in setup(plain()), steps in steps(600)) {
        at_home(&run(&setup, steps));
    }

    #[test]
    fn every_step_is_the_reference_s(setup in setup(with_reference()), steps in steps(600)) {
        at_home(&run(&setup, steps));
    }

    /// After any history and with any distribution of credits, each rank can send at least one
    /// request per round trip.
    #[test]
    fn every_request_is_sent_and_no_rank_starves(
        setup in setup(plain()),
        before in steps(200),
        requests in prop::collection::vec((any::<u16>(), 0u64..=1024), 1..120),
        in_order: bool,
    ) {
        let n = setup.ranks as usize;
        let mut world = run(&setup, before);
        let mut unsent = vec![VecDeque::new(); n];
        for (pick, bytes) in requests {
            let pick = usize::from(pick);
            unsent[pick % n].push_back((pick / n % n, bytes));
        }
        while unsent.iter().any(|unsent| !unsent.is_empty()) {
            for (source, unsent) in unsent.iter_mut().enumerate() {
                let before = unsent.len();
                if in_order {
                    while let Some(&(target, bytes)) = unsent.front() {
                        if !world.send(source, target, bytes) {
                            break;
                        }
                        unsent.pop_front();
                    }
                } else {
                    // Requests to different ranks do not wait for each other, as with several
                    // threads.
                    unsent.retain(|&(target, bytes)| !world.send(source, target, bytes));
                }
                prop_assert!(before == 0 || unsent.len() < before, "rank {} sent nothing", source);
            }
            world.check();
            world.drain().unwrap();
            world.check();
        }
        at_home(&world);
    }

    /// This is goal 1 of the scheme.
    #[test]
    fn nothing_moves_without_demand(setup in setup(plain()), steps in steps(600)) {
        let mut world = setup.world();
        for next in steps {
            step(&mut world, next, |world, x, y| world.could_send(x, y, next.2));
        }
        world.drain().unwrap();
        world.check();
        prop_assert_eq!((world.stalls(), world.granted, world.revokes), (0, 0, 0));
    }
}
