//! Remote atomics: all ranks work on the same integers of rank 0's segment.

use anyhow::{Result, ensure};
use conduit::{Atom, AtomicOp, Conduit};

use super::stage::{ATOMICS, Stage};

const EACH: u64 = 2000;
const SUM: usize = ATOMICS;
const GREATEST: usize = ATOMICS + 8;
const LEAST: usize = ATOMICS + 16;
const BITS: usize = ATOMICS + 24;
const LOCK: usize = ATOMICS + 32;
const GUARDED: usize = ATOMICS + 40;
/// The offset of an integer in each rank's own segment, whose values can be compared step by step.
const OWN: usize = ATOMICS + 64;

/// Checks sums, extremes and bits that all ranks contribute to, a lock by compare-and-swap, and
/// every operation step by step.
pub(super) fn atomics(stage: &Stage) -> Result<u64> {
    let (conduit, rank) = (&stage.conduit, stage.rank());
    let size = u64::from(stage.size());
    let mut last = None;
    for number in 0..EACH {
        let ticket = conduit.atomic_fetch(0, SUM, AtomicOp::Add, 1u64)?;
        ensure!(
            last < Some(ticket),
            "ticket repeated or out of order: {ticket} after {last:?}"
        );
        last = Some(ticket);
        conduit.atomic(
            0,
            GREATEST,
            AtomicOp::Max,
            (number as i32) * (rank as i32 + 1),
        )?;
        let handle =
            conduit.atomic_nb(0, LEAST, AtomicOp::Min, -(number as i64) - i64::from(rank))?;
        conduit.wait(handle)?;
        conduit.atomic(0, BITS, AtomicOp::Or, 1u32 << (rank % 32))?;
    }
    let mut operations = 4 * EACH;
    for number in 0..EACH / 20 {
        // A lock made of an integer, and a number that only the lock's holder may change.
        while conduit.compare_swap(0, LOCK, 0u32, 1)? != 0 {
            conduit.poll()?;
        }
        let value = conduit.get_value(0, GUARDED, 8)?;
        conduit.put_value(0, GUARDED, value + number, 8)?;
        conduit.atomic(0, LOCK, AtomicOp::Set, 0u32)?;
        operations += 2;
    }
    conduit.barrier()?;
    let value = |offset, bytes| conduit.get_value(0, offset, bytes);
    ensure!(
        value(SUM, 8)? == size * EACH,
        "the sum is {}",
        value(SUM, 8)?
    );
    ensure!(
        value(GREATEST, 4)? == (EACH - 1) * size,
        "the greatest is {}",
        value(GREATEST, 4)?
    );
    let least = value(LEAST, 8)? as i64;
    ensure!(
        least == -(EACH as i64 - 1) - (size as i64 - 1),
        "the least is {least}"
    );
    let all = (0..stage.size()).fold(0, |bits, rank| bits | 1u64 << (rank % 32));
    ensure!(
        value(BITS, 4)? == all,
        "the bits are {:#x}",
        value(BITS, 4)?
    );
    let number = EACH / 20;
    ensure!(
        value(GUARDED, 8)? == size * number * (number - 1) / 2,
        "the lock did not exclude other ranks"
    );
    operations += step_by_step(conduit, rank, 5i32, 3, [8, 2, 15, 3, 5, 1, 7, 6])?;
    operations += step_by_step(conduit, rank, 5u32, 3, [8, 2, 15, 3, 5, 1, 7, 6])?;
    operations += step_by_step(conduit, rank, 5i64, 3, [8, 2, 15, 3, 5, 1, 7, 6])?;
    operations += step_by_step(conduit, rank, 5u64, 3, [8, 2, 15, 3, 5, 1, 7, 6])?;
    Ok(operations)
}

/// Performs each operation on an integer of the right neighbour that only this rank uses.
fn step_by_step<T: Atom<Op = AtomicOp> + PartialEq + std::fmt::Debug>(
    conduit: &Conduit,
    rank: u32,
    start: T,
    operand: T,
    expected: [T; 8],
) -> Result<u64> {
    use AtomicOp::{Add, And, Max, Min, Mult, Or, Set, Sub, Xor};
    let peer = (rank + 1) % conduit.size();
    for (op, expected) in [Add, Sub, Mult, Min, Max, And, Or, Xor]
        .into_iter()
        .zip(expected)
    {
        conduit.atomic(peer, OWN, Set, start)?;
        let before = conduit.atomic_fetch(peer, OWN, op, operand)?;
        let after: T = conduit.atomic_get(peer, OWN)?;
        ensure!(
            before == start && after == expected,
            "{op:?} of {start:?} and {operand:?} gave {after:?}"
        );
    }
    Ok(3 * 8)
}
