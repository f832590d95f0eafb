//! Atomics: every operation on every type, compared with plain arithmetic.

use conduit_core::ni::{Atomic, AtomicOp, AtomicType, EqId, MatchEntry, Ni, Outcome};

use super::arithmetic::{mask, model, pairs, same};
use super::entry::{atomic_on, over, piece};
use super::{Peek, Seen, World, theme};

theme! { "atomics":
    every_operation_on_every_type(2)
        "Each operation on each type leaves and fetches the result of plain arithmetic: integers wrap and compare by the type's sign, floats follow IEEE 754.";
    without_fetch_the_change_is_the_same(2)
        "An atomic that doesn't fetch changes memory in the same way and ends with Ack.";
    neighbours_are_untouched(2)
        "An atomic changes only its own integer.";
    compare_swap_depends_on_the_comparand(2)
        "CompareSwap writes if the old value equals the comparand, and returns the old value in either case.";
    misaligned_is_out_of_range(2)
        "An address that isn't a multiple of the integer's size gives OutOfRange, and nothing changes.";
    outside_the_entry_changes_nothing(2)
        "An integer that isn't wholly within the entry is not touched.";
    target_is_told(2)
        "The target's event names the entry, the initiator, the bits and the offset.";
    additions_of_all_ranks_add_up(4)
        "Additions of several ranks to one integer add up, and no two fetch the same old value.";
    swaps_of_all_ranks_lose_nothing(3)
        "CompareSwap loops of several ranks lose no update.";
    on_oneself(1)
        "A rank may do atomics on its own memory.";
}

fn load<M: Peek>(memory: &M, ty: AtomicType, offset: usize) -> u64 {
    let bytes = memory.peek(offset, ty.size());
    match ty.size() {
        4 => u32::from_ne_bytes(bytes.try_into().expect("4 bytes")).into(),
        _ => u64::from_ne_bytes(bytes.try_into().expect("8 bytes")),
    }
}

fn store<M: Peek>(memory: &M, ty: AtomicType, offset: usize, value: u64) {
    match ty.size() {
        4 => memory.poke(offset, &(value as u32).to_ne_bytes()),
        _ => memory.poke(offset, &value.to_ne_bytes()),
    }
}

fn try_all<N: Ni>(w: &mut World<N>, fetch: bool) {
    w.listen(1);
    let region = w.region(1, 4096);
    w.append(
        1,
        MatchEntry {
            events: conduit_core::ni::MeEvents::empty(),
            ..over(&region)
        },
    );
    let eq = w.completions(0);
    for ty in AtomicType::ALL {
        for op in AtomicOp::ALL {
            for (x, a) in pairs() {
                // Half of the swaps succeed.
                let comparand = if a % 2 == 0 { x } else { a };
                store(&region, ty, 64, x);
                let atomic = Atomic {
                    op,
                    ty,
                    operand: a,
                    comparand,
                    fetch,
                    remote_offset: 64,
                    ..atomic_on(1, eq)
                };
                let end = w.atomic_and_wait(0, &atomic);
                assert_eq!(end.outcome, Outcome::Done);
                let what = format!("{op:?} {ty:?} of {x:#x} with {a:#x}, {comparand:#x}");
                if fetch {
                    assert_eq!(mask(ty, end.value), mask(ty, x), "fetched by {what}");
                }
                let expected = model(op, ty, x, a, comparand);
                let left = load(&region, ty, 64);
                assert!(same(ty, left, expected), "{left:#x} left by {what}");
            }
        }
    }
}

fn every_operation_on_every_type<N: Ni>(w: &mut World<N>) {
    try_all(w, true);
}

fn without_fetch_the_change_is_the_same<N: Ni>(w: &mut World<N>) {
    try_all(w, false);
    // An atomic that doesn't fetch ends with an Ack instead of a Reply.
    let eq = w.completions(0);
    let atomic = Atomic {
        fetch: false,
        token: 99,
        ..atomic_on(1, eq)
    };
    w.atomic(0, &atomic);
    w.until("Ack", |w| {
        w.count(0, |event| {
            matches!(
                event,
                Seen::Ack {
                    token: 99,
                    outcome: Outcome::Done,
                    ..
                }
            )
        }) == 1
    });
}

fn neighbours_are_untouched<N: Ni>(w: &mut World<N>) {
    w.listen(1);
    let region = w.region(1, 4096);
    w.append(1, over(&region));
    let eq = w.completions(0);
    for ty in AtomicType::ALL {
        for op in [AtomicOp::Set, AtomicOp::Sub, AtomicOp::Mult, AtomicOp::Or] {
            for at in [4, 8, 4092, 4088] {
                if at % ty.size() != 0 || at + ty.size() > 4096 {
                    continue;
                }
                region.poke(0, &[0xAA; 4096]);
                let atomic = Atomic {
                    op,
                    ty,
                    operand: u64::MAX - 5,
                    remote_offset: at as u64,
                    ..atomic_on(1, eq)
                };
                w.atomic_and_wait(0, &atomic);
                assert!(region.peek(0, at).iter().all(|b| *b == 0xAA));
                let after = at + ty.size();
                assert!(region.peek(after, 4096 - after).iter().all(|b| *b == 0xAA));
            }
        }
    }
}

fn compare_swap_depends_on_the_comparand<N: Ni>(w: &mut World<N>) {
    w.listen(1);
    let region = w.region(1, 4096);
    w.append(1, over(&region));
    let eq = w.completions(0);
    for ty in AtomicType::ALL {
        store(&region, ty, 0, 10);
        for (comparand, old, left) in [(9, 10, 10), (10, 10, 20), (10, 20, 20), (20, 20, 20)] {
            let atomic = Atomic {
                op: AtomicOp::CompareSwap,
                ty,
                operand: 20,
                comparand,
                ..atomic_on(1, eq)
            };
            let end = w.atomic_and_wait(0, &atomic);
            assert_eq!(mask(ty, end.value), old, "{ty:?} compared with {comparand}");
            assert_eq!(load(&region, ty, 0), left);
        }
    }
}

fn refused<N: Ni>(w: &mut World<N>, atomic: &Atomic, allowed: &[Outcome]) {
    for fetch in [true, false] {
        let end = w.atomic_and_wait(0, &Atomic { fetch, ..*atomic });
        assert!(
            allowed.contains(&end.outcome),
            "{:?} at {}: {:?}",
            atomic.ty,
            atomic.remote_offset,
            end.outcome
        );
    }
}

fn misaligned_is_out_of_range<N: Ni>(w: &mut World<N>) {
    w.listen(1);
    let region = w.region(1, 4096);
    w.append(1, over(&region));
    // The rule applies to the address, so an entry at an odd address makes even offsets misaligned.
    let odd = MatchEntry {
        match_bits: 1,
        ..piece(&region, 2, 1024)
    };
    w.append(1, odd);
    let eq = w.completions(0);
    for ty in AtomicType::ALL {
        for offset in [1, 2, 3, 5, 6, 7, 4, 12]
            .into_iter()
            .filter(|o| o % ty.size() != 0)
        {
            let atomic = Atomic {
                ty,
                remote_offset: offset as u64,
                ..atomic_on(1, eq)
            };
            refused(w, &atomic, &[Outcome::OutOfRange]);
        }
        let atomic = Atomic {
            ty,
            match_bits: 1,
            remote_offset: 8,
            ..atomic_on(1, eq)
        };
        refused(w, &atomic, &[Outcome::OutOfRange]);
    }
    w.settle();
    assert_eq!(region.bytes(), vec![0; region.len]);
}

fn outside_the_entry_changes_nothing<N: Ni>(w: &mut World<N>) {
    w.listen(1);
    let region = w.region(1, 8192);
    w.append(1, piece(&region, 4096, 20));
    let eq = w.completions(0);
    for ty in AtomicType::ALL {
        for remote_offset in [20, 24, 4096, 1 << 40, 0_u64.wrapping_sub(8), 1 << 63] {
            if remote_offset % ty.size() as u64 != 0 {
                continue;
            }
            let atomic = Atomic {
                ty,
                remote_offset,
                ..atomic_on(1, eq)
            };
            refused(w, &atomic, &[Outcome::OutOfRange, Outcome::NoMatch]);
        }
    }
    // Only the first half of the integer lies within the entry: it takes 8 bytes from offset 16 of
    // 20 bytes.
    let half = Atomic {
        remote_offset: 16,
        ..atomic_on(1, eq)
    };
    refused(w, &half, &[Outcome::OutOfRange, Outcome::NoMatch]);
    w.settle();
    assert_eq!(region.bytes(), vec![0; region.len]);
}

fn target_is_told<N: Ni>(w: &mut World<N>) {
    w.listen(1);
    let region = w.region(1, 4096);
    let entry = MatchEntry {
        match_bits: 6 << 60,
        tag: 11,
        ..over(&region)
    };
    w.append(1, entry);
    let eq = w.completions(0);
    for (i, fetch) in [true, false].into_iter().enumerate() {
        let atomic = Atomic {
            match_bits: 6 << 60,
            remote_offset: 24,
            fetch,
            ..atomic_on(1, eq)
        };
        w.atomic_and_wait(0, &atomic);
        w.until("the target has its event", |w| w.events(1).count() == i + 1);
    }
    let told = Seen::Atomic {
        tag: 11,
        source: 0,
        match_bits: 6 << 60,
        offset: 24,
    };
    assert_eq!(w.count(1, |event| *event == told), 2);
}

fn additions_of_all_ranks_add_up<N: Ni>(w: &mut World<N>) {
    const EACH: u64 = 100;
    w.listen(0);
    let region = w.region(0, 4096);
    w.append(0, over(&region));
    let queues: Vec<EqId> = (0..4).map(|rank| w.completions(rank)).collect();
    for token in 0..EACH {
        for (rank, &eq) in queues.iter().enumerate() {
            let atomic = Atomic {
                token,
                ..atomic_on(0, eq)
            };
            w.atomic(rank as u32, &atomic);
        }
    }
    let mut fetched = Vec::new();
    for token in 0..EACH {
        for rank in 0..4 {
            fetched.push(w.end_of(rank, token).value);
        }
    }
    fetched.sort_unstable();
    assert!(fetched == (0..4 * EACH).collect::<Vec<_>>());
    assert_eq!(load(&region, AtomicType::U64, 0), 4 * EACH);
}

fn swaps_of_all_ranks_lose_nothing<N: Ni>(w: &mut World<N>) {
    w.listen(0);
    let region = w.region(0, 4096);
    w.append(0, over(&region));
    let queues: Vec<EqId> = (0..3).map(|rank| w.completions(rank)).collect();
    let (mut known, mut done, mut tries) = ([0; 3], [0; 3], 0);
    while done.iter().any(|count| *count < 20) {
        tries += 1;
        assert!(
            tries < 10_000,
            "at least one swap must succeed in every round"
        );
        // A rank that has succeeded often enough stops, so the test doesn't depend on the order in
        // which the ranks succeed.
        let busy: Vec<_> = (0..3).filter(|rank| done[*rank] < 20).collect();
        for &rank in &busy {
            let atomic = Atomic {
                op: AtomicOp::CompareSwap,
                ty: AtomicType::I64,
                operand: known[rank] + 1,
                comparand: known[rank],
                ..atomic_on(0, queues[rank])
            };
            w.atomic(rank as u32, &atomic);
        }
        for rank in busy {
            let old = w.end_of(rank as u32, 0).value;
            if old == known[rank] {
                done[rank] += 1;
                known[rank] += 1;
            } else {
                known[rank] = old;
            }
        }
    }
    assert_eq!(
        load(&region, AtomicType::U64, 0),
        done.iter().sum::<u64>(),
        "the number of successful swaps"
    );
}

fn on_oneself<N: Ni>(w: &mut World<N>) {
    w.listen(0);
    let region = w.region(0, 4096);
    w.append(0, over(&region));
    let eq = w.completions(0);
    for i in 0..10 {
        let atomic = Atomic {
            fetch: i % 2 == 0,
            ..atomic_on(0, eq)
        };
        let end = w.atomic_and_wait(0, &atomic);
        if atomic.fetch {
            assert_eq!(end.value, i);
        }
    }
    assert_eq!(load(&region, AtomicType::U64, 0), 10);
}
