//! Blocks of 64 KiB travel around a ring of ranks: each put tells by a signal that it is there, and the
//! receiver tells by an atomic that its slot is free again. `conduit-run -n 4 ring [LAPS]`.

use std::time::Instant;

use conduit::{AtomicOp, Handlers, ReduceOp, start};

/// Numbers in a block.
const BLOCK: usize = (64 << 10) / size_of::<u64>();

// Where things lie in each segment: a counter of what was freed, one of arrivals for each slot (signals
// have no order), and the two slots, which are filled by turns.
const FREED: usize = 0;
const ARRIVED: [usize; 2] = [8, 16];
const SLOTS: usize = 4096;

fn main() -> conduit::Result<()> {
    let conduit = start()?.attach(Handlers::new(), SLOTS + 2 * BLOCK * size_of::<u64>())?;
    let (rank, size) = (conduit.rank(), conduit.size());
    let (left, right) = ((rank + size - 1) % size, (rank + 1) % size);
    let segment = conduit.segment();
    let slot = |round: u64| SLOTS + round as usize % 2 * BLOCK * size_of::<u64>();
    let counted =
        |counter, number| conduit.wait_until(|| Ok(segment.atomic_get::<u64>(counter)? >= number));

    let first: Vec<u64> = (0..BLOCK as u64)
        .map(|at| at << 32 | u64::from(rank))
        .collect();
    let mut block = first.clone();
    let laps = std::env::args()
        .nth(1)
        .map_or(200, |laps| laps.parse().expect("a number of laps"));
    let rounds = laps * u64::from(size);
    conduit.barrier()?;
    let begin = Instant::now();
    for round in 0..rounds {
        // The slot is free once the right neighbour has taken what came to it two rounds before.
        counted(FREED, round.saturating_sub(1))?;
        let arrived = ARRIVED[round as usize % 2];
        conduit.put_signal(right, slot(round), &block[..], arrived, AtomicOp::Add, 1u64)?;
        counted(arrived, round / 2 + 1)?;
        segment.get(&mut block[..], slot(round))?;
        conduit.atomic(left, FREED, AtomicOp::Add, 1u64)?;
        // Each rank that a block comes to leaves its mark.
        block.iter_mut().for_each(|number| *number += 1 << 16);
    }
    let seconds = begin.elapsed().as_secs_f64();

    // It has come home, with a mark of each rank for each lap.
    let marked = |(now, before): (&u64, &u64)| *now == *before + (rounds << 16);
    let home = block.iter().zip(&first).all(marked);
    let mut wrong = [u64::from(!home)];
    conduit.reduce_all(ReduceOp::Add, &mut wrong)?;
    assert_eq!(wrong, [0], "blocks have changed on their way");
    if rank == 0 {
        let rate = rounds as f64 * (64 << 10) as f64 / seconds / 1e9;
        println!("ring: {rounds} blocks from each of {size} ranks, {rate:.2} GB/s a rank");
    }
    conduit.finish()
}
