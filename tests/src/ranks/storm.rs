//! A program that runs all operations at once until a rank dies.

use anyhow::{Result, bail};
use conduit::{AtomicOp, Handlers, threads::Mode};

use super::{SHARE, attached};

/// Runs puts, gets, requests, atomics and barriers in an order drawn from a seed, or operations of
/// only one kind if `only` names it. Never returns.
pub(super) fn storm<M: Mode>(only: &str) -> Result<()> {
    let mut handlers = Handlers::<M>::new();
    let reply = handlers.any_mode().medium(|_, (), _: &[u8]| {});
    let request = handlers
        .any_mode()
        .medium(move |call, (answer,): (u32,), bytes: &[u8]| {
            if answer == 1 {
                // If the reply fails, the job ends, and the next call reports that.
                let _ = call.reply_medium(reply, (), bytes);
            }
        });
    let conduit = attached(handlers)?;
    let (rank, size) = (conduit.rank(), conduit.size());
    let mut random = fastrand::Rng::with_seed(u64::from(rank));
    let payload = vec![7; conduit.max_medium().max(SHARE)];
    let at = rank as usize * SHARE;
    println!("ready");
    loop {
        let what = match only {
            "puts" => 0,
            "flood" => 1,
            "barriers" => 2,
            "quiesce" => [1, 5][random.usize(..2)],
            "all" => random.u8(0..5),
            other => bail!("unknown kind of storm {other}"),
        };
        let to = random.u32(..size);
        let len = random.usize(..SHARE);
        match what {
            0 => conduit.put(to, at, &payload[..len])?,
            1 => {
                let len = len.min(conduit.max_medium());
                conduit.request_medium(to, request, (random.u32(..2),), &payload[..len])?;
            }
            2 => conduit.barrier()?,
            5 => conduit.quiesce()?,
            3 => {
                let mut got = vec![0u8; len];
                conduit.get(&mut got[..], to, at)?;
            }
            _ => conduit.atomic(to, at, AtomicOp::Add, 1u64)?,
        }
        if only == "puts" {
            conduit.poll()?;
        }
    }
}
