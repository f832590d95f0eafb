//! A program whose credits must move, because there are few of them and each rank's partners
//! change.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use anyhow::{Result, ensure};
use conduit::{AtomicOp, Conduit, Handlers, Seq};

use super::attached;

/// The number of partners that each rank has, one after another.
const PHASES: u32 = 6;
/// The number of mediums sent to each partner.
const EACH: u64 = 300;
/// The number of comparisons after which missing credits count as lost.
const COMPARISONS: u32 = 1000;
/// The maximum number of ranks.
const RANKS: usize = 64;

/// A rank's credits: those in its bank, and those lent to each peer.
#[derive(Debug, PartialEq, Eq)]
struct Credits {
    banked: u32,
    lent: Vec<u32>,
}

impl Credits {
    fn of(conduit: &Conduit<Seq>) -> Result<Self> {
        let lent = (0..conduit.size()).map(|peer| conduit.lent_credits(peer));
        Ok(Self {
            lent: lent.collect::<Result<_, _>>()?,
            banked: conduit.banked_credits(),
        })
    }

    fn all(&self) -> u32 {
        self.banked + self.lent.iter().sum::<u32>()
    }
}

/// Floods changing partners. Every message must arrive once, no rank may lose or gain credits, some
/// credits must move, and in the end each peer must hold exactly the credits that this rank has
/// lent to it.
pub(super) fn moving() -> Result<()> {
    let come: Arc<[[AtomicU64; 2]]> = (0..RANKS).map(|_| Default::default()).collect();
    let mut handlers = Handlers::<Seq>::new();
    let medium = handlers.medium({
        let come = Arc::clone(&come);
        move |call, (number,): (u64,), _: &[u8]| {
            let [count, sum] = &come[call.source() as usize];
            count.fetch_add(1, Relaxed);
            sum.fetch_add(number, Relaxed);
        }
    });
    let conduit = attached(handlers)?;
    let (rank, size) = (conduit.rank(), conduit.size());
    ensure!((2..=RANKS as u32).contains(&size), "2 to {RANKS} ranks");
    let at_first = Credits::of(&conduit)?;
    let payload = vec![7; conduit.max_medium().min(900)];
    let mut have_moved = false;
    let mut expected = vec![0; size as usize];
    for phase in 0..PHASES {
        let step = 1 + phase % (size - 1);
        let (to, from) = ((rank + step) % size, (rank + size - step) % size);
        for number in 0..EACH {
            conduit.request_medium(to, medium, (number,), &payload)?;
        }
        expected[from as usize] += 1;
        let [count, _] = &come[from as usize];
        conduit.wait_until(|| count.load(Relaxed) >= EACH * expected[from as usize])?;
        conduit.barrier()?;
        for (source, times) in (0..).zip(&expected) {
            let [count, sum] = &come[source];
            ensure!(
                count.load(Relaxed) == EACH * times
                    && sum.load(Relaxed) == EACH * (EACH - 1) / 2 * times,
                "phase {phase}: {count:?} messages from rank {source}"
            );
        }
        let now = Credits::of(&conduit)?;
        ensure!(
            now.all() == at_first.all(),
            "{now:?}, at first {at_first:?}"
        );
        have_moved |= now != at_first;
        conduit.barrier()?;
    }
    let comparisons = agree(&conduit)?;
    let counter = size as usize * 8 + 8;
    conduit.atomic(0, counter, AtomicOp::Add, u64::from(have_moved))?;
    conduit.barrier()?;
    let moved = conduit.get_value(0, counter, 8)?;
    ensure!(moved > 0, "no credits have moved");
    if rank == 0 {
        println!("credits of {moved} ranks have moved; they agree after {comparisons} comparisons");
    }
    conduit.barrier()?;
    Ok(conduit.finish()?)
}

/// Compares the credits that each rank has lent with those that its peers hold. Repeats the
/// comparison until all ranks agree, because messages that carry credits may still be in flight.
/// Returns the number of comparisons.
fn agree(conduit: &Conduit<Seq>) -> Result<u32> {
    let (rank, size) = (conduit.rank(), conduit.size());
    let counter = size as usize * 8;
    for comparison in 1..=COMPARISONS {
        for peer in (0..size).filter(|peer| *peer != rank) {
            let lent = u64::from(conduit.lent_credits(peer)?);
            conduit.put(peer, rank as usize * 8, &lent)?;
        }
        conduit.barrier()?;
        let mut differ = 0;
        for lender in (0..size).filter(|lender| *lender != rank) {
            let lent = conduit.get_value(rank, lender as usize * 8, 8)?;
            differ += u64::from(lent != u64::from(conduit.send_credits(lender)?));
        }
        conduit.atomic(0, counter, AtomicOp::Add, differ)?;
        conduit.barrier()?;
        let differ = conduit.get_value(0, counter, 8)?;
        conduit.barrier()?;
        if differ == 0 {
            return Ok(comparison);
        }
        if rank == 0 {
            conduit.put(0, counter, &0u64)?;
        }
        conduit.barrier()?;
    }
    anyhow::bail!(
        "rank {rank}: the credits lent by other ranks differ from those that this rank has"
    )
}
