//! The result of a run.

use conduit_udp::protocol::{Counters, Failure, Nanos};
use serde::Serialize;

use crate::network::Fates;
use crate::oracle::{Oracle, Violation};

/// The result of a run.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The violations. A run without violations has passed.
    pub violations: Vec<Violation>,
    /// The simulated time, in nanoseconds.
    pub time_ns: Nanos,
    /// The number of events simulated.
    pub events: u64,
    /// The number of fragments delivered.
    pub fragments: u64,
    /// The number of bytes of the fragments delivered, with headers and payloads.
    pub bytes: u64,
    /// The number of payload bytes received, including those of incomplete fragments.
    pub placed: u64,
    /// The numbers of packets by fate.
    pub network: Fates,
    /// The endpoints' counters, summed over all ranks.
    pub counters: Vec<(&'static str, u64)>,
    /// The peers that were given up.
    pub failures: Vec<GivenUp>,
    /// The maximum number of bytes that an endpoint had allocated.
    pub memory: i64,
}

/// A peer that was given up.
#[derive(Debug, Clone, Serialize)]
pub struct GivenUp {
    /// The process that gave up the peer.
    pub by: usize,
    /// The process that was given up.
    pub peer: usize,
    /// When the peer was given up, in nanoseconds.
    pub at: Nanos,
    /// Why the peer was given up.
    pub failure: String,
}

impl Report {
    pub(crate) fn new(
        time_ns: Nanos,
        events: u64,
        oracle: &Oracle,
        network: Fates,
        counters: Counters,
        failures: Vec<(usize, usize, Nanos, Failure)>,
        memory: i64,
    ) -> Self {
        let given_up = |(by, peer, at, failure): (usize, usize, Nanos, Failure)| GivenUp {
            by,
            peer,
            at,
            failure: failure.to_string(),
        };
        Self {
            violations: oracle.violations.clone(),
            time_ns,
            events,
            fragments: oracle.delivered,
            bytes: oracle.delivered_bytes,
            placed: oracle.placed,
            network,
            counters: counters.each().collect(),
            failures: failures.into_iter().map(given_up).collect(),
            memory,
        }
    }

    /// Returns whether there were no violations.
    pub fn has_passed(&self) -> bool {
        self.violations.is_empty()
    }
}
