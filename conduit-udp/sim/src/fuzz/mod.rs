//! The fuzzer: feeds endpoints packets that no endpoint would make.
//!
//! In half of the sessions, every tag is accepted, so that inputs count as packets of a rank of the
//! job. The worst permitted result is that the endpoint gives up that rank as broken. In the other
//! half, tags are checked in the same way as by ranks, and inputs may change nothing but counters.
//! Inputs are made from packets of a real endpoint (module `mutate`). The seed and a session's
//! number determine the session.

mod mutate;
mod session;

use rayon::prelude::*;
use serde::Serialize;
use sim::{Failing, Progress, Tally, sweep};

/// The maximum number of inputs of a session.
const INPUTS: u64 = 4000;

/// The result of fuzzing.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Outcome {
    /// The number of packets fed to endpoints.
    pub inputs: u64,
    /// The number of sessions, each of which feeds packets to one endpoint.
    pub sessions: u64,
    /// The number of peers given up for protocol errors.
    pub broken: u64,
    /// The number of inputs accepted as packets of a peer.
    pub valid: u64,
    /// The maximum number of bytes that an endpoint had allocated.
    pub memory: i64,
    /// The numbers of the sessions with violations, each with its violation.
    pub failing: Failing,
}

impl Tally for Outcome {
    fn add(&mut self, others: Outcome) {
        self.inputs += others.inputs;
        self.sessions += others.sessions;
        self.broken += others.broken;
        self.valid += others.valid;
        self.memory = self.memory.max(others.memory);
        self.failing.extend(others.failing);
    }

    fn failing(&mut self) -> &mut Failing {
        &mut self.failing
    }
}

/// Repeats the session with the number `session`. Sessions with even numbers accept every tag.
pub fn replay(seed: u64, session: u64) -> Outcome {
    Outcome {
        sessions: 1,
        ..sessions(seed, session..session + 1, &Progress::hidden())
    }
}

/// Runs sessions until endpoints have received `inputs` inputs, half of them in sessions that
/// accept every tag. `progress` counts inputs.
pub fn run(inputs: u64, seed: u64, progress: &Progress) -> Outcome {
    progress.expect(inputs);
    let mut all = kind(inputs / 2, seed, 0, progress);
    all.add(kind(inputs - inputs / 2, seed, 1, progress));
    all
}

/// Runs either the even or the odd sessions.
fn kind(inputs: u64, seed: u64, first: u64, progress: &Progress) -> Outcome {
    let mut sum = Outcome::default();
    while sum.inputs < inputs {
        let count = ((inputs - sum.inputs) / INPUTS + 1).min(4096);
        let next = sum.sessions..sum.sessions + count;
        let numbers = next.into_par_iter().map(|number| 2 * number + first);
        sum.add(sessions(seed, numbers, progress));
        sum.sessions += count;
    }
    sum
}

fn sessions(
    seed: u64,
    numbers: impl IntoParallelIterator<Item = u64>,
    progress: &Progress,
) -> Outcome {
    sweep(numbers, progress, |session| {
        let outcome = session::run(seed, session, session % 2 == 1, INPUTS);
        progress.done(outcome.inputs);
        outcome
    })
}
