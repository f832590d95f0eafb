//! Packets that no endpoint would make, given to one.
//!
//! Half of the sessions accept every tag: whatever is said then is said by a rank of the job, and the worst that may come of
//! it is that this rank is given up as broken. In the others tags are checked as ranks do it; nothing but counters may change.
//! What is fed is made of packets that a real endpoint has sent (`mutate`). All of a session follows from the seed and
//! its number.

mod mutate;
mod session;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

use rayon::prelude::*;
use serde::Serialize;

/// Inputs of a session at most.
const INPUTS: u64 = 4000;
/// Failing sessions that are kept.
const KEPT: usize = 20;

/// What came of fuzzing.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Outcome {
    /// Packets given to endpoints.
    pub inputs: u64,
    /// Endpoints that got them.
    pub sessions: u64,
    /// Peers that were given up for breaking the protocol.
    pub broken: u64,
    /// Inputs that were taken as packets of a peer.
    pub valid: u64,
    /// Most bytes that an endpoint had allocated.
    pub memory: i64,
    /// Sessions with something that must not be, and what.
    pub failing: Vec<(u64, String)>,
}

impl Outcome {
    fn add(&mut self, other: Outcome) {
        self.inputs += other.inputs;
        self.sessions += other.sessions;
        self.broken += other.broken;
        self.valid += other.valid;
        self.memory = self.memory.max(other.memory);
        self.failing.extend(other.failing);
        self.failing.truncate(KEPT);
    }
}

/// One session again. `session`: its number; even ones accept every tag.
pub fn replay(seed: u64, session: u64) -> Outcome {
    catch_unwind(AssertUnwindSafe(|| {
        session::run(seed, session, session % 2 == 1, INPUTS)
    }))
    .unwrap_or_else(|_| Outcome {
        sessions: 1,
        failing: vec![(session, "it panicked".into())],
        ..Outcome::default()
    })
}

/// Sessions until endpoints have got so many inputs, half of them with valid tags. `progress` is told the number of those that came since the last call.
pub fn run(inputs: u64, seed: u64, progress: impl Fn(u64) + Sync) -> Outcome {
    let mut all = kind(inputs / 2, seed, 0, &progress);
    all.add(kind(inputs - inputs / 2, seed, 1, &progress));
    all
}

/// Even or odd sessions.
fn kind(inputs: u64, seed: u64, first: u64, progress: &(impl Fn(u64) + Sync)) -> Outcome {
    let sum = Mutex::new(Outcome::default());
    let mut next = 0;
    loop {
        let done = sum.lock().map_or(u64::MAX, |sum| sum.inputs);
        if done >= inputs {
            break;
        }
        let count = ((inputs - done) / INPUTS + 1).min(4096);
        (next..next + count).into_par_iter().for_each(|session| {
            let outcome = replay(seed, 2 * session + first);
            progress(outcome.inputs);
            if let Ok(mut sum) = sum.lock() {
                sum.add(outcome);
            }
        });
        next += count;
    }
    sum.into_inner()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}
