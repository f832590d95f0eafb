//! A program in which several threads of each rank communicate at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use anyhow::{Result, ensure};
use conduit::{AtomicOp, Conduit, Handlers, Par, Short};

use super::{SHARE, pattern, same};

const THREADS: u32 = 4;
const ROUNDS: u32 = 300;

/// Several threads of each rank put, get, send requests, add to counters and poll at once.
pub(super) fn all_at_once() -> Result<()> {
    let mut handlers = Handlers::<Par>::new();
    let (requests, replies) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let reply = handlers.short({
        let replies = replies.clone();
        move |_, (_,): (u32,)| {
            replies.fetch_add(1, Relaxed);
        }
    });
    let request = handlers.short({
        let requests = requests.clone();
        move |call, (number,): (u32,)| {
            requests.fetch_add(1, Relaxed);
            if number % 2 == 0 {
                call.reply(reply, (number,))
                    .expect("the first reply to a request");
            }
        }
    });
    let job = conduit::start_as::<Par>()?;
    // The segment has a share for each thread of each rank, and one more for counters.
    let bytes = (job.size() * THREADS + 1) as usize * SHARE;
    let conduit = job.attach(handlers, bytes)?;
    let results: Vec<Result<()>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let conduit = &conduit;
                scope.spawn(move || one(conduit, thread, request))
            })
            .collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        joined
            .map(|result| result.unwrap_or_else(|_| Err(anyhow::anyhow!("a thread panicked"))))
            .collect()
    });
    results.into_iter().collect::<Result<()>>()?;
    let sent = u64::from(conduit.size() * THREADS * ROUNDS);
    conduit.wait_until(|| requests.load(Relaxed) == sent && replies.load(Relaxed) == sent / 2)?;
    conduit.barrier()?;
    let counted = conduit.get_value(conduit.rank(), counters(&conduit), 8)?;
    ensure!(counted == sent, "{counted} counted, {sent} sent");
    Ok(conduit.finish()?)
}

fn counters(conduit: &Conduit<Par>) -> usize {
    (conduit.size() * THREADS) as usize * SHARE
}

fn one(conduit: &Conduit<Par>, thread: u32, request: Short<(u32,)>) -> Result<()> {
    let (rank, size) = (conduit.rank(), conduit.size());
    let at = (rank * THREADS + thread) as usize * SHARE;
    for round in 0..ROUNDS {
        for to in 0..size {
            let bytes = pattern(round * THREADS + thread, to, 1500);
            let handle = conduit.put_nb(to, at, &bytes[..700])?;
            conduit.put_nbi(to, at + 700, &bytes[700..])?;
            conduit.request(to, request, (round,))?;
            conduit.atomic(to, counters(conduit), AtomicOp::Add, 1u64)?;
            conduit.wait(handle)?;
            conduit.wait_puts()?;
            let mut got = vec![0; 1500];
            conduit.scope(|scope| scope.get(&mut got[..], to, at))?;
            same("get", &got, &bytes)?;
        }
        conduit.poll()?;
    }
    Ok(())
}
