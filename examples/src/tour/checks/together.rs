//! Puts with signals, handlers' atomics on their own segment, broadcasts and reductions, teams.

use anyhow::{Result, ensure};
use conduit::{AtomicOp, ReduceOp};

use super::stage::{SLOT, Stage, TALLY, compare, pattern};

const ROUNDS: u64 = 100;

/// Every rank puts into all other segments with a signal each time; a rank that sees the signal
/// compares the data. Handlers count in their own segment, on the same integer as remote atomics.
pub(super) fn signals(stage: &Stage) -> Result<u64> {
    let (conduit, rank) = (&stage.conduit, stage.rank());
    let segment = conduit.segment();
    let mut operations = 0;
    // Clear the slots, which earlier checks have used.
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
    ensure!(tally == expected, "counted {tally}, expected {expected}");
    Ok(operations)
}

/// Makes each rank the root once, with few elements and with many.
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

/// Splits the ranks into two teams of every other rank, the second in reverse order, which exchange
/// blocks.
pub(super) fn teams(stage: &Stage) -> Result<u64> {
    let (conduit, rank, size) = (&stage.conduit, stage.rank(), stage.size());
    let key = match rank % 2 {
        0 => 0,
        _ => -rank.cast_signed(),
    };
    let all = conduit.team();
    let Some(team) = all.split(Some(rank % 2), key)? else {
        anyhow::bail!("split gave a rank with a color no team");
    };
    let members: Vec<u32> = (0..size).filter(|of| of % 2 == rank % 2).collect();
    let mut expected = members.clone();
    if rank % 2 == 1 {
        expected.reverse();
    }
    let of: Vec<u32> = (0..team.size()).filter_map(|at| team.to_job(at)).collect();
    ensure!(of == expected, "a team has members {of:?}");
    let mut operations = 1;
    for length in [1, 1000, 50_000] {
        let block = |from: u32, to: u32| pattern(from, to as usize, length);
        let source: Vec<u8> = of.iter().flat_map(|&to| block(rank, to)).collect();
        let mut result = vec![0; source.len()];
        team.exchange(&source, &mut result)?;
        let expected: Vec<u8> = of.iter().flat_map(|&from| block(from, rank)).collect();
        compare("exchange", &result, &expected)?;
        team.gather_all(&block(rank, 0), &mut result)?;
        let expected: Vec<u8> = of.iter().flat_map(|&from| block(from, 0)).collect();
        compare("gather to all", &result, &expected)?;
        for root in 0..team.size() {
            result.fill(0);
            team.gather(root, &block(rank, 0), &mut result)?;
            if root == team.rank() {
                compare("gather", &result, &expected)?;
            }
            let mut own = vec![0; length];
            team.scatter(root, &source, &mut own)?;
            compare("scatter", &own, &block(of[root as usize], rank))?;
            operations += 2;
        }
        let mut sum = [1u64];
        team.reduce_all(ReduceOp::Add, &mut sum)?;
        ensure!(sum[0] == of.len() as u64, "a sum of {}", sum[0]);
        team.barrier()?;
        operations += 4;
    }
    Ok(operations)
}
