//! Barriers.

use anyhow::{Result, ensure};
use conduit::Error;

use super::stage::Stage;

const ROUNDS: u32 = 300;

/// Checks each kind of barrier: a value put before it must be visible after it.
pub(super) fn barriers(stage: &Stage) -> Result<u64> {
    let (conduit, rank, size) = (&stage.conduit, stage.rank(), stage.size());
    let right = (rank + 1) % size;
    let left = (rank + size - 1) % size;
    let mut operations = 0;
    for round in 0..ROUNDS {
        conduit.put(right, stage.slot(rank), &round)?;
        match round % 4 {
            0 => conduit.barrier()?,
            1 => conduit.barrier_named(round)?,
            2 => {
                conduit.barrier_notify(Some(round))?;
                conduit.barrier_wait(Some(round))?;
            }
            // Some ranks give a name and others do not, which matches.
            _ => {
                let id = rank.is_multiple_of(2).then_some(round);
                conduit.barrier_notify(id)?;
                while !conduit.barrier_try(id)? {}
            }
        }
        let mut got = 0u32;
        conduit.get(&mut got, rank, stage.slot(left))?;
        ensure!(
            got == round,
            "after barrier {round} the left neighbour's value is {got}"
        );
        conduit.barrier()?;
        operations += 2;
    }
    if size > 1 {
        for round in 0..20 {
            // One rank at a time gives another name than the others.
            let id = if round % size == rank { 1 } else { 2 };
            let mismatch = conduit.barrier_named(id);
            ensure!(
                matches!(mismatch, Err(Error::BarrierMismatch { .. })),
                "different names were not detected: {mismatch:?}"
            );
            operations += 1;
        }
    }
    conduit.barrier()?;
    Ok(operations)
}
