//! A rank of a job that runs a pattern.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use conduit::Handlers;
use serde::{Deserialize, Serialize};

use super::{Pattern, Policy};

/// What a job does.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Work {
    pub(super) pattern: Pattern,
    pub(super) policy: Policy,
    pub(super) rotations: u32,
    /// Steps until the credits have had time to move, and then so many that are measured.
    pub(super) warm: u32,
    pub(super) measured: u32,
    /// Full mediums to each partner in a step.
    pub(super) messages: u32,
}

/// What a job has found.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Found {
    /// Mediums per second of all ranks together in the measured steps of all rotations.
    pub(super) rate: f64,
    /// The same in the first step of the rotations.
    pub(super) first_rate: f64,
    /// Credits that a rank has lent to a peer which sends to it, on average at the ends of rotations.
    pub(super) active: f64,
    /// And to one that does not.
    pub(super) idle: f64,
    /// Stalls per 1,000 requests.
    pub(super) stalls: f64,
    /// Credits taken back per 1,000 requests.
    pub(super) revoked: f64,
}

/// Sums over all ranks, sent to rank 0.
type Sums = (u32, u32, u32, u32, u32, u32);

/// Runs the pattern; rank 0 gives what was found.
pub(super) fn run(work: &Work) -> conduit::Result<Option<Found>> {
    let job = conduit::start()?;
    let mut handlers = Handlers::new();
    let received = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&received);
    let medium = handlers.medium(move |_, (), _: &[u8]| {
        // One thread runs handlers: no need for a locked addition.
        seen.store(seen.load(Relaxed) + 1, Relaxed);
    });
    let sums = Arc::new(std::sync::Mutex::new((0, [0u64; 6])));
    let collected = Arc::clone(&sums);
    let report = handlers.short(move |_, (a, b, c, d, e, f): Sums| {
        // Nobody panics while the lock is held.
        if let Ok(mut sums) = collected.lock() {
            sums.0 += 1;
            for (sum, value) in sums.1.iter_mut().zip([a, b, c, d, e, f]) {
                *sum += u64::from(value);
            }
        }
    });
    let conduit = job.attach(handlers, 0)?;
    let (rank, ranks) = (conduit.rank(), conduit.size());
    let payload = vec![7u8; conduit.max_medium()];
    let mut expected = 0;
    let (mut slow, mut fast) = (0.0, 0.0);
    let mut lent = [(0u32, 0u32); 2];
    for rotation in 0..work.rotations {
        let partners = work.pattern.partners(rank, ranks, rotation);
        let arriving = work.pattern.senders(rank, ranks, rotation) * u64::from(work.messages);
        for step in 0..work.warm + work.measured {
            conduit.barrier()?;
            let start = Instant::now();
            for _ in 0..work.messages {
                for &partner in &partners {
                    conduit.request_medium(partner, medium, (), &payload)?;
                }
            }
            expected += arriving;
            conduit.wait_until(|| received.load(Relaxed) == expected)?;
            conduit.barrier()?;
            let seconds = start.elapsed().as_secs_f64();
            if step == 0 {
                slow += seconds;
            } else if step >= work.warm {
                fast += seconds;
            }
        }
        for peer in (0..ranks).filter(|&peer| peer != rank) {
            let active = work.pattern.partners(peer, ranks, rotation).contains(&rank);
            let (credits, peers) = &mut lent[usize::from(active)];
            *credits = credits.saturating_add(conduit.lent_credits(peer)?);
            *peers += 1;
        }
    }
    let (mut stalls, mut revoked) = (0, 0);
    for peer in 0..ranks {
        stalls += conduit.credit_stalls(peer)?;
        revoked += conduit.revoked_credits(peer)?;
    }
    let narrow = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
    let [(idle, idle_peers), (active, active_peers)] = lent;
    conduit.request(
        0,
        report,
        (
            active,
            active_peers,
            idle,
            idle_peers,
            narrow(stalls),
            narrow(revoked),
        ),
    )?;
    conduit.wait_until(|| rank != 0 || sums.lock().is_ok_and(|sums| sums.0 == ranks))?;
    conduit.barrier()?;
    let sums = sums
        .lock()
        .map_or([0; 6], |sums| sums.1)
        .map(|sum| sum as f64);
    conduit.finish()?;
    if rank != 0 {
        return Ok(None);
    }
    let of_a_step: usize = (0..ranks)
        .map(|rank| work.pattern.partners(rank, ranks, 0).len())
        .sum();
    let of_a_step = of_a_step as f64 * f64::from(work.messages);
    let rotations = f64::from(work.rotations);
    let all = of_a_step * rotations * f64::from(work.warm + work.measured);
    Ok(Some(Found {
        rate: of_a_step * rotations * f64::from(work.measured) / fast,
        first_rate: of_a_step * rotations / slow,
        active: sums[0] / sums[1].max(1.0),
        idle: sums[2] / sums[3].max(1.0),
        stalls: sums[4] / all * 1000.0,
        revoked: sums[5] / all * 1000.0,
    }))
}
