//! Tests of atomics that the network performs for all ranks at once. The fabric reads and writes in
//! separate calls, so an atomic that a processor performs between the two is lost.

use std::collections::BTreeSet;

use conduit_core::ni::{
    Atomic, AtomicOp, AtomicType, Capabilities, EqId, Event, MatchEntry, MeEvents, MeId, Ni,
    Outcome, Region, Submit, Unlink,
};
use conduit_core::threads::Seq;

use super::fabric::Atomics;
use super::{Disorder, End, Fabric, PT, PortalsConfig, over};
use crate::transport::SoftPortals;
use crate::transport::fragment::Failure;

/// A job whose ranks all perform atomics on an exportable entry of rank 1.
struct Job {
    fabric: Fabric,
    ends: Vec<End<Seq>>,
    queues: Vec<EqId>,
    region: Region,
    me: MeId,
}

const RANKS: u32 = 4;

impl Job {
    fn new(atomics: Atomics, seed: Option<u64>, native: bool) -> Self {
        let disorder = Disorder {
            direct: true,
            atomics,
            seed,
            refuse: 4,
            ..Disorder::default()
        };
        let config = PortalsConfig {
            native_atomics: native,
            ..PortalsConfig::default()
        };
        let fabric = Fabric::new(RANKS);
        let ends: Vec<End<Seq>> = (0..RANKS)
            .map(|rank| SoftPortals::new(fabric.transport(rank, disorder), rank, RANKS, &config))
            .collect();
        let queues = ends.iter().map(|end| end.eq_create(16).unwrap()).collect();
        let region = ends[1].region_create(1 << 12).unwrap();
        ends[1].pt_open(PT, None).unwrap();
        let entry = MatchEntry {
            events: MeEvents::empty(),
            ..over(&region)
        };
        let me = ends[1].me_append(PT, entry).unwrap();
        Self {
            fabric,
            ends,
            queues,
            region,
            me,
        }
    }

    fn atomic(&self, rank: u32, op: AtomicOp, operand: u64) -> Atomic {
        Atomic {
            op,
            ty: AtomicType::U64,
            operand,
            comparand: 0,
            fetch: true,
            target: 1,
            index: PT,
            match_bits: 0,
            remote_offset: 64,
            eq: self.queues[rank as usize],
            token: 5,
        }
    }

    fn submit(&self, rank: u32, atomic: &Atomic) {
        let end = &self.ends[rank as usize];
        while end.atomic(atomic) == Ok(Submit::Again) {
            self.turn();
        }
    }

    fn turn(&self) {
        for end in &self.ends {
            end.progress();
        }
    }

    /// Waits until the next operation of a rank ends. Returns its outcome and length, and the old
    /// value if it fetches.
    fn end_of(&self, rank: u32) -> (Outcome, usize, Option<u64>) {
        let mut ended = None;
        for _ in 0..10_000 {
            self.turn();
            let eq = self.queues[rank as usize];
            self.ends[rank as usize].poll(eq, 1, |event| {
                ended = Some(match event {
                    Event::Reply {
                        outcome,
                        length,
                        value,
                        ..
                    } => (outcome, length, Some(value)),
                    Event::Ack {
                        outcome, length, ..
                    } => (outcome, length, None),
                    other => panic!("{other:?}"),
                });
            });
            if let Some(ended) = ended {
                return ended;
            }
        }
        panic!("no operation has ended");
    }

    fn word(&self) -> u64 {
        // SAFETY: the integer lies within the region and is aligned, and no rank accesses it at
        // this point.
        unsafe { self.region.base.add(64).cast::<u64>().read() }
    }

    fn set_word(&self, value: u64) {
        // SAFETY: the integer lies within the region and is aligned, and no rank accesses it at
        // this point.
        unsafe { self.region.base.add(64).cast::<u64>().write(value) };
    }

    fn count(&self, rank: usize) -> (u64, u64) {
        self.ends[rank].counters(|counters, _| (counters.direct, counters.native_for_peers))
    }
}

/// Runs atomics of peers that have imported the entry, of peers that have not, and of the owner. No
/// atomic may be lost.
#[test]
fn all_sides_at_once() {
    for (atomics, seed) in [
        (Atomics::All, None),
        (Atomics::All, Some(1)),
        (Atomics::Few, None),
        (Atomics::Few, Some(2)),
    ] {
        for op in [AtomicOp::Add, AtomicOp::Mult] {
            let job = Job::new(atomics, seed, true);
            job.set_word(1);
            let mut fetched = BTreeSet::from([1]);
            // Each rank has several atomics in flight, and submits the first of them before it has
            // imported the entry.
            for _ in 0..20 {
                for rank in 0..RANKS {
                    for _ in 0..3 {
                        job.submit(rank, &job.atomic(rank, op, 3));
                    }
                }
                for rank in 0..RANKS {
                    for _ in 0..3 {
                        let (outcome, length, value) = job.end_of(rank);
                        assert_eq!((outcome, length), (Outcome::Done, 8));
                        fetched.insert(value.expect("fetched"));
                    }
                }
            }
            let steps = 20 * 3 * RANKS;
            let (expected, name) = match op {
                AtomicOp::Add => (1 + 3 * u64::from(steps), "added"),
                _ => (3_u64.wrapping_pow(steps), "multiplied"),
            };
            assert_eq!(job.word(), expected, "{name}: {atomics:?}, seed {seed:?}");
            assert_eq!(fetched.len(), steps as usize, "no value is fetched twice");
            assert!(job.count(0).0 > 0 && job.count(1).1 >= 60);
        }
    }
}

/// Runs every operation on all types of a size, by the network's own operations and by
/// compare-and-swap.
#[test]
fn every_operation_as_a_processor_does_it() {
    for atomics in [Atomics::All, Atomics::Few] {
        let job = Job::new(atomics, None, true);
        job.submit(0, &job.atomic(0, AtomicOp::Get, 0));
        job.end_of(0);
        for ty in AtomicType::ALL {
            for op in AtomicOp::ALL {
                for (old, operand, comparand) in [(0, 7, 0), (u64::MAX, 3, 5), (5, u64::MAX, 5)] {
                    for fetch in [false, true] {
                        job.set_word(old);
                        let atomic = Atomic {
                            ty,
                            comparand,
                            fetch,
                            ..job.atomic(0, op, operand)
                        };
                        job.submit(0, &atomic);
                        let mask = u64::MAX >> (64 - 8 * ty.size());
                        let value = fetch.then_some(old & mask);
                        assert_eq!(job.end_of(0), (Outcome::Done, ty.size(), value));
                        let new = conduit_core::ni::atomic_result(op, ty, operand, comparand, old);
                        let what = format!("{op:?} {ty:?} {operand} {comparand} on {old}");
                        assert_eq!(job.word(), old & !mask | new & mask, "{what}");
                    }
                }
            }
        }
        // If the network has few operations, the processor performs those of 32 bits.
        let all = 11 * 3 * 2 * 6;
        let native = if atomics == Atomics::All {
            all
        } else {
            all / 2
        };
        assert_eq!(job.count(0).0, native);
    }
}

#[test]
fn native_atomics_are_a_capability_that_can_be_turned_off() {
    let can = |job: &Job| {
        let capabilities = job.ends[0].reach(1).capabilities;
        capabilities.contains(Capabilities::NATIVE_ATOMICS)
    };
    assert!(can(&Job::new(Atomics::All, None, true)));
    assert!(can(&Job::new(Atomics::Few, None, true)));
    assert!(!can(&Job::new(Atomics::None, None, true)));
    let job = Job::new(Atomics::All, None, false);
    assert!(!can(&job));
    for _ in 0..2 {
        job.submit(0, &job.atomic(0, AtomicOp::Add, 1));
        assert_eq!(job.end_of(0).0, Outcome::Done);
    }
    assert_eq!((job.count(0), job.count(1)), ((0, 0), (0, 0)));
    assert_eq!(job.word(), 2);
}

#[test]
fn the_network_does_the_atomics_on_an_entry_until_it_is_unlinked() {
    let job = Job::new(Atomics::All, None, true);
    job.submit(0, &job.atomic(0, AtomicOp::Add, 1));
    job.end_of(0);
    job.submit(0, &job.atomic(0, AtomicOp::Add, 1));
    assert_eq!(job.ends[1].me_unlink(job.me), Ok(Unlink::InUse));
    for rank in 0..RANKS {
        job.submit(rank, &job.atomic(rank, AtomicOp::Add, 1));
        assert_eq!(job.ends[1].me_unlink(job.me), Ok(Unlink::InUse));
    }
    for rank in [0, 0, 1, 2, 3] {
        assert_eq!(job.end_of(rank).0, Outcome::Done);
    }
    while job.ends[1].me_unlink(job.me) == Ok(Unlink::InUse) {
        job.turn();
    }
    assert_eq!(job.word(), 6);
    job.submit(0, &job.atomic(0, AtomicOp::Add, 1));
    assert_eq!(job.end_of(0), (Outcome::NoMatch, 0, Some(0)));
}

#[test]
fn what_is_misaligned_or_outside_goes_by_message() {
    let job = Job::new(Atomics::All, None, true);
    job.submit(0, &job.atomic(0, AtomicOp::Add, 1));
    job.end_of(0);
    for remote_offset in [12, 1 << 12, u64::MAX - 7] {
        let atomic = Atomic {
            remote_offset,
            ..job.atomic(0, AtomicOp::Add, 1)
        };
        job.submit(0, &atomic);
        assert_eq!(job.end_of(0), (Outcome::OutOfRange, 0, Some(0)));
    }
    assert_eq!(job.count(0).0, 0);
}

#[test]
fn what_was_under_way_to_a_peer_that_fails_is_dropped() {
    let job = Job::new(Atomics::Few, None, true);
    job.submit(0, &job.atomic(0, AtomicOp::Add, 1));
    job.end_of(0);
    job.submit(0, &job.atomic(0, AtomicOp::Add, 1));
    job.submit(0, &job.atomic(0, AtomicOp::Mult, 1));
    job.fabric.fail(1, Failure::Silent(1));
    job.turn();
    assert_eq!(job.ends[0].failed_peer(), Some(1));
    assert!(
        job.ends[0]
            .atomic(&job.atomic(0, AtomicOp::Add, 1))
            .is_err()
    );
    let inner = job.ends[0].inner();
    assert!(inner.portals.native.under_way() == 0 && inner.portals.native.waiting.is_empty());
}

/// Checks that a size is either native or not, because all atomics on one word must be performed in
/// the same way.
#[test]
fn a_size_needs_compare_and_swap_for_all_types() {
    use crate::transport::direct::Native;
    let has_all = |native: &Native| AtomicType::ALL.iter().all(|&ty| native.has(ty));
    assert!(has_all(&Native::new(|_, _, _| true)));
    let long = Native::new(|_, ty, _| ty.size() == 8);
    assert!(long.has_any() && !has_all(&long));
    assert!(!Native::new(|op, _, fetch| op != AtomicOp::CompareSwap || !fetch).has_any());
    let swap = |op, _, fetch| op == AtomicOp::CompareSwap && fetch;
    assert!(has_all(&Native::new(swap)));
    for missing in AtomicType::ALL {
        let native = Native::new(|_, ty, _| ty != missing);
        for ty in AtomicType::ALL {
            assert_eq!(native.has(ty), ty.size() != missing.size());
        }
    }
}
