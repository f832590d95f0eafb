//! What came of a run.

use conduit_udp::protocol::{Counters, Failure, Nanos};
use serde::Serialize;

use crate::books::{Books, Violation};
use crate::network::Fates;

/// What came of a run.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// What must not be; a run without any has passed.
    pub violations: Vec<Violation>,
    /// Simulated time, in nanoseconds.
    pub time_ns: Nanos,
    /// Things that happened in it.
    pub events: u64,
    /// Fragments delivered.
    pub fragments: u64,
    /// Bytes of them, headers and payloads.
    pub bytes: u64,
    /// Bytes of payloads that have come, also of fragments that are not complete.
    pub placed: u64,
    /// What the network did to packets.
    pub network: Fates,
    /// The endpoints' counters, of all ranks.
    pub counters: Vec<(&'static str, u64)>,
    /// Peers that were given up.
    pub failures: Vec<GivenUp>,
    /// Most bytes that an endpoint had allocated.
    pub memory: i64,
}

/// A peer that was given up.
#[derive(Debug, Clone, Serialize)]
pub struct GivenUp {
    /// By this process.
    pub by: usize,
    /// This one.
    pub peer: usize,
    /// When, in nanoseconds.
    pub at: Nanos,
    /// Why.
    pub failure: String,
}

impl Report {
    pub(crate) fn new(
        time_ns: Nanos,
        events: u64,
        books: &Books,
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
            violations: books.violations.clone(),
            time_ns,
            events,
            fragments: books.delivered,
            bytes: books.delivered_bytes,
            placed: books.placed,
            network,
            counters: counters.each().collect(),
            failures: failures.into_iter().map(given_up).collect(),
            memory,
        }
    }

    /// Nothing was wrong.
    pub fn has_passed(&self) -> bool {
        self.violations.is_empty()
    }
}
