//! A histogram over all ranks: keys travel in batches to the rank that owns their bin, whose handler
//! counts them in its segment. `conduit-run -n 4 histogram`.

use conduit::{AtomicOp, Handlers, Rank, ReduceOp, start};

/// Bins of each rank.
const BINS: u32 = 1 << 12;
/// Keys that each rank draws.
const KEYS: u64 = 1 << 20;

fn main() -> conduit::Result<()> {
    let job = start()?;
    let mut handlers = Handlers::new();
    let count = handlers.named("count").medium(|call, (), bins: &[u32]| {
        let segment = call.segment();
        for &bin in bins {
            let counted = segment.atomic(bin as usize * 8, AtomicOp::Add, 1u64);
            counted.expect("a bin of this rank");
        }
    });
    let conduit = job.attach(handlers, BINS as usize * 8)?;
    let (rank, size) = (conduit.rank(), conduit.size());
    // A batch for each rank, sent when it is as large as a message may be.
    let most = conduit.max_medium() / size_of::<u32>();
    let mut batches = vec![Vec::new(); size as usize];
    for key in keys(rank) {
        let (owner, bin) = (key % size, key / size % BINS);
        let batch = &mut batches[owner as usize];
        batch.push(bin);
        if batch.len() == most {
            conduit.request_medium(owner, count, (), batch)?;
            batch.clear();
        }
    }
    for (owner, batch) in (0..).zip(&batches) {
        conduit.request_medium(owner, count, (), batch)?;
    }
    conduit.quiesce()?; // all batches of all ranks have been handled
    let mut bins = vec![0u64; BINS as usize];
    conduit.segment().get(&mut bins[..], 0)?;
    let mut total = [bins.iter().sum::<u64>()];
    conduit.reduce_all(ReduceOp::Add, &mut total)?;
    assert_eq!(total, [KEYS * u64::from(size)]);
    if rank == 0 {
        let [total] = total;
        println!(
            "histogram: {total} keys on {size} ranks, {} in bin 0",
            bins[0]
        );
    }
    conduit.finish()
}

/// The keys of a rank, by splitmix64.
fn keys(rank: Rank) -> impl Iterator<Item = u32> {
    (1..=KEYS).map(move |number| {
        let z = (u64::from(rank) << 32 | number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ((z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32) as u32
    })
}
