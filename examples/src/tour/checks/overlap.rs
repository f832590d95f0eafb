//! Overlapping puts and gets: explicit handles, implicit operations, access regions, scopes.

use anyhow::{Result, ensure};

use super::stage::{Stage, compare, pattern};

const PIECES: usize = 16;
const PIECE: usize = 5000;
const ROUNDS: usize = 25;

/// Checks many overlapping puts, completed in each of the four possible ways.
pub(super) fn explicit(stage: &Stage) -> Result<u64> {
    let (conduit, rank) = (&stage.conduit, stage.rank());
    let mut operations = 0;
    for round in 0..ROUNDS {
        for peer in stage.peers() {
            let mut handles = Vec::new();
            for piece in 0..PIECES {
                let bytes = pattern(rank, round + piece, PIECE);
                let at = stage.slot(rank) + piece * PIECE;
                // The source may be reused as soon as the call returns.
                handles.push(conduit.put_nb(peer, at, &bytes[..])?);
            }
            match round % 4 {
                0 => conduit.wait_all(&mut handles)?,
                1 => while !conduit.try_wait_all(&mut handles)? {},
                2 => {
                    // 0 means that no operation was under way any more.
                    while conduit.wait_some(&mut handles)? > 0 {}
                }
                _ => {
                    for mut handle in handles {
                        while let Some(still) = conduit.try_wait(handle)? {
                            handle = still;
                        }
                    }
                }
            }
            operations += verify(stage, peer, round)?;
        }
    }
    Ok(operations)
}

/// Gets back the data and compares it; returns the number of puts and gets.
fn verify(stage: &Stage, peer: conduit::Rank, round: usize) -> Result<u64> {
    let rank = stage.rank();
    let mut got = vec![0; PIECES * PIECE];
    stage.conduit.scope(|scope| {
        for (piece, got) in got.chunks_mut(PIECE).enumerate() {
            scope.get(got, peer, stage.slot(rank) + piece * PIECE)?;
        }
        Ok(())
    })?;
    for (piece, got) in got.chunks(PIECE).enumerate() {
        compare(
            "overlapping put and get",
            got,
            &pattern(rank, round + piece, PIECE),
        )?;
    }
    Ok(2 * PIECES as u64)
}

/// Checks puts without handles: waited for together, by region, or by scope.
pub(super) fn implicit(stage: &Stage) -> Result<u64> {
    let (conduit, rank) = (&stage.conduit, stage.rank());
    let mut operations = 0;
    for round in 0..ROUNDS {
        for peer in stage.peers() {
            let pieces: Vec<_> = (0..PIECES)
                .map(|piece| pattern(rank, round + piece, PIECE))
                .collect();
            let at = |piece: usize| stage.slot(rank) + piece * PIECE;
            let start_all = || -> conduit::Result<()> {
                for (piece, bytes) in pieces.iter().enumerate() {
                    conduit.put_nbi(peer, at(piece), &bytes[..])?;
                }
                Ok(())
            };
            match round % 3 {
                0 => {
                    start_all()?;
                    conduit.wait_puts()?;
                    ensure!(
                        conduit.try_implicit()?,
                        "an implicit put after all were waited for"
                    );
                }
                1 => {
                    conduit.begin_region()?;
                    start_all()?;
                    let region = conduit.end_region()?;
                    conduit.wait(region)?;
                }
                _ => conduit.scope(|scope| {
                    for (piece, bytes) in pieces.iter().enumerate() {
                        scope.put(peer, at(piece), &bytes[..])?;
                    }
                    Ok(())
                })?,
            }
            operations += verify(stage, peer, round)?;
        }
    }
    Ok(operations)
}
