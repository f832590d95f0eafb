//! The hash of a machine's state, for model checkers.
//!
//! The hash omits constants such as the limits, statistics, and the order in which a table's free
//! slots are reused, because states that differ only in these behave alike.

use std::hash::{Hash, Hasher};

use super::AgentMachine;
use super::state::hash::{map, table};
use crate::host::Host;

impl<H: Host<Memory: Hash, Channel: Hash>> Hash for AgentMachine<H> {
    fn hash<S: Hasher>(&self, state: &mut S) {
        let Self {
            own: _,
            limits: _,
            now,
            nodes,
            by_host: _,
            by_rank,
            listed,
            expecting,
            credits,
            scale: _,
            share: _,
            client,
            service,
            bulk,
            stealing,
            sending,
            landing,
            arrived,
            joined,
            broken,
            outcomes,
            counters,
            random,
        } = self;
        map(by_rank, state);
        table(sending, state);
        table(landing, state);
        (now, nodes, listed, credits, client, service, bulk, stealing).hash(state);
        (arrived, joined, broken, outcomes, expecting).hash(state);
        (counters.protocol_errors, random.get_seed()).hash(state);
    }
}
