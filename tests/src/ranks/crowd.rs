//! Programs for many ranks on several hosts: barriers, messages between all ranks, a flood from all
//! ranks to one, and sustained work.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use conduit::{AtomicOp, Handlers, Seq};

use super::{attached, pattern, same};

/// The number of shorts that each rank sends to each rank.
const TO_ALL: u64 = 20;
/// The number of mediums that each rank sends to the first rank.
const TO_ONE: u64 = 400;
/// The payload bytes of a medium to the first rank.
const LENGTH: usize = 4096;
const BARRIERS: u32 = 20;

/// Returns this process's peak memory in KiB.
fn peak() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = line.and_then(|line| line.trim().strip_suffix("kB"));
    Ok(number.context("VmHWM")?.trim().parse()?)
}

/// The number and the sum of the messages received.
#[derive(Debug, Default)]
struct Come {
    messages: AtomicU64,
    sum: AtomicU64,
}

impl Come {
    fn add(&self, value: u64) {
        self.messages.fetch_add(1, Relaxed);
        self.sum.fetch_add(value, Relaxed);
    }
}

/// Runs barriers, messages from all ranks to all, and messages from all ranks to the first. The
/// first rank prints how much memory the ranks used.
pub(super) fn crowd() -> Result<()> {
    let (shorts, mediums) = (Arc::new(Come::default()), Arc::new(Come::default()));
    let mut handlers = Handlers::<Seq>::new();
    let short = handlers.short({
        let come = Arc::clone(&shorts);
        move |_, (value,): (u64,)| come.add(value)
    });
    let medium = handlers.medium({
        let come = Arc::clone(&mediums);
        move |_, (value,): (u64,), bytes: &[u8]| come.add(value * u64::from(bytes.len() == LENGTH))
    });
    let conduit = attached(handlers)?;
    let (rank, size) = (conduit.rank(), conduit.size());
    for _ in 0..BARRIERS {
        conduit.barrier()?;
    }
    for number in 0..TO_ALL {
        for peer in 0..size {
            conduit.request((rank + peer) % size, short, (u64::from(rank) + number,))?;
        }
    }
    let ranks = u64::from(size);
    let all = ranks * TO_ALL;
    conduit.wait_until(|| shorts.messages.load(Relaxed) == all)?;
    let expected = ranks * (TO_ALL * (TO_ALL - 1) / 2) + TO_ALL * (ranks * (ranks - 1) / 2);
    ensure!(
        shorts.sum.load(Relaxed) == expected,
        "wrong sum of the shorts"
    );
    conduit.barrier()?;
    let payload = vec![1; LENGTH];
    for number in 0..TO_ONE {
        conduit.request_medium(0, medium, (number,), &payload)?;
    }
    if rank == 0 {
        conduit.wait_until(|| mediums.messages.load(Relaxed) == ranks * TO_ONE)?;
        let expected = ranks * (TO_ONE * (TO_ONE - 1) / 2);
        ensure!(
            mediums.sum.load(Relaxed) == expected,
            "wrong sum of the mediums"
        );
    }
    conduit.barrier()?;
    ensure!(
        shorts.messages.load(Relaxed) == all,
        "more shorts arrived than were sent"
    );
    conduit.put(0, rank as usize * 8, &peak()?)?;
    conduit.barrier()?;
    if rank == 0 {
        let mut peaks = vec![0u64; size as usize];
        conduit.get(&mut peaks[..], 0, 0)?;
        let most = peaks.iter().max().copied().unwrap_or(0);
        println!(
            "memory: {} KiB on rank 0, {most} KiB at most, {} KiB in the mean",
            peaks[0],
            peaks.iter().sum::<u64>() / ranks
        );
    }
    Ok(conduit.finish()?)
}

/// Runs puts, gets and barriers between all ranks for this many milliseconds, and checks each of
/// them.
pub(super) fn steady(milliseconds: &str) -> Result<()> {
    let time = Duration::from_millis(milliseconds.parse().context("milliseconds")?);
    let conduit = attached(Handlers::<Seq>::new())?;
    let (rank, size) = (conduit.rank(), conduit.size());
    let (begun, mut rounds) = (Instant::now(), 0u64);
    // The word at `end`, behind the data, signals the end of the run.
    const BYTES: usize = 1000;
    let (at, end) = (rank as usize * 1024, size as usize * 1024);
    conduit.barrier()?;
    println!("ready");
    loop {
        for peer in 0..size {
            conduit.put(peer, at, &pattern(rank, peer, BYTES)[..])?;
        }
        conduit.atomic(0, end + 8, AtomicOp::Add, 1u64)?;
        if rank == 0 && begun.elapsed() > time {
            for peer in 0..size {
                conduit.put(peer, end, &1u64)?;
            }
        }
        conduit.barrier()?;
        rounds += 1;
        let mut found = vec![0; BYTES];
        for peer in 0..size {
            conduit.get(&mut found[..], peer, at)?;
            same("the bytes put", &found, &pattern(rank, peer, BYTES))?;
        }
        let mut over = 0u64;
        conduit.get(&mut over, rank, end)?;
        conduit.barrier()?;
        if over == 1 {
            break;
        }
    }
    if rank == 0 {
        let mut counted = 0u64;
        conduit.get(&mut counted, 0, end + 8)?;
        ensure!(
            counted == rounds * u64::from(size),
            "an atomic was lost or applied twice"
        );
        println!("{rounds} rounds");
    }
    conduit.barrier()?;
    Ok(conduit.finish()?)
}
