//! Puts with signals, atomics of handlers on their own segment, broadcasts and reductions.

use anyhow::{Result, ensure};
use conduit::{AtomicOp, ReduceOp};

use super::stage::{SLOT, Stage, TALLY, compare, pattern};

const ROUNDS: u64 = 100;

/// Every rank puts into all others' segments, and signals each time; who has seen the signal compares the data. What a handler counts
/// in its segment is counted beside remote atomics on the same integer.
pub(super) fn signals(stage: &Stage) -> Result<u64> {
    let (conduit, rank) = (&stage.conduit, stage.rank());
    let segment = conduit.segment();
    let mut operations = 0;
    // Earlier checks have used the slots.
    for peer in stage.peers() {
        segment.put(stage.slot(peer), &0u64)?;
    }
    conduit.barrier()?;
    for round in 1..=ROUNDS {
        let length = (round as usize * 331) % (SLOT - 16);
        for peer in stage.peers() {
            let at = stage.slot(rank);
            let bytes = pattern(rank, round as usize, length);
            conduit.put_signal(peer, at + 8, &bytes[..], at, AtomicOp::Add, 1u64)?;
            conduit.request(peer, stage.messages.tally, (1,))?;
            conduit.atomic(peer, TALLY, AtomicOp::Add, 1u64)?;
        }
        for peer in stage.peers() {
            let at = stage.slot(peer);
            conduit.wait_until(|| Ok(segment.atomic_get::<u64>(at)? == round))?;
            let mut got = vec![0; length];
            segment.get(&mut got[..], at + 8)?;
            compare(
                "put with signal",
                &got,
                &pattern(peer, round as usize, length),
            )?;
            operations += 3;
        }
        conduit.barrier()?;
    }
    conduit.quiesce()?;
    let tally = segment.atomic_get::<u64>(TALLY)?;
    let expected = 2 * ROUNDS * u64::from(stage.size());
    ensure!(tally == expected, "{tally} counted, not {expected}");
    Ok(operations)
}

/// Each rank is the root in turn, with few elements and with many.
pub(super) fn collectives(stage: &Stage) -> Result<u64> {
    let (conduit, rank, size) = (&stage.conduit, stage.rank(), stage.size());
    let mut operations = 0;
    for root in 0..size {
        for length in [1, 1000, 50_000] {
            let expected = pattern(root, length, length);
            let mut bytes = match rank == root {
                true => expected.clone(),
                false => vec![0; length],
            };
            conduit.broadcast(root, &mut bytes[..])?;
            compare("broadcast", &bytes, &expected)?;
            let mut sums = vec![u64::from(rank); length];
            conduit.reduce(root, ReduceOp::Add, &mut sums)?;
            let sum = match rank == root {
                true => u64::from(size) * u64::from(size - 1) / 2,
                false => u64::from(rank),
            };
            ensure!(
                sums.iter().all(|&got| got == sum),
                "a reduction to rank {root}"
            );
            let mut greatest = vec![f64::from(rank); length];
            conduit.reduce_all(ReduceOp::Max, &mut greatest)?;
            ensure!(
                greatest.iter().all(|&got| got == f64::from(size - 1)),
                "a reduction to all"
            );
            let mut nearest = vec![[rank, root.abs_diff(rank)]; length];
            conduit.reduce_all_with(
                &mut nearest,
                |one: [u32; 2], other: [u32; 2]| {
                    if one[1] < other[1] { one } else { other }
                },
            )?;
            ensure!(
                nearest.iter().all(|&got| got == [root, 0]),
                "a reduction by a function"
            );
            operations += 4;
        }
    }
    Ok(operations)
}
