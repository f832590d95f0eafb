//! A block of numbers travels once around the ring of ranks. `conduit-run -n 4 ring`.

use conduit::{AtomicOp, Handlers, start};

/// Numbers in a block.
const NUMBERS: usize = 512;
/// Bytes of a slot: a counter of arrivals, then a block.
const SLOT: usize = (1 + NUMBERS) * size_of::<u64>();

fn main() -> conduit::Result<()> {
    let job = start()?;
    let (rank, size) = (job.rank(), job.size());
    let right = (rank + 1) % size;
    // A slot for each round, so that no block overwrites one that has not been read.
    let conduit = job.attach(Handlers::new(), size as usize * SLOT)?;
    let segment = conduit.segment();

    let mut block = [u64::from(rank); NUMBERS];
    for round in 0..size as usize {
        let (counter, data) = (round * SLOT, round * SLOT + 8);
        conduit.put_signal(right, data, &block, counter, AtomicOp::Add, 1u64)?;
        conduit.wait_until(|| Ok(segment.atomic_get::<u64>(counter)? == 1))?;
        segment.get(&mut block, data)?;
    }
    assert_eq!(block, [u64::from(rank); NUMBERS]);
    println!("rank {rank}: the block came home in round {size}");
    conduit.finish()
}
