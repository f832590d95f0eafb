//! Blocking puts and gets.

use anyhow::{Result, ensure};

use super::stage::{SLOT, Stage, compare, pattern};

/// Sizes around the interesting ones: a register, a cache line, a chunk, and a whole slot.
const SIZES: [usize; 12] = [0, 1, 3, 8, 63, 64, 65, 1000, 4096, 16_385, 65_536, SLOT];
const ROUNDS: usize = 20;

/// Every rank puts into its slot of every segment; then each checks its own segment and its
/// neighbour's.
pub(super) fn blocking(stage: &Stage) -> Result<u64> {
    let (conduit, rank) = (&stage.conduit, stage.rank());
    let mut operations = 0;
    for round in 0..ROUNDS {
        for size in SIZES {
            // Include unaligned offsets.
            let at = if size == SLOT { 0 } else { round % 9 };
            let bytes = pattern(rank, round, size);
            for peer in stage.peers() {
                conduit.put(peer, stage.slot(rank) + at, &bytes[..])?;
            }
            conduit.barrier()?;
            let mut got = vec![0; size];
            for from in stage.peers() {
                conduit.get(&mut got[..], rank, stage.slot(from) + at)?;
                compare("put", &got, &pattern(from, round, size))?;
                let holder = (rank + 1) % stage.size();
                conduit.get(&mut got[..], holder, stage.slot(from) + at)?;
                compare("get", &got, &pattern(from, round, size))?;
                operations += 2;
            }
            conduit.barrier()?;
        }
    }
    Ok(operations)
}

/// Checks puts and gets of register values, and memset.
pub(super) fn values(stage: &Stage) -> Result<u64> {
    const VALUE: u64 = 0x8877_6655_4433_2211;
    let (conduit, rank) = (&stage.conduit, stage.rank());
    let mut operations = 0;
    for round in 0..100 {
        for peer in stage.peers() {
            let at = stage.slot(rank) + round * 16;
            for bytes in 1..=8 {
                let value = (VALUE + round as u64) & (u64::MAX >> (64 - 8 * bytes));
                match round % 3 {
                    0 => conduit.put_value(peer, at, value, bytes)?,
                    1 => conduit.wait(conduit.put_value_nb(peer, at, value, bytes)?)?,
                    _ => {
                        conduit.put_value_nbi(peer, at, value, bytes)?;
                        conduit.wait_puts()?;
                    }
                }
                let got = conduit.get_value(peer, at, bytes)?;
                ensure!(got == value, "got {got:#x}, expected {value:#x}");
                operations += 2;
            }
            let length = 1 + round * 97;
            match round % 3 {
                0 => conduit.memset(peer, at, round as u8, length)?,
                1 => conduit.wait(conduit.memset_nb(peer, at, round as u8, length)?)?,
                _ => {
                    conduit.memset_nbi(peer, at, round as u8, length)?;
                    conduit.wait_implicit()?;
                }
            }
            let mut got = vec![0; length];
            conduit.get(&mut got[..], peer, at)?;
            compare("memset", &got, &vec![round as u8; length])?;
            operations += 2;
        }
    }
    Ok(operations)
}
