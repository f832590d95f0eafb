//! A rank of a job that runs a pattern.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use conduit::Handlers;
use serde::{Deserialize, Serialize};

use super::super::median;
use super::{Pattern, Policy};
use crate::job::tell;
use crate::placement::{Cores, Placement};

/// The parameters of a job.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Work {
    pub(super) pattern: Pattern,
    pub(super) policy: Policy,
    pub(super) rotations: u32,
    /// The number of steps in which the credits have time to move. The measured steps follow.
    pub(super) warm: u32,
    pub(super) measured: u32,
    /// The number of full mediums to each partner in a step.
    pub(super) messages: u32,
    /// Whether each rank is pinned to one core.
    pub(super) pinned: bool,
}

/// The result of a job.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Found {
    /// The number of mediums per second of all ranks together, as the median of the measured steps.
    pub(super) rate: f64,
    /// The number of mediums per second of all ranks together, as the median of the rotations'
    /// first steps.
    pub(super) first_rate: f64,
    /// The average number of credits that a rank has lent to a peer that sends to it, at the ends
    /// of rotations. It is `None` without flow control.
    pub(super) active: Option<f64>,
    /// The average number of credits lent to a peer that does not send to the rank.
    pub(super) idle: Option<f64>,
    /// The number of stalls per 1,000 requests while credits may move, and in the measured steps.
    pub(super) stalls: [f64; 2],
    /// The number of credits revoked per 1,000 requests while credits may move, and in the measured
    /// steps.
    pub(super) revoked: [f64; 2],
}

/// One rank's counts, which it sends to rank 0. They are the number of credits lent to peers that
/// send to the rank and the number of these peers; the same two numbers for the other peers; the
/// numbers of stalls and of revoked credits while credits may move; and these two numbers in the
/// measured steps.
type Counts = (u32, u32, u32, u32, u32, u32, u32, u32);

/// Runs a rank of the pattern. Rank 0 reports the result.
pub(crate) fn run(work: &Work) -> anyhow::Result<()> {
    let job = conduit::start()?;
    let mut handlers = Handlers::new();
    let received = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&received);
    let medium = handlers.medium(move |_, (), _: &[u8]| {
        // The addition need not be locked, because only one thread runs handlers.
        seen.store(seen.load(Relaxed) + 1, Relaxed);
    });
    let sums = Arc::new(std::sync::Mutex::new((0, [0u64; 8])));
    let collected = Arc::clone(&sums);
    let report = handlers.short(move |_, (a, b, c, d, e, f, g, h): Counts| {
        // The lock is never poisoned, because no code panics while it holds the lock.
        if let Ok(mut sums) = collected.lock() {
            sums.0 += 1;
            for (sum, value) in sums.1.iter_mut().zip([a, b, c, d, e, f, g, h]) {
                *sum += u64::from(value);
            }
        }
    });
    let conduit = job.attach(handlers, 0)?;
    let (rank, ranks) = (conduit.rank(), conduit.size());
    if work.pinned {
        let cores = Cores::allowed()?;
        cores.pin(cores.core(Placement::Dealt, rank as usize, ranks as usize)?)?;
    }
    let payload = vec![7u8; conduit.max_medium()];
    let mut expected = 0;
    let mut slow = 0.0;
    let mut fast = Vec::with_capacity((work.rotations * work.measured) as usize);
    let mut lent = [(0u32, 0u32); 2];
    let mut phases = [(0, 0); 2];
    for rotation in 0..work.rotations {
        let partners = work.pattern.partners(rank, ranks, rotation);
        let arriving = work.pattern.senders(rank, ranks, rotation) * u64::from(work.messages);
        let mut before = counts(&conduit)?;
        for step in 0..work.warm + work.measured {
            if step == work.warm {
                add(&mut phases[0], &mut before, &conduit)?;
            }
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
                fast.push(seconds);
            }
        }
        add(&mut phases[1], &mut before, &conduit)?;
        for peer in (0..ranks).filter(|&peer| peer != rank) {
            let active = work.pattern.partners(peer, ranks, rotation).contains(&rank);
            let (credits, peers) = &mut lent[usize::from(active)];
            *credits = credits.saturating_add(conduit.lent_credits(peer)?);
            *peers += 1;
        }
    }
    let narrow = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
    let [(idle, idle_peers), (active, active_peers)] = lent;
    let [(stalls, revoked), (late_stalls, late_revoked)] = phases;
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
            narrow(late_stalls),
            narrow(late_revoked),
        ),
    )?;
    conduit.wait_until(|| rank != 0 || sums.lock().is_ok_and(|sums| sums.0 == ranks))?;
    conduit.barrier()?;
    let sums = sums
        .lock()
        .map_or([0; 8], |sums| sums.1)
        .map(|sum| sum as f64);
    conduit.finish()?;
    if rank != 0 {
        return Ok(());
    }
    let limited = work.policy != Policy::Unlimited;
    let of_a_step: usize = (0..ranks)
        .map(|rank| work.pattern.partners(rank, ranks, 0).len())
        .sum();
    let of_a_step = of_a_step as f64 * f64::from(work.messages);
    let rotations = f64::from(work.rotations);
    let per_1000 =
        |count: f64, steps: u32| count * 1000.0 / (of_a_step * rotations * f64::from(steps));
    tell(&Found {
        rate: of_a_step / median(&fast),
        first_rate: of_a_step * rotations / slow,
        active: limited.then_some(sums[0] / sums[1].max(1.0)),
        idle: limited.then_some(sums[2] / sums[3].max(1.0)),
        stalls: [
            per_1000(sums[4], work.warm),
            per_1000(sums[6], work.measured),
        ],
        revoked: [
            per_1000(sums[5], work.warm),
            per_1000(sums[7], work.measured),
        ],
    })
}

/// Returns the numbers of stalls and of revoked credits so far, summed over all peers.
fn counts(conduit: &conduit::Conduit) -> conduit::Result<(u64, u64)> {
    let mut sums = (0, 0);
    for peer in 0..conduit.size() {
        sums.0 += conduit.credit_stalls(peer)?;
        sums.1 += conduit.revoked_credits(peer)?;
    }
    Ok(sums)
}

/// Adds the counts since `before` to `sums`, and updates `before`.
fn add(
    sums: &mut (u64, u64),
    before: &mut (u64, u64),
    conduit: &conduit::Conduit,
) -> conduit::Result<()> {
    let now = counts(conduit)?;
    sums.0 += now.0 - before.0;
    sums.1 += now.1 - before.1;
    *before = now;
    Ok(())
}
